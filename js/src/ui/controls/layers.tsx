/**
 * Control for the layer: a row of buttons, one for each layer. A slider replaces the buttons if
 * there are more than `MAX_BUTTONS` layers, or if the buttons do not fit on two lines.
 */

import { StepSlider } from "./fields";

const BUTTON = 38;
const MAX_BUTTONS = 24;

export function Layers(props: {
  layers: readonly number[];
  layer: number;
  /** Width of the view's content in pixels. */
  width: number;
  onChange: (layer: number) => void;
}) {
  const { layers, layer, width, onChange } = props;
  const fit = layers.length <= MAX_BUTTONS && layers.length * BUTTON <= width * 2;
  return (
    <fieldset class="av-row av-layers" aria-label="Layer">
      <span class="av-label">Layer</span>
      {fit ? (
        <div class="av-wrapping av-steps">
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
            value={layers.indexOf(layer)}
            onChange={(at) => onChange(layers[at] ?? layer)}
          />
          <output class="av-step av-now">{layer}</output>
          <span class="av-muted">
            of {layers[0]} to {layers.at(-1)}
          </span>
        </div>
      )}
    </fieldset>
  );
}
