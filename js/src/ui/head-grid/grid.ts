/**
 * Grid in which a cell shows one head: the order and the positions of its cells, and the part of
 * the grid that is in the document (`Sight`). In a gallery, the heads of all layers are ordered by
 * a score. In other grids, each layer has a row. All functions are pure.
 */

import type { StackDescription } from "../../client/protocol";
import { countHeads, headsOf, type Scores } from "../../client/source";
import type { MODEL_VIEW_TRAITS, StateOf } from "../../client/traits";
import { rankOf } from "../effects/effects";
import type { ModelLayer } from "../view/model-layers";
import { baseName } from "../view/model-layers";

/**
 * Heads that a view may show: head numbers for all layers, or head numbers by layer number. In the
 * second form, a layer that is not listed shows no heads. null allows all heads.
 */
export type IncludeHeads = StateOf<typeof MODEL_VIEW_TRAITS>["include_heads"];

/** Number of a layer in the model, and number of a head in this layer. */
export interface HeadIndex {
  layer: number;
  head: number;
  /** Name of the stack in a grid of several stacks. Otherwise undefined. */
  stack?: string;
}

export function isSameHead(one: HeadIndex | null, other: HeadIndex | null): boolean {
  return one?.layer === other?.layer && one?.head === other?.head && one?.stack === other?.stack;
}

/**
 * Head and the score by which it is ordered. The score is null if the head has none, or if the grid
 * is not ordered by a score.
 */
export interface ScoredHead extends HeadIndex {
  score: number | null;
}

/** Return the numbers of the heads of a layer that `include` allows. */
export function offeredHeads(
  stack: StackDescription,
  layer: number,
  include: IncludeHeads = null,
): number[] {
  const all = headsOf(stack, layer);
  if (include === null) return all;
  const named = Array.isArray(include) ? include : (include[String(layer)] ?? []);
  return all.filter((head) => named.includes(head));
}

/**
 * Grid with rows of cells. In a grid with one row per layer, a cell is null if the layer has no
 * head with the number of the column, or if the view may not show this head. In the last row of a
 * gallery, the cells after the last head are null.
 */
export interface HeadGrid {
  stack: string;
  /** Head numbers of the columns. null in a gallery, whose columns mix head numbers. */
  columns: number[] | null;
  rows: (ScoredHead | null)[][];
  /**
   * Words that distinguish the layers of each stack, by stack (see `ModelLayer`). Undefined in a
   * grid of one stack.
   */
  kinds?: Record<string, string>;
  /**
   * `all` is the number of heads in the stack. `shown` is the number of heads in the grid (see
   * `IncludeHeads`).
   */
  shown: number;
  all: number;
  /**
   * Name of the score that orders the cells of a gallery. null in a grid with one row per layer.
   */
  score: string | null;
}

/**
 * Return a grid with one row per layer and one column per head number. The layers may be those of
 * several sibling stacks. Layers without heads that `include` allows have no row.
 */
export function layerGrid(layers: readonly ModelLayer[], include: IncludeHeads = null): HeadGrid {
  const stacks = [...new Set(layers.map(({ stack }) => stack))];
  const isJoined = stacks.length > 1;
  const offered = layers.map(({ stack, layer }) => offeredHeads(stack, layer, include));
  const columns = [...new Set(offered.flat())].sort((a, b) => a - b);
  const rows = layers.flatMap(({ stack, layer }, at) => {
    const heads = offered[at] ?? [];
    const index = { layer, ...(isJoined && { stack: baseName(stack) }), score: null };
    return heads.length > 0
      ? [columns.map((head) => (heads.includes(head) ? { ...index, head } : null))]
      : [];
  });
  const kinds = layers.map(({ stack, kind }) => [baseName(stack), kind] as const);
  const shown = offered.flat().length;
  const all = stacks.map(countHeads).reduce((sum, count) => sum + count, 0);
  return {
    ...{ stack: stacks[0]?.name ?? "", columns, rows, shown, all, score: null },
    ...(isJoined && { kinds: Object.fromEntries(kinds) }),
  };
}

/**
 * Return the heads that `include` allows, ordered by decreasing score or, if `bySize`, by decreasing
 * absolute value of the score. Heads without a score come last.
 */
