/** The grid of thumbnails: what of it is in sight stands in the page, and nothing else. */

// biome-ignore-all lint/a11y/useSemanticElements: a table cannot leave out what is not in sight.
// biome-ignore-all lint/a11y/noAriaHiddenOnFocusable: a canvas takes no focus.
// biome-ignore-all lint/a11y/useFocusableInteractive: the grid has the focus, and names its cell.

import { type Signal, useSignal } from "@preact/signals";
import type { RefObject } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { ViewContext } from "../../ui/define-view";
import { bringIntoSight, cellId, cellOf, stepOf } from "../../ui/head-grid/keys";
import { headColor } from "../../ui/palette";
import { type Hint, HintBox } from "../../ui/plot";
import { captionLines, cellName, hintOf, spokenName } from "./captions";
import { Painter } from "./painter";
import {
  type Cell,
  CHUNK,
  chunkOf,
  findCell,
  type Grid,
  type Layout,
  type ModelState,
  type ScoredCell,
} from "./state";
import type { ModelModel } from "./store";

export interface GridProps {
  context: ViewContext<ModelState>;
  model: ModelModel;
  /** The place whose thumbnails in sight are all drawn. */
  drawn: Signal<string | null>;
  box: RefObject<HTMLDivElement | null>;
}

let instances = 0;

export function ModelGrid(props: GridProps) {
  const { context, model, box } = props;
  const hint = useSignal<Hint | null>(null);
  const place = useRef<HTMLDivElement>(null);
  // Names in the page must not meet those of another view.
  const prefix = useMemo(() => `av-model-${instances++}`, []);
  const grid = model.grid.value;
  const layout = model.layout.value;
  const sight = model.sight.value;
  const opened = model.opened.value;
  const cursor = model.cursor.value;
  useKeptInSight(props);
  if (!grid || !layout || !sight) return null;

  const cellAt = (event: Event): Cell | null => cellOf(event, prefix);
  const onPointerMove = (event: PointerEvent): void => {
    const cell = cellAt(event);
    const bounds = place.current?.getBoundingClientRect();
    const said = cell && bounds ? hintOf(model, cell, grid, context.palette.peek()) : null;
    hint.value =
      said && bounds
        ? { ...said, x: event.clientX - bounds.left, y: event.clientY - bounds.top }
        : null;
  };
  const onClick = (event: MouseEvent): void => {
    const cell = cellAt(event);
    if (cell) model.open(cell);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.metaKey || event.ctrlKey || event.altKey || !pressed(event.key, model)) return;
    hint.value = null;
    // A notebook would walk to another of its cells.
    event.preventDefault();
    event.stopPropagation();
  };

  const active = cursor ?? opened;
  const activeAt = findCell(grid, active);
  const rows = Array.from({ length: sight.rows[1] - sight.rows[0] }, (_, i) => sight.rows[0] + i);
  const inSight =
    activeAt &&
    activeAt.row >= sight.rows[0] &&
    activeAt.row < sight.rows[1] &&
    activeAt.column >= sight.chunks[0] * CHUNK &&
    activeAt.column < sight.chunks[1] * CHUNK;

  return (
    <div class="av-model-place" ref={place} style={{ width: `${layout.boxWidth}px` }}>
      <div
        class="av-model-box"
        ref={box}
        role="grid"
        tabIndex={0}
        aria-label={
          grid.columns
            ? "Layers and their heads"
            : `Heads of all layers by ${grid.score}, strongest first`
        }
        aria-rowcount={grid.rows.length + (grid.columns ? 1 : 0)}
        aria-colcount={layout.columns + (grid.columns ? 1 : 0)}
        aria-activedescendant={inSight && active ? cellId(prefix, active) : undefined}
        style={`width:${layout.boxWidth}px;height:${layout.boxHeight}px;--av-cell:${layout.cell + 2}px`}
        onScroll={(event) => {
          const { scrollLeft, scrollTop } = event.currentTarget;
          model.scroll.value = { x: scrollLeft, y: scrollTop };
          hint.value = null;
        }}
        onPointerMove={onPointerMove}
        onPointerLeave={() => {
          hint.value = null;
        }}
        onClick={onClick}
        onKeyDown={onKeyDown}
        onBlur={() => {
          model.cursor.value = null;
        }}
      >
        <div
          class="av-model-whole"
          role="presentation"
          style={{ width: `${layout.width}px`, height: `${layout.height}px` }}
        >
          {grid.columns && <ColumnLabels grid={grid} layout={layout} chunks={sight.chunks} />}
          {rows.map((row) => (
            <Row key={row} row={row} prefix={prefix} {...props} grid={grid} layout={layout} />
          ))}
        </div>
      </div>
      {hint.value && <HintBox hint={hint.value} width={layout.boxWidth} />}
      <Painter {...props} />
    </div>
  );
}

/** Does what a key asks for; false where it asks for nothing here. */
function pressed(key: string, model: ModelModel): boolean {
  const step = stepOf(key, model.layout.peek());
  if (step) {
    model.step(...step);
    return true;
  }
  const at = model.at();
  const cell = at && model.grid.peek()?.rows[at.row]?.[at.column];
  if ((key === "Enter" || key === " ") && cell) {
    model.open(cell);
    return true;
  }
  if (key === "Escape" && model.opened.peek()) {
    model.close();
    return true;
  }
  return false;
}

