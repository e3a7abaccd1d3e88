/** Positions and sizes of the atlas's cells. Pure functions. */

import { type GridCells, type GridLayout, inScrollBox, SCROLLBAR } from "../../ui/head-grid/grid";

/** Minimum sizes of cells with a letter, and with two digits. */
export const WITH_LETTER = 8;
export const WITH_NUMBER = 22;

const MIN_CELL = 8;
const MAX_CELL = 34;
/** Pixels between small cells, and between larger cells. */
const NARROW_GAP = 1;
const GAP = 2;
const WIDE_CELL = 14;
/** Pixels for "layer 11", and for "11" if there is little room or cells are small. */
const LABEL_WIDTH = 58;
const SHORT_LABEL_WIDTH = 34;
const SHORT_LABELS = 420;
const LABEL_HEIGHT = 22;
/** Pixels below a cell of a gallery, for "8.3" and the value that heads are ordered by. */
const CAPTION_HEIGHT = 26;
const BEYOND = 4;

/** Maximum number of heads with captions. Cells of longer lists are too small. */
const MAX_CAPTIONS = 320;

export function hasCaptions(heads: number): boolean {
  return heads <= MAX_CAPTIONS;
}

/** Return the side of a gallery's cells, and the number of cells per row. */
export function galleryOf(heads: number, width: number): { cell: number; perRow: number } {
  const captions = hasCaptions(heads);
  // Many heads have small cells, so that all are visible at once.
  const cell = captions ? MAX_CELL : heads <= 1500 ? 16 : MIN_CELL + 1;
  const perRow = Math.max(1, Math.floor((width - SCROLLBAR - 2 * BEYOND) / (cell + gapOf(cell))));
  return { cell, perRow: Math.min(perRow, Math.max(1, heads)) };
}

function gapOf(cell: number): number {
  return cell < WIDE_CELL ? NARROW_GAP : GAP;
}

export function layOut(options: {
  columns: number;
  rows: number;
  /** Cells of a gallery, or null if rows are layers. */
  listed: { cell: number; captions: boolean } | null;
  width: number;
  mostHeight: number;
  /** Whether this is a figure of a stated width, in which nothing scrolls. */
  printed?: boolean;
}): GridLayout {
  const { columns, rows, listed, width, printed = false } = options;
  const mostHeight = printed ? Number.POSITIVE_INFINITY : options.mostHeight;
  const frame = 0;
  const at = (room: number): GridCells => {
    const wide = (left: number): number => Math.floor((room - left - BEYOND) / columns);
    const roomy = width >= SHORT_LABELS && wide(LABEL_WIDTH) >= WIDE_CELL + GAP;
    const left = listed ? BEYOND : roomy ? LABEL_WIDTH : SHORT_LABEL_WIDTH;
    const fitting = wide(left);
    const cell =
      listed?.cell ?? Math.max(MIN_CELL, Math.min(MAX_CELL, fitting - gapOf(fitting - NARROW_GAP)));
    const across = cell + gapOf(cell);
    const down = across + (listed?.captions ? CAPTION_HEIGHT : 0);
    const top = listed ? BEYOND : LABEL_HEIGHT;
    // Include the overhang of the last label and of the frame of a chosen cell.
    const whole = { width: left + columns * across + BEYOND, height: top + rows * down + BEYOND };
    return {
      cell,
      frame,
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