export function rankedCells(
  stack: StackDescription,
  scores: Scores,
  { include = null as IncludeHeads, bySize = false } = {},
): ScoredHead[] {
  const cells = stack.layers.flatMap((layer, at) =>
    offeredHeads(stack, layer, include).map((head) => ({
      ...{ layer, head, score: scores[at]?.[head] ?? null },
    })),
  );
  const value = (cell: ScoredHead): number => rankOf(cell.score, bySize);
  // The sort is stable, so heads with equal scores stay in the order of their layers.
  return cells.sort((a, b) => (value(a) === value(b) ? 0 : value(b) - value(a)));
}

/**
 * Return a gallery of `cells` in their order, with `perRow` cells in a row. `score` is the name of
 * the score that orders them.
 */
export function galleryGrid(
  stack: StackDescription,
  cells: ScoredHead[],
  score: string,
  perRow: number,
): HeadGrid {
  const rows = Array.from({ length: Math.ceil(cells.length / perRow) }, (_, row) =>
    Array.from({ length: perRow }, (_, column) => cells[row * perRow + column] ?? null),
  );
  const counts = { shown: cells.length, all: countHeads(stack) };
  return { stack: stack.name, columns: null, rows, ...counts, score };
}

export interface GridPosition {
  row: number;
  column: number;
}

export function findCell(grid: HeadGrid, cell: HeadIndex | null): GridPosition | null {
  if (!cell) return null;
  for (const [row, cells] of grid.rows.entries()) {
    const column = cells.findIndex((other) => isSameHead(other, cell));
    if (column >= 0) return { row, column };
  }
  return null;
}

/**
 * Return the index of the column whose head is nearest to the column `column`. If two are equally
 * near, return the left one. Return -1 if the row has no heads.
 */
function nearest(row: readonly (HeadIndex | null)[], column: number): number {
  const columns = row.flatMap((cell, at) => (cell ? [at] : []));
  return columns.sort((a, b) => Math.abs(a - column) - Math.abs(b - column))[0] ?? -1;
}

/**
 * Return the position after a move from `from` by `rows` and `columns`. A move along a row skips
 * null cells and stops at the first or last head. A move to another row stops at the first or last
 * row, and goes to the head of that row that is nearest to the column of `from`. If that row has no
 * heads, the row does not change.
 */
export function stepCell(
  grid: HeadGrid,
  from: GridPosition,
  rows: number,
  columns: number,
): GridPosition {
  let { column } = from;
  const cells = grid.rows[from.row] ?? [];
  const across = Math.sign(columns);
  for (let remaining = Math.abs(columns); remaining > 0; remaining--) {
    let next = column + across;
    while (next in cells && !cells[next]) next += across;
    if (!cells[next]) break;
    column = next;
  }
  const row = Math.max(0, Math.min(grid.rows.length - 1, from.row + rows));
  const nearestColumn = nearest(grid.rows[row] ?? [], column);
  return row === from.row || nearestColumn < 0
    ? { row: from.row, column }
    : { row, column: nearestColumn };
}

/** Sizes and positions of labels and cells in pixels, and the number of columns. */
export interface GridCells {
  /**
   * `cell` is the side of the picture of a cell. `frame` is the width of the frame that surrounds
   * the picture and is not part of `cell`. It is 0 if pictures have no such frame. `below` is the
   * height of the texts and bars below the picture, or 0 without them.
   */
  cell: number;
  frame: number;
  below: number;
  /**
   * `across` is the distance between the left edges of two adjacent cells in a row. `down` is the
   * distance between the top edges of two adjacent rows.
   */
  across: number;
  down: number;
  /**
   * `left` is the width of the row labels. `top` is the height of the column labels. A gallery has
   * no labels, and both are margins of a few pixels. `kinds` is the part of `left` for the kinds of
   * layers, or undefined if the grid has only one stack.
   */
  left: number;
  top: number;
  kinds?: number;
  columns: number;
  /** Width and height of the whole grid, which has all cells and labels. */
  width: number;
  height: number;
}

/** Sizes and positions of labels and cells, and the size of their scroll box in pixels. */
export interface GridLayout extends GridCells {
  boxWidth: number;
  boxHeight: number;
}

