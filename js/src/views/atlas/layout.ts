/**
 * Positions and sizes of the atlas's cells. Pure functions.
 *
 * The grid has one row per layer. If heads are ordered by a score, the grid is a gallery: the heads
 * follow each other in reading order, and rows and columns have no meaning.
 */

import {
  type GridLayout,
  type HeadGrid,
  layOutGrid,
  numColumns,
  SCROLLBAR,
} from "../../ui/head-grid/grid";

/** Minimum size in pixels of a cell in which a number is drawn. */
export const WITH_NUMBER = 22;

/** Minimum width in pixels of the grid. */
const MIN_WIDTH = 200;
/** Maximum height in pixels of the grid. A higher grid scrolls. */
const MAX_HEIGHT = 1000;
const MIN_CELL = 8;
const MAX_CELL = 34;
/** Pixels between cells smaller than `WIDE_CELL`. */
const NARROW_GAP = 1;
/** Pixels between larger cells. */
const GAP = 2;
const WIDE_CELL = 14;
/** Pixels below a cell of a gallery for its caption: layer and head ("8.3"), and the score. */
const CAPTION_HEIGHT = 26;
/** Pixels around the cells for the frame of the chosen cell and the overhang of labels. */
const BEYOND = 4;

/** Maximum number of heads in a gallery with captions. Cells of larger galleries are too small. */
const MAX_CAPTIONS = 320;

export function hasCaptions(heads: number): boolean {
  return heads <= MAX_CAPTIONS;
}

/** Return the side of a gallery's cells in pixels, and the number of cells per row. */
export function galleryOf(heads: number, width: number): { cell: number; perRow: number } {
  const captions = hasCaptions(heads);
  // Cells are small if there are many heads, because all heads should be visible at once.
  const cell = captions ? MAX_CELL : heads <= 1500 ? 16 : MIN_CELL + 1;
  const perRow = Math.max(1, Math.floor((width - SCROLLBAR - 2 * BEYOND) / (cell + gapOf(cell))));
  return { cell, perRow: Math.min(perRow, Math.max(1, heads)) };
}

function gapOf(cell: number): number {
  return cell < WIDE_CELL ? NARROW_GAP : GAP;
}

/**
 * Lay out a grid in a scroll box.
 *
 * @param printed whether the grid is for a figure of a stated width, which cannot scroll.
 */
export function layOut(grid: HeadGrid, available: number, printed: boolean): GridLayout {
  const room = { width: Math.max(MIN_WIDTH, available), maxHeight: MAX_HEIGHT, printed };
  const cellsIn = ({ width }: { width: number }) => {
    const pitch = Math.floor(width / numColumns(grid));
    const fitting = Math.max(MIN_CELL, Math.min(MAX_CELL, pitch - gapOf(pitch - NARROW_GAP)));
    const cell = grid.columns ? fitting : galleryOf(grid.shown, available).cell;
    const below = !grid.columns && hasCaptions(grid.shown) ? CAPTION_HEIGHT : 0;
    return { cell, gap: gapOf(cell), below };
  };
  return layOutGrid(grid, room, cellsIn, { frame: 0, edge: BEYOND });
}
