/** Where thumbnails lie, and how fine their maps are. Pure functions. */

import {
  type GridCells,
  type GridLayout,
  type HeadIndex,
  inScrollBox,
  SCROLLBAR,
} from "../../ui/head-grid/grid";

/** How large thumbnails are; "fit" for what the width allows. */
export type CellSize = "fit" | "small" | "medium" | "large";

const SIZES: Record<Exclude<CellSize, "fit">, number> = { small: 26, medium: 48, large: 96 };
/** Thumbnails shrink so far that all heads of a layer are in sight; smaller ones would tell nothing. */
const LEAST_CELL = 12;
/** The side of thumbnails that scroll, and the least that they shrink to for the height. */
const SCROLLED_CELL = 24;
/** The number of a head stands above each. */
const LEAST_PRINTED = 13;
const MOST_CELL = 96;
/** Pixels for "layer 31", for "L31" where there is little room, and for "head 0". */
const LABEL_WIDTH = 64;
const SHORT_LABEL_WIDTH = 40;
const SHORT_LABELS = 480;
const LABEL_HEIGHT = 24;
/** The same in a narrow figure, whose texts are small. */
const NARROW_LABEL = 50;
/** Pixels below a gallery's thumbnails, for two lines of words. */
const CAPTION_HEIGHT = 32;
const CAPTION_WIDTH = 52;
/** A thumbnail as wide as this has room for "layer 3, head 1" below it. */
const WIDE_CAPTION = 84;
/** A gallery has rows of any length: its thumbnails need not fit. */
const GALLERY_CELL = 64;

/** Pixels of everything in the grid. */
interface Cells extends GridCells {
  /** Pixels below each thumbnail with its bar; 0 without bars. */
  bars: number;
  /** Pixels below that with the role of its head; 0 without roles. */
  roles: number;
  /** What a gallery writes below its thumbnails: nothing, in short, or in words. */
  caption: "none" | "short" | "words";
}

export type Layout = Cells & GridLayout;

/** The letter of a role, and how much it takes; a wider thumbnail has room for its name, too. */
export const ROLE_LETTER = 11;
const ROLE_HEIGHT = 14;
export const LEAST_NAMED = 64;

/** Between a thumbnail and its bar, and the bar's own height. */
export const BAR_GAP = 3;
export const BAR_HEIGHT = 5;

const GAPS = [3, 5, 8] as const;

function gapOf(cell: number): number {
  return cell < 36 ? GAPS[0] : cell < 64 ? GAPS[1] : GAPS[2];
}

/** The side of thumbnails of which `count` fill `room`; `otherwise` where it is less than `least`. */
function fitting(room: number, count: number, least: number, otherwise = least): number {
  const pitch = Math.floor(room / Math.max(1, count));
  // A side has the gap of its own size: the largest of which side and gap fit.
  const sides = GAPS.map((gap) => pitch - gap);
  const side = sides.find((each) => each + gapOf(each) <= pitch) ?? 0;
  return side < least ? otherwise : Math.min(MOST_CELL, side);
}

/** A side that the matrix' cells part evenly, where that costs little. */
function even(side: number, cells: number): number {
  const snapped = Math.floor(side / cells) * cells;
  return snapped >= 0.8 * side && snapped > 0 ? snapped : side;
}

/** Cells of a gallery in one row. */
export function cellsInRow(width: number, size: CellSize): number {
  const cell = size === "fit" ? GALLERY_CELL : SIZES[size];
  return Math.max(1, Math.floor((width - SCROLLBAR) / galleryPitch(cell)));
}

function galleryPitch(cell: number): number {
  return Math.max(cell, CAPTION_WIDTH) + gapOf(cell);
}

/**
 * Lays out a grid of `columns` and `rows` for `width`, in a box that is at most `mostHeight` high.
 */
export function layOut(options: {
  columns: number;
  rows: number;
  gallery: boolean;
  width: number;
  mostHeight: number;
  size: CellSize;
  /** Queries or keys, whichever are more. */
  longest: number;
  /** For a figure of a stated width, in which nothing scrolls. */
  printed?: boolean;
  /** Whether a bar stands below each thumbnail. */
  bars?: boolean;
  /** Whether heads have roles, which a gallery's captions say. */
  roles?: boolean;
}): Layout {
  const { columns, rows, gallery, width, size, longest, printed } = options;
  const mostHeight = printed ? Number.POSITIVE_INFINITY : options.mostHeight;
  const narrow = printed ? NARROW_LABEL : SHORT_LABEL_WIDTH;
  const left = gallery ? 2 : width < SHORT_LABELS ? narrow : LABEL_WIDTH;
  const top = gallery ? 2 : LABEL_HEIGHT;
  const bars = options.bars ? BAR_GAP + BAR_HEIGHT : 0;
  const roles = options.roles && !gallery ? ROLE_HEIGHT : 0;
  const at = (room: number): Cells => {
    const byWidth = printed
      ? fitting(room - left, columns, LEAST_PRINTED)
      : fitting(room - left, columns, LEAST_CELL, SCROLLED_CELL);
    const byHeight = printed
      ? MOST_CELL
      : fitting(mostHeight - top - rows * (bars + roles), rows, SCROLLED_CELL);
    const wide = gallery ? GALLERY_CELL : Math.min(byWidth, byHeight);
    const side = size === "fit" ? wide : SIZES[size];
    // In print no cell ends at a whole pixel anyway.
    const cell = printed ? side : even(side, longest);
    const across = gallery ? Math.floor((width - SCROLLBAR - left) / columns) : cell + gapOf(cell);
    const down = cell + gapOf(cell) + bars + (gallery ? CAPTION_HEIGHT : roles);
    const whole = { width: left + columns * across, height: top + rows * down };
    return {
      cell,
      across,
      down,
      left,
      top,
      // A thumbnail's frame lies around it.
      frame: 1,
      bars,
      roles,
      caption: !gallery ? "none" : across >= WIDE_CAPTION + 8 ? "words" : "short",
      columns,
      ...whole,
    };
  };
  return inScrollBox(at, width, mostHeight);
}

/** Between the grid and the detail beside it. */
export const BETWEEN = 24;
const MOST_DETAIL = 640;

/** Pixels of the detail beside the grid, which shrinks to the rest. */
export function detailWidth(room: number): number {
  return Math.min(MOST_DETAIL, Math.floor(0.45 * (room - BETWEEN)));
}

/** Cells by layer, as they are asked for. */
export function byLayer(cells: Iterable<HeadIndex | null>): [number, number[]][] {
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
