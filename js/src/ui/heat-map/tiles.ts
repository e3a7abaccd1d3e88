/**
 * Tiles of an attention matrix, and the grid of cells that a heat map shows. A tile is a square
 * part of the matrix, which is loaded with one request. It contains pooled weights: at level n,
 * each of its cells covers 2^n queries and 2^n keys. The grid is computed from the loaded tiles. A
 * cell of the grid may cover several cells of a tile, or only a part of one.
 */

import type { Range, ReadRequest } from "../../client/protocol";
import { cellValue } from "../../client/signs";
import type { Matrix, Source } from "../../client/source";
import {
  type Axis,
  type BySide,
  bySide,
  positionsIn,
  SIDES,
  type Side,
  sizeOf,
  tokensAt,
} from "../axis";
import type { Selection } from "../view/record";
import type { Viewport } from "./viewport";

/** Maximum number of rows and of columns of cells in a tile. */
export const TILE = 256;

/**
 * Maximum difference between the level of a tile and the larger level of the rows and columns. Rows
 * and columns may have different levels, but a tile has one: the smaller of the two, within this
 * limit. Finer tiles would be too many.
 */
const MAX_FINER_LEVELS = 3;

/** Level of a tile, and its row and column among all tiles of the level. */
export interface TileIndex {
  level: number;
  row: number;
  column: number;
}

/** Return the number of queries and of keys that a tile of a level covers. */
const spanOf = (level: number): number => TILE * 2 ** level;

/** Return the request for the mean of the shown heads in a tile. */
export function readOf(
  { stack, layer, heads, pooled, queries, keys }: Viewport,
  { level, row, column }: TileIndex,
): ReadRequest {
  const span = spanOf(level);
  const range = (index: number, count: number): Range => [
    index * span,
    Math.min(count, (index + 1) * span),
  ];
  return {
    ...{ stack: stack.name, layer, heads, combine: "mean" },
    ...{ rows: range(row, queries.text.length), columns: range(column, keys.text.length) },
    reduce: { kind: "cells", pooled, length: 2 ** level },
  };
}

/**
 * Return the tiles that cover a viewport. All tiles have the same level, which follows from the
 * levels of the rows and columns of the viewport (see `MAX_FINER_LEVELS`).
 */
export function tilesOf(viewport: Viewport): TileIndex[] {
  const levels = SIDES.map((side) => viewport.axes[side].level);
  const level = Math.max(Math.min(...levels), Math.max(...levels) - MAX_FINER_LEVELS);
  const span = spanOf(level);
  const along = ({ window: [start, stop] }: Axis): number[] => {
    const first = Math.floor(start / span);
    const last = Math.ceil(stop / span);
    return Array.from({ length: last - first }, (_, i) => first + i);
  };
  const columns = along(viewport.axes.key);
  return along(viewport.axes.query).flatMap((row) =>
    columns.map((column) => ({ level, row, column })),
  );
}

/** Return the smallest level at which one tile covers the whole matrix. */
function wholeLevel({ queries, keys }: Viewport): number {
  const longest = Math.max(queries.text.length, keys.text.length);
  return Math.max(0, Math.ceil(Math.log2(longest / TILE)));
}

/**
 * Maximum number of weights of all shown heads for which the kernel computes a tile of the whole
 * matrix exactly. If there are more, it estimates the tile from a sample of the queries.
 * `MAX_EXACT_PAIRS` in `attnviz/server/cells.py` is the same number.
 */
const MAX_EXACT_WEIGHTS = 1 << 24;

/**
 * Return whether a matrix is large: the kernel computes its weights from queries and keys, and has
 * to compute more than `MAX_EXACT_WEIGHTS` of them for all shown heads.
 */
export function isLarge({ stack, queries, keys, heads }: Selection): boolean {
  return stack.vectors && queries.text.length * keys.text.length * heads.length > MAX_EXACT_WEIGHTS;
}

/**
 * Return the tiles of a viewport, in the order in which to request them. For a large matrix, the
 * first tile covers the whole matrix. Wherever the reader pans or zooms, the picture shows this tile
 * until finer tiles arrive.
 */
export function wantedTiles(viewport: Viewport): TileIndex[] {
  const whole = { level: wholeLevel(viewport), row: 0, column: 0 };
  return [...(isLarge(viewport) ? [whole] : []), ...tilesOf(viewport)];
}

/** Cells of a heat map, which shows the visible part of a matrix. */
export interface Grid {
  rows: number;
  columns: number;
  /** Values in row-major order. Cells that no loaded tile covers are NaN. */
  values: Float32Array;
  /** Largest possible absolute value of a weight. */
  maximum: number;
  /**
   * Upper bound of the absolute errors of `values`, without the errors of sampling (see
   * `samplingInterval`).
   */
  error: number;
  /**
   * `missing` is the number of cells without a value. `fine` is true if all cells have values from
   * tiles of the requested level, and false if some have values from coarser tiles or none.
   */
  missing: number;
  fine: boolean;
  /**
   * Largest absolute value in the loaded tiles of a large matrix (see `isLarge`). The error of the
   * encoding of these tiles is relative to it. Undefined for other matrices, for which this error
   * is relative to `maximum`.
   */
  largest?: number;
  /**
   * Largest sampling interval among the tiles. With an interval of n, a tile is estimated from one
   * query in n. Undefined if all tiles are computed from all queries.
   */
  samplingInterval?: number;
}

/**
 * Maximum number of requests for tiles that wait for a reply at the same time. With two, the next
 * request is ready when the kernel finishes one. More would delay other requests of the view.
 */
const MAX_REQUESTS = 2;
/**
 * Time in milliseconds from the arrival of a tile to the redraw. Tiles that arrive in this time are
 * drawn together.
 */
