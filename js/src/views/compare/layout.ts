/**
 * Positions and sizes of the grid's cells, and the arrangement of the panes. A gallery is a grid of
 * all heads ordered by distance. In other grids each layer has a row. Pure functions.
 */

import { type GridCells, type GridLayout, inScrollBox, SCROLLBAR } from "../../ui/head-grid/grid";

/** Minimum width in pixels at which panes are side by side. */
const COLUMNS = 900;
/** Minimum width in pixels at which panes of an exported figure are side by side. */
const PRINTED_COLUMNS = 1000;

export type Arrangement = "columns" | "stack";

export function arrangementAt(width: number, printed: boolean): Arrangement {
  return width >= (printed ? PRINTED_COLUMNS : COLUMNS) ? "columns" : "stack";
}

const MIN_CELL = 16;
const MIN_PRINTED = 13;
const MAX_CELL = 40;
const GAP = 3;
/** Minimum width of a cell that shows a number such as "0.41". */
export const WITH_NUMBERS = 27;
/** Widths of the labels "layer 11" and, in views narrower than `SHORT_LABELS`, "L11". */
const LABEL_WIDTH = 64;
const SHORT_LABEL_WIDTH = 40;
/** Width of the label "L11" in an exported figure narrower than `SHORT_LABELS`. */
const NARROW_LABEL = 50;
const SHORT_LABELS = 480;
/** Height of the label "head 0" above a column. */
const LABEL_HEIGHT = 24;
/** Height of the label below a cell of a gallery, such as "8.3" for layer 8, head 3. */
const CAPTION_HEIGHT = 15;

/** Return the number of cells per row in a gallery of the given width. */
export function cellsInRow(width: number): number {
  return Math.max(1, Math.floor((width - SCROLLBAR) / (MAX_CELL + GAP)));
}

export function layOut(options: {
  columns: number;
  rows: number;
  /** Whether the grid is a gallery. */
  gallery: boolean;
  width: number;
  mostHeight: number;
  /** Whether this is a figure with a given width or text size. A figure does not scroll. */
  printed?: boolean;
}): GridLayout {
  const { columns, rows, gallery, width, printed = false } = options;
  const mostHeight = printed ? Number.POSITIVE_INFINITY : options.mostHeight;
  const short = printed ? NARROW_LABEL : SHORT_LABEL_WIDTH;
  const left = gallery ? 2 : width < SHORT_LABELS ? short : LABEL_WIDTH;
  const top = gallery ? 2 : LABEL_HEIGHT;
  const at = (room: number): GridCells => {
    const fitting = Math.floor((room - left) / columns) - GAP;
    const least = printed ? MIN_PRINTED : MIN_CELL;
    const cell = gallery ? MAX_CELL : Math.max(least, Math.min(MAX_CELL, fitting));
    const across = cell + GAP;
    const down = across + (gallery ? CAPTION_HEIGHT : 0);
    const whole = { width: left + columns * across, height: top + rows * down };
    return {
      cell,
      frame: 1,
      across,
      down,
      left,
      top,
      columns,
      ...whole,
    };
  };
  return inScrollBox(at, width, mostHeight);
}
