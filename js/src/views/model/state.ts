/** The model view's state, and which head stands where in its grid. Pure functions. */

import { keptHeads, type Scores, type StackDescription } from "../../client/source";
import { HEAT_MAP_DEFAULTS, type HeatMapState } from "../../ui/heat-map/state";

/** Heads that are offered: everywhere, or by layer. */
export type IncludeHeads = number[] | Record<string, number[]> | null;

/** The traits of the model view; the names are Python's. The detail's are the matrix view's. */
export interface ModelState extends HeatMapState {
  thumbnails: "heat-map" | "lines";
  include_heads: IncludeHeads;
}

export const MODEL_DEFAULTS: ModelState = {
  ...HEAT_MAP_DEFAULTS,
  thumbnails: "heat-map",
  include_heads: null,
};

/** One head. */
export interface Cell {
  layer: number;
  head: number;
}

/** A cell with the score that it is ordered by. */
export interface ScoredCell extends Cell {
  score: number | null;
}

/** The heads of every layer that are offered, in the order of `stack.layers`. */
export function offeredHeads(stack: StackDescription, include: IncludeHeads): number[][] {
  return stack.layers.map((layer) => {
    const all = keptHeads(stack, layer);
    if (include === null) return all;
    const named = Array.isArray(include) ? include : (include[String(layer)] ?? []);
    return all.filter((head) => named.includes(head));
  });
}

/** Rows of cells; where a layer lacks a head there is null. */
export interface Grid {
  stack: string;
  /** Numbers of the heads in the columns; null in a gallery, where columns mean nothing. */
  columns: number[] | null;
  rows: (ScoredCell | null)[][];
  /** Heads that are shown, that are offered, and that were kept of the stack. */
  shown: number;
  offered: number;
  all: number;
  /** The name of the scores that cells are ordered by. */
  score: string | null;
}

/** How many heads of a stack were kept. */
export function countKept(stack: StackDescription): number {
  return stack.layers.reduce((sum, layer) => sum + keptHeads(stack, layer).length, 0);
}

/** Layers downwards, heads to the right, each in the column of its own number. */
export function layerGrid(stack: StackDescription, offered: number[][]): Grid {
  const columns = [...new Set(offered.flat())].sort((a, b) => a - b);
  const rows: Grid["rows"] = [];
  stack.layers.forEach((layer, at) => {
    const heads = new Set(offered[at]);
    if (heads.size === 0) return;
    rows.push(columns.map((head) => (heads.has(head) ? { layer, head, score: null } : null)));
  });
  const count = offered.flat().length;
  return {
    stack: stack.name,
    columns,
    rows,
    shown: count,
    offered: count,
    all: countKept(stack),
    score: null,
  };
}

/** All heads by falling score; those without one last, those below the least score not at all. */
export function rankedCells(
  stack: StackDescription,
  offered: number[][],
  scores: Scores,
  least: number | null,
): ScoredCell[] {
  const cells = stack.layers.flatMap((layer, at) =>
    (offered[at] ?? []).map((head) => ({ layer, head, score: scores[at]?.[head] ?? null })),
  );
  const value = (cell: ScoredCell): number => cell.score ?? Number.NEGATIVE_INFINITY;
  const kept = cells.filter((cell) => least === null || value(cell) >= least);
  // Equal scores keep the order of the layers: sorting is stable.
  return kept.sort((a, b) => (value(a) === value(b) ? 0 : value(b) - value(a)));
}

/** Ranked cells in rows of `perRow`. */
export function galleryGrid(
  stack: StackDescription,
  offered: number[][],
  cells: ScoredCell[],
  score: string,
  perRow: number,
): Grid {
  const rows: Grid["rows"] = [];
  for (let at = 0; at < cells.length; at += perRow) {
    const row: (ScoredCell | null)[] = cells.slice(at, at + perRow);
    while (row.length < perRow) row.push(null);
    rows.push(row);
  }
  return {
    stack: stack.name,
    columns: null,
    rows,
    shown: cells.length,
    offered: offered.flat().length,
    all: countKept(stack),
    score,
  };
}

/** Where a cell is: its row and its place in it. */
export interface At {
  row: number;
  column: number;
}

export function findCell(grid: Grid, cell: Cell | null): At | null {
  if (!cell) return null;
  for (let row = 0; row < grid.rows.length; row++) {
    const column = (grid.rows[row] as (Cell | null)[]).findIndex(
      (each) => each?.layer === cell.layer && each.head === cell.head,
    );
    if (column >= 0) return { row, column };
  }
  return null;
}

function nearest(row: readonly (Cell | null)[], column: number): number {
  let best = -1;
  row.forEach((cell, at) => {
    if (cell && (best < 0 || Math.abs(at - column) < Math.abs(best - column))) best = at;
  });
  return best;
}

/** The cell that `rows` and `columns` steps lead to; over gaps, and no further than the last. */
export function stepCell(grid: Grid, from: At, rows: number, columns: number): At {
  let { row, column } = from;
  const across = Math.sign(columns);
  for (let left = Math.abs(columns); left > 0; left--) {
    let next = column + across;
    while (next >= 0 && next < (grid.rows[row]?.length ?? 0) && !grid.rows[row]?.[next])
      next += across;
    if (!grid.rows[row]?.[next]) break;
    column = next;
  }
  if (rows !== 0) {
    const next = Math.max(0, Math.min(grid.rows.length - 1, row + rows));
    const there = nearest(grid.rows[next] ?? [], column);
    if (next !== row && there >= 0) {
      row = next;
      column = there;
    }
  }
  return { row, column };
}

/** How large thumbnails are; "fit" for what the width allows. */
export type CellSize = "fit" | "small" | "medium" | "large";

