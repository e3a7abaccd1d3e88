/**
 * Loading of tiles, and the grid of cells that is computed from them. A tile is a square part of an
 * attention matrix, which is requested as a whole. At level n, each cell of a tile covers 2^n
 * queries and 2^n keys. A cell of the grid is what the picture shows. It may cover several cells of
 * a tile, or only a part of one.
 */

import { TILE } from "../../client/page/tiles";
import type { Range, TileRequest } from "../../client/protocol";
import { cellValue } from "../../client/signs";
import type { Source, WeightBlock } from "../../client/source";
import type { Selection } from "../view/record";
import { type Axis, type BySide, SIDES, type Side, tokensOf, type Viewport } from "./viewport";

/**
 * Rows and columns of a heat map may have different levels, but a tile has only one. Tiles have the
 * smaller of the two levels, but at least the larger level minus this number.
 */
const MAX_FINER_LEVELS = 3;

/** Return the fields that all tiles of one picture have in common. */
function tileSetOf({ stack, layer, heads, pooled }: Viewport) {
  return { stack: stack.name, layer, heads, pooled };
}

/** Return the tiles that cover a viewport, at the level that its rows and columns need. */
export function tilesOf(viewport: Viewport): TileRequest[] {
  const set = tileSetOf(viewport);
  const levels = SIDES.map((side) => viewport.axes[side].level);
  const level = Math.max(Math.min(...levels), Math.max(...levels) - MAX_FINER_LEVELS);
  const span = TILE * 2 ** level;
  const along = ({ window }: Axis): number[] => {
    const first = Math.floor(window[0] / span);
    const last = Math.ceil(window[1] / span);
    return Array.from({ length: last - first }, (_, i) => first + i);
  };
  const columns = along(viewport.axes.key);
  return along(viewport.axes.query).flatMap((row) =>
    columns.map((column) => ({ ...set, level, row, column })),
  );
}

/** Return the level at which one tile covers the whole matrix. */
function wholeLevel({ queries, keys }: Viewport): number {
  const longest = Math.max(queries.text.length, keys.text.length);
  return Math.max(0, Math.ceil(Math.log2(longest / TILE)));
}

/**
 * Number of weights of all shown heads above which a picture of the whole matrix is estimated from
 * a sample of queries.
 */
const MAX_EXACT_WEIGHTS = 1 << 24;

/**
 * Return whether the kernel must compute the matrix of all shown heads from queries and keys, and
 * needs noticeable time for this.
 */
export function isLarge({ stack, queries, keys, heads }: Selection): boolean {
  return stack.vectors && queries.text.length * keys.text.length * heads.length > MAX_EXACT_WEIGHTS;
}

/**
 * Return the tiles to request for a viewport, in this order. For a large matrix, the first tile
 * covers the whole matrix. Wherever the reader pans or zooms, the picture shows this tile until
 * finer tiles arrive.
 */
export function wantedTiles(viewport: Viewport): TileRequest[] {
  const whole = { ...tileSetOf(viewport), level: wholeLevel(viewport), row: 0, column: 0 };
  return [...(isLarge(viewport) ? [whole] : []), ...tilesOf(viewport)];
}

/** Cells of the picture of the visible part of a matrix. */
export interface Grid {
  rows: number;
  columns: number;
  /** Values in row-major order. Cells that no loaded tile covers are NaN. */
  values: Float32Array;
  /** Largest possible weight. */
  maximum: number;
  /** Largest absolute error of a value. */
  error: number;
  /**
   * `missing` is the number of cells without a value. `fine` is true if all cells have values from
   * tiles of the requested level, and false if coarser tiles replace some.
   */
  missing: number;
  fine: boolean;
  /**
   * Largest weight of the tiles of a large matrix, to which the error of their encoding is
   * relative. Undefined for other matrices, whose error is relative to `maximum`.
   */
  largest?: number;
  /**
   * Largest sampling interval of the tiles: this tile was computed from one query in `every`.
   * Undefined if all tiles were computed from all queries.
   */
  every?: number;
}

/**
 * Number of simultaneous requests. With two, the next request is ready when the kernel finishes
 * one. More would block other requests.
 */
const MAX_REQUESTS = 2;
/** Delay in milliseconds in which arriving tiles are collected for one redraw. */
const REDRAW_DELAY_MS = 30;

/**
 * Load the tiles that are not cached yet. Call `onArrival` after tiles have arrived, and at the end
 * or after an error.
 */