/**
 * Lay out cells in a scroll box that is at most `width` pixels wide. If the cells with their labels
 * are higher than `maxHeight`, lay them out again in the width that remains beside a vertical
 * scroll bar. If they are still higher, the box has the height `maxHeight`. Otherwise, it is as
 * high as the cells, plus the horizontal scroll bar if it has one, and so may be higher than
 * `maxHeight` by the scroll bar.
 *
 * @param layOutIn lays out the cells in the given width.
 */
export function inScrollBox<Cells extends GridCells>(
  layOutIn: (width: number) => Cells,
  width: number,
  maxHeight: number,
): Cells & { boxWidth: number; boxHeight: number } {
  const free = layOutIn(width);
  const cells = free.height > maxHeight ? layOutIn(width - SCROLLBAR) : free;
  const upright = cells.height > maxHeight;
  const needed = cells.width + (upright ? SCROLLBAR : 0);
  const sideways = needed > width;
  return {
    ...cells,
    boxWidth: Math.min(needed, width),
    boxHeight: upright ? maxHeight : cells.height + (sideways ? SCROLLBAR : 0),
  };
}

/** Space for a grid in pixels. */
export interface GridRoom {
  width: number;
  maxHeight: number;
  /**
   * Whether the layout is for an exported figure with a given width or text size. Such a figure
   * does not scroll, so `maxHeight` is ignored. On the screen and in other figures, `maxHeight`
   * applies.
   */
  printed?: boolean;
}

/**
 * Width in pixels of the mark of linear layers in a row label, and of a letter of the word for
 * them. Narrow grids have only the mark.
 */
const KIND_MARK = 20;
const KIND_LETTER = 6.4;

/**
 * `SHORT_LABELS` is the width of a grid in pixels below which its row labels are narrow.
 * `LABEL_WIDTHS` are the widths of row labels: `long` in wide grids, `short` in narrow ones, and
 * `shortInFigure` in narrow ones in printed figures. A label is "L31" with the width `short`, and
 * "layer 31" with the others.
 */
const SHORT_LABELS = 480;
const LABEL_WIDTHS = { long: 64, short: 40, shortInFigure: 50 };
/** Height in pixels of column labels such as "head 0". */
const LABEL_HEIGHT = 24;
/**
 * Space in pixels at the left and at the top of a gallery for the frames of cells. A gallery has no
 * labels there.
 */
export const GALLERY_EDGE = 2;

/** Return the number of columns of a grid, at least 1. */
export function numColumns({ columns, rows }: Pick<HeadGrid, "columns" | "rows">): number {
  return columns?.length ?? rows[0]?.length ?? 1;
}

/**
 * Lay out a grid of cells with labels in a scroll box.
 *
 * @param cellsIn returns, for the given space without the labels, the size of the cells, the gap
 *   between them, and the height of what is below them (see `GridCells`). `across` is needed only if
 *   it is not the size and the gap. The height is infinite in a printed figure.
 * @param frame see `GridCells`.
 * @param edge pixels at the right and at the bottom, for frames and labels that extend there.
 */
export function layOutGrid(
  grid: Pick<HeadGrid, "columns" | "rows" | "kinds">,
  { width, maxHeight, printed = false }: GridRoom,
  cellsIn: (room: { width: number; height: number }) => {
    cell: number;
    gap: number;
    below: number;
    across?: number;
  },
  { frame = 1, edge = 0 } = {},
): GridLayout {
  const columns = numColumns(grid);
  const kinds = Object.values(grid.kinds ?? {});
  const short = printed ? LABEL_WIDTHS.shortInFigure : LABEL_WIDTHS.short;
  const isShort = width < SHORT_LABELS;
  const letters = isShort ? 0 : Math.max(0, ...kinds.map((kind) => kind.length));
  const kindWidth = kinds.length > 0 ? KIND_MARK + Math.ceil(KIND_LETTER * letters) : 0;
  const label = (isShort ? short : LABEL_WIDTHS.long) + kindWidth;
  const [left, top] = grid.columns ? [label, LABEL_HEIGHT] : [GALLERY_EDGE, GALLERY_EDGE];
  const limit = printed ? Number.POSITIVE_INFINITY : maxHeight;
  const layOutIn = (available: number): GridCells => {
    const room = { width: available - left - edge, height: limit - top - edge };
    const { cell, gap, below, across = cell + gap } = cellsIn(room);
    const down = cell + gap + below;
    return {
      ...{ cell, frame, below, across, down, left, top, columns },
      ...(kindWidth > 0 && { kinds: kindWidth }),
      width: left + columns * across + edge,
      height: top + grid.rows.length * down + edge,
    };
  };
  return inScrollBox(layOutIn, width, limit);
}

