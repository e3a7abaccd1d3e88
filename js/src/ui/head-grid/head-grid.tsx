/**
 * Grid in which a cell shows one head. Only the visible part of the grid, with one more row above
 * and below, is in the document. A chunk is a group of `CHUNK` adjacent columns. In each row, the
 * pictures of the cells of a chunk are painted on one canvas.
 *
 * The current head is the head that the rest of the view shows. The cursor marks a head, and the
 * arrow keys move it.
 */

// biome-ignore-all lint/a11y/useSemanticElements: a table cannot omit its invisible rows.
// biome-ignore-all lint/a11y/noAriaHiddenOnFocusable: a canvas takes no focus.
// biome-ignore-all lint/a11y/useFocusableInteractive: the grid receives the focus in place of its
// cells.

import { type ReadonlySignal, useComputed, useSignal } from "@preact/signals";
import type { ComponentChildren, RefObject } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { paintMarks, prepareCanvas } from "../../draw/canvas";
import type { Mark } from "../../draw/marks";
import { type KeyActions, runKey } from "../controls/keys";
import { LinearMark } from "../controls/layers";
import { type Hint, HintBox } from "../plot/plot";
import {
  CHUNK,
  cellAt,
  chunkOf,
  columnLabel,
  findCell,
  type GridLayout,
  type HeadGrid,
  type HeadIndex,
  isSameHead,
  labelledEvery,
  rowKind,
  rowLabel,
  SCROLLBAR,
  type ScoredHead,
} from "./grid";
import type { Square } from "./marks";
import type { HeadGridStore } from "./store";

/**
 * Attributes of the element of a cell. The picture of the cell is not in this element but on the
 * canvas of its chunk.
 */
export interface CellLook {
  /** Label for screen readers. */
  label: string;
  selected: boolean;
  /** CSS declarations, each with a semicolon before it. */
  style?: string;
}

/**
 * Clicked head, and the side of its cell's picture in pixels when it was clicked. The grid does not
 * scroll to this head as long as cells have this size.
 */
interface ClickedHead extends HeadIndex {
  cell: number;
}

type Cells = readonly (ScoredHead | null)[];

/**
 * Functions that paint cells. The cells that share a canvas are painted together, and again if
 * their data changes.
 */
export interface GridPainting {
  /**
   * Signals whose change may change the pictures. Signals that the component of the view reads can
   * be omitted, because their change renders the grid again anyway.
   */
  follows?: readonly ReadonlySignal<unknown>[];
  /**
   * Return the data that determines the pictures of `cells`, which share a canvas. They are painted
   * again if one of the returned values is not identical (`===`) to the value at the last painting.
   * A value is undefined if it is not loaded yet.
   */
  sources: (cells: Cells) => readonly unknown[];
  /**
   * Return the marks of a head: its picture in `square`, and the texts and bars below. Figures have
   * the same marks. `scale` is the number of device pixels per CSS pixel.
   */
  marks: (head: ScoredHead, square: Square, scale: number) => Mark[];
  /**
   * Called after each rendering of the grid, when the canvases whose data is complete have been
   * painted. `complete` is true if the data of all cells in the document is loaded. Canvases that
   * are painted later with incomplete data cause no further call.
   */
  onPainted: (complete: boolean) => void;
}

export interface HeadGridProps {
  store: HeadGridStore;
  label: string;
  /** Text in the top left corner. It is shown only if the column labels are mere head numbers. */
  corner?: string;
  look: (head: ScoredHead, grid: HeadGrid) => CellLook;
  hint: (head: HeadIndex, grid: HeadGrid) => Pick<Hint, "title" | "rows"> | null;
  painting: GridPainting;
  open: (head: HeadIndex) => void;
  /** Called with the head at the cursor after a key has moved the cursor. */
  onMove?: (head: HeadIndex) => void;
  /**
   * Actions of the view's own keys. If the grid has an action for the same key, the action given
   * here is used.
   */
  actions?: KeyActions;
  /** Layer to whose row the grid scrolls if no head is current. */
  layer?: number | undefined;
  /**
   * Text whose change repeats the scrolling to the current head, for example the layout as JSON
   * text.
   */
  scrollAgain?: string;
  /**
   * Whether only the current head and the head at the cursor have elements in the document, because
   * the grid has thousands of cells. The pictures of all visible cells are painted.
   */
  sparse?: boolean;
  children?: ComponentChildren;
}

