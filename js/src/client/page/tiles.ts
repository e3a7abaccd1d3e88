/** Pooling of embedded weights to tiles and maps, as the kernel does for a live view. */

import type { Pooled, Range } from "../protocol";
import { joined } from "../signs";
import type { Rows } from "./rows";

/** Cells per side of a tile, as in `attnviz/server/tiles.py`. */
export const TILE = 256;

/** Return the range of queries or keys that a tile covers. `count` is their total number. */
export function tileRange(place: number, level: number, count: number): Range {
  const span = TILE * 2 ** level;
  return [Math.min(count, place * span), Math.min(count, (place + 1) * span)];
}

/** First row and column of each pooled cell. The last entry is the end. */
export interface Starts {
  rows: number[];
  columns: number[];
}

/**
 * Pools the mean over heads of a block, one row after the other. A cell with numbers of both signs
 * shows the larger in size of its positive and its negative part, where a part is their mean or
 * their largest number.
 */
class PooledMean {
  readonly #starts: Starts;
  readonly #pooled: Pooled;
  readonly #columns: number;
  readonly #over: Float64Array;
  readonly #under: Float64Array;
  readonly #line: Float32Array;

  constructor(starts: Starts, pooled: Pooled) {
    this.#starts = starts;
    this.#pooled = pooled;
    this.#columns = starts.columns.length - 1;
    const cells = (starts.rows.length - 1) * this.#columns;
    this.#over = new Float64Array(cells);
    this.#under = new Float64Array(cells);
    const [left, right] = [starts.columns[0] as number, starts.columns[this.#columns] as number];
    this.#line = new Float32Array(right - left);
  }

  /** Add one row to the cells of `cellRow`. */
  take(from: Pick<Rows, "add">, heads: readonly number[], row: number, cellRow: number): void {
    const { columns } = this.#starts;
    const left = columns[0] as number;
    const line = this.#line.fill(0);
    const most = this.#pooled === "max";
    from.add(heads, row, left, line);
    const [count, all, allUnder] = [this.#columns, this.#over, this.#under];
    for (let c = 0; c < count; c++) {
      const begin = (columns[c] as number) - left;
      const end = (columns[c + 1] as number) - left;
      const cell = cellRow * count + c;
      let over = all[cell] as number;
      let under = allUnder[cell] as number;
      for (let x = begin; x < end; x++) {
        const weight = line[x] as number;
        if (weight < 0) under = most ? Math.min(under, weight) : under + weight;
        else over = most ? Math.max(over, weight) : over + weight;
      }
      all[cell] = over;
      allUnder[cell] = under;
    }
  }

  /** Return the cells after all rows were added. */
  cells(numHeads: number): Float32Array {
    const { rows, columns } = this.#starts;
    return Float32Array.from(this.#over, (over, cell) => {
      const [r, c] = [Math.floor(cell / this.#columns), cell % this.#columns];
      const height = (rows[r + 1] as number) - (rows[r] as number);
      const width = (columns[c + 1] as number) - (columns[c] as number);
      const size = this.#pooled === "max" ? 1 : height * width;
      return joined(over, this.#under[cell] as number) / (size * numHeads);
    });
  }
}

/** Pool the mean over heads of a block. */
export function pooledMean(
  from: Rows,
  heads: readonly number[],
  starts: Starts,
  pooled: Pooled,
): Float32Array {
  const mean = new PooledMean(starts, pooled);
  for (let r = 0; r + 1 < starts.rows.length; r++) {
    const bottom = starts.rows[r + 1] as number;
    for (let row = starts.rows[r] as number; row < bottom; row++) mean.take(from, heads, row, r);
  }
  return mean.cells(heads.length);
}

/** Return the starts of runs of length `each` in a range, and its end. */
export function runs([start, stop]: Range, each: number): number[] {
  const starts: number[] = [];
  for (let at = start; at < stop; at += each) starts.push(at);
  return [...starts, stop];
}

/** Return the starts of at most `most` parts of nearly equal length in a range, and its end. */
export function parts([start, stop]: Range, most: number): number[] {
  const count = stop - start;
  const cells = Math.min(count, most);
  return Array.from({ length: cells + 1 }, (_, i) => start + Math.floor((i * count) / cells));
}
