/** Control for the layer: one button per layer if they fit, otherwise a slider. */

import { StepSlider } from "./fields";

export interface LayersProps {
  layers: readonly number[];
  layer: number;
  /** Available width in pixels. */
  width: number;
  onChange: (layer: number) => void;
}

const BUTTON = 38;
const MAX_BUTTONS = 24;

export function Layers({ layers, layer, width, onChange }: LayersProps) {
  const fit = layers.length <= MAX_BUTTONS && layers.length * BUTTON <= width * 2;
  const layerIndex = layers.indexOf(layer);
  return (
    <fieldset class="av-row av-layers" aria-label="Layer">
      <span class="av-label">Layer</span>
      {fit ? (
        <div class="av-steps">
          {layers.map((item) => (
            <button
              type="button"
              key={item}
              class="av-step"
              aria-pressed={item === layer}
              aria-label={`Layer ${item}`}
              onClick={() => onChange(item)}
            >
              {item}
            </button>
          ))}
        </div>
      ) : (
        <div class="av-slide">
          <StepSlider
            label="Layer"
            valueText={`Layer ${layer}`}
            back="Previous layer"
            on="Next layer"
            max={layers.length - 1}
            value={layerIndex}
            onChange={(at) => onChange(layers[at] ?? layer)}
          />
          <output class="av-step av-now">{layer}</output>
          <span class="av-muted">
            of {layers[0]} to {layers[layers.length - 1]}
          </span>
        </div>
      )}
    </fieldset>
  );
}
