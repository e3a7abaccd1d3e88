/** Positions of thumbnails, and the resolution of their maps. Pure functions. */

import {
  type GridCells,
  type GridLayout,
  type HeadIndex,
  inScrollBox,
  SCROLLBAR,
} from "../../ui/head-grid/grid";

/** Size of the thumbnails. "fit" is the size that the width allows. */
export type CellSize = "fit" | "small" | "medium" | "large";

const SIZES: Record<Exclude<CellSize, "fit">, number> = { small: 26, medium: 48, large: 96 };
/** Minimum side of thumbnails that shrink to show all heads of a layer. */
const MIN_CELL = 12;
/** Side of thumbnails that scroll, and their minimum side in a low box. */
const SCROLLED_CELL = 24;
/** Minimum side in a printed figure, which has a head number above each column. */
const MIN_PRINTED_CELL = 13;
const MAX_CELL = 96;
/** Width of "layer 31", width of "L31" in views narrower than `SHORT_LABELS`, height of "head 0". */
const LABEL_WIDTH = 64;
const SHORT_LABEL_WIDTH = 40;
const SHORT_LABELS = 480;
const LABEL_HEIGHT = 24;
/** Width of labels in a narrow figure, which has small texts. */
const NARROW_LABEL = 50;
/** Size of the two lines of text below the thumbnails of a gallery. */
const CAPTION_HEIGHT = 32;
const CAPTION_WIDTH = 52;
/** Minimum width of a thumbnail with "layer 3, head 1" below it. */
const WIDE_CAPTION = 84;
/** Side of thumbnails in a gallery, whose rows have any length. */
const GALLERY_CELL = 64;

/** Sizes of the cells of the grid in pixels. */
interface Cells extends GridCells {
  /** Height of the bar below each thumbnail, or 0 without bars. */
  bars: number;
  /** Height of the role below the bar, or 0 without roles. */
  roles: number;
  /** Form of the captions below the thumbnails of a gallery. */
  caption: "none" | "short" | "words";
}

export type Layout = Cells & GridLayout;

/** Size of the letter of a role. */
export const ROLE_LETTER = 11;
const ROLE_HEIGHT = 14;
/** Minimum width of a thumbnail with the name of the role beside the letter. */
export const MIN_NAMED = 64;

/** Gap between a thumbnail and its bar, and the height of the bar. */
export const BAR_GAP = 3;
export const BAR_HEIGHT = 5;

const GAPS = [3, 5, 8] as const;

function gapOf(cell: number): number {
  return cell < 36 ? GAPS[0] : cell < 64 ? GAPS[1] : GAPS[2];
}

/** Return the side of `count` thumbnails that fill `room`, or `otherwise` if it is below `least`. */
function fittedSide(room: number, count: number, minSide: number, otherwise = minSide): number {
  const pitch = Math.floor(room / Math.max(1, count));
  // The gap depends on the side. The sides are in descending order, and the first that fits wins.
  const sides = GAPS.map((gap) => pitch - gap);
  const side = sides.find((item) => item + gapOf(item) <= pitch) ?? 0;
  return side < minSide ? otherwise : Math.min(MAX_CELL, side);
}

/** Round `side` down to a multiple of `cells`, unless less than 80 percent would remain. */
function roundToCells(side: number, cells: number): number {
  const snapped = Math.floor(side / cells) * cells;
  return snapped >= 0.8 * side && snapped > 0 ? snapped : side;
}

/** Return the number of thumbnails in one row of a gallery. */
export function cellsInRow(width: number, size: CellSize): number {
  const cell = size === "fit" ? GALLERY_CELL : SIZES[size];
  return Math.max(1, Math.floor((width - SCROLLBAR) / galleryPitch(cell)));
}

function galleryPitch(cell: number): number {
  return Math.max(cell, CAPTION_WIDTH) + gapOf(cell);
}

/** Lay out a grid of thumbnails in a scroll box of at most `maxHeight`. */
export function layOut(options: {
  columns: number;
  rows: number;
  gallery: boolean;
  width: number;
  maxHeight: number;
  size: CellSize;
  /** Number of queries or of keys, the larger of the two. */
  longest: number;
  /** Whether this is a figure of a given width, in which nothing scrolls. */
  printed?: boolean;
  /** Whether each thumbnail has a bar. */
  bars?: boolean;
  /** Whether heads have roles. The captions of a gallery contain them. */
  roles?: boolean;
}): Layout {
  const { columns, rows, gallery, width, size, longest, printed } = options;
  const heightLimit = printed ? Number.POSITIVE_INFINITY : options.maxHeight;
  const narrow = printed ? NARROW_LABEL : SHORT_LABEL_WIDTH;
  const left = gallery ? 2 : width < SHORT_LABELS ? narrow : LABEL_WIDTH;
  const top = gallery ? 2 : LABEL_HEIGHT;
  const bars = options.bars ? BAR_GAP + BAR_HEIGHT : 0;
  const roles = options.roles && !gallery ? ROLE_HEIGHT : 0;
  const cellsFor = (room: number): Cells => {
    const byWidth = printed
      ? fittedSide(room - left, columns, MIN_PRINTED_CELL)
      : fittedSide(room - left, columns, MIN_CELL, SCROLLED_CELL);
    const byHeight = printed
      ? MAX_CELL
      : fittedSide(heightLimit - top - rows * (bars + roles), rows, SCROLLED_CELL);
    const wide = gallery ? GALLERY_CELL : Math.min(byWidth, byHeight);
    const side = size === "fit" ? wide : SIZES[size];
    // In print, cells do not end at whole pixels anyway.
    const cell = printed ? side : roundToCells(side, longest);
    const across = gallery ? Math.floor((width - SCROLLBAR - left) / columns) : cell + gapOf(cell);
    const down = cell + gapOf(cell) + bars + (gallery ? CAPTION_HEIGHT : roles);
    const total = { width: left + columns * across, height: top + rows * down };
    return {
      cell,
      across,
      down,
      left,
      top,
      // The frame of a thumbnail lies outside its cell.
      frame: 1,
      bars,
      roles,
      caption: !gallery ? "none" : across >= WIDE_CAPTION + 8 ? "words" : "short",
      columns,
      ...total,
    };
  };
  return inScrollBox(cellsFor, width, heightLimit);
}

/** Gap between the grid and the detail beside it. */
export const BETWEEN = 24;
const MAX_DETAIL = 640;

/** Return the width of the detail beside the grid. The grid gets the remaining width. */
export function detailWidth(room: number): number {
  return Math.min(MAX_DETAIL, Math.floor(0.45 * (room - BETWEEN)));
}

/** Group cells by layer, as requests require it. */
export function groupByLayer(cells: Iterable<HeadIndex | null>): [number, number[]][] {
  const layers = new Map<number, number[]>();
  for (const cell of cells) {
    if (!cell) continue;
    const heads = layers.get(cell.layer);
    if (heads) heads.push(cell.head);
    else layers.set(cell.layer, [cell.head]);
  }
  return [...layers].map(([layer, heads]) => [layer, heads.sort((a, b) => a - b)]);
}

/** Return the resolution of maps, in cells per side, that is visible on a thumbnail. */
export function mapSizeFor(cell: number, pixelRatio: number, longest: number): number {
  return longest <= 32 || cell * pixelRatio < 48 ? 32 : 64;
}
