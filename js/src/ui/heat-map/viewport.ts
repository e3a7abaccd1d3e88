/** Which part of a matrix is in sight, and how many weights a cell stands for. Pure functions. */

import type { Pooled, Range } from "../../client/protocol";
import { type Pair, pairOf, pairRange } from "../pairs";
import type { Place } from "../record";
import type { HeatMapState } from "./state";

/** Pixels that the cells may take. */
export interface Room {
  width: number;
  height: number;
}

/** Queries or keys in sight, and how they are drawn. */
export interface Axis {
  /** All that can be seen, of this side of the pair that is chosen. */
  extent: Range;
  /** What is in sight: whole cells, so a little more than was asked for where they are pooled. */
  window: Range;
  /** A cell stands for 2^level tokens. */
  level: number;
  cells: number;
  /** Pixels of a cell. */
  cell: number;
}

/** A place, and what of it is in sight. */
export interface Viewport extends Place {
  pair: Pair;
  rows: Axis;
  columns: Axis;
  pooled: Pooled;
}

/** A cell is never larger than this. */
export const LARGEST_CELL = 40;
/** A matrix of few queries or few keys is drawn at least so thick, if cells allow it. */
const LEAST_THICK = 168;
const LARGEST_THIN_CELL = 28;

/** Pixels that a cell may have, largest step last; below one, several tokens share a pixel. */
const STEPS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, LARGEST_CELL];

/** The part of a range that lies in another; the whole where none does. */
export function within(window: Range | null, extent: Range): Range {
  if (!window) return extent;
  const start = Math.max(extent[0], Math.floor(window[0]));
  const stop = Math.min(extent[1], Math.ceil(window[1]));
  return start < stop ? [start, stop] : extent;
}

/** The level at which a cell has a pixel or more. */
function levelOf(tokenPixels: number): number {
  return tokenPixels >= 1 ? 0 : Math.ceil(-Math.log2(tokenPixels) - 1e-9);
}

function axisOf(
  count: number,
  extent: Range,
  asked: Range,
  tokenPixels: number,
  room: number,
  ratio: number,
): Axis {
  let level = levelOf(tokenPixels);
  for (;;) {
    const each = 2 ** level;
    const first = Math.floor(asked[0] / each);
    const cells = Math.ceil(asked[1] / each) - first;
    // Whole cells may be one more than what was asked for had room for.
    if (cells <= room || cells === 1) {
      // Whole pixels of the screen: cells of unequal size would look like a pattern.
      const pixels = Math.min(tokenPixels * each, room / cells);
      const cell = Math.max(1, Math.floor(pixels * ratio + 1e-6) / ratio);
      // What its cells stand for, which at the border of two texts may be tokens of both.
      const window: Range = [first * each, Math.min(count, (first + cells) * each)];
      return { extent, window, level, cells, cell };
    }
    level++;
  }
}

/** What of the state a viewport depends on. */
export type ViewportState = Pick<HeatMapState, "query_window" | "key_window" | "pair" | "pooled">;

/**
 * What of a place is in sight.
 *
 * @param ratio pixels of the screen to one of the page.
 */
export function viewportOf(place: Place, state: ViewportState, room: Room, ratio = 1): Viewport {
  const pair = pairOf(place, state.pair);
  const queries = pairRange(place.queries, pair, "query");
  const keys = pairRange(place.keys, pair, "key");
  const [rows, columns] = [within(state.query_window, queries), within(state.key_window, keys)];
  const [numQueries, numKeys] = [place.queries.text.length, place.keys.text.length];
  const [numRows, numColumns] = [rows[1] - rows[0], columns[1] - columns[0]];
  const square = Math.min(room.width / numColumns, room.height / numRows, LARGEST_CELL);
  // Twenty queries to a thousand keys would be a thread: there cells are not square.
  const thick = (count: number, most: number): number =>
    Math.max(square, Math.min(LEAST_THICK / count, LARGEST_THIN_CELL, most / count));
  return {
    ...place,
    pair,
    pooled: state.pooled,
    rows: axisOf(numQueries, queries, rows, thick(numRows, room.height), room.height, ratio),
    columns: axisOf(numKeys, keys, columns, thick(numColumns, room.width), room.width, ratio),
  };
}

