/**
 * Sizes of the cells in the grid of heads, and the arrangement of the panes below it. A gallery is
 * a grid of all heads ordered by distance. In other grids each layer has a row. Pure functions.
 */

import {
  type GridLayout,
  type GridRoom,
  type HeadGrid,
  layOutGrid,
  numColumns,
  SCROLLBAR,
} from "../../ui/head-grid/grid";

/** Minimum width in pixels at which two panes are side by side. The dashboard has the same. */
const TWO_COLUMNS = 620;
/** Minimum width in pixels at which three panes are side by side. */
const THREE_COLUMNS = 900;
/**
 * The same widths in a printed figure, whose texts are smaller: two columns on a page, with texts of
 * 8 points from 155 mm on.
 */
const PRINTED = { two: 540, three: 860 };

/** Arrangement of the panes: all in one row, the third below two others, or one below the other. */
export type Arrangement = "columns" | "two" | "stack";

export function arrangementAt(width: number, numPanes: number, printed: boolean): Arrangement {
  const { two, three } = printed ? PRINTED : { two: TWO_COLUMNS, three: THREE_COLUMNS };
  if (width < two) return "stack";
  return numPanes > 2 && width < three ? "two" : "columns";
}

const MIN_CELL = 16;
const MIN_PRINTED = 13;
const MAX_CELL = 40;
const GAP = 3;
/** Minimum width in pixels of a cell that shows a number such as "0.41". */
export const WITH_NUMBERS = 27;
/** Height in pixels of the label below a cell of a gallery, such as "8.3" for layer 8, head 3. */
const CAPTION_HEIGHT = 15;

/** Return the number of cells per row in a gallery of the given width. */
export function cellsInRow(width: number): number {
  return Math.max(1, Math.floor((width - SCROLLBAR) / (MAX_CELL + GAP)));
}

export function layOut(grid: HeadGrid, room: GridRoom): GridLayout {
  return layOutGrid(grid, room, ({ width }) => {
    const fitting = Math.floor(width / numColumns(grid)) - GAP;
    const minCell = room.printed ? MIN_PRINTED : MIN_CELL;
    const cell = grid.columns ? Math.max(minCell, Math.min(MAX_CELL, fitting)) : MAX_CELL;
    return { cell, gap: GAP, below: grid.columns ? 0 : CAPTION_HEIGHT };
  });
}
