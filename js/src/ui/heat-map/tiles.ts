/** Which tiles a viewport needs, their loading, and the grid of cells that is drawn from those loaded. */

import { TILE } from "../../client/page/tiles";
import type { Pooled, TileRequest } from "../../client/protocol";
import { Recent } from "../../client/recent";
import { joined } from "../../client/signs";
import type { Source, WeightBlock } from "../../client/source";
import type { Selection } from "../view/record";
import type { Axis, Viewport } from "./viewport";

/** Where tiles are finer along one side than its cells, at most by so many levels. */
const MOST_FINER = 3;

/** The level of the tiles that a viewport is drawn from: the finer of its sides, within reason. */
export function tileLevel(viewport: Viewport): number {
  const [rows, columns] = [viewport.rows.level, viewport.columns.level];
  return Math.max(Math.min(rows, columns), Math.max(rows, columns) - MOST_FINER);
}

/** What all tiles of a picture have in common. */
type TileSet = Pick<TileRequest, "stack" | "layer" | "heads" | "pooled">;

export function tileSetOf(viewport: Viewport): TileSet {
  const { stack, layer, heads, pooled } = viewport;
  return { stack: stack.name, layer, heads, pooled };
}

/** The tiles that are in sight at a level. */
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

/** From so many pairs of query and key on, a whole matrix of vectors is made from some queries. */
const LARGE = 1 << 24;

/** Whether the kernel needs more than a moment for all pairs. */
export function isLarge({ stack, queries, keys, heads }: Selection): boolean {
  return stack.vectors && queries.text.length * keys.text.length * heads.length > LARGE;
}

/**
 * The tiles in sight, the nearest to the middle first.
 *
 * Of a large matrix one of everything comes before them: wherever the reader goes next, something
 * is in hand to be seen until what is there has come.
 */
export function wantedTiles(viewport: Viewport): TileRequest[] {
  const tiles = tilesOf(viewport);
  if (!isLarge(viewport)) return tiles;
  const longest = Math.max(viewport.queries.text.length, viewport.keys.text.length);
  const level = Math.max(0, Math.ceil(Math.log2(longest / TILE)));
  const whole = { ...tileSetOf(viewport), level, row: 0, column: 0 };
  const span = TILE * 2 ** tileLevel(viewport);
  const middle = ({ window }: Axis): number => (window[0] + window[1]) / span / 2 - 0.5;
  const [row, column] = [middle(viewport.rows), middle(viewport.columns)];
  const away = (tile: TileRequest): number => Math.hypot(tile.row - row, tile.column - column);
  tiles.sort((one, other) => away(one) - away(other));
  return [whole, ...tiles];
}

/** Cells of what is in sight. */
export interface Grid {
  rows: number;
  columns: number;
  /** Row-major; NaN where no tile of any level has come yet. */
  values: Float32Array;
  /** The largest weight there can be. */
  maximum: number;
  error: number;
  /** Cells that show nothing yet, and whether all that are shown are as fine as they should be. */
  missing: number;
  fine: boolean;
  /** The largest of the weights that codes are relative to, where that is less than `maximum`. */
  largest?: number;
  /** One query in so many stands for all, where not all were gone through. */
  every?: number;
}

const CACHE_BYTES = 64_000_000;
/** Requests under way at once: the next while one is answered, and room for others' questions. */
const AT_ONCE = 2;
/** Milliseconds in which tiles are drawn together. */
const TOGETHER = 30;
/** No text that fits into a machine needs more. */
const COARSEST = 24;

function keyOf(set: TileSet, level: number, row: number, column: number): string {
  return JSON.stringify([set.stack, set.layer, set.heads, set.pooled, level, row, column]);
}

/** Tiles that have come. */
export class Tiles {
  readonly #source: Source;
  readonly #cached = new Recent<WeightBlock>(CACHE_BYTES);
  #coarsest = 0;

  constructor(source: Source) {
    this.#source = source;
  }

  /** Asks for tiles, and says when some have come. */
  async load(
    requests: readonly TileRequest[],
    signal: AbortSignal,
    onArrival: () => void,
  ): Promise<void> {
    // Several that come at once are drawn at once.
    let timer: ReturnType<typeof setTimeout> | undefined;
    let failed = false;
    const queue = requests.filter((each) => !this.get(each, each.level, each.row, each.column));
    const lane = async (): Promise<void> => {
      for (let request = queue.shift(); request && !failed; request = queue.shift()) {
        const piece = await this.#source.tile(request, signal);
        const key = keyOf(request, request.level, request.row, request.column);
        this.#coarsest = Math.max(this.#coarsest, request.level);
        this.#cached.set(key, piece, 4 * piece.rows * piece.columns);
        timer ??= setTimeout(() => {
          timer = undefined;
          onArrival();
        }, TOGETHER);
      }
    };
    try {
      await Promise.all(Array.from({ length: AT_ONCE }, lane));
    } catch (error) {
      failed = true;
      throw error;
    } finally {
      clearTimeout(timer);
      onArrival();
    }
  }

