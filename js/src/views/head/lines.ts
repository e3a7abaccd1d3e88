/** Selection of the lines that are drawn, and their share of the weight. Pure functions. */

import type { Range } from "../../client/protocol";
import { topKeys } from "../../client/requests/strongest";
import { larger } from "../../client/signs";

export type Combine = "separate" | "mean" | "max";
export type LeaveOut = "special" | "first" | number;

/** Weights of one layer, with one matrix per head. */
export interface Weights {
  heads: number[];
  /** Row-major, for the queries in `rows` and the keys in `columns`. */
  matrices: Float32Array[];
  rows: Range;
  columns: Range;
  /** Number of keys that these queries may attend to. Keys outside `columns` are not loaded. */
  numReached: number;
  /** Whether complete rows sum to 1. */
  normalized: boolean;
  maximum: number;
  error: number;
}

/** Whether the rows are complete: every key that may have weight is loaded. */
export function hasWholeRows({ columns, numReached }: Weights): boolean {
  return columns[0] === 0 && columns[1] >= numReached;
}

/** Options of `computeLines`. */
export interface LineOptions {
  combine: Combine;
  /** Number of strongest keys per query and matrix that are drawn, or null for all keys. */
  topK: number | null;
  /** Smallest weight that is drawn, in absolute value. */
  threshold: number;
  /** 1 for each key of the stack that is left out, and 0 for the others. */
  leftOut: Uint8Array;
  /** 1 for each query and key that the choice of a sentence pair includes, and 0 for the others. */
  pairQueries: Uint8Array;
  pairKeys: Uint8Array;
  renormalize: boolean;
  /** Queries and keys in the windows. */
  queryWindow: Range;
  keyWindow: Range;
}

/** Lines of one matrix. */
export interface Series {
  /** Number of the head, or null for the mean or maximum over several heads. */
  head: number | null;
  name: string;
  query: Int32Array;
  key: Int32Array;
  weight: Float32Array;
  /** Matrix of the lines, renormalised if the options require it. */
  matrix: Float32Array;
}

/**
 * Shares of the weight of the queries in the window, which sum to 1. For signed numbers they are
 * shares of the sum of absolute values.
 */
export interface Shares {
  drawn: number;
  /** Share of the keys that are left out. */
  leftOut: number;
  /** Largest error of `leftOut`, or 0 if the weights are exact. */
  leftOutError: number;
  /** Share of the keys that the choice of a sentence pair excludes. */
  otherPair: number;
  /** Share of the keys outside the window. */
  outside: number;
  /** Share of the keys in the window whose lines are not drawn. */
  rest: number;
}

export interface Lines {
  series: Series[];
  shares: Shares;
  /** Number of lines before the limit `MAX_LINES` applies. */
  total: number;
  /** Share of the weight in lines that are too faint to be visible. Part of `shares.rest`. */
  invisibleShare: number;
  /** Largest absolute value of a drawn weight. */
  largest: number;
  /** Largest error of any displayed number of the queries in the window. */
  error: number;
  /** Number of queries without any weight, such as masked rows. */
  emptyQueries: number;
  /** Whether the weight of every key is loaded. */
  wholeRows: boolean;
  /** Whether the total weight of the keys outside the window is known. */
  outsideKnown: boolean;
}

/** Smallest visible weight, as a share of the maximum. Fainter lines are not drawn or counted. */
export const MIN_VISIBLE = 0.002;
/** Maximum number of drawn lines. More lines could not be distinguished. */
export const MAX_LINES = 20_000;

/** Return the mean of each cell over the matrices, or its value with the largest absolute value. */
export function combineMatrices(matrices: Float32Array[], how: "mean" | "max"): Float32Array {
  const [first = new Float32Array(0), ...others] = matrices;
  if (how === "max") {
    const out = first.slice();
    for (const matrix of others) {
      for (let i = 0; i < out.length; i++) out[i] = larger(out[i] as number, matrix[i] as number);
    }
    return out;
  }
  const sums = new Float64Array(first);
  for (const matrix of others) {
    for (let i = 0; i < sums.length; i++) sums[i] = (sums[i] as number) + (matrix[i] as number);
  }
  return new Float32Array(sums.map((sum) => sum / matrices.length));
}

/** Return the name of a combination of heads: "mean of 12 heads". */
export function combinedName(how: "mean" | "max", heads: string): string {
  return `${how === "mean" ? "mean" : "maximum"} of ${heads}`;
}

