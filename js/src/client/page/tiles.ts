/**
 * Pooling of the weights in a page to tiles and maps, with the same results as the kernel's pooling
 * for a live view. A tile is a square of at most `TILE` by `TILE` cells. At level l, a cell covers
 * 2^l queries and 2^l keys. A map shows the matrix of a head, or a part of it, in few cells.
 */

import type { Pooled, Range } from "../protocol";
import { cellValue } from "../signs";
import type { WeightRows } from "./rows";

/** Number of cells along a side of a tile, as in `attnviz/server/tiles.py`. */
export const TILE = 256;

/**
 * Return the range of queries or keys that a tile covers.
 *
 * @param count total number of queries or keys.
 */
export function tileRange(index: number, level: number, count: number): Range {
  const span = TILE * 2 ** level;
  return [Math.min(count, index * span), Math.min(count, (index + 1) * span)];
}

/**
 * First row of each row of cells, and first column of each column of cells. Each list ends with the
 * end of the last cell.
 */
export interface Starts {
  rows: number[];
  columns: number[];
}

/**
 * Pools the mean over some heads, one row of weights after the other.
 *
 * In each cell, positive and negative numbers are pooled separately: to their sum divided by the
 * size of the cell, or to the number with the largest absolute value. The cell shows the result
 * with the larger absolute value.
 */
class PooledMean {
  readonly #starts: Starts;
  readonly #pooled: Pooled;
  readonly #columns: number;
  readonly #positive: Float64Array;
  readonly #negative: Float64Array;
  readonly #line: Float32Array;

  constructor(starts: Starts, pooled: Pooled) {
    this.#starts = starts;
    this.#pooled = pooled;
    this.#columns = starts.columns.length - 1;
    const cells = (starts.rows.length - 1) * this.#columns;
    this.#positive = new Float64Array(cells);
    this.#negative = new Float64Array(cells);
    const [left, right] = [starts.columns[0] as number, starts.columns[this.#columns] as number];
    this.#line = new Float32Array(right - left);
  }

  /** Add one row of weights to the cells in row `cellRow`. */
  add(
    weights: Pick<WeightRows, "add">,
    heads: readonly number[],
    row: number,
    cellRow: number,
  ): void {
    const { columns } = this.#starts;
    const left = columns[0] as number;
    const line = this.#line.fill(0);
    const isMax = this.#pooled === "max";
    weights.add(heads, row, left, line);
    const [count, positives, negatives] = [this.#columns, this.#positive, this.#negative];
    for (let c = 0; c < count; c++) {
      const start = (columns[c] as number) - left;
      const end = (columns[c + 1] as number) - left;
      const cell = cellRow * count + c;
      let positive = positives[cell] as number;
      let negative = negatives[cell] as number;
      for (let x = start; x < end; x++) {
        const value = line[x] as number;
        if (value < 0) negative = isMax ? Math.min(negative, value) : negative + value;
        else positive = isMax ? Math.max(positive, value) : positive + value;
      }
      positives[cell] = positive;
      negatives[cell] = negative;
    }
  }

  /** Return the values of the cells in row-major order, after all rows were added. */
  cells(numHeads: number): Float32Array {
    const { rows, columns } = this.#starts;
    return Float32Array.from(this.#positive, (positive, cell) => {
      const [r, c] = [Math.floor(cell / this.#columns), cell % this.#columns];
      const height = (rows[r + 1] as number) - (rows[r] as number);
      const width = (columns[c + 1] as number) - (columns[c] as number);
      const size = this.#pooled === "max" ? 1 : height * width;
      return cellValue(positive, this.#negative[cell] as number) / (size * numHeads);
    });
  }
}

/** Pool the mean over some heads. The cells are in row-major order. */
export function pooledMean(
  weights: WeightRows,
  heads: readonly number[],
  starts: Starts,
  pooled: Pooled,
): Float32Array {
  const mean = new PooledMean(starts, pooled);
  for (let r = 0; r + 1 < starts.rows.length; r++) {
    const bottom = starts.rows[r + 1] as number;
    for (let row = starts.rows[r] as number; row < bottom; row++) mean.add(weights, heads, row, r);
  }
  return mean.cells(heads.length);
}

/**
 * Split a range into cells of `length` rows or columns. Return their starts, followed by the end of
 * the range.
 */
export function runs([start, stop]: Range, length: number): number[] {
  const starts: number[] = [];
  for (let position = start; position < stop; position += length) starts.push(position);
  return [...starts, stop];
}

/**
 * Split a range into at most `maxParts` cells of nearly equal length. Return their starts, followed
 * by the end of the range.
 */
export function parts([start, stop]: Range, maxParts: number): number[] {
  const count = stop - start;
  const numParts = Math.min(count, maxParts);
  return Array.from({ length: numParts + 1 }, (_, i) => start + Math.floor((i * count) / numParts));
}
