/** Visible part of a matrix, and the number of tokens per cell. All functions are pure. */

import type { Pooled, Range } from "../../client/protocol";
import { type Pair, pairOf, pairRange } from "../pairs";
import type { Selection } from "../view/record";
import type { HeatMapState } from "./state";

/** Space for the cells, in pixels. */
export interface Room {
  width: number;
  height: number;
}

/** Visible queries or keys, and the cells into which they are divided. */
export interface Axis {
  /** Queries or keys that can be shown: all, or those of the chosen text of a pair. */
  extent: Range;
  /**
   * Range of the visible tokens. It may be larger than the requested window, because it contains
   * only whole cells.
   */
  window: Range;
  /** Level of the cells: a cell covers 2^level tokens. */
  level: number;
  cells: number;
  /**
   * Size of a cell in pixels. If the size is fractional, a pixel shows the mean of the cells that
   * it covers.
   */
  cell: number;
}

/** Selection, and the part of its matrix that is visible. */
export interface Viewport extends Selection {
  pair: Pair;
  rows: Axis;
  columns: Axis;
  pooled: Pooled;
  /** Device pixels per CSS pixel. */
  ratio: number;
  /** Whether a cell covers several weights if the whole matrix is visible. */
  poolsWhole: boolean;
}

/** Maximum size of a cell, in pixels. */
export const MAX_CELL = 40;
/**
 * Smallest height of a matrix with few queries, or width of one with few keys, in pixels. Cells are
 * enlarged up to `MAX_THIN_CELL` to reach this size.
 */
const MIN_THICKNESS = 168;
const MAX_THIN_CELL = 28;

/**
 * Zoom steps from 1 pixel per token on. Smaller steps, with several tokens per pixel, are powers of
 * 2.
 */
const STEPS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, MAX_CELL];

/**
 * Return the part of a window that is inside an extent. Return the whole extent if the window is
 * null or outside it.
 */
export function within(window: Range | null, extent: Range): Range {
  if (!window) return extent;
  const start = Math.max(extent[0], Math.floor(window[0]));
  const stop = Math.min(extent[1], Math.ceil(window[1]));
  return start < stop ? [start, stop] : extent;
}

/** Return the smallest level at which a cell is at least one pixel large. */
function levelOf(tokenPixels: number): number {
  return tokenPixels >= 1 ? 0 : Math.ceil(-Math.log2(tokenPixels) - 1e-9);
}

/**
 * Cells below this size, in pixels, are rounded down to whole device pixels. They are not rounded
 * if the picture would shrink below the share `MIN_KEPT_SHARE` of its size.
 */
const SMALL_CELL = 4;
const MIN_KEPT_SHARE = 0.95;

/**
 * Return the size of a cell in pixels. Small cells have a whole number of device pixels, because
 * fractional sizes would cause moiré patterns.
 */
function sharp(pixels: number, ratio: number): number {
  const whole = Math.max(1, Math.floor(pixels * ratio + 1e-6) / ratio);
  return pixels < SMALL_CELL && whole >= MIN_KEPT_SHARE * pixels ? whole : Math.max(1, pixels);
}

function axisOf(
  count: number,
  extent: Range,
  requested: Range,
  tokenPixels: number,
  room: number,
  ratio: number,
): Axis {
  let level = levelOf(tokenPixels);
  for (;;) {
    const tokensPerCell = 2 ** level;
    const first = Math.floor(requested[0] / tokensPerCell);
    const cells = Math.ceil(requested[1] / tokensPerCell) - first;
    // The window is extended to whole cells. If this gives more cells than fit, the next level is
    // tried.
    if (cells <= room || cells === 1) {
      const pixels = Math.min(room, tokenPixels * (requested[1] - requested[0]));
      const cell = sharp(pixels / cells, ratio);
      // If the window ends inside a cell, extend it. At the border of two texts, a cell may cover
      // tokens of both.
      const window: Range = [
        first * tokensPerCell,
        Math.min(count, (first + cells) * tokensPerCell),
      ];
      return { extent, window, level, cells, cell };
    }
    level++;
  }
}

export type ViewportState = Pick<HeatMapState, "query_window" | "key_window" | "pair" | "pooled">;

/**
 * Return the visible part of a selection.
 *
 * @param ratio device pixels per CSS pixel.
 */