export function VirtualHeadGrid(props: HeadGridProps) {
  const { store } = props;
  const { box } = store;
  const hint = useSignal<Hint | null>(null);
  const outer = useRef<HTMLDivElement>(null);
  const grid = store.grid.value;
  const layout = store.layout.value;
  const sight = store.sight.value;
  const active = store.cursor.value ?? store.current.value;
  const clicked = useRef<ClickedHead | null>(null);
  useScrolling(props, clicked);
  // Classes for the fades at the edges where columns are hidden. The value is a string, so the grid
  // is rendered again only if a fade appears or disappears, not with every pixel of scrolling.
  const hidden = useComputed(() => {
    const now = store.layout.value;
    if (!now) return "";
    const { x } = store.scroll.value;
    const bar = now.height > now.boxHeight ? SCROLLBAR : 0;
    const after = now.width - x > now.boxWidth - bar + 1;
    return `${x > 1 ? " av-before" : ""}${after ? " av-after" : ""}`;
  });
  if (!grid || !layout || !sight) return null;

  const headAt = (event: MouseEvent): HeadIndex | null => {
    if (!props.sparse || !box.current) return headOfCell(event, store.id);
    const { left, top } = box.current.getBoundingClientRect();
    const scroll = store.scroll.peek();
    const at = { x: event.clientX - left + scroll.x, y: event.clientY - top + scroll.y };
    return cellAt(grid, layout, scroll, at);
  };
  const onPointerMove = (event: PointerEvent): void => {
    const head = headAt(event);
    const { left = 0, top = 0 } = outer.current?.getBoundingClientRect() ?? {};
    const text = head && props.hint(head, grid);
    hint.value = text && { ...text, x: event.clientX - left, y: event.clientY - top };
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (runKey(event, gridActions(props))) hint.value = null;
  };
  const [firstRow, lastRow] = sight.rows;
  const rows = Array.from({ length: Math.max(0, lastRow - firstRow) }, (_, i) => firstRow + i);
  const at = findCell(grid, active);
  const inSight =
    at &&
    at.row >= firstRow &&
    at.row < lastRow &&
    at.column >= sight.chunks[0] * CHUNK &&
    at.column < sight.chunks[1] * CHUNK;
  const labels = grid.columns ? 1 : 0;
  return (
    <div
      class={`av-grid${hidden.value}`}
      ref={outer}
      style={{ width: `${layout.boxWidth}px`, "--av-left": `${layout.left}px` }}
    >
      <div
        class="av-grid-box"
        ref={box}
        role="grid"
        tabIndex={0}
        aria-label={props.label}
        aria-rowcount={grid.rows.length + labels}
        aria-colcount={layout.columns + labels}
        aria-activedescendant={inSight && active ? cellId(store.id, active) : undefined}
        style={`width:${layout.boxWidth}px;height:${layout.boxHeight}px;--av-cell:${
          layout.cell + 2 * layout.frame
        }px;--av-frame:${layout.frame}px`}
        onScroll={(event) => {
          const { scrollLeft, scrollTop } = event.currentTarget;
          store.scroll.value = { x: scrollLeft, y: scrollTop };
          hint.value = null;
        }}
        onPointerMove={onPointerMove}
        onPointerLeave={() => {
          hint.value = null;
        }}
        onClick={(event) => {
          const head = headAt(event);
          if (!head) return;
          clicked.current = { ...head, cell: layout.cell };
          props.open(head);
        }}
        onKeyDown={onKeyDown}
        onBlur={() => {
          store.cursor.value = null;
        }}
      >
        <div
          class="av-grid-all"
          role="presentation"
          style={{ width: `${layout.width}px`, height: `${layout.height}px` }}
        >
          {grid.columns && <ColumnLabels {...props} grid={grid} layout={layout} />}
          {rows.map((row) => (
            <Row key={row} row={row} {...props} grid={grid} layout={layout} />
          ))}
        </div>
      </div>
      {props.children}
      {hint.value && <HintBox hint={hint.value} width={layout.boxWidth} />}
      <Painter {...props} />
    </div>
  );
}

