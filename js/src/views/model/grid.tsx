/** Grid of thumbnails of all heads. In a gallery, heads are ordered by a score. */

import { headColor } from "../../ui/colors/palette";
import { EffectBar } from "../../ui/effects/bar";
import { mapInk } from "../../ui/head-grid/gates";
import type { HeadGrid, ScoredHead } from "../../ui/head-grid/grid";
import { VirtualHeadGrid } from "../../ui/head-grid/head-grid";
import { RoleLetter } from "../../ui/head-grid/head-roles";
import type { ViewContext } from "../../ui/view/define-view";
import { captionLines, headLabel, hintOf, orderName } from "./captions";
import { type Layout, MIN_NAMED } from "./layout";
import { paintRow } from "./marks";
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
  const thumbnails = context.state.thumbnails.value;
  const outlinedRow = store.outlinedRow.value;
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
          content: effects && (
            <EffectBar {...effects.of(cell)} end={effects.end} palette={palette} />
          ),
        };
      }}
      below={(cell, x) => <Below {...{ store, cell, x, grid, layout }} />}
      hint={(cell, shownGrid) => hintOf(store, cell, shownGrid)}
      painting={{
        follows: [store.mapSets, store.drawnId, store.arrivals],
        sources: (cells) => [
          ...cells.map((cell) => (cell ? store.map(cell) : null)),
          palette,
          thumbnails,
          String(outlinedRow),
        ],
        paint: (canvas, cells, scale) => {
          const maps = cells.map((cell) => (cell ? store.map(cell) : null));
          const inks = cells.map((cell) => {
            if (!cell) return palette.neutral;
            const stack = store.stackOf(cell);
            return mapInk(stack, cell, stack.signed ? palette : palette.neutral, palette);
          });
          paintRow(canvas, maps, scale, { layout, thumbnails, palette, inks, outlinedRow });
        },
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

/**
 * Text below a thumbnail: its caption in a gallery, otherwise the role of the head. Screen readers
 * get this text from the label of the cell.
 */
function Below(props: {
  store: ModelStore;
  cell: ScoredHead;
  /** Left edge of the thumbnail in pixels. */
  x: number;
  grid: HeadGrid;
  layout: Layout;
}) {
  const { store, cell, x, grid, layout } = props;
  const role = store.roleOf(cell);
  const sign = store.signOf(role);
  const letter = sign && <RoleLetter {...sign} />;
  const bottom = layout.cell + layout.bars;
  if (grid.columns)
    return (
      role && (
        <div
          class="av-role av-model-role"
          aria-hidden="true"
          style={`left:${x}px;top:${bottom + 3}px;width:${layout.cell}px`}
        >
          {letter} {layout.cell >= MIN_NAMED && role.name}
        </div>
      )
    );
  const [name, score] = captionLines(store, cell, grid, layout.caption);
  const width = Math.min(layout.across - 2, layout.cell + 2 * layout.left);
  return (
    <div
      class="av-grid-caption"
      aria-hidden="true"
      style={`left:${x + layout.cell / 2}px;top:${bottom + 4}px;width:${width}px`}
    >
      {name} {letter}
      <span class="av-score">{score}</span>
    </div>
  );
}
