/**
 * Visible part of a matrix, and the number of tokens per cell. A window is a range of visible
 * tokens. An extent is the range of all tokens that zooming and panning can show. At level n, a
 * cell covers 2^n queries or keys. All functions are pure.
 */

import type { Pooled, Range, TokenList } from "../../client/protocol";
import {
  type Axis,
  type BySide,
  bySide,
  contains,
  groupsOf,
  otherSide,
  positionOf,
  SIDES,
  type Side,
  sizeOf,
  tokenIn,
  tokensAt,
} from "../axis";
import { type Pair, pairOf, pairRange } from "../pairs";
import type { Selection } from "../view/record";
import type { HeatMapState } from "./state";

/**
 * Rows of queries or columns of keys. Each position of the axis is a row or column of cells.
 *
 * If the record consists of two texts and the reader chose one of them (see `Pair`), the extent has
 * the tokens of this text. The window may be larger, because it is extended to whole cells.
 */
export interface CellAxis extends Axis {
  level: number;
  /**
   * Size of a cell in pixels, at least 1 on the screen. If it is fractional, a pixel at the border
   * of two cells shows their mean.
   */
  cell: number;
}

/** Selected stack, layer, heads and pins, and the visible part of the matrix. */
export interface Viewport extends Selection {
  pair: Pair;
  axes: BySide<CellAxis>;
  pooled: Pooled;
  /** Device pixels per CSS pixel. */
  ratio: number;
  /** Whether a cell covers several weights if the reader zooms out completely. */
  canPool: boolean;
}

/** Maximum size of a cell, in pixels. */
export const MAX_CELL = 40;
/**
 * Smallest height of a matrix with few queries, or width of one with few keys, in pixels. To reach
 * this size, cells are enlarged along this side, up to `MAX_THIN_CELL`.
 */
const MIN_THICKNESS = 168;
const MAX_THIN_CELL = 28;

/**
 * Zoom steps of at least one pixel per token, in pixels per token. Smaller steps, at which a pixel
 * shows several tokens, are powers of 2.
 */
const STEPS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, MAX_CELL];

/**
 * Return the part of a window that is inside an extent. Return the whole extent if the window is
 * null or completely outside it.
 */
export function within(window: Range | null, extent: Range): Range {
  if (!window) return extent;
  const start = Math.max(extent[0], Math.floor(window[0]));
  const stop = Math.min(extent[1], Math.ceil(window[1]));
  return start < stop ? [start, stop] : extent;
}

/**
 * Return the smallest level at which a cell has at least `minCell` pixels, if a token has
 * `tokenPixels` pixels.
 */
function levelOf(tokenPixels: number, minCell: number): number {
  return Math.max(0, Math.ceil(Math.log2(minCell / tokenPixels) - 1e-9));
}

/**
 * Cells below this size, in pixels, are rounded down to whole device pixels if they keep at least
 * the share `MIN_KEPT_SHARE` of their size.
 */
const SMALL_CELL = 4;
const MIN_KEPT_SHARE = 0.95;

/**
 * Return the size of a cell in pixels, at least `minCell`. A small cell is rounded down (see
 * `SMALL_CELL`), because fractional sizes would cause moiré patterns.
 */
function sharp(pixels: number, ratio: number, minCell: number): number {
  const whole = Math.max(minCell, Math.floor(pixels * ratio + 1e-6) / ratio);
  return pixels < SMALL_CELL && whole >= MIN_KEPT_SHARE * pixels
    ? whole
    : Math.max(minCell, pixels);
}

function axisOf(
  tokens: TokenList,
  extent: Range,
  requested: Range,
  tokenPixels: number,
  room: number,
  ratio: number,
  minCell: number,
): CellAxis {
  const [begin, end] = requested;
  for (let level = levelOf(tokenPixels, minCell); ; level++) {
    const tokensPerCell = 2 ** level;
    const first = Math.floor(begin / tokensPerCell);
    const cells = Math.ceil(end / tokensPerCell) - first;
    // The window is extended to whole cells. If these are more cells than `room` can have, try the
    // next level.
    if (cells * minCell > room + 1e-6 && cells > 1) continue;
    const cell = sharp(Math.min(room, tokenPixels * sizeOf(requested)) / cells, ratio, minCell);
    // The window may extend beyond the extent: at the border of two texts, a cell may cover tokens
    // of both.
    const stop = Math.min(tokens.text.length, (first + cells) * tokensPerCell);
    const window: Range = [first * tokensPerCell, stop];
    const groups = groupsOf(window, tokensPerCell);
    return { tokens, extent, window, groups, exclusions: [], level, cell };
  }
}

export type ViewportState = Pick<HeatMapState, "query_window" | "key_window" | "pair" | "pooled">;

/** Traits with which all tokens are visible. */
export const WHOLE = { query_window: null, key_window: null };

