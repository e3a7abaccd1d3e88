/**
 * Pooling of the weights in an exported page to tiles and maps. In a live view, the kernel computes
 * the same cells, unless it uses only a sample of the queries. A tile is a square of at most `TILE`
 * by `TILE` cells. At level l, a cell covers 2^l queries and 2^l keys. A map shows the matrix of a
 * head, or a part of it, in few cells.
 */

import type { Pooled, Range } from "../protocol";
import { cellValue } from "../signs";
import type { WeightRows } from "./rows";

/** Number of cells along a side of a tile, as in `attnviz/server/tiles.py`. */
export const TILE = 256;

/**
 * Return the range of queries (or keys) that a tile covers. `index` is the row (or column) of the
 * tile among all tiles of the level.
 *
 * @param count total number of queries or keys.
 */
export function tileRange(index: number, level: number, count: number): Range {
  const span = TILE * 2 ** level;
  return [Math.min(count, index * span), Math.min(count, (index + 1) * span)];
}

/**
 * First query of each row of cells, and first key of each column of cells. Each list has one more
 * number: the end of the last cell.
 */
export interface Starts {
  rows: number[];
  columns: number[];
}

/**
 * Pool the mean of the weights of some heads to cells, in row-major order.
 *
 * Positive and negative numbers of a cell are pooled separately. With "mean", the result of each is
 * a sum divided by the size of the cell. With "max", it is the number with the largest absolute
 * value. `cellValue` chooses one of the two results.
 */
export function pooledMean(
  weights: Pick<WeightRows, "add">,
  heads: readonly number[],
  { rows, columns }: Starts,
  pooled: Pooled,
): Float32Array {
  const [numRows, numColumns] = [rows.length - 1, columns.length - 1];
  const isMax = pooled === "max";
  const left = columns[0] as number;
  const line = new Float32Array((columns[numColumns] as number) - left);
  const cells = new Float32Array(numRows * numColumns);
  for (let r = 0; r < numRows; r++) {
    // Start at −0, so that a cell of masked keys stays −0 (see `zeros.ts`).
    const positives = new Float64Array(numColumns).fill(-0);
    const negatives = new Float64Array(numColumns);
    const [top, bottom] = [rows[r] as number, rows[r + 1] as number];
    for (let row = top; row < bottom; row++) {
      weights.add(heads, row, left, line.fill(0));
      for (let c = 0; c < numColumns; c++) {
        let [positive, negative] = [positives[c] as number, negatives[c] as number];
        const end = (columns[c + 1] as number) - left;
        for (let x = (columns[c] as number) - left; x < end; x++) {
          const value = line[x] as number;
          if (value < 0) negative = isMax ? Math.min(negative, value) : negative + value;
          else positive = isMax ? Math.max(positive, value) : positive + value;
        }
        positives[c] = positive;
        negatives[c] = negative;
      }
    }
    for (let c = 0; c < numColumns; c++) {
      const width = (columns[c + 1] as number) - (columns[c] as number);
      const size = isMax ? 1 : (bottom - top) * width;
      const value = cellValue(positives[c] as number, negatives[c] as number);
      cells[r * numColumns + c] = value / (size * heads.length);
    }
  }
  return cells;
}

/**
 * Split a range into cells of `length` rows or columns, of which the last can be shorter. Return
 * their starts, followed by the end of the range.
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