/** Return the matrices to draw: one per head, or one combination of all heads. */
export function shownMatrices(
  weights: Weights,
  combine: Combine,
  noneChosen: boolean,
): { head: number | null; name: string; matrix: Float32Array }[] {
  const { heads, matrices } = weights;
  if (heads.length === 1 || (combine === "separate" && !noneChosen)) {
    return heads.map((head, i) => ({
      head,
      name: `head ${head}`,
      matrix: matrices[i] as Float32Array,
    }));
  }
  const how = combine === "max" ? "max" : "mean";
  const name = combinedName(how, `${heads.length} heads`);
  return [{ head: null, name, matrix: combineMatrices(matrices, how) }];
}

/** Collector of the strongest lines of all series. Typed arrays are much faster than objects. */
class StrongestLines {
  /** Number of lines that were added. */
  total = 0;
  /** Number of lines that are stored. */
  count = 0;
  readonly series = new Uint16Array(2 * MAX_LINES);
  readonly query = new Int32Array(2 * MAX_LINES);
  readonly key = new Int32Array(2 * MAX_LINES);
  readonly weight = new Float32Array(2 * MAX_LINES);
  /** Weights before renormalisation. */
  readonly share = new Float32Array(2 * MAX_LINES);
  /** Absolute value up to which a weight is not among the strongest. */
  #tooWeak = 0;