export function viewportOf(
  selection: Selection,
  state: ViewportState,
  room: Room,
  ratio = 1,
): Viewport {
  const pair = pairOf(selection, state.pair);
  const queries = pairRange(selection.queries, pair, "query");
  const keys = pairRange(selection.keys, pair, "key");
  const [rows, columns] = [within(state.query_window, queries), within(state.key_window, keys)];
  const [numQueries, numKeys] = [selection.queries.text.length, selection.keys.text.length];
  const [high, wide] = tokenPixels(sizeOf(rows), sizeOf(columns), room);
  const smallestToken = Math.min(...tokenPixels(sizeOf(queries), sizeOf(keys), room));
  return {
    ...selection,
    pair,
    pooled: state.pooled,
    ratio,
    poolsWhole: levelOf(smallestToken) > 0,
    rows: axisOf(numQueries, queries, rows, high, room.height, ratio),
    columns: axisOf(numKeys, keys, columns, wide, room.width, ratio),
  };
}

/**
 * Return the height of a query and the width of a key, in pixels, at which a matrix of `numRows` ×
 * `numColumns` tokens fits the available space.
 */
function tokenPixels(numRows: number, numColumns: number, room: Room): [number, number] {
  const square = Math.min(room.width / numColumns, room.height / numRows, MAX_CELL);
  // A matrix of twenty queries and a thousand keys with square cells would be a thin line. Cells on
  // the short side are therefore larger.
  const thick = (count: number, available: number): number =>
    Math.max(square, Math.min(MIN_THICKNESS / count, MAX_THIN_CELL, available / count));
  return [thick(numRows, room.height), thick(numColumns, room.width)];
}

/**
 * Return the size of the picture of all tokens, in pixels. Zooming does not enlarge the picture.
 */
export function stageOf({ rows, columns }: Pick<Viewport, "rows" | "columns">, room: Room): Room {
  const [numRows, numColumns] = [sizeOf(rows.extent), sizeOf(columns.extent)];
  const [high, wide] = tokenPixels(numRows, numColumns, room);
  return { width: wide * numColumns, height: high * numRows };
}

/**
 * Return the space for the cells at every zoom. It equals `maxRoom`, except that rounding down
 * small cells may shorten the side that limits the size of the cells.
 */
export function roomOf(selection: Selection, state: ViewportState, maxRoom: Room, ratio = 1): Room {
  const everything = { ...state, query_window: null, key_window: null };
  const { rows, columns } = viewportOf(selection, everything, maxRoom, ratio);
  const high = maxRoom.height / sizeOf(rows.extent) <= maxRoom.width / sizeOf(columns.extent);
  const filled = ({ cells, cell }: Axis, side: number): number =>
    cell < SMALL_CELL ? Math.min(side, cells * cell) : side;
  return high
    ? { ...maxRoom, height: filled(rows, maxRoom.height) }
    : { ...maxRoom, width: filled(columns, maxRoom.width) };
}

function sizeOf([start, stop]: Range): number {
  return stop - start;
}

/** Return whether a cell covers more than one token on any side. */
export function isPooled(viewport: Viewport): boolean {
  return viewport.rows.level > 0 || viewport.columns.level > 0;
}

/** Return whether all tokens of the chosen texts are visible. */
export function isWhole(viewport: Viewport): boolean {
  return [viewport.rows, viewport.columns].every(
    ({ window, extent }) => window[0] <= extent[0] && window[1] >= extent[1],
  );
}

/** Return the range of tokens that a cell covers. */
export function tokensOf(axis: Axis, cell: number): Range {
  const tokensPerCell = 2 ** axis.level;
  const start = axis.window[0] + cell * tokensPerCell;
  return [start, Math.min(axis.window[1], start + tokensPerCell)];
}

/** Return the cell of a token, or null if it is not visible. */
export function cellOf(axis: Axis, token: number | null): number | null {
  if (token === null || token < axis.window[0] || token >= axis.window[1]) return null;
  return Math.floor((token - axis.window[0]) / 2 ** axis.level);
}

/**
 * Return the distance of a token from the corner of the cells, in pixels. `token` may be
 * fractional, for a position inside a token.
 */
export function pixelOf(axis: Axis, token: number): number {
  return ((token - axis.window[0]) / 2 ** axis.level) * axis.cell;
}

/**
 * Return a window of the size of `next`. The token that `now` shows at `pixel` is at the same pixel
 * in this window, unless the text ends before.
 *
 * @param next axis with the size and level of the result. The start of its window is ignored.
 */
