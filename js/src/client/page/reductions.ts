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
 * Find the strongest keys of each row. `Strongest` in `protocol.ts` documents the numbers.
 *
 * @param exclude ranges of keys that are not among the strongest keys.
 */
export function strongestOf(
  read: ReadRow,
  [top, bottom]: Range,
  [left, right]: Range,
  k: number,
  exclude: readonly Range[],
): Float32Array {
  const width = 2 * k + 2;
  const strongest = new Float32Array((bottom - top) * width);
  const line = new Float32Array(right - left);
  const excluded = new Uint8Array(right - left);
  for (const [start, stop] of exclude)
    excluded.fill(1, Math.max(0, start - left), Math.max(0, stop - left));
  const isIncluded = (x: number): boolean => excluded[x] === 0;
  for (let row = top; row < bottom; row++) {
    read(row, line);
    // Sums over the included keys and over the excluded keys.
    const sums: [number, number] = [0, 0];
    line.forEach((value, x) => {
      sums[isIncluded(x) ? 0 : 1] += Math.abs(value);
    });
    const numbers = strongest.subarray((row - top) * width);
    numbers.fill(-1, 0, k);
    numbers.set(sums, 2 * k);
    topKeys(line, k, isIncluded).forEach((x, i) => {
      numbers[i] = left + x;
      numbers[k + i] = line[x] as number;
    });
  }
  return strongest;
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

/** Numbers of a reduced matrix, in row-major order. */
export interface ReducedMatrix {
  width: number;
  height: number;
  values: Float32Array;
}

/** Functions that reduce a matrix, by the kind of the reduction. */
const REDUCTIONS: {
  [K in Reduction["kind"]]: (
    matrix: ReadMatrix,
    reduction: Extract<Reduction, { kind: K }>,
  ) => ReducedMatrix;
} = {
  cells: ({ rows, columns, read }, { length, max_cells: maxCells = 1, pooled }) => {
    const split = (range: Range): number[] =>
      length === undefined ? parts(range, maxCells) : runs(range, length);
    const starts = { rows: split(rows), columns: split(columns) };
    const [height, width] = [starts.rows.length - 1, starts.columns.length - 1];
    return { width, height, values: cellsOf(read, starts, pooled) };
  },
  strongest: ({ rows, columns, read }, { k, exclude = [] }) => {
    const most = Math.min(k, columns[1] - columns[0]);
    return numbersOf(rows, strongestOf(read, rows, columns, most, exclude));
  },
  lost: ({ rows, heads, lost }) => {
    const mean = (query: number): number =>
      heads.reduce((sum, head) => sum + (lost?.(head, query) ?? 0), 0) / heads.length;
    return numbersOf(rows, Float32Array.from(lost ? queriesIn(rows) : [], mean));
  },
};

function queriesIn([start, stop]: Range): number[] {
  return Array.from({ length: stop - start }, (_, i) => start + i);
}

/** Return a matrix that has the same count of numbers for each row. */
function numbersOf([start, stop]: Range, values: Float32Array): ReducedMatrix {
  const height = stop - start;
  return { width: values.length / height, height, values };
}

/** Return the weights of a matrix, or the numbers to which they are reduced. */
export function reduced<R extends Reduction>(matrix: ReadMatrix, reduction?: R): ReducedMatrix {
  const { rows, columns, read } = matrix;
  if (!reduction) return numbersOf(rows, blockOf(read, rows, columns[1] - columns[0]));
  const reduce = REDUCTIONS[reduction.kind] as (of: ReadMatrix, by: R) => ReducedMatrix;
  return reduce(matrix, reduction);
}
