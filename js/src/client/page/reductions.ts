/**
 * Combination of the heads of a read, and reduction of its matrices, for an exported page. In a live
 * view, the kernel computes the same numbers (`attnviz/server/cells.py` and `strongest.py`), unless
 * it uses only a sample of the queries. The tests of both read `tests/fixtures/reads.json`.
 */

import type { Combine, Pooled, Range, Reduction } from "../protocol";
import { topKeys } from "../requests/strongest";
import { cellValue, combineHeads } from "../signs";
import type { WeightRows } from "./rows";

/** Function that writes a row of one matrix to `line`, which begins at the first requested key. */
export type ReadRow = (row: number, line: Float32Array) => void;

/** Return a function that reads the rows of one head, or of several combined heads. */
export function rowsOf(
  weights: Pick<WeightRows, "add">,
  heads: readonly number[],
  combine: Combine,
  left: number,
): ReadRow {
  if (combine === "max" && heads.length > 1)
    return (row, line) => {
      const rows = heads.map((head) => {
        const own = new Float32Array(line.length);
        weights.add([head], row, left, own);
        return own;
      });
      line.set(combineHeads(rows, "max"));
    };
  return (row, line) => {
    weights.add(heads, row, left, line.fill(0));
    const count = heads.length;
    for (let x = 0; count > 1 && x < line.length; x++) line[x] = (line[x] as number) / count;
  };
}

/** Return the first `width` columns of some rows of a matrix. */
export function blockOf(read: ReadRow, [top, bottom]: Range, width: number): Float32Array {
  const values = new Float32Array((bottom - top) * width);
  for (let row = top; row < bottom; row++)
    read(row, values.subarray((row - top) * width, (row - top + 1) * width));
  return values;
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
 * Pool a matrix to cells, in row-major order.
 *
 * Positive and negative numbers of a cell are pooled separately. With "mean", the result of each is
 * a sum divided by the size of the cell. With "max", it is the number with the largest absolute
 * value. `cellValue` chooses one of the two results.
 */
export function cellsOf(read: ReadRow, { rows, columns }: Starts, pooled: Pooled): Float32Array {
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
      read(row, line);
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
      cells[r * numColumns + c] = value / size;
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

/** Requested part of a matrix: the weights of one head, or of combined heads. */
interface ReadMatrix {
  rows: Range;
  columns: Range;
  read: ReadRow;
  heads: readonly number[];
  lost: WeightRows["lost"];
}

/**
 * Reductions of each row to a few numbers. Each is a function that returns the numbers of a row,
 * which `protocol.ts` documents.
 */
const OF_ROWS: {
  [K in Exclude<Reduction["kind"], "cells">]: (
    reduction: Extract<Reduction, { kind: K }>,
    matrix: ReadMatrix,
  ) => (row: Float32Array, query: number) => number[];
} = {
  strongest: ({ k, exclude = [] }, { columns: [left, right] }) => {
    const excluded = new Uint8Array(right - left);
    for (const [start, stop] of exclude)
      excluded.fill(1, Math.max(0, start - left), Math.max(0, stop - left));
    const isIncluded = (x: number): boolean => excluded[x] === 0;
    return (row) => {
      const sums: [included: number, excluded: number] = [0, 0];
      row.forEach((weight, x) => {
        sums[isIncluded(x) ? 0 : 1] += Math.abs(weight);
      });
      const keys = topKeys(row, k, isIncluded);
      const padding = new Array<number>(Math.min(k, row.length) - keys.length);
      return [
        ...[...keys.map((x) => left + x), ...padding.fill(-1)],
        ...[...keys.map((x) => row[x] as number), ...padding.fill(0)],
        ...sums,
      ];
    };
  },
  lost: (_, { heads, lost }) => {
    return (_row, query) =>
      lost ? [heads.reduce((sum, head) => sum + lost(head, query), 0) / heads.length] : [];
  },
};

/** Return the weights of a matrix, or the numbers to which they are reduced, and their size. */
export function reduced<R extends Reduction>(
  matrix: ReadMatrix,
  reduction?: R,
): { size: [rows: number, columns: number]; values: Float32Array } {
  const { rows, columns, read } = matrix;
  const [height, width] = [rows[1] - rows[0], columns[1] - columns[0]];
  if (!reduction) return { size: [height, width], values: blockOf(read, rows, width) };
  if (reduction.kind === "cells") {
    const { length, max_cells: maxCells = 1, pooled } = reduction;
    const split = (range: Range): number[] =>
      length === undefined ? parts(range, maxCells) : runs(range, length);
    const starts = { rows: split(rows), columns: split(columns) };
    const size: [number, number] = [starts.rows.length - 1, starts.columns.length - 1];
    return { size, values: cellsOf(read, starts, pooled) };
  }
  const numbersOf = OF_ROWS[reduction.kind](reduction as never, matrix);
  const row = new Float32Array(width);
  const values = Array.from({ length: height }, (_, i) => {
    read(rows[0] + i, row);
    return numbersOf(row, rows[0] + i);
  }).flat();
  return { size: [height, values.length / height], values: Float32Array.from(values) };
}
