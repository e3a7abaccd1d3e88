/** Grid of heads: order and positions of cells, and the visible part. All functions are pure. */

import type { StackDescription } from "../../client/protocol";
import { countHeads, headsOf, type Scores } from "../../client/source";
import { rankOf } from "../effects/effects";

/** Heads to show, in all layers or by layer. null shows all. */
export type IncludeHeads = number[] | Record<string, number[]> | null;

/** Number of a head and of its layer. */
export interface HeadIndex {
  layer: number;
  head: number;
}

export function isSameHead(one: HeadIndex | null, other: HeadIndex | null): boolean {
  return one?.layer === other?.layer && one?.head === other?.head;
}

/** Head with the score by which it is ordered. */
export interface ScoredHead extends HeadIndex {
  score: number | null;
}

/** Return the heads to show in every layer, in the order of `stack.layers`. */
export function offeredHeads(stack: StackDescription, include: IncludeHeads): number[][] {
  return stack.layers.map((layer) => {
    const all = headsOf(stack, layer);
    if (include === null) return all;
    const named = Array.isArray(include) ? include : (include[String(layer)] ?? []);
    return all.filter((head) => named.includes(head));
  });
}

/** Rows of cells. Cells are null if the layer lacks the head. */
export interface HeadGrid {
  stack: string;
  /** Numbers of the heads in the columns, or null in a gallery, whose columns have no meaning. */
  columns: number[] | null;
  rows: (ScoredHead | null)[][];
  /** Numbers of heads in the grid, of heads to show, and of heads in the stack. */
  shown: number;
  offered: number;
  all: number;
  /** Name of the score that orders the cells, or null. */
  score: string | null;
}

/** Return a grid with one row per layer and one column per head number. */
export function layerGrid(stack: StackDescription, offered: number[][]): HeadGrid {
  const columns = [...new Set(offered.flat())].sort((a, b) => a - b);
  const rows: HeadGrid["rows"] = [];
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
    all: countHeads(stack),
    score: null,
  };
}

/**
 * Order heads by decreasing score, or by decreasing absolute value. Heads without a score come
 * last. Heads below `least` are dropped.
 */
export function rankedCells(
  stack: StackDescription,
  offered: number[][],
  scores: Scores,
  minScore: number | null,
  bySize = false,
): ScoredHead[] {
  const cells = stack.layers.flatMap((layer, at) =>
    (offered[at] ?? []).map((head) => ({ layer, head, score: scores[at]?.[head] ?? null })),
  );
  const value = (cell: ScoredHead): number => rankOf(cell.score, bySize);
  const ranked = cells.filter((cell) => minScore === null || value(cell) >= minScore);
  // The sort is stable, so equal scores keep the order of the layers.
  return ranked.sort((a, b) => (value(a) === value(b) ? 0 : value(b) - value(a)));
}

/** Return a grid of ranked cells in rows of `perRow`. */
export function galleryGrid(
  stack: StackDescription,
  offered: number[][],
  cells: ScoredHead[],
  score: string,
  perRow: number,
): HeadGrid {
  const rows: HeadGrid["rows"] = [];
  for (let at = 0; at < cells.length; at += perRow) {
    const row: (ScoredHead | null)[] = cells.slice(at, at + perRow);
    while (row.length < perRow) row.push(null);
    rows.push(row);
  }
  return {
    stack: stack.name,
    columns: null,
    rows,
    shown: cells.length,
    offered: offered.flat().length,
    all: countHeads(stack),
    score,
  };
}

/** Row and column of a cell. */
export interface GridPosition {
  row: number;
  column: number;
}

export function findCell(grid: HeadGrid, cell: HeadIndex | null): GridPosition | null {
  if (!cell) return null;
  for (let row = 0; row < grid.rows.length; row++) {
    const column = (grid.rows[row] as (HeadIndex | null)[]).findIndex(
      (candidate) => candidate?.layer === cell.layer && candidate.head === cell.head,
    );
    if (column >= 0) return { row, column };
  }
  return null;
}

function nearest(row: readonly (HeadIndex | null)[], column: number): number {
  let best = -1;
  row.forEach((cell, at) => {
    if (cell && (best < 0 || Math.abs(at - column) < Math.abs(best - column))) best = at;
  });
  return best;
}

