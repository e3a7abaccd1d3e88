/**
 * Positions and sizes of the overview's tiles. A tile is the small plot of one head, in a grid with
 * one row per layer. Pure functions.
 */

import { type HeadGrid, inScrollBox, SCROLLBAR } from "../../../ui/head-grid/grid";
import type { FigureDetail } from "../trust";

const MIN_CELL = 40;
/**
 * Minimum side of a plot in an exported figure, in pixels. The trust figures below it need this
 * width.
 */
const MIN_PRINTED = 34;
const SMALL_CELL = 78;
const MAX_CELL = 220;
const MIN_GAP = 6;
const FIGURE_HEIGHT = 15;
/** Maximum height in pixels of a grid without a scroll bar. */
const WHOLE_HEIGHT = 1400;

/**
 * Lay out tiles in the given width. The grid scrolls if tiles would be smaller than their minimum
 * size, or if it is higher than `WHOLE_HEIGHT`.
 *
 * @param printed whether this is an exported figure with a given width or text size. A figure does
 *   not scroll.
 */
export function layOutTiles({ rows, columns }: HeadGrid, width: number, printed: boolean) {
  const count = columns?.length ?? 0;
  const left = width < 560 ? 26 : 62;
  const top = 22;
  const below = FIGURE_HEIGHT + 2;
  const layOutIn = (available: number) => {
    const pitch = Math.floor((available - left) / Math.max(1, count));
    const gap = pitch > 110 ? 12 : MIN_GAP;
    // Limit the size of tiles to the size at which all rows fit without scrolling, unless this is
    // too small.
    const high = Math.floor((WHOLE_HEIGHT - SCROLLBAR - top) / rows.length) - gap - below;
    const most = high >= SMALL_CELL ? Math.min(MAX_CELL, high) : MAX_CELL;
    const cell = Math.max(printed ? MIN_PRINTED : MIN_CELL, Math.min(most, pitch - gap));
    return {
      cell,
      across: cell + gap,
      down: cell + gap + below,
      below,
      left,
      top,
      columns: count,
      // The frame of a plot is drawn inside the plot and needs no additional space.
      frame: 0,
      figures: (cell >= 78 ? "words" : cell >= 57 ? "short" : "least") as FigureDetail,
      width: left + count * (cell + gap),
      height: top + rows.length * (cell + gap + below),
    };
  };
  const scrolls = !printed && layOutIn(width).height > WHOLE_HEIGHT;
  const boxHeight = Math.max(480, Math.floor((globalThis.innerHeight || 900) * 0.85));
  return inScrollBox(layOutIn, width, scrolls ? boxHeight : Number.POSITIVE_INFINITY);
}

export type TileLayout = ReturnType<typeof layOutTiles>;