/**
 * Return the visible part of a selection.
 *
 * @param room height and width of the space for the cells, in pixels.
 * @param ratio device pixels per CSS pixel.
 * @param minCell smallest size of a cell in pixels.
 */
export function viewportOf(
  selection: Selection,
  state: ViewportState,
  room: BySide<number>,
  ratio = 1,
  minCell = 1,
): Viewport {
  const pair = pairOf(selection, state.pair);
  const tokens = { query: selection.queries, key: selection.keys };
  const extents = bySide((side) => pairRange(tokens[side], pair, side));
  const windows = bySide((side) => within(state[`${side}_window`], extents[side]));
  const pixels = tokenPixels(windows, room);
  const wholePixels = tokenPixels(extents, room);
  return {
    ...selection,
    pair,
    pooled: state.pooled,
    ratio,
    canPool: levelOf(Math.min(wholePixels.query, wholePixels.key), minCell) > 0,
    axes: bySide((side) =>
      axisOf(tokens[side], extents[side], windows[side], pixels[side], room[side], ratio, minCell),
    ),
  };
}

/**
 * Return the largest height of a query and the largest width of a key, in pixels, with which all
 * queries and keys of `ranges` fit into `room`. Both are at most `MAX_CELL`, and they are equal
 * unless one side has few tokens.
 */
function tokenPixels(ranges: BySide<Range>, room: BySide<number>): BySide<number> {
  const fitting = bySide((side) => room[side] / sizeOf(ranges[side]));
  const square = Math.min(fitting.query, fitting.key, MAX_CELL);
  // With square cells, a matrix of twenty queries and a thousand keys would be very thin.
  // Therefore, cells are enlarged along the side that has few tokens.
  return bySide((side) =>
    Math.max(square, Math.min(MIN_THICKNESS / sizeOf(ranges[side]), MAX_THIN_CELL, fitting[side])),
  );
}

function extentsOf({ axes }: Pick<Viewport, "axes">): BySide<Range> {
  return bySide((side) => axes[side].extent);
}

/**
 * Return the size that the picture has if all tokens are visible, in pixels. At a larger zoom, the
 * picture has about the same size.
 */
export function stageOf(viewport: Pick<Viewport, "axes">, room: BySide<number>): BySide<number> {
  const extents = extentsOf(viewport);
  const pixels = tokenPixels(extents, room);
  return bySide((side) => pixels[side] * sizeOf(extents[side]));
}

/** Return the side that has less space per token. It limits the size of the cells. */
function limitingSide(extents: BySide<Range>, room: BySide<number>): Side {
  return room.query / sizeOf(extents.query) <= room.key / sizeOf(extents.key) ? "query" : "key";
}

/**
 * Return the space for the cells in pixels, which is the same at every zoom. It is `maxRoom`,
 * unless cells are below `SMALL_CELL` when all tokens are visible. The side that limits the size of
 * the cells (see `limitingSide`) then has only the space that these cells fill after rounding.
 */
export function roomOf(
  selection: Selection,
  state: ViewportState,
  maxRoom: BySide<number>,
  ratio = 1,
  minCell = 1,
): BySide<number> {
  const viewport = viewportOf(selection, { ...state, ...WHOLE }, maxRoom, ratio, minCell);
  const side = limitingSide(extentsOf(viewport), maxRoom);
  const axis = viewport.axes[side];
  return axis.cell < SMALL_CELL
    ? { ...maxRoom, [side]: Math.min(maxRoom[side], cellsSize(axis)) }
    : maxRoom;
}

/** Return the height of all rows (or the width of all columns) together, in pixels. */
export function cellsSize({ groups, cell }: CellAxis): number {
  return groups.length * cell;
}

/** Return whether a cell covers more than one query or more than one key. */
export function isPooled({ axes }: Viewport): boolean {
  return axes.query.level > 0 || axes.key.level > 0;
}

/** Return whether all tokens are visible that zooming and panning can show. */
export function isWhole({ axes }: Viewport): boolean {
  return [axes.query, axes.key].every(({ window, extent }) => contains(window, extent));
}

/** Return the height of a query or the width of a key, in pixels. */
export function tokenStep(axis: CellAxis): number {
  return axis.cell / 2 ** axis.level;
}

/**
 * Return the distance from the upper (or left) edge of the cells to the edge of a visible token, in
 * pixels.
 */
export function edgeOf(axis: CellAxis, token: number): number {
  const position = positionOf(axis, token) ?? 0;
  const [first] = tokensAt(axis, position);
  return position * axis.cell + (token - first) * tokenStep(axis);
}

/** Return the distance from the upper (or left) edge of the cells to the centre of a token. */
export function pixelOf(axis: CellAxis, token: number): number {
  return edgeOf(axis, token) + tokenStep(axis) / 2;
}

/**
 * Return the window after a zoom from `now` to `next`. The token at `pixel` stays at this pixel,
 * unless the window would extend beyond the extent.
 *
 * @param next axis that has the size and the level of the result. The start of its window is
 *   ignored.
 * @param pixel distance from the upper (or left) edge of the cells.
 */
