/** Legend of the points' colours and shapes. */

import { ColorLegend } from "../../ui/colors/legend";
import { counted } from "../../ui/text/captions";
import { type LegendEntry, legendEntries } from "./colors";
import type { EmbeddingProps } from "./store";

export function EmbeddingLegend({ context, store }: EmbeddingProps) {
  const { state, palette } = context;
  const colors = store.colors.value;
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
          {label}
          {count !== null && <span class="av-muted">{counted(count)}</span>}
        </li>
      ))}
    </ul>
  );
}