/** Scrolls to the head that the keyboard or another view comes to. */
function useKeptInSight({ context, model, box }: GridProps): void {
  const grid = model.grid.value;
  const layout = model.layout.value;
  const cursor = model.cursor.value;
  const opened = model.opened.value;
  const layer = model.place.value?.layer;
  const show = (cell: Cell | null, acrossToo: boolean): void => {
    const at = grid && findCell(grid, cell);
    if (at && layout && box.current) bringIntoSight(box.current, layout, at, acrossToo);
  };
  const shape = layout && JSON.stringify(layout);
  useEffect(() => {
    if (cursor) show(cursor, true);
  }, [cursor]);
  useEffect(() => {
    if (opened) show(opened, true);
    else if (layer !== undefined && grid?.columns) {
      // The row of the layer, wherever it begins.
      const row = grid.rows.find((each) => each.some((cell) => cell?.layer === layer));
      show(row?.find((cell) => cell !== null) ?? null, false);
    }
  }, [opened?.layer, opened?.head, layer, grid?.stack, grid?.score, shape, context.embedded]);
}

function ColumnLabels(props: { grid: Grid; layout: Layout; chunks: [number, number] }) {
  const { grid, layout, chunks } = props;
  const words = layout.across >= 50;
  const columns = (grid.columns ?? []).map((head, at) => ({ head, at }));
  return (
    <div
      class="av-model-columns"
      role="row"
      aria-rowindex={1}
      style={{ width: `${layout.width}px`, height: `${layout.top}px` }}
    >
      <div class="av-model-corner" role="columnheader" aria-colindex={1}>
        {words ? "" : "head"}
        <span class="av-unseen">{words ? "Layer" : ""}</span>
      </div>
      {columns.slice(chunks[0] * CHUNK, chunks[1] * CHUNK).map(({ head, at }) => (
        <div
          key={head}
          role="columnheader"
          aria-colindex={at + 2}
          aria-label={`head ${head}`}
          style={{ left: `${layout.left + at * layout.across}px`, width: `${layout.cell}px` }}
        >
          {words ? `head ${head}` : head}
        </div>
      ))}
    </div>
  );
}

function Row(props: GridProps & { row: number; prefix: string; grid: Grid; layout: Layout }) {
  const { context, model, grid, layout, row, prefix } = props;
  const cells = grid.rows[row] ?? [];
  const [first, last] = model.sight.value?.chunks ?? [0, 0];
  const chunks = Array.from({ length: last - first }, (_, i) => first + i);
  const layer = cells.find((cell) => cell !== null)?.layer;
  const offset = grid.columns ? 2 : 1;
  const place = model.place.value;
  const cursor = model.cursor.value;
  const palette = context.palette.value;
  const chosenCount = place?.chosen.length ?? 0;
  return (
    <div
      class="av-model-row"
      role="row"
      aria-rowindex={row + offset}
      style={{
        top: `${layout.top + row * layout.down}px`,
        width: `${layout.width}px`,
        height: `${layout.down}px`,
      }}
    >
      {grid.columns && (
        <div
          class="av-model-layer"
          role="rowheader"
          aria-colindex={1}
          // As high as a cell with its frame, so that what it hides when scrolled is hidden whole.
          style={{ width: `${layout.left}px`, height: `${layout.cell + 2}px` }}
        >
          layer {layer}
        </div>
      )}
      {chunks.map((chunk) => (
        <canvas
          key={`${chunk} ${layout.cell}`}
          aria-hidden="true"
          data-row={row}
          data-chunk={chunk}
          style={{
            left: `${layout.left + chunk * CHUNK * layout.across}px`,
            width: `${(chunkOf(cells, chunk).length - 1) * layout.across + layout.cell}px`,
            height: `${layout.cell}px`,
          }}
        />
      ))}
      {cells.slice(first * CHUNK, last * CHUNK).map((cell, i) => {
        if (!cell) return null;
        const column = first * CHUNK + i;
        const chosen = place?.layer === cell.layer ? place.chosen.indexOf(cell.head) : -1;
        const at = cursor?.layer === cell.layer && cursor.head === cell.head;
        return (
          <div
            key={`${cell.layer} ${cell.head}`}
            id={cellId(prefix, cell)}
            role="gridcell"
            class={`av-model-cell${at ? " av-model-cursor" : ""}`}
            // Cells beside each other count on from the first.
            aria-colindex={i === 0 || !cells[column - 1] ? column + offset : undefined}
            aria-label={at ? spokenName(model, cell, grid) : cellName(cell, grid.score)}
            aria-selected={chosen >= 0 || undefined}
            style={`left:${layout.left + column * layout.across - 1}px${
              chosen < 0 ? "" : `;--av-chosen:${headColor(palette, chosen, chosenCount)}`
            }`}
          />
        );
      })}
      {layout.caption !== "none" &&
        cells.map((cell, column) => cell && <Caption key={column} {...{ cell, column, layout }} />)}
    </div>
  );
}

/** Below a gallery's thumbnail, whose name says the same in words: its head and its score. */
function Caption(props: { cell: ScoredCell; column: number; layout: Layout }) {
  const { layout } = props;
  const [name, score] = captionLines(props.cell, layout.caption === "words");
  const middle = layout.left + props.column * layout.across + layout.cell / 2;
  return (
    <div
      class="av-model-caption"
      aria-hidden="true"
      style={`left:${middle}px;top:${layout.cell + 4}px;width:${layout.across - 2}px`}
    >
      {name} <span class="av-score">{score}</span>
    </div>
  );
}
