/** Which head stands where in a grid, where cells lie, and which are in sight. Pure functions. */

import type { StackDescription } from "../../client/protocol";
import { countHeads, headsOf, type Scores } from "../../client/source";
import { rankOf } from "../effects/effects";

/** Heads that are offered: everywhere, or by layer. */
export type IncludeHeads = number[] | Record<string, number[]> | null;

/** One head. */
export interface HeadIndex {
  layer: number;
  head: number;
}

export function isSameHead(one: HeadIndex | null, other: HeadIndex | null): boolean {
  return one?.layer === other?.layer && one?.head === other?.head;
}

/** A cell with the score that it is ordered by. */
export interface ScoredHead extends HeadIndex {
  score: number | null;
}

/** The heads of every layer that are offered, in the order of `stack.layers`. */
export function offeredHeads(stack: StackDescription, include: IncludeHeads): number[][] {
  return stack.layers.map((layer) => {
    const all = headsOf(stack, layer);
    if (include === null) return all;
    const named = Array.isArray(include) ? include : (include[String(layer)] ?? []);
    return all.filter((head) => named.includes(head));
  });
}

/** Rows of cells; where a layer lacks a head there is null. */
export interface HeadGrid {
  stack: string;
  /** Numbers of the heads in the columns; null in a gallery, where columns mean nothing. */
  columns: number[] | null;
  rows: (ScoredHead | null)[][];
  /** Heads that are shown, that are offered, and that the stack has. */
  shown: number;
  offered: number;
  all: number;
  /** The name of the scores that cells are ordered by. */
  score: string | null;
}

/** Layers downwards, heads to the right, each in the column of its own number. */
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
 * All heads by falling score, or by its size; those without one last, those below the least score
 * not at all.
 */
export function rankedCells(
  stack: StackDescription,
  offered: number[][],
  scores: Scores,
  least: number | null,
  bySize = false,
): ScoredHead[] {
  const cells = stack.layers.flatMap((layer, at) =>
    (offered[at] ?? []).map((head) => ({ layer, head, score: scores[at]?.[head] ?? null })),
  );
  const value = (cell: ScoredHead): number => rankOf(cell.score, bySize);
  const ranked = cells.filter((cell) => least === null || value(cell) >= least);
  // Equal scores keep the order of the layers: sorting is stable.
  return ranked.sort((a, b) => (value(a) === value(b) ? 0 : value(b) - value(a)));
}

/** Ranked cells in rows of `perRow`. */
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

/** Where a cell is: its row and its place in it. */
export interface GridPosition {
  row: number;
  column: number;
}

export function findCell(grid: HeadGrid, cell: HeadIndex | null): GridPosition | null {
  if (!cell) return null;
  for (let row = 0; row < grid.rows.length; row++) {
    const column = (grid.rows[row] as (HeadIndex | null)[]).findIndex(
      (each) => each?.layer === cell.layer && each.head === cell.head,
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

/** The cell that `rows` and `columns` steps lead to; over gaps, and no further than the last. */
export function stepCell(
  grid: HeadGrid,
  from: GridPosition,
  rows: number,
  columns: number,
): GridPosition {
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

/** Where cells lie, in pixels: labels first, then a cell every `across` and `down`. */
export interface GridCells {
  /** The side of a cell's picture, and how far its frame goes beyond it on each side. */
  cell: number;
  frame: number;
  /** From one cell to the next. */
  across: number;
  down: number;
  /** Of the labels on the left and above. */
  left: number;
  top: number;
  columns: number;
  /** Of all cells with their labels. */
  width: number;
  height: number;
}

/** Cells in the box that they scroll in. */
export interface GridLayout extends GridCells {
  boxWidth: number;
  boxHeight: number;
}

/**
 * Cells in a box of at most `width` and `mostHeight` that they scroll in: once they scroll downwards,
 * the bar takes some of the width that they are laid out in.
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

/** What a column's label says: the number alone where there is little room. */
export function columnLabel(head: number, layout: GridLayout): string {
  return layout.across >= 50 && layout.left > 40 ? `head ${head}` : String(head);
}

/** What a row's label says. */
export function rowLabel(layer: number | undefined, layout: GridLayout): string {
  if (layout.left > 40) return `layer ${layer}`;
  return layout.left > 30 ? `L${layer}` : String(layer);
}

/** Every so-manieth row or column has a label where they are as narrow as this. */
export function labelledEvery(each: number): number {
  return each >= 14 ? 1 : 5;
}

/** Columns are drawn, and asked for, so many at once. */
export const CHUNK = 16;

/** What of the grid is in sight: rows and chunks of columns from a first to before a last. */
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

/** What a scroll bar takes of a box. */
export const SCROLLBAR = 15;
/** Pixels that a cell may lack and still is seen. */
const NEARLY = 3;

/** Rows and columns whose cells are in sight as a whole: the first, and the one after the last. */
export function wholeInSight(
  layout: GridLayout,
  numRows: number,
  scroll: { x: number; y: number },
): { rows: [number, number]; columns: [number, number] } {
  const { left, top, across, down, cell, width, height, boxWidth, boxHeight } = layout;
  const upright = height > boxHeight ? SCROLLBAR : 0;
  const sideways = width + upright > boxWidth ? SCROLLBAR : 0;
  const within = (from: number, room: number, bar: number, each: number, count: number) => {
    const first = Math.max(0, Math.ceil((from - NEARLY) / each));
    // At the end all is in sight, also where a browser's bars take no room.
    const atEnd = from + room >= count * each - NEARLY;
    const last = atEnd ? count : Math.floor((from + room - bar - cell + NEARLY) / each) + 1;
    return [first, Math.max(first, Math.min(count, last))] as [number, number];
  };
  return {
    rows: within(scroll.y, boxHeight - top, sideways, down, numRows),
    columns: within(scroll.x, boxWidth - left, upright, across, layout.columns),
  };
}

/**
 * The cell that lies somewhere in a grid; null between cells, and where labels hide them.
 *
 * @param x, y pixels from the corner of all cells with their labels, scrolled or not.
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

/** Cells of a row in a chunk of columns. */
export function chunkOf<T>(row: readonly T[], chunk: number): T[] {
  return row.slice(chunk * CHUNK, (chunk + 1) * CHUNK);
}