const SIZES: Record<Exclude<CellSize, "fit">, number> = { small: 26, medium: 48, large: 96 };
/** A thumbnail that is smaller tells nothing; the grid scrolls instead. */
const LEAST_CELL = 24;
const MOST_CELL = 96;
/** Pixels for "layer 31" and for "head 0". */
const LABEL_WIDTH = 64;
const LABEL_HEIGHT = 24;
/** Pixels below a gallery's thumbnails, for two lines of words. */
const CAPTION_HEIGHT = 32;
const CAPTION_WIDTH = 52;
/** A thumbnail as wide as this has room for "layer 3, head 1" below it. */
const WIDE_CAPTION = 84;
const SCROLLBAR = 15;
/** A gallery has rows of any length: its thumbnails need not fit. */
const GALLERY_CELL = 64;

/** Pixels of everything in the grid. */
export interface Layout {
  /** The side of a thumbnail. */
  cell: number;
  /** From one cell to the next. */
  across: number;
  down: number;
  /** Of the labels on the left and above. */
  left: number;
  top: number;
  /** What a gallery writes below its thumbnails: nothing, in short, or in words. */
  caption: "none" | "short" | "words";
  columns: number;
  /** Of everything, and of the box that it scrolls in. */
  width: number;
  height: number;
  boxWidth: number;
  boxHeight: number;
}

const GAPS = [3, 5, 8] as const;

function gapOf(cell: number): number {
  return cell < 36 ? GAPS[0] : cell < 64 ? GAPS[1] : GAPS[2];
}

/** The side of thumbnails of which `columns` fill `room`. */
function fitting(room: number, columns: number): number {
  const pitch = Math.floor(room / Math.max(1, columns));
  // A side has the gap of its own size: the largest of which side and gap fit.
  const sides = GAPS.map((gap) => pitch - gap);
  const side = sides.find((each) => each + gapOf(each) <= pitch) ?? LEAST_CELL;
  return Math.max(LEAST_CELL, Math.min(MOST_CELL, side));
}

/** A side that the matrix' cells part evenly, where that costs little. */
function even(side: number, cells: number): number {
  const snapped = Math.floor(side / cells) * cells;
  return snapped >= 0.8 * side && snapped >= LEAST_CELL ? snapped : side;
}

/** Cells of a gallery in one row. */
export function cellsInRow(width: number, size: CellSize): number {
  const cell = size === "fit" ? GALLERY_CELL : SIZES[size];
  return Math.max(1, Math.floor((width - SCROLLBAR) / galleryPitch(cell)));
}

function galleryPitch(cell: number): number {
  return Math.max(cell, CAPTION_WIDTH) + gapOf(cell);
}

/** Lays out a grid of `columns` and `rows` in a box of `width` and at most `mostHeight`. */
export function layOut(options: {
  columns: number;
  rows: number;
  gallery: boolean;
  width: number;
  mostHeight: number;
  size: CellSize;
  /** Queries or keys, whichever are more. */
  longest: number;
}): Layout {
  const { columns, rows, gallery, width, mostHeight, size, longest } = options;
  const left = gallery ? 2 : LABEL_WIDTH;
  const top = gallery ? 2 : LABEL_HEIGHT;
  const at = (room: number): Layout => {
    const wide = gallery ? GALLERY_CELL : fitting(room - left, columns);
    const cell = even(size === "fit" ? wide : SIZES[size], longest);
    const across = gallery ? Math.floor((width - SCROLLBAR - left) / columns) : cell + gapOf(cell);
    const down = cell + gapOf(cell) + (gallery ? CAPTION_HEIGHT : 0);
    const whole = { width: left + columns * across, height: top + rows * down };
    const sideways = whole.width > room;
    const boxHeight = Math.min(whole.height + (sideways ? SCROLLBAR : 0), mostHeight);
    const upright = whole.height + (sideways ? SCROLLBAR : 0) > mostHeight;
    return {
      cell,
      across,
      down,
      left,
      top,
      caption: !gallery ? "none" : across >= WIDE_CAPTION + 8 ? "words" : "short",
      columns,
      ...whole,
      boxWidth: Math.min(whole.width + (upright ? SCROLLBAR : 0), width),
      boxHeight,
    };
  };
  const free = at(width);
  // Once it scrolls, the bar takes some of the width.
  return free.height > mostHeight ? at(width - SCROLLBAR) : free;
}

/** Columns are drawn, and asked for, so many at once. */
export const CHUNK = 16;

/** What of the grid is in sight: rows and chunks of columns from a first to before a last. */
export interface Sight {
  rows: [number, number];
  chunks: [number, number];
}

export function sightOf(layout: Layout, numRows: number, scroll: { x: number; y: number }): Sight {
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

/** Cells of a row in a chunk of columns. */
export function chunkOf<T>(row: readonly T[], chunk: number): T[] {
  return row.slice(chunk * CHUNK, (chunk + 1) * CHUNK);
}

/** Cells by layer, as they are asked for. */
export function byLayer(cells: Iterable<Cell | null>): [number, number[]][] {
  const layers = new Map<number, number[]>();
  for (const cell of cells) {
    if (!cell) continue;
    const heads = layers.get(cell.layer);
    if (heads) heads.push(cell.head);
    else layers.set(cell.layer, [cell.head]);
  }
  return [...layers].map(([layer, heads]) => [layer, heads.sort((a, b) => a - b)]);
}

/** Cells a side that a thumbnail's map is asked for: no more than can be seen. */
export function mapSizeFor(cell: number, pixelRatio: number, longest: number): number {
  return longest <= 32 || cell * pixelRatio < 48 ? 32 : 64;
}
