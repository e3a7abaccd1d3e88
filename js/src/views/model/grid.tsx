/** Grid of thumbnails of all heads. In a gallery, heads are ordered by a score. */

import { headColor } from "../../ui/colors/palette";
import { VirtualHeadGrid } from "../../ui/head-grid/head-grid";
import type { ViewContext } from "../../ui/view/define-view";
import { headLabel, hintOf, orderName } from "./captions";
import { headMarks } from "./marks";
import type { ModelState } from "./state";
import type { ModelStore } from "./store";

interface GridProps {
  context: ViewContext<ModelState>;
  store: ModelStore;
}

export function ModelGrid({ context, store }: GridProps) {
  const grid = store.grid.value;
  const layout = store.layout.value;
  if (!grid || !layout) return null;
  const selection = store.selection.value;
  const palette = context.palette.value;
  const chosen = selection?.chosen ?? [];
  const effects = store.effects.value;
  return (
    <VirtualHeadGrid
      store={store.heads}
      label={
        grid.columns
          ? "Layers and their heads"
          : `Heads of all layers by ${grid.score}, ${orderName(store, grid)}`
      }
      corner="head"
      look={(cell, shownGrid) => {
        const isShown = selection?.layer === cell.layer && store.stackOf(cell) === selection.stack;
        const index = isShown ? chosen.indexOf(cell.head) : -1;
        return {
          label: headLabel(store, cell, shownGrid),
          selected: index >= 0,
          style: index < 0 ? "" : `;--av-chosen:${headColor(palette, index, chosen.length)}`,
        };
      }}
      hint={(cell, shownGrid) => hintOf(store, cell, shownGrid)}
      painting={{
        follows: [store.mapSets, store.drawnId, store.arrivals],
        sources: (cells) => [
          ...cells.flatMap((cell) =>
            cell ? [store.map(cell), cell.score, effects?.of(cell).value ?? null] : [],
          ),
          ...[palette, context.state.thumbnails.value, String(store.outlinedRow.value)],
          ...[effects?.end ?? null, JSON.stringify(store.roleSigns.value)],
        ],
        marks: headMarks(context, store, grid, layout, store.map),
        onPainted: (complete) => {
          store.gridDrawn.value = complete ? store.drawnId.peek() : null;
        },
      }}
      open={store.open}
      onMove={(head) => {
        // If a head is open, the arrow keys open the head that they move to.
        if (store.showsDetail.peek()) store.moveTo(head);
      }}
      actions={{
        Escape: () => {
          if (!store.opened.peek()) return false;
          store.close();
          return true;
        },
      }}
      layer={selection?.layer}
      scrollAgain={JSON.stringify(layout)}
    />
  );
}