export function keptInPlace(now: Axis, next: Axis, pixel: number): Range {
  const { extent } = now;
  const tokensPerCell = 2 ** next.level;
  const size = Math.min(
    Math.ceil(sizeOf(next.window) / tokensPerCell) * tokensPerCell,
    sizeOf(extent),
  );
  // Find whole cells first, as `cellAt` does for the pointer, so both give the same token.
  const cellUnder = (axis: Axis, cells: number): number =>
    Math.max(0, Math.min(cells - 1, Math.floor(pixel / axis.cell)));
  const [cell, nextCell] = [
    cellUnder(now, now.cells),
    cellUnder(next, Math.ceil(size / tokensPerCell)),
  ];
  const inCell = Math.max(0, Math.min(0.999, pixel / now.cell - cell));
  const token = now.window[0] + cell * 2 ** now.level + Math.floor(inCell * 2 ** now.level);
  const start = (Math.floor(token / tokensPerCell) - nextCell) * tokensPerCell;
  // The window starts at a whole cell. The last cell of a text may cover fewer tokens.
  const last = Math.ceil((extent[1] - size) / tokensPerCell) * tokensPerCell;
  const first = Math.max(extent[0], Math.min(last, start));
  return [first, Math.min(extent[1], first + size)];
}

/** Move a window by a number of tokens, and stop at the ends of the extent. */
export function movedBy(axis: Pick<Axis, "extent">, window: Range, by: number): Range {
  const size = window[1] - window[0];
  const start = Math.max(axis.extent[0], Math.min(axis.extent[1] - size, window[0] + by));
  return [start, start + size];
}

/** Point, in pixels from the upper left corner of the cells. */
export interface Point {
  right: number;
  down: number;
}

/**
 * Return the windows after one zoom step. The token at `around` stays in place. Return null if it
 * is not possible to zoom further.
 */
export function zoomed(
  viewport: Viewport,
  room: Room,
  nearer: boolean,
  around: Point,
): Pick<HeatMapState, "query_window" | "key_window"> | null {
  const { rows, columns, pair, pooled, ratio } = viewport;
  const stage = stageOf(viewport, room);
  const [numRows, numColumns] = [sizeOf(rows.window), sizeOf(columns.window)];
  const [allRows, allColumns] = [sizeOf(rows.extent), sizeOf(columns.extent)];
  const steps = [...STEPS];
  const longest = Math.max(allRows, allColumns);
  for (let step = 0.5; step * longest >= Math.min(stage.width, stage.height) / 2; step /= 2)
    steps.unshift(step);
  if (!nearer) steps.reverse();
  const slack = (axis: Axis): number => (axis.level === 0 ? 0 : 2 * 2 ** axis.level);
  for (const step of steps) {
    const [nextRows, nextColumns] = counts(stage, room, step, allRows, allColumns);
    const [byRows, byColumns] = [numRows - nextRows, numColumns - nextColumns];
    const changes = nearer
      ? (byRows > slack(rows) || byColumns > slack(columns)) && byRows >= 0 && byColumns >= 0
      : (-byRows > slack(rows) || -byColumns > slack(columns)) && byRows <= 0 && byColumns <= 0;
    if (!changes) continue;
    if (nextRows === allRows && nextColumns === allColumns) break;
    // The size of the cells depends only on the numbers of tokens, so the start of the windows is
    // set afterwards.
    const tokensPerCell = Math.max(1, Math.round(1 / step));
    const windowOf = ({ extent }: Axis, count: number): Range => {
      const start = Math.floor(extent[0] / tokensPerCell) * tokensPerCell;
      return [Math.max(extent[0], start), start + count];
    };
    const windows = {
      query_window: windowOf(rows, nextRows),
      key_window: windowOf(columns, nextColumns),
    };
    const next = viewportOf(viewport, { ...windows, pair, pooled }, room, ratio);
    return {
      query_window: keptInPlace(rows, next.rows, around.down),
      key_window: keptInPlace(columns, next.columns, around.right),
    };
  }
  return nearer || isWhole(viewport) ? null : { query_window: null, key_window: null };
}

/**
 * Return the numbers of queries and keys that fill a picture of the size `stage` at `step` pixels
 * per token.
 */
function counts(
  stage: Room,
  room: Room,
  step: number,
  allRows: number,
  allColumns: number,
): [number, number] {
  const fits = (side: number, pixels: number): number => {
    // With cells of the largest size, round up. Rounding down would leave empty space.
    const count =
      pixels < MAX_CELL ? Math.floor(side / pixels + 1e-6) : Math.ceil(side / pixels - 1e-6);
    // Below one pixel per token, use whole cells. Each covers the tokens that share a pixel.
    return pixels < 1 ? Math.floor(side) * Math.round(1 / pixels) : Math.max(1, count);
  };
  // One side of the picture fills its space, and its cells fill this side exactly. Along the other
  // side, as many cells as possible fit.
  const high = room.height / allRows <= room.width / allColumns;
  const [side, other] = high ? [stage.height, stage.width] : [stage.width, stage.height];
  const along = fits(side, step);
  const across = fits(other, step < 1 ? step : Math.max(step, side / along));
  return high
    ? [Math.min(allRows, along), Math.min(allColumns, across)]
    : [Math.min(allRows, across), Math.min(allColumns, along)];
}