export async function loadTiles(
  source: Source,
  requests: readonly TileRequest[],
  signal: AbortSignal,
  onArrival: () => void,
): Promise<void> {
  // Tiles that arrive within `REDRAW_DELAY_MS` milliseconds are drawn together.
  let timer: ReturnType<typeof setTimeout> | undefined;
  const queue = requests.filter((request) => !source.cachedTile(request));
  const lane = async (): Promise<void> => {
    for (let request = queue.shift(); request; request = queue.shift()) {
      await source.tile(request, signal);
      timer ??= setTimeout(() => {
        timer = undefined;
        onArrival();
      }, REDRAW_DELAY_MS);
    }
  };
  try {
    await Promise.all(Array.from({ length: MAX_REQUESTS }, lane));
  } finally {
    // If a request failed, the other lane stops after its current request.
    queue.length = 0;
    clearTimeout(timer);
    onArrival();
  }
}

/** Cached tile: its weights, its level, its first query and its first key. */
interface Tile extends BySide<number> {
  piece: WeightBlock;
  level: number;
}

/**
 * Return the finest cached tile that covers a requested tile, or null if no such tile is cached.
 */
function coveringTile(source: Source, viewport: Viewport, requested: TileRequest): Tile | null {
  for (let up = 0; up === 0 || requested.level + up <= wholeLevel(viewport); up++) {
    const [row, column] = [requested.row >> up, requested.column >> up];
    const level = requested.level + up;
    const piece = source.cachedTile({ ...requested, level, row, column });
    const span = TILE * 2 ** level;
    if (piece) return { piece, level, query: row * span, key: column * span };
  }
  return null;
}

/**
 * Compute the grid of a viewport from the cached tiles. Cells without a tile of the requested level
 * get values from a coarser tile, or NaN.
 */
export function composeGrid(viewport: Viewport, source: Source): Grid {
  const { query: rows, key: columns } = viewport.axes;
  const grid: Grid = {
    rows: rows.cells,
    columns: columns.cells,
    values: new Float32Array(rows.cells * columns.cells).fill(Number.NaN),
    maximum: viewport.stack.maximum,
    error: 0,
    missing: 0,
    fine: true,
  };
  const large = isLarge(viewport);
  for (const requested of tilesOf(viewport)) {
    const span = TILE * 2 ** requested.level;
    const at = {
      query: cellsBetween(rows, requested.row * span, span),
      key: cellsBetween(columns, requested.column * span, span),
    };
    const tile = coveringTile(source, viewport, requested);
    if (tile?.level !== requested.level) grid.fine = false;
    if (!tile) {
      grid.missing += (at.query[1] - at.query[0]) * (at.key[1] - at.key[0]);
      continue;
    }
    const { samplingInterval, maximum, error } = tile.piece;
    if (samplingInterval !== undefined) grid.every = Math.max(grid.every ?? 0, samplingInterval);
    if (large) grid.largest = Math.max(grid.largest ?? 0, maximum);
    grid.error = Math.max(grid.error, error);
    fill(grid, at, viewport, tile);
  }
  return grid;
}

/**
 * Return the range of the visible cells whose first tokens are among the `span` tokens from `start`
 * on.
 */
function cellsBetween({ window, level }: Axis, start: number, span: number): Range {
  const cellAt = (token: number): number =>
    Math.ceil((Math.max(window[0], Math.min(window[1], token)) - window[0]) / 2 ** level);
  return [cellAt(start), cellAt(start + span)];
}

/** Compute the cells of the grid in the rows and columns `at` from the cells of a tile. */
function fill(grid: Grid, at: BySide<Range>, { axes, pooled }: Viewport, tile: Tile): void {
  const { piece } = tile;
  const values = piece.matrices[0] as Float32Array;
  const tokensPerCell = 2 ** tile.level;
  const inTile = (side: Side, token: number): number =>
    Math.floor((token - tile[side]) / tokensPerCell);
  const next = (token: number, stop: number): number =>
    Math.min(stop, (Math.floor(token / tokensPerCell) + 1) * tokensPerCell);
  // If cells of the grid equal cells of the tile, as in most pictures, whole rows are copied.
  const isCopy = axes.query.level === tile.level && axes.key.level === tile.level;
  const isMaximum = pooled === "max";
  for (let row = at.query[0]; row < at.query[1]; row++) {
    const [top, bottom] = tokensOf(axes.query, row);
    if (isCopy) {
      const [first] = tokensOf(axes.key, at.key[0]);
      const from = inTile("query", top) * piece.columns + inTile("key", first);
      const line = values.subarray(from, from + at.key[1] - at.key[0]);
      grid.values.set(line, row * grid.columns + at.key[0]);
      continue;
    }
    for (let column = at.key[0]; column < at.key[1]; column++) {
      const [left, right] = tokensOf(axes.key, column);
      let [above, below] = [0, 0];
      // A cell of the grid may cover several cells of the tile, or only a part of one.
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