function keptInPlace(now: CellAxis, next: CellAxis, pixel: number): Range {
  const { extent } = now;
  const tokensPerCell = 2 ** next.level;
  const cells = Math.ceil(sizeOf(next.window) / tokensPerCell);
  const size = Math.min(cells * tokensPerCell, sizeOf(extent));
  const position = Math.max(0, Math.min(now.groups.length - 0.001, pixel / now.cell));
  const inCell = Math.floor((position % 1) * 2 ** now.level);
  const token = tokenIn(tokensAt(now, Math.floor(position)), inCell);
  const lastCell = Math.ceil(size / tokensPerCell) - 1;
  const cellsBefore = Math.floor(Math.max(0, Math.min(lastCell, pixel / next.cell)));
  const start = (Math.floor(token / tokensPerCell) - cellsBefore) * tokensPerCell;
  // Latest start of the window. It is rounded up to a whole cell, because the last cell of a text
  // may cover fewer tokens than the others.
  const last = Math.ceil((extent[1] - size) / tokensPerCell) * tokensPerCell;
  const first = Math.max(extent[0], Math.min(last, start));
  return [first, Math.min(extent[1], first + size)];
}

/**
 * Return the number of tokens by which to move a window so that it contains a token, or 0 if it does.
 */
export function distanceTo({ window: [start, stop], level }: CellAxis, token: number): number {
  if (token < start) return token - start;
  return token >= stop ? token - stop + 2 ** level : 0;
}

/**
 * Return the windows after one zoom step. Return null when zooming in at the largest zoom, or when
 * zooming out if all tokens are visible.
 *
 * @param nearer whether to zoom in instead of out.
 * @param around point whose query and key stay in place, in pixels from the upper left corner of
 *   the cells.
 */
export function zoomed(
  viewport: Viewport,
  room: BySide<number>,
  nearer: boolean,
  around: BySide<number>,
): Pick<HeatMapState, "query_window" | "key_window"> | null {
  const { axes, ratio } = viewport;
  const stage = stageOf(viewport, room);
  const sizes = bySide((side) => sizeOf(axes[side].extent));
  const steps = [...STEPS];
  const longest = Math.max(sizes.query, sizes.key);
  for (let step = 0.5; step * longest >= Math.min(stage.query, stage.key) / 2; step /= 2)
    steps.unshift(step);
  if (!nearer) steps.reverse();
  for (const step of steps) {
    const next = tokenCounts(viewport, stage, room, step);
    const sign = nearer ? 1 : -1;
    const removed = bySide((side) => sign * (sizeOf(axes[side].window) - next[side]));
    const slack = ({ level }: CellAxis): number => (level === 0 ? 0 : 2 * 2 ** level);
    const changes = SIDES.some((side) => removed[side] > slack(axes[side]));
    if (!changes || removed.query < 0 || removed.key < 0) continue;
    if (SIDES.every((side) => next[side] === sizes[side])) break;
    // The start of these windows is arbitrary, because the level and the size of the next cells do
    // not depend on it. `keptInPlace` then chooses the start.
    const windows = bySide((side): Range => {
      const [start] = axes[side].extent;
      return [start, start + next[side]];
    });
    const state = { ...viewport, query_window: windows.query, key_window: windows.key };
    const { axes: nextAxes } = viewportOf(viewport, state, room, ratio);
    return {
      query_window: keptInPlace(axes.query, nextAxes.query, around.query),
      key_window: keptInPlace(axes.key, nextAxes.key, around.key),
    };
  }
  return nearer || isWhole(viewport) ? null : WHOLE;
}

/**
 * Return the numbers of queries and keys that fill a picture of the size `stage` at `step` pixels
 * per token.
 */
function tokenCounts(
  viewport: Viewport,
  stage: BySide<number>,
  room: BySide<number>,
  step: number,
): BySide<number> {
  const fits = (side: Side, pixels: number): number => {
    // Below one pixel per token, each cell is one pixel large and covers `1 / pixels` tokens.
    if (pixels < 1) return Math.floor(stage[side]) * Math.round(1 / pixels);
    // Round up if cells have their maximum size, because rounding down would leave empty space.
    const count = stage[side] / pixels;
    return Math.max(1, pixels < MAX_CELL ? Math.floor(count + 1e-6) : Math.ceil(count - 1e-6));
  };
  // Cells fill the picture exactly along the side that limits their size. Along the other side,
  // show as many cells of this size as fit.
  const extents = extentsOf(viewport);
  const filled = limitingSide(extents, room);
  const along = fits(filled, step);
  const across = fits(otherSide(filled), step < 1 ? step : Math.max(step, stage[filled] / along));
  return bySide((side) => Math.min(sizeOf(extents[side]), side === filled ? along : across));
}