  add(series: number, query: number, key: number, weight: number, share: number): void {
    this.total++;
    if (Math.abs(weight) <= this.#tooWeak) return;
    if (this.count === this.series.length) this.cut();
    const index = this.count++;
    this.series[index] = series;
    this.query[index] = query;
    this.key[index] = key;
    this.weight[index] = weight;
    this.share[index] = share;
  }

  /** Return the lines of one series. */
  of(series: number): Pick<Series, "query" | "key" | "weight"> {
    const isOf = (_: number, i: number): boolean => this.series[i] === series;
    return {
      query: this.query.subarray(0, this.count).filter(isOf),
      key: this.key.subarray(0, this.count).filter(isOf),
      weight: this.weight.subarray(0, this.count).filter(isOf),
    };
  }

  /** Remove all lines except the strongest. Among equal weights the first lines stay. */
  cut(): void {
    const { count } = this;
    if (count <= MAX_LINES) return;
    const sizes = this.weight.slice(0, count).map(Math.abs).sort();
    const minSize = sizes[count - MAX_LINES] as number;
    let numEqual = sizes.subarray(count - MAX_LINES).lastIndexOf(minSize) + 1;
    this.count = 0;
    for (let from = 0; from < count; from++) {
      const size = Math.abs(this.weight[from] as number);
      if (size < minSize || (size === minSize && numEqual-- <= 0)) continue;
      const to = this.count++;
      for (const field of [this.series, this.query, this.key, this.weight, this.share])
        field[to] = field[from] as number;
    }
    this.#tooWeak = minSize;
  }
}

/** Return the largest error of `Shares.leftOut`, which follows from the error of the weights. */
function leftOutError(
  weights: Pick<Weights, "error" | "numReached">,
  options: Pick<LineOptions, "leftOut">,
  sums: { total: number; leftOut: number; rows: number },
  sumToOne: boolean,
): number {
  const count = options.leftOut.reduce((all, flag) => all + flag, 0);
  if (weights.error === 0 || sums.total === 0 || count === 0) return 0;
  const share = sums.leftOut / sums.total;
  const keyError = (count * weights.error * sums.rows) / sums.total;
  // If true rows sum to 1, the error of a sum is known. Otherwise each key may add its error.
  const sumError = sumToOne
    ? Math.abs(sums.rows / sums.total - 1)
    : (weights.numReached * weights.error * sums.rows) / sums.total;
  return Math.min(1, keyError + share * sumError);
}

/**
 * Return the largest error of weights that are divided by their sum. For a weight v with true value
 * w and a sum s with true value r, |v / s - w / r| is at most (|v - w| + (v / s) |s - r|) / r.
 */
function quotientError(largest: number, sum: number, error: number, sumError: number): number {
  if (error === 0) return 0;
  const minSum = sum - sumError;
  return minSum > 0 ? Math.min(1, (error + (largest / sum) * sumError) / minSum) : 1;
}

/** Select the lines to draw, and compute their shares of the weight. */
export function computeLines(
  weights: Weights,
  options: LineOptions,
  shown: { head: number | null; name: string; matrix: Float32Array }[],
): Lines {
  const [left, right] = weights.columns;
  const numColumns = right - left;
  const top = Math.max(weights.rows[0], options.queryWindow[0]);
  const bottom = Math.min(weights.rows[1], options.queryWindow[1]);
  const first = Math.max(left, options.keyWindow[0]);
  const last = Math.min(right, options.keyWindow[1]);
  const wholeRows = hasWholeRows(weights);
  const maxima = options.combine === "max" && shown.some(({ head }) => head === null);
  const sumToOne = weights.normalized && !maxima;
  const faintest = MIN_VISIBLE * weights.maximum;
  const isIncluded = (key: number): boolean => !options.leftOut[key] && options.pairKeys[key] === 1;
  let numIncluded = 0;
  for (let key = left; key < right; key++) if (isIncluded(key)) numIncluded++;
  const sums = { total: 0, rows: 0, drawn: 0, leftOut: 0, otherPair: 0, outside: 0, faint: 0 };
  const strongest = new StrongestLines();
  let emptyQueries = 0;
  let error = weights.error;

  const drawn = shown.map(({ head, name, matrix }, seriesIndex) => {
    const drawnMatrix = options.renormalize ? matrix.slice() : matrix;
    for (let query = top; query < bottom; query++) {
      if (!options.pairQueries[query]) continue;
      const start = (query - weights.rows[0]) * numColumns;
      const row = matrix.subarray(start, start + numColumns);
      let [remaining, leftOut, otherPair, inSight, largestRemaining] = [0, 0, 0, 0, 0];
      for (let key = left; key < right; key++) {
        const size = Math.abs(row[key - left] as number);
        // On a page, most weights of a long text are rounded to 0.
        if (size === 0) continue;
        if (options.leftOut[key]) leftOut += size;
        else if (!options.pairKeys[key]) otherPair += size;
        else {
          remaining += size;
          if (key >= first && key < last) inSight += size;
          if (size > largestRemaining) largestRemaining = size;
        }
      }
      // The missing weight belongs to keys that are not loaded.
      if (!wholeRows && sumToOne) remaining += Math.max(0, 1 - remaining - leftOut - otherPair);
      const total = remaining + leftOut + otherPair;
      // A row that is not complete may have weight on keys that are not loaded.
      if (total === 0 && wholeRows) emptyQueries++;
      if (total > 0) sums.rows++;
      sums.total += total;
      sums.leftOut += leftOut;
      sums.otherPair += otherPair;
      sums.outside += remaining - inSight;
      const factor = options.renormalize && remaining > 0 ? 1 / remaining : 1;
      if (options.renormalize) {
        for (let key = left; key < right; key++)
          drawnMatrix[start + key - left] = isIncluded(key)
            ? (row[key - left] as number) * factor
            : 0;
        // If rows sum to 1, the error of `remaining` comes from the row's sum and the excluded keys.
        const sumError = sumToOne
          ? Math.abs(1 - total) + (numColumns - numIncluded) * weights.error
          : numIncluded * weights.error;
        if (remaining > 0)
          error = Math.max(
            error,
            quotientError(largestRemaining, remaining, weights.error, sumError),
          );
      }
      const add = (key: number): void => {
        const share = row[key - left] as number;
        const value = share * factor;
        const size = Math.abs(value);
        // A weight of 0 has no line, even if the maximum is 0.
        if (value === 0 || size < options.threshold) return;
        if (size < faintest) sums.faint += Math.abs(share);
        else strongest.add(seriesIndex, query, key, value, share);
      };
      if (options.topK !== null) {
        const inWindow = (column: number): boolean =>
          column + left >= first && column + left < last && isIncluded(column + left);
        for (const column of topKeys(row, options.topK, inWindow)) add(column + left);
      } else {
        for (let key = first; key < last; key++) if (isIncluded(key)) add(key);
      }
    }
    return { head, name, matrix: drawnMatrix };
  });
  strongest.cut();
  let largest = 0;
  for (let i = 0; i < strongest.count; i++) {
    sums.drawn += Math.abs(strongest.share[i] as number);
    largest = Math.max(largest, Math.abs(strongest.weight[i] as number));
  }
  const series = drawn.map((item, index) => ({ ...item, ...strongest.of(index) }));

  const share = (sum: number): number =>
    sums.total > 0 ? Math.min(1, Math.max(0, sum / sums.total)) : 0;
  const shares = {
    drawn: share(sums.drawn),
    leftOut: share(sums.leftOut),
    leftOutError: leftOutError(weights, options, sums, sumToOne),
    otherPair: share(sums.otherPair),
    outside: share(sums.outside),
    rest: 0,
  };
  shares.rest = Math.max(
    0,
    sums.total > 0 ? 1 - shares.drawn - shares.leftOut - shares.otherPair - shares.outside : 0,
  );
  return {
    ...{ series, total: strongest.total, shares, invisibleShare: share(sums.faint), largest },
    ...{ error, emptyQueries, wholeRows, outsideKnown: wholeRows || sumToOne },
  };
}