/** Return the cell after a number of steps. Gaps are skipped, and the ends stop the movement. */
export function stepCell(
  grid: HeadGrid,
  from: GridPosition,
  rows: number,
  columns: number,
): GridPosition {
  let { row, column } = from;
  const across = Math.sign(columns);
  for (let remaining = Math.abs(columns); remaining > 0; remaining--) {
    let next = column + across;
    while (next >= 0 && next < (grid.rows[row]?.length ?? 0) && !grid.rows[row]?.[next])
      next += across;
    if (!grid.rows[row]?.[next]) break;
    column = next;
  }
  if (rows !== 0) {
    const next = Math.max(0, Math.min(grid.rows.length - 1, row + rows));
    const nearestColumn = nearest(grid.rows[next] ?? [], column);
    if (next !== row && nearestColumn >= 0) {
      row = next;
      column = nearestColumn;
    }
  }
  return { row, column };
}

/** Positions of labels and cells, in pixels. */
export interface GridCells {
  /** Side of a cell's picture, and the width of its frame on each side. */
  cell: number;
  frame: number;
  /** Distances from one cell to the next. */
  across: number;
  down: number;
  /** Sizes of the row labels and the column labels. */
  left: number;
  top: number;
  columns: number;
  /** Size of all cells with their labels. */
  width: number;
  height: number;
}

/** Positions of cells, with the size of their scroll box. */
export interface GridLayout extends GridCells {
  boxWidth: number;
  boxHeight: number;
}

/**
 * Return the layout in a scroll box of at most `width` by `mostHeight`. A vertical scroll bar
 * reduces the available width.
 */
export function inScrollBox<Cells extends GridCells>(
  layOutIn: (width: number) => Cells,
  width: number,
  mostHeight: number,
): Cells & { boxWidth: number; boxHeight: number } {
  const free = layOutIn(width);
  const cells = free.height > mostHeight ? layOutIn(width - SCROLLBAR) : free;
  const upright = cells.height > mostHeight;
  const needed = cells.width + (upright ? SCROLLBAR : 0);
  const sideways = needed > width;
  return {
    ...cells,
    boxWidth: Math.min(needed, width),
    boxHeight: upright ? mostHeight : cells.height + (sideways ? SCROLLBAR : 0),
  };
}

/** Return the label of a column, which is only the number in a narrow grid. */
export function columnLabel(head: number, layout: GridLayout): string {
  return layout.across >= 50 && layout.left > 40 ? `head ${head}` : String(head);
}

/** Return the label of a row. */
export function rowLabel(layer: number | undefined, layout: GridLayout): string {
  if (layout.left > 40) return `layer ${layer}`;
  return layout.left > 30 ? `L${layer}` : String(layer);
}

/**
 * Return the distance between labelled rows or columns, given the distance of two cells in pixels.
 */
export function labelledEvery(step: number): number {
  return step >= 14 ? 1 : 5;
}

/** Number of columns per canvas and per request. */
export const CHUNK = 16;

/** Visible part of a grid: ranges of rows and of chunks of columns. */
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
/** Number of pixels of a cell that may be hidden if it counts as visible. */
const NEARLY = 3;

/** Return the ranges of rows and columns whose cells are completely visible. */
export function wholeInSight(
  layout: GridLayout,
  numRows: number,
  scroll: { x: number; y: number },
): { rows: [number, number]; columns: [number, number] } {
  const { left, top, across, down, cell, width, height, boxWidth, boxHeight } = layout;
  const upright = height > boxHeight ? SCROLLBAR : 0;
  const sideways = width + upright > boxWidth ? SCROLLBAR : 0;
  const within = (from: number, room: number, bar: number, step: number, count: number) => {
    const first = Math.max(0, Math.ceil((from - NEARLY) / step));
    // The last cells are completely visible, even if the browser overlays its scroll bars.
    const atEnd = from + room >= count * step - NEARLY;
    const last = atEnd ? count : Math.floor((from + room - bar - cell + NEARLY) / step) + 1;
    return [first, Math.max(first, Math.min(count, last))] as [number, number];
  };
  return {
    rows: within(scroll.y, boxHeight - top, sideways, down, numRows),
    columns: within(scroll.x, boxWidth - left, upright, across, layout.columns),
  };
}

/**
 * Return the head at a point, or null between cells and under the labels.
 *
 * @param x, y pixels from the corner of all cells with their labels, including the scrolled part.
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

/** Return the cells of a row in a chunk of columns. */
export function chunkOf<T>(row: readonly T[], chunk: number): T[] {
  return row.slice(chunk * CHUNK, (chunk + 1) * CHUNK);
}