/**
 * Return the label of a column: "head 3", or only "3" if `layout.across` is less than 50 pixels or
 * if the row labels are at most 40 pixels wide.
 */
export function columnLabel(head: number, layout: GridLayout): string {
  return layout.across >= 50 && labelWidth(layout) > 40 ? `head ${head}` : String(head);
}

/** Return the width of the row labels without the kinds of layers. */
function labelWidth({ left, kinds = 0 }: GridLayout): number {
  return left - kinds;
}

/**
 * Return the label of a row: "layer 3" if the row labels are wider than 40 pixels (`labelWidth`),
 * "L3" if they are wider than 30 pixels, otherwise "3".
 */
export function rowLabel(layer: number | undefined, layout: GridLayout): string {
  if (labelWidth(layout) > 40) return `layer ${layer}`;
  return labelWidth(layout) > 30 ? `L${layer}` : String(layer);
}

/**
 * Return the kind of the layer of a row, and the word for it in the row label. The word is "" if the
 * label has only space for the mark.
 */
export function rowKind(
  row: readonly (HeadIndex | null)[],
  grid: HeadGrid,
  layout: GridLayout,
): { kind: string; word: string } {
  const kind = grid.kinds?.[row.find(Boolean)?.stack ?? ""] ?? "";
  return { kind, word: (layout.kinds ?? 0) > KIND_MARK ? kind : "" };
}

/**
 * Return n such that every n-th row (or column) has a label: 1, or 5 if the labels of adjacent ones
 * would overlap.
 *
 * @param step distance between two adjacent rows or columns, in pixels.
 */
export function labelledEvery(step: number): number {
  return step >= 14 ? 1 : 5;
}

/**
 * Number of columns in a chunk. A chunk is a group of adjacent columns, and the last chunk may have
 * fewer of them. In each row, the cells of a chunk share one canvas.
 */
export const CHUNK = 16;

/**
 * Part of a grid that is in the document: a range of row indices and a range of chunk indices (see
 * `CHUNK`). The rows are the visible ones, and one more row above and below them. The chunks are
 * the visible ones. The ends of the ranges are exclusive.
 */
export interface Sight {
  rows: [number, number];
  chunks: [number, number];
}

export function sightOf(
  layout: GridLayout,
  numRows: number,
  scroll: { x: number; y: number },
): Sight {
  const first = Math.floor(scroll.y / layout.down) - 1;
  const last = Math.ceil((scroll.y + layout.boxHeight - layout.top) / layout.down) + 1;
  const chunk = CHUNK * layout.across;
  const right = scroll.x + layout.boxWidth - layout.left;
  return {
    rows: [Math.max(0, first), Math.min(numRows, last)],
    chunks: [
      Math.max(0, Math.floor(scroll.x / chunk)),
      Math.min(Math.ceil(layout.columns / CHUNK), Math.ceil(right / chunk)),
    ],
  };
}

/** Width of a scroll bar, in pixels. */
export const SCROLLBAR = 15;
/**
 * Return the head at a point. Return null if the point is on a label, between two rows, or at a
 * cell without a head.
 *
 * @param scroll pixels by which the scroll box has been scrolled. The labels stay in view.
 * @param x, y pixels from the top left corner of the whole grid, including the part of the grid
 *   that has been scrolled out of view.
 */
export function cellAt(
  grid: HeadGrid,
  { left, top, across, down, cell, frame }: GridLayout,
  scroll: { x: number; y: number },
  { x, y }: { x: number; y: number },
): HeadIndex | null {
  if (x - scroll.x < left - frame || y - scroll.y < top) return null;
  const [column, row] = [Math.floor((x - left + frame) / across), Math.floor((y - top) / down)];
  if (y - top - row * down >= cell + 2 * frame) return null;
  return grid.rows[row]?.[column] ?? null;
}

export function chunkOf<T>(row: readonly T[], chunk: number): T[] {
  return row.slice(chunk * CHUNK, (chunk + 1) * CHUNK);
}
