/** Grid of thumbnails of all heads. */

import type { Signal } from "@preact/signals";
import type { RefObject } from "preact";
import { headColor } from "../../ui/colors/palette";
import { EffectBar } from "../../ui/effects/bar";
import { headEffect, headError } from "../../ui/effects/effects";
import type { ScoredHead } from "../../ui/head-grid/grid";
import { VirtualHeadGrid } from "../../ui/head-grid/head-grid";
import { type HeadRole, RoleLetter } from "../../ui/head-grid/head-roles";
import type { ViewContext } from "../../ui/view/define-view";
import { captionLines, headLabel, hintOf, orderName } from "./captions";
import { type Layout, MIN_NAMED } from "./layout";
import { paintRow } from "./marks";
import type { ModelState } from "./state";
import type { ModelStore } from "./store";

export interface GridProps {
  context: ViewContext<ModelState>;
  store: ModelStore;
  /** Identifier of the drawn content, or null until all visible thumbnails are painted. */
  drawn: Signal<string | null>;
  box: RefObject<HTMLDivElement | null>;
}

export function ModelGrid({ context, store, drawn, box }: GridProps) {
  const grid = store.grid.value;
  const layout = store.layout.value;
  if (!grid || !layout) return null;
  const selection = store.selection.value;
  const palette = context.palette.value;
  const thumbnails = context.state.thumbnails.value;
  const outlinedRow = store.outlinedRow.value;
  const chosen = selection?.chosen ?? [];
  const effects = context.record.headEffects.value;
  return (
    <VirtualHeadGrid
      store={store.heads}
      box={box}
      label={
        grid.columns
          ? "Layers and their heads"
          : `Heads of all layers by ${grid.score}, ${orderName(grid, effects, context.record.byRole.value)}`
      }
      corner="head"
      look={(cell, shownGrid) => {
        const index = selection?.layer === cell.layer ? chosen.indexOf(cell.head) : -1;
        return {
          label: headLabel(store, cell, shownGrid),
          selected: index >= 0,
          style: index < 0 ? "" : `;--av-chosen:${headColor(palette, index, chosen.length)}`,
          ...(effects &&
            selection && {
              content: (
                <EffectBar
                  value={headEffect(effects, selection.stack, cell)}
                  error={headError(effects, selection.stack, cell)}
                  end={effects.end}
                  palette={palette}
                />
              ),
            }),
        };
      }}
      {...(layout.roles > 0
        ? { below: (cell, x) => <Role store={store} cell={cell} x={x} layout={layout} /> }
        : layout.caption === "none"
          ? {}
          : { below: (cell, x) => <Caption store={store} cell={cell} x={x} layout={layout} /> })}
      hint={(cell, shownGrid) => hintOf(store, cell, shownGrid)}
      painting={{
        follows: [store.mapSet, store.drawnId, store.arrivals],
        sources: (cells) => [
          ...cells.map((cell) => (cell ? store.map(cell) : null)),
          palette,
          thumbnails,
          String(outlinedRow),
        ],
        paint: (canvas, cells, scale) => {
          const maps = cells.map((cell) => (cell ? store.map(cell) : null));
          const signed = selection?.stack.signed === true;
          paintRow(canvas, maps, { layout, thumbnails, palette, signed, outlinedRow, scale });
        },
        onPainted: (complete) => {
          drawn.value = complete ? store.drawnId.peek() : null;
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

/** Caption below a thumbnail of a gallery. Screen readers get its content from the cell's label. */
function Caption(props: { store: ModelStore; cell: ScoredHead; x: number; layout: Layout }) {
  const { layout } = props;
  const grid = props.store.grid.value;
  const effects = props.store.effects.value;
  const [name, score] = captionLines(
    props.cell,
    layout.caption === "words",
    effects?.name === grid?.score ? effects : null,
    props.store.byRole.value ? props.store.roleOf(props.cell) : undefined,
  );
  const middle = props.x + layout.cell / 2;
  const role = props.store.roleOf(props.cell);
  return (
    <div
      class="av-model-caption"
      aria-hidden="true"
      style={`left:${middle}px;top:${layout.cell + 4 + layout.bars}px;width:${Math.min(layout.across - 2, layout.cell + 2 * layout.left)}px`}
    >
      {name} {role && <RoleOf store={props.store} role={role} />}
      <span class="av-score">{score}</span>
    </div>
  );
}

/** Letter of a head's role, on the role's colour. */
function RoleOf({ store, role }: { store: ModelStore; role: HeadRole }) {
  const sign = store.roleSigns.value.find(({ name }) => name === role.name);
  return sign ? <RoleLetter {...sign} /> : null;
}

/** Role of a head, below its thumbnail. Screen readers get the role from the cell's label. */
function Role(props: { store: ModelStore; cell: ScoredHead; x: number; layout: Layout }) {
  const { store, cell, x, layout } = props;
  const role = store.roleOf(cell);
  return (
    role && (
      <div
        class="av-role av-model-role"
        aria-hidden="true"
        style={`left:${x}px;top:${layout.cell + 3 + layout.bars}px;width:${layout.cell}px`}
      >
        <RoleOf store={store} role={role} /> {layout.cell >= MIN_NAMED && role.name}
      </div>
    )
  );
}