function cellId(id: string, { layer, head, stack }: HeadIndex): string {
  return [id, layer, head, ...(stack ? [encodeURIComponent(stack)] : [])].join("-");
}

/**
 * Return the head of the cell in which an event occurred, or null outside all cells. `id` is the
 * prefix of the element ids of cells.
 */
export function headOfCell(event: Event, id: string): HeadIndex | null {
  const name = (event.target as Element).closest("[role=gridcell]")?.id;
  const [layer, head, ...stack] = name?.slice(id.length + 1).split("-") ?? [];
  if (layer === undefined || head === undefined) return null;
  const at = { layer: Number(layer), head: Number(head) };
  return stack.length > 0 ? { ...at, stack: decodeURIComponent(stack.join("-")) } : at;
}

/**
 * Return the actions of all keys: the grid's own, which move the cursor or open the head at the
 * cursor, and `actions`, which have priority.
 */
function gridActions({ store, open, onMove, actions }: HeadGridProps): KeyActions {
  const layout = store.layout.peek();
  const page = layout ? Math.max(1, Math.floor(layout.boxHeight / layout.down) - 1) : 1;
  const move = (rows: number, columns: number) => () => {
    const head = store.move(rows, columns);
    if (head) onMove?.(head);
  };
  const openCurrent = (): boolean => {
    const at = store.position();
    const head = at && store.grid.peek()?.rows[at.row]?.[at.column];
    if (head) open(head);
    return Boolean(head);
  };
  return {
    ArrowUp: move(-1, 0),
    ArrowDown: move(1, 0),
    ArrowLeft: move(0, -1),
    ArrowRight: move(0, 1),
    Home: move(0, -Number.MAX_SAFE_INTEGER),
    End: move(0, Number.MAX_SAFE_INTEGER),
    PageUp: move(-page, 0),
    PageDown: move(page, 0),
    ...{ Enter: openCurrent, " ": openCurrent, "+": openCurrent },
    ...actions,
  };
}

/**
 * Scroll to the head at the cursor when the cursor moves. Scroll to the current head when another
 * head, stack or score for the order is chosen, or when `scrollAgain` changes. Without a current
 * head, scroll to the row of `layer`, unless the grid is a gallery.
 */
function useScrolling(
  { store, layer, scrollAgain }: HeadGridProps,
  clicked: RefObject<ClickedHead | null>,
): void {
  const grid = store.grid.value;
  const layout = store.layout.value;
  const cursor = store.cursor.value;
  const current = store.current.value;
  const show = (head: HeadIndex | null, acrossToo: boolean): void => {
    // Do not scroll to a head that was clicked, unless the cells have another size now. Its cell
    // stays under the pointer, even if the cell is only partly visible.
    if (head && isSameHead(head, clicked.current) && layout?.cell === clicked.current?.cell) return;
    clicked.current = null;
    const at = grid && findCell(grid, head);
    if (at && layout && store.box.current) scrollTo(store.box.current, layout, at, acrossToo);
  };
  useEffect(() => {
    if (cursor) show(cursor, true);
  }, [cursor]);
  useEffect(() => {
    if (current) show(current, true);
    else if (layer !== undefined && grid?.columns) {
      // Scroll to the row of the layer, but not along the row.
      const row = grid.rows.find((candidates) => candidates.some((cell) => cell?.layer === layer));
      show(row?.find((cell) => cell !== null) ?? null, false);
    }
  }, [current?.layer, current?.head, current?.stack, layer, grid?.stack, grid?.score, scrollAgain]);
}