const REDRAW_DELAY_MS = 30;

/**
 * Load the requested tiles that are not cached yet. Call `onArrival` with a delay of
 * `REDRAW_DELAY_MS` after a tile has arrived, once for all tiles that arrive in this time. Call it
 * again at the end, also after an error.
 */
export async function loadTiles(
  source: Source,
  requests: readonly ReadRequest[],
  signal: AbortSignal,
  onArrival: () => void,
): Promise<void> {
  // Timer of the next redraw, or undefined if no redraw is planned.
  let timer: ReturnType<typeof setTimeout> | undefined;
  const queue = requests.filter((request) => !source.cached(request));
  const lane = async (): Promise<void> => {
    for (let request = queue.shift(); request; request = queue.shift()) {
      await source.read(request, signal);
      timer ??= setTimeout(() => {
        timer = undefined;
        onArrival();
      }, REDRAW_DELAY_MS);
    }
  };
  try {
    await Promise.all(Array.from({ length: MAX_REQUESTS }, lane));
  } finally {
    // If a request failed, the empty queue ends the other call of `lane` after its current request.
    queue.length = 0;
    clearTimeout(timer);
    onArrival();
  }
}

/**
 * Cached tile: its weights and its level. `query` and `key` are the first query and the first key
 * that it covers.
 */
interface Tile extends BySide<number> {
  piece: Matrix;
  level: number;
}

/**
 * Return a requested tile if it is cached, otherwise the finest cached tile that covers it. Return
 * null if no such tile is cached.
 */
function coveringTile(source: Source, viewport: Viewport, requested: TileIndex): Tile | null {
  for (let up = 0; up === 0 || requested.level + up <= wholeLevel(viewport); up++) {
    const [row, column] = [requested.row >> up, requested.column >> up];
    const level = requested.level + up;
    const piece = source.cached(readOf(viewport, { level, row, column }));
    const span = spanOf(level);
    if (piece) return { piece, level, query: row * span, key: column * span };
  }
  return null;
}

/**
 * Compute the grid of a viewport from the cached tiles. If a tile of the requested level is not
 * cached, its cells get values from a coarser tile, or NaN without such a tile.
 */
export function composeGrid(viewport: Viewport, source: Source): Grid {
  const { query: rows, key: columns } = viewport.axes;
  const grid: Grid = {
    rows: rows.groups.length,
    columns: columns.groups.length,
    values: new Float32Array(rows.groups.length * columns.groups.length).fill(Number.NaN),
    maximum: viewport.stack.maximum,
    error: 0,
    missing: 0,
    fine: true,
  };
  const large = isLarge(viewport);
  for (const requested of tilesOf(viewport)) {
    const span = spanOf(requested.level);
    // A tile fills the cells whose first tokens it contains.
    const starts = { query: requested.row * span, key: requested.column * span };
    const at = bySide((side) =>
      positionsIn(viewport.axes[side], [starts[side], starts[side] + span]),
    );
    const tile = coveringTile(source, viewport, requested);
    if (tile?.level !== requested.level) grid.fine = false;
    if (!tile) {
      grid.missing += sizeOf(at.query) * sizeOf(at.key);
      continue;
    }
    const { samplingInterval, maximum, error } = tile.piece;
    if (samplingInterval !== undefined)
      grid.samplingInterval = Math.max(grid.samplingInterval ?? 0, samplingInterval);
    if (large) grid.largest = Math.max(grid.largest ?? 0, maximum);
    grid.error = Math.max(grid.error, error);
    fill(grid, at, viewport, tile);
  }
  return grid;
}

/**
 * Compute the cells of the grid in the rows `at.query` and the columns `at.key` from the cells of a
 * tile.
 */
function fill(grid: Grid, at: BySide<Range>, { axes, pooled }: Viewport, tile: Tile): void {
  const { piece } = tile;
  const { values } = piece;
  const tokensPerCell = 2 ** tile.level;
  const inTile = (side: Side, token: number): number =>
    Math.floor((token - tile[side]) / tokensPerCell);
  const next = (token: number, stop: number): number =>
    Math.min(stop, (Math.floor(token / tokensPerCell) + 1) * tokensPerCell);
  // If cells of the grid equal cells of the tile, as in most pictures, whole rows are copied.
  const isCopy = axes.query.level === tile.level && axes.key.level === tile.level;
  const isMaximum = pooled === "max";
  const [[firstRow, lastRow], [firstColumn, lastColumn]] = [at.query, at.key];
  for (let row = firstRow; row < lastRow; row++) {
    const [top, bottom] = tokensAt(axes.query, row);
    if (isCopy) {
      const [first] = tokensAt(axes.key, firstColumn);
      const from = inTile("query", top) * piece.columns + inTile("key", first);
      const line = values.subarray(from, from + sizeOf(at.key));
      grid.values.set(line, row * grid.columns + firstColumn);
      continue;
    }
    for (let column = firstColumn; column < lastColumn; column++) {
      const [left, right] = tokensAt(axes.key, column);
      // Start at −0, so that a cell of masked keys stays −0 (see `client/zeros.ts`).
      let [above, below] = [-0, 0];
      for (let y = top; y < bottom; y = next(y, bottom)) {
        const high = next(y, bottom) - y;
        for (let x = left; x < right; x = next(x, right)) {
          const wide = next(x, right) - x;
          const value = values[inTile("query", y) * piece.columns + inTile("key", x)] as number;
          if (value < 0) below = isMaximum ? Math.min(below, value) : below + value * high * wide;
          else above = isMaximum ? Math.max(above, value) : above + value * high * wide;
        }
      }
      const count = isMaximum ? 1 : (bottom - top) * (right - left);
      grid.values[row * grid.columns + column] = cellValue(above, below) / count;
    }
  }
}
