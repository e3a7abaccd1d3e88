/**
 * Control for the layer: a row of buttons, one for each layer. A slider replaces the buttons if
 * there are more than `MAX_BUTTONS` layers, or if the buttons do not fit on two lines.
 */

import type { ModelLayer } from "../view/model-layers";
import { StepSlider } from "./fields";

const BUTTON = 38;
const MAX_BUTTONS = 24;

/** Mark of linear layers: the two colours of their signed weights. */
export function LinearMark() {
  return <span class="av-linear-mark" aria-hidden="true" />;
}

/** Return "Layer 3", or "Layer 0, linear". */
function labelOf({ layer, kind }: ModelLayer): string {
  return `Layer ${layer}${kind && `, ${kind}`}`;
}

export function Layers(props: {
  layers: readonly ModelLayer[];
  layer: ModelLayer;
  /** Width of the view's content in pixels. */
  width: number;
  onChange: (layer: ModelLayer) => void;
}) {
  const { layers, layer, width, onChange } = props;
  const fit = layers.length <= MAX_BUTTONS && layers.length * BUTTON <= width * 2;
  const kinds = [...new Set(layers.map(({ kind }) => kind).filter(Boolean))].join(", ");
  return (
    <fieldset class="av-row av-layers" aria-label="Layer">
      <span class="av-label">Layer</span>
      {fit ? (
        <div class="av-wrapping av-steps">
          {layers.map((item) => (
            <button
              type="button"
              key={labelOf(item)}
              class="av-step"
              aria-pressed={item === layer}
              aria-label={labelOf(item)}
              title={item.kind ? labelOf(item) : undefined}
              onClick={() => onChange(item)}
            >
              {item.layer}
              {item.kind && <LinearMark />}
            </button>
          ))}
          {kinds && (
            <span class="av-muted av-kinds">
              <LinearMark /> {kinds}
            </span>
          )}
        </div>
      ) : (
        <div class="av-slide">
          <StepSlider
            label="Layer"
            valueText={labelOf(layer)}
            back="Previous layer"
            on="Next layer"
            max={layers.length - 1}
            value={layers.indexOf(layer)}
            onChange={(at) => onChange(layers[at] ?? layer)}
          />
          <output class="av-step av-now">
            {layer.layer}
            {layer.kind && <LinearMark />}
          </output>
          <span class="av-muted">
            of {layers[0]?.layer} to {layers.at(-1)?.layer}
            {layer.kind && ` · ${layer.kind}`}
          </span>
        </div>
      )}
    </fieldset>
  );
}