/** Scroll a box until the row of a cell is visible and, if `acrossToo`, its column. */
function scrollTo(
  box: HTMLElement,
  layout: GridLayout,
  at: { row: number; column: number },
  acrossToo: boolean,
): void {
  const { left, top, across, down, width, height, boxWidth, boxHeight } = layout;
  const y = at.row * down;
  const visibleHeight = boxHeight - top - (width > boxWidth ? SCROLLBAR : 0);
  if (y < box.scrollTop) box.scrollTop = y;
  else if (y + down > box.scrollTop + visibleHeight) box.scrollTop = y + down - visibleHeight;
  if (!acrossToo) return;
  const x = at.column * across;
  const visibleWidth = boxWidth - left - (height > boxHeight ? SCROLLBAR : 0);
  if (x < box.scrollLeft) box.scrollLeft = x;
  else if (x + across > box.scrollLeft + visibleWidth) box.scrollLeft = x + across - visibleWidth;
}

type Inner = HeadGridProps & { grid: HeadGrid; layout: GridLayout };

function ColumnLabels({ store, corner, grid, layout }: Inner) {
  const [first, last] = store.sight.value?.chunks ?? [0, 0];
  const columns = (grid.columns ?? []).map((head, at) => ({ head, at }));
  const hasNumbers = columnLabel(0, layout) === "0";
  return (
    <div
      class="av-grid-columns"
      role="row"
      aria-rowindex={1}
      style={{ width: `${layout.width}px`, height: `${layout.top}px` }}
    >
      <div
        class="av-grid-corner"
        role="columnheader"
        aria-colindex={1}
        style={{ width: `${layout.left - layout.frame}px` }}
      >
        {corner && hasNumbers ? corner : <span class="av-unseen">Layer</span>}
      </div>
      {columns.slice(first * CHUNK, last * CHUNK).map(({ head, at }) => (
        <div
          key={head}
          role="columnheader"
          aria-colindex={at + 2}
          aria-label={`head ${head}`}
          style={{ left: `${layout.left + at * layout.across}px`, width: `${layout.cell}px` }}
        >
          {at % labelledEvery(layout.across) === 0 && columnLabel(head, layout)}
        </div>
      ))}
    </div>
  );
}

function Row(props: Inner & { row: number }) {
  const { store, grid, layout, row } = props;
  const cells = grid.rows[row] ?? [];
  const [first, last] = store.sight.value?.chunks ?? [0, 0];
  const chunks = Array.from({ length: last - first }, (_, i) => first + i);
  const layer = cells.find((cell) => cell !== null)?.layer;
  const { kind, word } = rowKind(cells, grid, layout);
  const offset = grid.columns ? 2 : 1;
  const cursor = store.cursor.value;
  const current = store.current.value;
  const present = cells
    .slice(first * CHUNK, last * CHUNK)
    .map((cell) =>
      props.sparse && !isSameHead(cell, cursor) && !isSameHead(cell, current) ? null : cell,
    );
  // Assistive technology expects cells in a row, so a row that has neither cells nor a label gets
  // no role.
  const empty = !grid.columns && present.every((cell) => cell === null);
  return (
    <div
      class="av-grid-row"
      {...(empty ? {} : { role: "row", "aria-rowindex": row + offset })}
      style={{
        top: `${layout.top + row * layout.down}px`,
        width: `${layout.width}px`,
        height: `${layout.down}px`,
      }}
    >
      {grid.columns && (
        <div
          class="av-grid-layer"
          role="rowheader"
          aria-colindex={1}
          aria-label={`layer ${layer}${kind && `, ${kind}`}`}
          style={{ width: `${layout.left}px` }}
        >
          {kind && (
            <span class="av-muted av-grid-kind" title={kind}>
              {word} <LinearMark />
            </span>
          )}
          {row % labelledEvery(layout.down) === 0 && rowLabel(layer, layout)}
        </div>
      )}
      {chunks.map((chunk) => (
        <canvas
          key={`${chunk} ${layout.cell}`}
          aria-hidden="true"
          data-row={row}
          data-chunk={chunk}
          style={{
            left: `${layout.left + chunk * CHUNK * layout.across - besideOf(layout)}px`,
            width: `${canvasSize(chunkOf(cells, chunk), layout).width}px`,
            height: `${canvasSize(chunkOf(cells, chunk), layout).height}px`,
          }}
        />
      ))}
      {present.map((cell, i) => {
        if (!cell) return null;
        const column = first * CHUNK + i;
        const x = layout.left + column * layout.across;
        const { label, selected, style = "" } = props.look(cell, grid);
        return (
          <div
            key={`${cell.layer} ${cell.head} ${cell.stack ?? ""}`}
            id={cellId(store.id, cell)}
            role="gridcell"
            class={`av-grid-cell${isSameHead(cursor, cell) ? " av-grid-cursor" : ""}`}
            // Only the first of several adjacent cells has an index. Browsers number the following
            // cells from there.
            aria-colindex={i === 0 || !present[i - 1] ? column + offset : undefined}
            aria-label={label}
            aria-selected={selected || undefined}
            style={`left:${x - layout.frame}px${style}`}
          />
        );
      })}
    </div>
  );
}

