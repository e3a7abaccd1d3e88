/**
 * Loading of tiles, and the grid of cells that is computed from them. A tile is a square part of an
 * attention matrix. At level n, each of its cells covers 2^n × 2^n tokens.
 */

import { TILE } from "../../client/page/tiles";
import type { Pooled, TileRequest } from "../../client/protocol";
import { cellValue } from "../../client/signs";
import type { Source, WeightBlock } from "../../client/source";
import type { Selection } from "../view/record";
import type { Axis, Viewport } from "./viewport";

/**
 * Rows and columns of a heat map may have different levels, but a tile has one level. It is the
 * smaller level, unless the two levels differ by more than this number.
 */
const MAX_FINER_LEVELS = 3;

/**
 * Return the level of the tiles for a viewport: the smaller of the levels of its rows and columns,
 * but at least the larger level minus `MAX_FINER_LEVELS`.
 */
export function tileLevel(viewport: Viewport): number {
  const [rows, columns] = [viewport.rows.level, viewport.columns.level];
  return Math.max(Math.min(rows, columns), Math.max(rows, columns) - MAX_FINER_LEVELS);
}

/** Fields that all tiles of one picture have in common. */
type TileSet = Pick<TileRequest, "stack" | "layer" | "heads" | "pooled">;

export function tileSetOf(viewport: Viewport): TileSet {
  const { stack, layer, heads, pooled } = viewport;
  return { stack: stack.name, layer, heads, pooled };
}

/** Return the tiles of a level that are visible. */
export function tilesOf(viewport: Viewport, level = tileLevel(viewport)): TileRequest[] {
  const set = tileSetOf(viewport);
  const span = TILE * 2 ** level;
  const along = ({ window }: Axis): number[] => {
    const first = Math.floor(window[0] / span);
    const last = Math.ceil(window[1] / span);
    return Array.from({ length: last - first }, (_, i) => first + i);
  };
  const columns = along(viewport.columns);
  return along(viewport.rows).flatMap((row) =>
    columns.map((column) => ({ ...set, level, row, column })),
  );
}

/** Return the level at which one tile covers the whole matrix. */
function wholeLevel({ queries, keys }: Viewport): number {
  const longest = Math.max(queries.text.length, keys.text.length);
  return Math.max(0, Math.ceil(Math.log2(longest / TILE)));
}

/** Number of weights above which a complete matrix is estimated from a sample of queries. */
const MAX_EXACT_WEIGHTS = 1 << 24;

/**
 * Return whether the kernel computes the matrix from queries and keys and needs noticeable time for
 * all weights.
 */
export function isLarge({ stack, queries, keys, heads }: Selection): boolean {
  return stack.vectors && queries.text.length * keys.text.length * heads.length > MAX_EXACT_WEIGHTS;
}

/**
 * Return the tiles to request for a viewport.
 *
 * For a large matrix, a tile of the whole matrix comes first. It fills every part that the reader
 * visits until finer tiles arrive. The visible tiles follow, nearest to the centre first.
 */
export function wantedTiles(viewport: Viewport): TileRequest[] {
  const tiles = tilesOf(viewport);
  if (!isLarge(viewport)) return tiles;
  const whole = { ...tileSetOf(viewport), level: wholeLevel(viewport), row: 0, column: 0 };
  const span = TILE * 2 ** tileLevel(viewport);
  const middle = ({ window }: Axis): number => (window[0] + window[1]) / span / 2 - 0.5;
  const [row, column] = [middle(viewport.rows), middle(viewport.columns)];
  const away = (tile: TileRequest): number => Math.hypot(tile.row - row, tile.column - column);
  tiles.sort((one, other) => away(one) - away(other));
  return [whole, ...tiles];
}

