/**
 * Loading of tiles, and the grid of cells that is computed from them. A tile is a square part of an
 * attention matrix. At level n, each of its cells covers 2^n × 2^n tokens.
 */

import { TILE } from "../../client/page/tiles";
import type { Range, TileRequest } from "../../client/protocol";
import { cellValue } from "../../client/signs";
import type { Source, WeightBlock } from "../../client/source";
import type { Selection } from "../view/record";
import { type Axis, tokensOf, type Viewport } from "./viewport";

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
  const { query, key } = viewport.axes;
  const [finer, coarser] = [Math.min(query.level, key.level), Math.max(query.level, key.level)];
  return Math.max(finer, coarser - MAX_FINER_LEVELS);
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
 * Return the tiles to request for a viewport. For a large matrix, a tile of the whole matrix comes
 * first. It fills every part that the reader visits until finer tiles arrive.
 */
export function wantedTiles(viewport: Viewport): TileRequest[] {
  const whole = { ...tileSetOf(viewport), level: wholeLevel(viewport), row: 0, column: 0 };
  return [...(isLarge(viewport) ? [whole] : []), ...tilesOf(viewport)];
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
  for (const { level, row, column } of tilesOf(viewport)) {
    const span = TILE * 2 ** level;
    const at = {
      rows: cellsBetween(rows, row * span, span),
      columns: cellsBetween(columns, column * span, span),
    };
    const tile = coveringTile(source, viewport, level, row * span, column * span);
    if (!tile) {
      grid.missing += (at.rows[1] - at.rows[0]) * (at.columns[1] - at.columns[0]);
      grid.fine = false;
      continue;
    }
    const [piece, pieceLevel] = tile;
    if (piece.samplingInterval !== undefined)
      grid.every = Math.max(grid.every ?? 0, piece.samplingInterval);
    if (large) grid.largest = Math.max(grid.largest ?? 0, piece.maximum);
    grid.error = Math.max(grid.error, piece.error);
    if (pieceLevel > level) grid.fine = false;
    fill(grid, at, viewport, piece, pieceLevel);
  }
  return grid;
}

/** Return the range of the visible cells of `span` tokens that begin with token `start`. */
function cellsBetween({ window, level }: Axis, start: number, span: number): Range {
  const cellAt = (token: number): number =>
    Math.ceil((Math.max(window[0], Math.min(window[1], token)) - window[0]) / 2 ** level);
  return [cellAt(start), cellAt(start + span)];
}

/** Compute some cells of the grid from the cells of a tile. */
function fill(
  grid: Grid,
  at: { rows: Range; columns: Range },
  { axes, pooled }: Viewport,
  piece: WeightBlock,
  level: number,
): void {
  const values = piece.matrices[0] as Float32Array;
  const tokensPerCell = 2 ** level;
  const span = TILE * tokensPerCell;
  const firstToken = (axis: Axis, cell: number): number =>
    Math.floor(tokensOf(axis, cell)[0] / span) * span;
  const firstRow = firstToken(axes.query, at.rows[0]);
  const firstColumn = firstToken(axes.key, at.columns[0]);
  // Usually a cell of the grid equals a cell of the tile. Whole rows are then copied.
  if (axes.query.level === level && axes.key.level === level) {
    const left = (tokensOf(axes.key, at.columns[0])[0] - firstColumn) / tokensPerCell;
    for (let row = at.rows[0]; row < at.rows[1]; row++) {
      const tileRow = (tokensOf(axes.query, row)[0] - firstRow) / tokensPerCell;
      const from = tileRow * piece.columns + left;
      const line = values.subarray(from, from + at.columns[1] - at.columns[0]);
      grid.values.set(line, row * grid.columns + at.columns[0]);
    }
    return;
  }
  const isMaximum = pooled === "max";
  for (let row = at.rows[0]; row < at.rows[1]; row++) {
    const [top, bottom] = tokensOf(axes.query, row);
    for (let column = at.columns[0]; column < at.columns[1]; column++) {
      const [left, right] = tokensOf(axes.key, column);
      let [above, below] = [0, 0];
      // A cell of the grid may cover several cells of the tile, or only a part of one.
      for (let y = top; y < bottom; y = nextStart(y, tokensPerCell, bottom)) {
        const high = nextStart(y, tokensPerCell, bottom) - y;
        const inRow = Math.floor((y - firstRow) / tokensPerCell) * piece.columns;
        for (let x = left; x < right; x = nextStart(x, tokensPerCell, right)) {
          const wide = nextStart(x, tokensPerCell, right) - x;
          const value = values[inRow + Math.floor((x - firstColumn) / tokensPerCell)] as number;
          if (value < 0) below = isMaximum ? Math.min(below, value) : below + value * high * wide;
          else above = isMaximum ? Math.max(above, value) : above + value * high * wide;
        }
      }
      const count = isMaximum ? 1 : (bottom - top) * (right - left);
      grid.values[row * grid.columns + column] = cellValue(above, below) / count;
    }
  }
}

function nextStart(at: number, tokensPerCell: number, stop: number): number {
  return Math.min(stop, (Math.floor(at / tokensPerCell) + 1) * tokensPerCell);
}