  get(set: TileSet, level: number, row: number, column: number): WeightBlock | undefined {
    return this.#cached.get(keyOf(set, level, row, column));
  }

  /** The finest tile in hand that has a weight, from `level` on. */
  covering(set: TileSet, level: number, query: number, key: number): [WeightBlock, number] | null {
    for (let at = level; at <= Math.min(COARSEST, this.#coarsest); at++) {
      const span = TILE * 2 ** at;
      const piece = this.get(set, at, Math.floor(query / span), Math.floor(key / span));
      if (piece) return [piece, at];
    }
    return null;
  }
}

/** Where cells of `each` tokens begin, as tokens, with the end as the last entry. */
function starts(window: readonly [number, number], each: number): number[] {
  const out: number[] = [];
  for (let at = window[0]; at < window[1]; at += each) out.push(at);
  return [...out, window[1]];
}

/** What is drawn of a viewport with the tiles in hand. */
export function composeGrid(viewport: Viewport, tiles: Tiles): Grid {
  const base = tileLevel(viewport);
  const set = tileSetOf(viewport);
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
  // Block by block of cells that one tile of the finest level holds.
  const span = TILE * 2 ** base;
  const [down, across] = [blocks(rowStarts, span), blocks(columnStarts, span)];
  for (const [top, bottom] of down) {
    for (const [left, right] of across) {
      const query = rowStarts[top] as number;
      const key = columnStarts[left] as number;
      const tile = tiles.covering(set, base, query, key);
      if (!tile) {
        grid.missing += (bottom - top) * (right - left);
        grid.fine = false;
        continue;
      }
      const [piece, level] = tile;
      if (piece.every !== undefined) grid.every = Math.max(grid.every ?? 0, piece.every);
      if (large) grid.largest = Math.max(grid.largest ?? 0, piece.maximum);
      grid.error = Math.max(grid.error, piece.error);
      if (level > base) grid.fine = false;
      const at = { top, bottom, left, right };
      fill(grid, at, rowStarts, columnStarts, piece, level, viewport.pooled);
    }
  }
  return grid;
}

/** Runs of cells, as [first, stop), none of which reaches into the next tile. */
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

/** Pools a tile's cells into those of a part of the grid. */
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
  const each = 2 ** level;
  const span = TILE * each;
  const firstRow = Math.floor((rowStarts[at.top] as number) / span) * span;
  const firstColumn = Math.floor((columnStarts[at.left] as number) / span) * span;
  // Mostly a cell of the grid is one of the tile: whole rows are copied.
  const same = (starts: readonly number[]): boolean => starts.length < 2 || stepOf(starts) === each;
  if (same(rowStarts) && same(columnStarts)) {
    const left = ((columnStarts[at.left] as number) - firstColumn) / each;
    for (let row = at.top; row < at.bottom; row++) {
      const from = (((rowStarts[row] as number) - firstRow) / each) * piece.columns + left;
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
      // Tokens of a cell may be several cells of the tile, or a part of one.
      for (let y = top; y < bottom; y = nextStart(y, each, bottom)) {
        const high = nextStart(y, each, bottom) - y;
        const inRow = Math.floor((y - firstRow) / each) * piece.columns;
        for (let x = left; x < right; x = nextStart(x, each, right)) {
          const wide = nextStart(x, each, right) - x;
          const value = values[inRow + Math.floor((x - firstColumn) / each)] as number;
          const most = pooled === "max";
          if (value < 0) below = most ? Math.min(below, value) : below + value * high * wide;
          else above = most ? Math.max(above, value) : above + value * high * wide;
        }
      }
      const count = pooled === "max" ? 1 : (bottom - top) * (right - left);
      grid.values[row * grid.columns + column] = joined(above, below) / count;
    }
  }
}

/** Tokens of a cell; where there is one cell alone, those that it holds. */
function stepOf(starts: readonly number[]): number {
  return (starts[1] as number) - (starts[0] as number);
}

function nextStart(at: number, each: number, stop: number): number {
  return Math.min(stop, (Math.floor(at / each) + 1) * each);
}
