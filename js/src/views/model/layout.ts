/**
 * Positions of thumbnails, and the resolution of their maps. Pure functions.
 *
 * A thumbnail shows the map of one head: its attention matrix, pooled to few cells. The grid has
 * one row per layer. If heads are ordered by a score, the grid is a gallery: the heads follow each
 * other in reading order, with captions. The detail is the larger heat map of one head.
 */

import {
  GALLERY_EDGE,
  type GridRoom,
  type HeadGrid,
  type HeadIndex,
  layOutGrid,
  numColumns,
  SCROLLBAR,
} from "../../ui/head-grid/grid";

/**
 * Minimum side in pixels of thumbnails in a grid that does not scroll to the side.
 */
const MIN_CELL = 12;
/**
 * Side in pixels of thumbnails that would be smaller than `MIN_CELL`. The grid then scrolls to the
 * side. It is also the minimum side in a grid with many rows, which scrolls down.
 */
const SCROLLED_CELL = 24;
/** Minimum side in pixels of thumbnails in a printed figure, which has numbers above columns. */
const MIN_PRINTED_CELL = 13;
/** Maximum side in pixels of thumbnails, on a screen and in a printed figure. */
const MAX_CELL = 160;
const MAX_PRINTED_CELL = 96;
/** Height in pixels of the two lines of text below the thumbnails of a gallery. */
const CAPTION_HEIGHT = 32;
/** Minimum width in pixels of the captions in a gallery. */
const CAPTION_WIDTH = 52;
/** Minimum width in pixels of a caption with words, such as "layer 3, head 1" instead of "3.1". */
const WIDE_CAPTION = 84;
/** Side in pixels of thumbnails in a gallery. */
const GALLERY_CELL = 64;

/** Side in pixels of the square with the letter of a role. */
export const ROLE_LETTER = 11;
/** Height in pixels of the line with the role. */
const ROLE_HEIGHT = 14;
/** Minimum width in pixels of a thumbnail that has the name of the role beside the letter. */
export const MIN_NAMED = 64;

/** Pixels between a thumbnail and the bar below it. */
export const BAR_GAP = 3;
/** Height of the bar in pixels. */
export const BAR_HEIGHT = 5;

/** Pixels between small, medium and large thumbnails. */
const GAPS = [3, 5, 8] as const;

function gapOf(cell: number): number {
  return cell < 36 ? GAPS[0] : cell < 64 ? GAPS[1] : GAPS[2];
}

/**
 * Return the largest side, up to `MAX_CELL`, with which `count` thumbnails and the gaps after them
 * fit into `room` pixels. Return `otherwise` if this side is less than `minSide`.
 */
function fittedSide(room: number, count: number, minSide: number, otherwise = minSide): number {
  const pitch = Math.floor(room / Math.max(1, count));
  // Larger thumbnails have larger gaps. Try each gap, the smallest first, because it leaves the
  // largest side.
  const sides = GAPS.map((gap) => pitch - gap);
  const side = sides.find((item) => item + gapOf(item) <= pitch) ?? 0;
  return side < minSide ? otherwise : Math.min(MAX_CELL, side);
}

/**
 * Round `side` down to a multiple of `cells`, so that all cells of a map have equal sizes. Return
 * `side` if less than 80% of it would remain.
 */
function roundToCells(side: number, cells: number): number {
  const snapped = Math.floor(side / cells) * cells;
  return snapped >= 0.8 * side && snapped > 0 ? snapped : side;
}

/** Return the number of thumbnails in one row of a gallery. */
export function cellsInRow(width: number): number {
  const pitch = Math.max(GALLERY_CELL, CAPTION_WIDTH) + gapOf(GALLERY_CELL);
  return Math.max(1, Math.floor((width - SCROLLBAR) / pitch));
}

/** Lay out a grid of thumbnails in a scroll box. */
export function layOut(
  grid: Pick<HeadGrid, "columns" | "rows" | "kinds">,
  room: GridRoom,
  options: {
    /** Larger of the number of queries and the number of keys. */
    longest: number;
    /** Whether each thumbnail has a bar below it, for the head's effect. */
    hasBars?: boolean;
    /** Whether heads have roles. In a gallery, the captions contain the roles. */
    hasRoles?: boolean;
  },
) {
  const { longest } = options;
  const { printed } = room;
  const [columns, rows, gallery] = [numColumns(grid), grid.rows.length, grid.columns === null];
  /** Height of the bar below each thumbnail, with the gap above the bar. */
  const bars = options.hasBars ? BAR_GAP + BAR_HEIGHT : 0;
  const roles = options.hasRoles && !gallery ? ROLE_HEIGHT : 0;
  const layout = layOutGrid(grid, room, ({ width, height }) => {
    const byWidth = printed
      ? Math.min(MAX_PRINTED_CELL, fittedSide(width, columns, MIN_PRINTED_CELL))
      : fittedSide(width, columns, MIN_CELL, SCROLLED_CELL);
    const byHeight = fittedSide(height - rows * (bars + roles), rows, SCROLLED_CELL);
    const side = gallery ? GALLERY_CELL : Math.min(byWidth, byHeight);
    // A printed figure is scaled, so its cells need not have whole pixels.
    const cell = printed ? side : roundToCells(side, longest);
    const inRow = cellsInRow(room.width);
    const across = Math.floor((room.width - SCROLLBAR - GALLERY_EDGE) / inRow);
    const below = bars + (gallery ? CAPTION_HEIGHT : roles);
    return { cell, gap: gapOf(cell), below, ...(gallery && { across }) };
  });
  /** Caption below a thumbnail of a gallery: "3.1" (short) or "layer 3, head 1" (words). */
  const words = layout.across >= WIDE_CAPTION + 8 ? "words" : "short";
  const caption: "none" | "short" | "words" = gallery ? words : "none";
  return { ...layout, bars, roles, caption };
}

export type Layout = ReturnType<typeof layOut>;

/** Pixels between the grid and the detail beside it. */
export const BETWEEN = 24;
const MAX_DETAIL = 640;

/** Return the width of the detail beside the grid, if both share `room` pixels. */
export function detailWidth(room: number): number {
  return Math.min(MAX_DETAIL, Math.floor(0.45 * (room - BETWEEN)));
}

/** Heads of one layer, of which there is at least one. */
type HeadsOfLayer = [HeadIndex, ...HeadIndex[]];

/** Group heads by stack and layer, because a request has heads of one layer only. */
export function groupByLayer(cells: Iterable<HeadIndex | null>): HeadsOfLayer[] {
  const layers = new Map<string, HeadsOfLayer>();
  for (const cell of cells) {
    if (!cell) continue;
    const key = `${cell.layer} ${cell.stack}`;
    const group = layers.get(key);
    if (group) group.push(cell);
    else layers.set(key, [cell]);
  }
  return [...layers.values()].map((group) => group.sort((a, b) => a.head - b.head));
}

/**
 * Return the number of cells per side of the maps for thumbnails.
 *
 * @param cell side of the thumbnails in CSS pixels.
 * @param longest larger of the number of queries and the number of keys.
 */
export function mapSizeFor(cell: number, pixelRatio: number, longest: number): number {
  return longest <= 32 || cell * pixelRatio < 48 ? 32 : 64;
}
