/** Grid of all heads. */

import type { Signal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { paintMarks } from "../../draw/canvas";
import type { ScoredHead } from "../../ui/head-grid/grid";
import { VirtualHeadGrid } from "../../ui/head-grid/head-grid";
import { cellInWords, headTitle, sortedValue } from "./captions";
import type { AtlasProps } from "./controls";
import { hasCaptions } from "./layout";
import { cellMarks } from "./marks";

interface GridProps extends AtlasProps {
  /** Drawn stack and layer, such as "self:3", or null until all visible cells are painted. */
  drawn: Signal<string | null>;
}

export function AtlasGrid({ context, store, drawn }: GridProps) {
  const box = useRef<HTMLDivElement>(null);
  const [table, grid, layout] = [store.table.value, store.grid.value, store.layout.value];
  const coloring = store.coloring.value;
  if (!table || !grid || !layout || !coloring) return null;
  const palette = context.palette.value;
  const [role, current] = [store.role.value, store.head.value];
  const color = context.state.color.value;
  const result = store.result.value;
  const words = (layer: number, head: number): string => {
    // While a search runs, show 0 of 0 edges for heads whose edges are not counted yet.
    const count = result ? (result.of(layer, head) ?? { numFound: 0, numTotal: 0 }) : null;
    return cellInWords(table, color, count, { layer, head });
  };
  const stepsBack = (layer: number, head: number): boolean =>
    role !== undefined &&
    coloring.legend.kind === "roles" &&
    (table.roles(layer, head)[0]?.role ?? null) !== role;
  const few = hasCaptions(grid.shown);
  return (
    <VirtualHeadGrid
      store={store.heads}
      box={box}
      label={
        grid.columns
          ? "Heads of all layers"
          : `Heads of all layers, ${grid.score === "role" ? "those of the rarest role first" : `the highest ${grid.score} first`}`
      }
      corner="head"
      sparse={!few}
      look={({ layer, head }) => ({
        label: `${headTitle({ layer, head })}: ${words(layer, head)}`,
        selected: layer === current?.layer && head === current.head,
      })}
      {...(!grid.columns &&
        few && {
          below: (cell: ScoredHead, x: number) => (
            <div
              class="av-atlas-caption"
              aria-hidden="true"
              style={`left:${x + layout.cell / 2}px;top:${layout.cell + 2}px`}
            >
              {cell.layer}.{cell.head}
              <b>{sortedValue(cell)}</b>
            </div>
          ),
        })}
      hint={(cell) => ({
        title: headTitle(cell),
        rows: [{ color: "", text: words(cell.layer, cell.head), meant: false }],
      })}
      painting={{
        follows: [store.coloring, store.role, context.palette],
        // `role` may be undefined. Convert it to a string, because an undefined source would mean
        // that data is still loading.
        sources: () => [coloring, String(role), palette, grid],
        paint: (canvas, cells) => {
          cells.forEach((headCell, at) => {
            if (!headCell) return;
            const look = coloring.of(headCell.layer, headCell.head);
            const dim = stepsBack(headCell.layer, headCell.head);
            paintMarks(canvas, cellMarks(look, at * layout.across, 0, layout.cell, palette, dim));
          });
        },
        onPainted: (complete) => {
          drawn.value = complete && current ? `${grid.stack}:${current.layer}` : null;
        },
      }}
      open={store.choose}
      onMove={store.choose}
    />
  );
}
