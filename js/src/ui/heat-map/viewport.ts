/** Which part of a matrix is in sight, and how many weights a cell stands for. Pure functions. */

import type { Pooled, Range } from "../../client/protocol";
import { type Pair, pairOf, pairRange } from "../pairs";
import type { Selection } from "../view/record";
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
  /** Pixels of a cell; where they are not whole, a pixel shows the mean of the cells under it. */
  cell: number;
}

/** A place, and what of it is in sight. */
export interface Viewport extends Selection {
  pair: Pair;
  rows: Axis;
  columns: Axis;
  pooled: Pooled;
  /** Pixels of the screen to one of the page. */
  ratio: number;
  /** Whether cells of the whole stand for several weights each. */
  poolsWhole: boolean;
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

/** Cells this small are whole pixels where that takes little from the picture. */
const SMALL_CELL = 4;
const LITTLE = 0.95;

/** Pixels of a cell: a picture of cells of nearly a pixel each would beat with the screen's. */
function sharp(pixels: number, ratio: number): number {
  const whole = Math.max(1, Math.floor(pixels * ratio + 1e-6) / ratio);
  return pixels < SMALL_CELL && whole >= LITTLE * pixels ? whole : Math.max(1, pixels);
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
      const pixels = Math.min(room, tokenPixels * (asked[1] - asked[0]));
      const cell = sharp(pixels / cells, ratio);
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
  const least = Math.min(...tokenPixels(sizeOf(queries), sizeOf(keys), room));
  return {
    ...selection,
    pair,
    pooled: state.pooled,
    ratio,
    poolsWhole: levelOf(least) > 0,
    rows: axisOf(numQueries, queries, rows, high, room.height, ratio),
    columns: axisOf(numKeys, keys, columns, wide, room.width, ratio),
  };
}

/** Pixels that a query and a key may take. */
function tokenPixels(numRows: number, numColumns: number, room: Room): [number, number] {
  const square = Math.min(room.width / numColumns, room.height / numRows, LARGEST_CELL);
  // Twenty queries to a thousand keys would be a thread: there cells are not square.
  const thick = (count: number, most: number): number =>
    Math.max(square, Math.min(LEAST_THICK / count, LARGEST_THIN_CELL, most / count));
  return [thick(numRows, room.height), thick(numColumns, room.width)];
}

/** Pixels that everything takes, and any part of it that is zoomed to: the picture does not grow. */
export function stageOf({ rows, columns }: Pick<Viewport, "rows" | "columns">, room: Room): Room {
  const [numRows, numColumns] = [sizeOf(rows.extent), sizeOf(columns.extent)];
  const [high, wide] = tokenPixels(numRows, numColumns, room);
  return { width: wide * numColumns, height: high * numRows };
}

/** The room for a place and its parts: what the whole fills, in cells that may be whole pixels. */
export function roomOf(selection: Selection, state: ViewportState, most: Room, ratio = 1): Room {
  const everything = { ...state, query_window: null, key_window: null };
  const { rows, columns } = viewportOf(selection, everything, most, ratio);
  const high = most.height / sizeOf(rows.extent) <= most.width / sizeOf(columns.extent);
  const filled = ({ cells, cell }: Axis, side: number): number =>
    cell < SMALL_CELL ? Math.min(side, cells * cell) : side;
  return high
    ? { ...most, height: filled(rows, most.height) }
    : { ...most, width: filled(columns, most.width) };
}

function sizeOf([start, stop]: Range): number {
  return stop - start;
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

/** Where tokens, which may lie between two, are from the corner of the cells. */
export function pixelOf(axis: Axis, token: number): number {
  return ((token - axis.window[0]) / 2 ** axis.level) * axis.cell;
}

/**
 * A window of the size of `next`, in which the same token lies under a pixel as in `now`.
 *
 * @param next an axis of the size and the level that the window is to have, wherever it begins.
 */
export function keptInPlace(now: Axis, next: Axis, pixel: number): Range {
  const { extent } = now;
  const each = 2 ** next.level;
  const size = Math.min(Math.ceil(sizeOf(next.window) / each) * each, sizeOf(extent));
  // By whole cells, as the pointer finds them: between two cells nothing is rounded twice.
  const under = (axis: Axis, cells: number): number =>
    Math.max(0, Math.min(cells - 1, Math.floor(pixel / axis.cell)));
  const [cell, nextCell] = [under(now, now.cells), under(next, Math.ceil(size / each))];
  const inCell = Math.max(0, Math.min(0.999, pixel / now.cell - cell));
  const token = now.window[0] + cell * 2 ** now.level + Math.floor(inCell * 2 ** now.level);
  const start = (Math.floor(token / each) - nextCell) * each;
  // Whole cells, also at the end of a text, where the last may stand for fewer tokens.
  const last = Math.ceil((extent[1] - size) / each) * each;
  const first = Math.max(extent[0], Math.min(last, start));
  return [first, Math.min(extent[1], first + size)];
}

/** A window moved by whole tokens, inside its extent. */
export function movedBy(axis: Pick<Axis, "extent">, window: Range, by: number): Range {
  const size = window[1] - window[0];
  const start = Math.max(axis.extent[0], Math.min(axis.extent[1] - size, window[0] + by));
  return [start, start + size];
}

/** A point in pixels from the corner of the cells. */
export interface Point {
  right: number;
  down: number;
}

/** Windows one step nearer or farther, around a point; null where there is none. */
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
    // How large cells are depends on the counts alone; then where they begin is settled.
    const each = Math.max(1, Math.round(1 / step));
    const some = ({ extent }: Axis, count: number): Range => {
      const start = Math.floor(extent[0] / each) * each;
      return [Math.max(extent[0], start), start + count];
    };
    const windows = { query_window: some(rows, nextRows), key_window: some(columns, nextColumns) };
    const next = viewportOf(viewport, { ...windows, pair, pooled }, room, ratio);
    return {
      query_window: keptInPlace(rows, next.rows, around.down),
      key_window: keptInPlace(columns, next.columns, around.right),
    };
  }
  return nearer || isWhole(viewport) ? null : { query_window: null, key_window: null };
}

/** Queries and keys that fill a stage, at so many pixels a token. */
function counts(
  stage: Room,
  room: Room,
  step: number,
  allRows: number,
  allColumns: number,
): [number, number] {
  const fits = (side: number, pixels: number): number => {
    // Of the largest cells one more, rather than a rest without any.
    const count =
      pixels < LARGEST_CELL ? Math.floor(side / pixels + 1e-6) : Math.ceil(side / pixels - 1e-6);
    // Whole cells of as many tokens as share a pixel.
    return pixels < 1 ? Math.floor(side) * Math.round(1 / pixels) : Math.max(1, count);
  };
  // Along the side that fills its room the cells do; along the other there are as many as fit.
  const high = room.height / allRows <= room.width / allColumns;
  const [side, other] = high ? [stage.height, stage.width] : [stage.width, stage.height];
  const along = fits(side, step);
  const across = fits(other, step < 1 ? step : Math.max(step, side / along));
  return high
    ? [Math.min(allRows, along), Math.min(allColumns, across)]
    : [Math.min(allRows, across), Math.min(allColumns, along)];
}