/** Whether a cell stands for more than one weight. */
export function isPooled(viewport: Viewport): boolean {
  return viewport.rows.level > 0 || viewport.columns.level > 0;
}

/** Whether all there is to see is in sight. */
export function isWhole(viewport: Viewport): boolean {
  return [viewport.rows, viewport.columns].every(
    ({ window, extent }) => window[0] <= extent[0] && window[1] >= extent[1],
  );
}

/** The tokens that a cell stands for. */
export function tokensOf(axis: Axis, cell: number): Range {
  const each = 2 ** axis.level;
  const start = axis.window[0] + cell * each;
  return [start, Math.min(axis.window[1], start + each)];
}

/** The cell that a token is in; null where it is out of sight. */
export function cellOf(axis: Axis, token: number | null): number | null {
  if (token === null || token < axis.window[0] || token >= axis.window[1]) return null;
  return Math.floor((token - axis.window[0]) / 2 ** axis.level);
}

/** `count` tokens of an extent, with `anchor` at the same share of the way as before. */
export function aroundAnchor(axis: Axis, count: number, anchor: number): Range {
  const { extent, window } = axis;
  const size = Math.max(1, Math.min(count, extent[1] - extent[0]));
  const share = (anchor - window[0]) / (window[1] - window[0]);
  const start = Math.round(anchor - share * size);
  const first = Math.max(extent[0], Math.min(extent[1] - size, start));
  return [first, first + size];
}

/** A window moved by whole tokens, inside its extent. */
export function movedBy(axis: Pick<Axis, "extent">, window: Range, by: number): Range {
  const size = window[1] - window[0];
  const start = Math.max(axis.extent[0], Math.min(axis.extent[1] - size, window[0] + by));
  return [start, start + size];
}

/** Windows one step nearer or farther, around a token of each side; null where there is none. */
export function zoomed(
  viewport: Viewport,
  room: Room,
  nearer: boolean,
  anchor: { query: number; key: number },
): Pick<HeatMapState, "query_window" | "key_window"> | null {
  const { rows, columns } = viewport;
  const size = ([start, stop]: Range): number => stop - start;
  const [numRows, numColumns] = [size(rows.window), size(columns.window)];
  const longest = Math.max(size(rows.extent), size(columns.extent));
  const steps = [...STEPS];
  for (let step = 0.5; step * longest >= Math.min(room.width, room.height) / 2; step /= 2)
    steps.unshift(step);
  if (!nearer) steps.reverse();
  const slack = (axis: Axis): number => (axis.level === 0 ? 0 : 2 * 2 ** axis.level);
  // A square part of a square matrix: the diagonal stays in sight, and the picture its shape.
  const square = size(rows.extent) === size(columns.extent);
  const least = Math.min(room.width, room.height);
  for (const step of steps) {
    // Where cells are pooled a window may cut the first and the last of them.
    const fits = (side: number): number => {
      const most = square ? least : side;
      return Math.max(1, Math.floor((step < 1 ? Math.floor(most) - 1 : most) / step));
    };
    const nextRows = Math.min(size(rows.extent), fits(room.height));
    const nextColumns = Math.min(size(columns.extent), fits(room.width));
    // What is in sight may be larger than what was asked for, by cells that a window cuts.
    const [byRows, byColumns] = [numRows - nextRows, numColumns - nextColumns];
    const changes = nearer
      ? (byRows > slack(rows) || byColumns > slack(columns)) && byRows >= 0 && byColumns >= 0
      : (-byRows > slack(rows) || -byColumns > slack(columns)) && byRows <= 0 && byColumns <= 0;
    if (!changes) continue;
    if (nextRows === size(rows.extent) && nextColumns === size(columns.extent)) break;
    return {
      query_window: aroundAnchor(rows, nextRows, anchor.query),
      key_window: aroundAnchor(columns, nextColumns, anchor.key),
    };
  }
  return nearer || isWhole(viewport) ? null : { query_window: null, key_window: null };
}
