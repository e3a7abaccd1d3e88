/** Grid of all heads. The colour of a cell shows the role or a number of the head. */

import type { Signal } from "@preact/signals";
import { type HeadIndex, isSameHead } from "../../ui/head-grid/grid";
import { VirtualHeadGrid } from "../../ui/head-grid/head-grid";
import { headTitle } from "./captions";
import { tableFor } from "./client/atlas";
import type { AtlasProps } from "./controls";
import { hasCaptions } from "./layout";
import { headMarks } from "./marks";

interface GridProps extends AtlasProps {
  /** Drawn stack and layer, such as "self:3", or null until all visible cells are painted. */
  drawn: Signal<string | null>;
}

export function AtlasGrid({ context, store, drawn }: GridProps) {
  const [tables, grid, layout] = [store.tables.value, store.grid.value, store.layout.value];
  const coloring = store.coloring.value;
  if (!tables || !grid || !layout || !coloring) return null;
  const palette = context.palette.value;
  const current = store.head.value;
  const titleOf = (head: HeadIndex): string => headTitle(head, tableFor(tables, head).stack);
  const few = hasCaptions(grid.shown);
  const first = grid.score === "role" ? "those of the rarest role" : `the highest ${grid.score}`;
  return (
    <VirtualHeadGrid
      store={store.heads}
      label={`Heads of all layers${grid.columns ? "" : `, ${first} first`}`}
      corner="head"
      sparse={!few}
      look={(head) => ({
        label: `${titleOf(head)}: ${coloring.words(head)}`,
        selected: isSameHead(head, current),
      })}
      hint={(head) => ({ title: titleOf(head), rows: [{ text: coloring.words(head) }] })}
      painting={{
        follows: [store.coloring, context.palette],
        sources: () => [coloring, palette, grid],
        marks: (head, square) => headMarks(head, coloring.of(head), square, layout.below, palette),
        onPainted: (complete) => {
          drawn.value =
            complete && current ? `${current.stack ?? grid.stack}:${current.layer}` : null;
        },
      }}
      open={store.choose}
      onMove={store.choose}
    />
  );
}
