/** Legend of the points' colours and shapes, or of the mean weights. */

import { ColorLegend } from "../../ui/colors/legend";
import { counted } from "../../ui/text/captions";
import { type LegendEntry, legendEntries } from "./colors";
import { meanScale } from "./mean/marks";
import { pictureOf } from "./state";
import type { EmbeddingProps } from "./store";

export function EmbeddingLegend({ context, store }: EmbeddingProps) {
  const { state, palette } = context;
  const colors = store.colors.value;
  if (pictureOf(state) === "mean") return <MeanLegend context={context} store={store} />;
  if (!colors) return null;
  const entries = legendEntries(colors, state.points.value, palette.value);
  const shapes = entries.filter(({ shape }) => shape !== "patch");
  const patches = entries.filter(({ shape }) => shape === "patch");
  return (
    <div class="av-vertical av-embedding-legend">
      <Entries label="Shapes" entries={shapes} />
      {colors.scale && <ColorLegend scale={colors.scale} />}
      <Entries label={`Colours: ${colors.name}`} entries={patches} />
    </div>
  );
}

function Entries({ label: name, entries }: { label: string; entries: LegendEntry[] }) {
  if (entries.length === 0) return null;
  return (
    <ul class="av-wrapping" aria-label={name}>
      {entries.map(({ label, color, count, shape }) => (
        <li key={label}>
          <span class={`av-${shape}`} style={{ background: color }} />
          <span class="av-legend-label" title={label}>
            {label}
          </span>
          {count !== null && <span class="av-muted">{counted(count)}</span>}
        </li>
      ))}
    </ul>
  );
}

/** Colour scale of mean weights, with a switch between linear and logarithmic. */
function MeanLegend({ context, store }: EmbeddingProps) {
  const { mean } = store;
  const map = mean.mapAt(context.width.value);
  if (!map) return null;
  return (
    <ColorLegend
      scale={meanScale(map)}
      toggle={{
        label: "logarithmic",
        title: "On: logarithmic scale, which shows small weights. Off: linear scale.",
        on: map.scale === "log",
        onChange: () => {
          mean.scale.value = map.scale === "linear" ? "log" : "linear";
        },
      }}
    />
  );
}