/** Cells of the visible part of a matrix. */
export interface Grid {
  rows: number;
  columns: number;
  /** Values in row-major order. Cells that no loaded tile covers are NaN. */
  values: Float32Array;
  /** Largest possible weight. */
  maximum: number;
  error: number;
  /** Number of cells without a value, and whether all cells have values of the requested level. */
  missing: number;
  fine: boolean;
  /**
   * Largest weight of the tiles, for large matrices. The error of the encoding is relative to this
   * weight. Undefined if the error is relative to `maximum`.
   */
  largest?: number;
  /**
   * Sampling interval: the tiles were computed from one query in `every`. Undefined if all queries
   * were used.
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

/** Load tiles. Call `onArrival` when tiles arrive and at the end. */
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

/**
 * Return the finest cached tile that covers a query and a key, and its level. Levels finer than
 * `finest` are not searched.
 */
function coveringTile(
  source: Source,
  viewport: Viewport,
  finest: number,
  query: number,
  key: number,
): [WeightBlock, number] | null {
  for (let level = finest; level <= Math.max(finest, wholeLevel(viewport)); level++) {
    const span = TILE * 2 ** level;
    const [row, column] = [Math.floor(query / span), Math.floor(key / span)];
    const piece = source.cachedTile({ ...tileSetOf(viewport), level, row, column });
    if (piece) return [piece, level];
  }
  return null;
}

/** Return the first token of every cell, and finally the end of the window. */
function starts(window: readonly [number, number], tokensPerCell: number): number[] {
  const out: number[] = [];
  for (let at = window[0]; at < window[1]; at += tokensPerCell) out.push(at);
  return [...out, window[1]];
}

/**
 * Compute the grid of a viewport from the cached tiles. Cells without a tile of the requested level
 * get values from a coarser tile, or NaN.
 */
export function composeGrid(viewport: Viewport, source: Source): Grid {
  const base = tileLevel(viewport);
  const rowStarts = starts(viewport.rows.window, 2 ** viewport.rows.level);
  const columnStarts = starts(viewport.columns.window, 2 ** viewport.columns.level);
  const [rows, columns] = [viewport.rows.cells, viewport.columns.cells];
  const grid: Grid = {
    rows,
    columns,
    values: new Float32Array(rows * columns).fill(Number.NaN),
    maximum: viewport.stack.maximum,
    error: 0,
    missing: 0,
    fine: true,
  };
  const large = isLarge(viewport);
  // Process blocks of cells. All cells of a block lie in one tile of the finest level.
  const span = TILE * 2 ** base;
  const [down, across] = [blocks(rowStarts, span), blocks(columnStarts, span)];
  for (const [top, bottom] of down) {
    for (const [left, right] of across) {
      const query = rowStarts[top] as number;
      const key = columnStarts[left] as number;
      const tile = coveringTile(source, viewport, base, query, key);
      if (!tile) {
        grid.missing += (bottom - top) * (right - left);
        grid.fine = false;
        continue;
      }
      const [piece, level] = tile;
      if (piece.samplingInterval !== undefined)
        grid.every = Math.max(grid.every ?? 0, piece.samplingInterval);
      if (large) grid.largest = Math.max(grid.largest ?? 0, piece.maximum);
      grid.error = Math.max(grid.error, piece.error);
      if (level > base) grid.fine = false;
      const at = { top, bottom, left, right };
      fill(grid, at, rowStarts, columnStarts, piece, level, viewport.pooled);
    }
  }
  return grid;
}

/**
 * Return ranges of consecutive cells that lie in one tile. `span` is the number of tokens along a
 * side of a tile. The ends are exclusive.
 */
function blocks(cellStarts: readonly number[], span: number): [number, number][] {
  const out: [number, number][] = [];
  const count = cellStarts.length - 1;
  let first = 0;
  for (let cell = 1; cell <= count; cell++) {
    const before = Math.floor((cellStarts[cell - 1] as number) / span);
    const tile = cell < count ? Math.floor((cellStarts[cell] as number) / span) : -1;
    if (tile === before) continue;
    out.push([first, cell]);
    first = cell;
  }
  return out;
}

/** Compute the cells of one block of the grid from the cells of a tile. */
function fill(
  grid: Grid,
  at: { top: number; bottom: number; left: number; right: number },
  rowStarts: readonly number[],
  columnStarts: readonly number[],
  piece: WeightBlock,
  level: number,
  pooled: Pooled,
): void {
  const values = piece.matrices[0] as Float32Array;
  const tokensPerCell = 2 ** level;
  const span = TILE * tokensPerCell;
  const firstRow = Math.floor((rowStarts[at.top] as number) / span) * span;
  const firstColumn = Math.floor((columnStarts[at.left] as number) / span) * span;
  // Usually a cell of the grid equals a cell of the tile. Whole rows are then copied.
  const same = (starts: readonly number[]): boolean =>
    starts.length < 2 || stepOf(starts) === tokensPerCell;
  if (same(rowStarts) && same(columnStarts)) {
    const left = ((columnStarts[at.left] as number) - firstColumn) / tokensPerCell;
    for (let row = at.top; row < at.bottom; row++) {
      const from = (((rowStarts[row] as number) - firstRow) / tokensPerCell) * piece.columns + left;
      const line = values.subarray(from, from + at.right - at.left);
      grid.values.set(line, row * grid.columns + at.left);
    }
    return;
  }
  for (let row = at.top; row < at.bottom; row++) {
    const [top, bottom] = [rowStarts[row] as number, rowStarts[row + 1] as number];
    for (let column = at.left; column < at.right; column++) {
      const [left, right] = [columnStarts[column] as number, columnStarts[column + 1] as number];
      let [above, below] = [0, 0];
      // A cell of the grid may cover several cells of the tile, or only a part of one.
      for (let y = top; y < bottom; y = nextStart(y, tokensPerCell, bottom)) {
        const high = nextStart(y, tokensPerCell, bottom) - y;
        const inRow = Math.floor((y - firstRow) / tokensPerCell) * piece.columns;
        for (let x = left; x < right; x = nextStart(x, tokensPerCell, right)) {
          const wide = nextStart(x, tokensPerCell, right) - x;
          const value = values[inRow + Math.floor((x - firstColumn) / tokensPerCell)] as number;
          const isMaximum = pooled === "max";
          if (value < 0) below = isMaximum ? Math.min(below, value) : below + value * high * wide;
          else above = isMaximum ? Math.max(above, value) : above + value * high * wide;
        }
      }
      const count = pooled === "max" ? 1 : (bottom - top) * (right - left);
      grid.values[row * grid.columns + column] = cellValue(above, below) / count;
    }
  }
}

/** Return the number of tokens per cell. */
function stepOf(starts: readonly number[]): number {
  return (starts[1] as number) - (starts[0] as number);
}

function nextStart(at: number, tokensPerCell: number, stop: number): number {
  return Math.min(stop, (Math.floor(at / tokensPerCell) + 1) * tokensPerCell);
}