/**
 * Return the width in pixels of the margins of a canvas at its left and right. Texts below a picture
 * may be wider than the picture, and reach into the gaps beside it.
 */
function besideOf({ across, cell, below }: GridLayout): number {
  return below > 0 ? across - cell : 0;
}

/** Return the size in pixels of the canvas that `cells` share. */
function canvasSize(cells: Cells, layout: GridLayout): { width: number; height: number } {
  const { across, cell, below } = layout;
  const width = (cells.length - 1) * across + cell + 2 * besideOf(layout);
  return { width, height: cell + below };
}

/**
 * Delay in milliseconds after which a canvas is painted although the data of some of its cells is
 * missing.
 */
const INCOMPLETE_DELAY_MS = 120;

/** Paint the canvases of the grid with the data that is loaded. */
function Painter({ store, painting }: HeadGridProps) {
  const painted = useMemo(() => new WeakMap<HTMLCanvasElement, readonly unknown[]>(), []);
  // Subscribe to the signals. When one of them changes, this component renders again, and paints
  // after the elements of the grid have changed.
  for (const dependency of [store.grid, store.layout, store.sight, ...(painting.follows ?? [])])
    dependency.value;

  const paint = (partly: boolean): boolean => {
    const grid = store.grid.peek();
    const layout = store.layout.peek();
    if (!store.box.current || !grid || !layout) return false;
    let complete = true;
    const scale = globalThis.devicePixelRatio || 1;
    for (const canvas of store.box.current.querySelectorAll("canvas")) {
      const row = grid.rows[Number(canvas.dataset.row)] ?? [];
      const cells = chunkOf(row, Number(canvas.dataset.chunk));
      const sources = painting.sources(cells);
      if (sources.includes(undefined)) {
        complete = false;
        if (!partly) continue;
      }
      const { cell: side, across, below } = layout;
      const inputs = [...sources, side, across, below, scale];
      const before = painted.get(canvas);
      if (before?.length === inputs.length && inputs.every((input, i) => input === before[i]))
        continue;
      painted.set(canvas, inputs);
      const { width, height } = canvasSize(cells, layout);
      const context = prepareCanvas(canvas, width, height, scale);
      if (!context) continue;
      cells.forEach((cell, i) => {
        if (!cell) return;
        const square = { x: besideOf(layout) + i * across, y: 0, side };
        paintMarks(context, painting.marks(cell, square, scale));
      });
    }
    return complete;
  };
  const waiting = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(waiting.current), []);
  useLayoutEffect(() => {
    const complete = paint(false);
    painting.onPainted(complete);
    clearTimeout(waiting.current);
    // Most data arrives together, so wait before painting an incomplete picture.
    if (!complete) waiting.current = setTimeout(() => paint(true), INCOMPLETE_DELAY_MS);
  });
  return null;
}
