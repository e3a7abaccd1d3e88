/** Steps through the layers: a button for each where they fit, else a slider. */

export interface LayersProps {
  layers: readonly number[];
  layer: number;
  /** Pixels that the control may take. */
  width: number;
  onChange: (layer: number) => void;
}

const BUTTON = 38;
const MOST_BUTTONS = 24;

/** The layer `by` steps on, or the last one there is. */
export function stepLayer(layers: readonly number[], layer: number, by: number): number {
  const place = Math.max(0, Math.min(layers.length - 1, layers.indexOf(layer) + by));
  return layers[place] ?? layer;
}

export function Layers({ layers, layer, width, onChange }: LayersProps) {
  const fit = layers.length <= MOST_BUTTONS && layers.length * BUTTON <= width * 2;
  const place = layers.indexOf(layer);
  return (
    <fieldset class="av-row av-layers" aria-label="Layer">
      <span class="av-label">Layer</span>
      {fit ? (
        <div class="av-steps">
          {layers.map((each) => (
            <button
              type="button"
              key={each}
              class="av-step"
              aria-pressed={each === layer}
              aria-label={`Layer ${each}`}
              onClick={() => onChange(each)}
            >
              {each}
            </button>
          ))}
        </div>
      ) : (
        <div class="av-slide">
          <button
            type="button"
            class="av-step"
            aria-label="Previous layer"
            disabled={place <= 0}
            onClick={() => onChange(stepLayer(layers, layer, -1))}
          >
            ‹
          </button>
          <input
            type="range"
            aria-label="Layer"
            aria-valuetext={`Layer ${layer}`}
            min={0}
            max={layers.length - 1}
            step={1}
            value={place}
            onInput={(event) => onChange(layers[Number(event.currentTarget.value)] ?? layer)}
          />
          <button
            type="button"
            class="av-step"
            aria-label="Next layer"
            disabled={place >= layers.length - 1}
            onClick={() => onChange(stepLayer(layers, layer, 1))}
          >
            ›
          </button>
          <output class="av-step av-now">{layer}</output>
          <span class="av-muted">
            of {layers[0]} to {layers[layers.length - 1]}
          </span>
        </div>
      )}
    </fieldset>
  );
}
