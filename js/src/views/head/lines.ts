/** Which lines the head view draws, and how much of the weight they cover. Pure functions. */

import type { Range } from "../../client/protocol";
import { topKeys } from "../../client/requests/strongest";
import { larger } from "../../client/signs";

export type Combine = "separate" | "mean" | "max";
export type LeaveOut = "special" | "first" | number;

/** Weights of one layer, one matrix for each head. */
export interface Weights {
  heads: number[];
  /** Row-major, for the queries in `rows` and the keys in `columns`. */
  matrices: Float32Array[];
  rows: Range;
  columns: Range;
  /** Keys that these queries may attend to; those outside `columns` are not in hand. */
  numReached: number;
  /** Whether a whole row sums to one. */
  normalized: boolean;
  maximum: number;
  error: number;
}

/** Whether all weights of their queries are in hand. */
export function hasWholeRows({ columns, numReached }: Weights): boolean {
  return columns[0] === 0 && columns[1] >= numReached;
}

/** What is to be drawn of them. */
export interface LineOptions {
  combine: Combine;
  /** Strongest keys in sight for each query and matrix; null for all. */
  topK: number | null;
  /** Only weights that reach it. */
  threshold: number;
  /** For each key of the stack, 1 where it is left out. */
  leftOut: Uint8Array;
  /** For each query and key of the stack, 1 where the sentence pair takes it. */
  pairQueries: Uint8Array;
  pairKeys: Uint8Array;
  renormalize: boolean;
  /** Queries and keys in sight. */
  queryWindow: Range;
  keyWindow: Range;
}

/** The lines of one matrix. */
export interface Series {
  /** null for the mean or maximum over several. */
  head: number | null;
  name: string;
  query: Int32Array;
  key: Int32Array;
  weight: Float32Array;
  /** The matrix that they come from, as drawn: renormalised where that is asked for. */
  matrix: Float32Array;
}

/**
 * Shares of the weight of the queries in sight; they add up to one. Of signed numbers they are
 * shares of all sizes.
 */
export interface Shares {
  drawn: number;
  /** To keys that are left out. */
  leftOut: number;
  /** How far that may be off, as the weights of a page are; 0 where they are exact. */
  leftOutError: number;
  /** To keys that the sentence pair does not take. */
  otherPair: number;
  /** To keys outside the window. */
  outside: number;
  /** In sight, but below the threshold or not among the strongest. */
  rest: number;
}

export interface Lines {
  series: Series[];
  shares: Shares;
  /** Lines without the limit of `MOST_LINES`. */
  total: number;
  /** Share of the weight, part of the rest, that only is not drawn because it could not be seen. */
  faint: number;
  /** Largest weight drawn, of signed numbers the largest size. */
  largest: number;
  /** How far any number that is shown of the queries in sight may be off. */
  error: number;
  /** Queries without any weight, as masked rows are. */
  emptyQueries: number;
  /** Whether weights to keys outside the window are known: key by key, or at least their sum. */
  wholeRows: boolean;
  outsideKnown: boolean;
}

/** A line weaker than this share of the maximum cannot be seen: it is not drawn nor counted. */
export const FAINTEST = 0.002;
/** Of more lines the strongest are drawn: one could not tell them apart. */
export const MOST_LINES = 20_000;

/** The mean over matrices, cell by cell, or the number that is largest in size. */
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

/** The name of what is drawn for several heads together: "mean of 12 heads". */
export function combinedName(how: "mean" | "max", heads: string): string {
  return `${how === "mean" ? "mean" : "maximum"} of ${heads}`;
}

/** The matrices that are drawn: one for each head, or one for all. */
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

/** The strongest lines of all series. Typed arrays, because objects would take most of the time. */
class StrongestLines {
  /** All that were added, and those that are kept. */
  total = 0;
  count = 0;
  readonly series = new Uint16Array(2 * MOST_LINES);
  readonly query = new Int32Array(2 * MOST_LINES);
  readonly key = new Int32Array(2 * MOST_LINES);
  readonly weight = new Float32Array(2 * MOST_LINES);
  /** The weights before renormalising. */
  readonly share = new Float32Array(2 * MOST_LINES);
  /** No weight of this size or less is among the strongest. */
  #tooWeak = 0;

  add(series: number, query: number, key: number, weight: number, share: number): void {
    this.total++;
    if (Math.abs(weight) <= this.#tooWeak) return;
    if (this.count === this.series.length) this.cut();
    const at = this.count++;
    this.series[at] = series;
    this.query[at] = query;
    this.key[at] = key;
    this.weight[at] = weight;
    this.share[at] = share;
  }

  /** The lines of one series. */
  of(series: number): Pick<Series, "query" | "key" | "weight"> {
    const isOf = (_: number, i: number): boolean => this.series[i] === series;
    return {
      query: this.query.subarray(0, this.count).filter(isOf),
      key: this.key.subarray(0, this.count).filter(isOf),
      weight: this.weight.subarray(0, this.count).filter(isOf),
    };
  }

  /** Removes all but the strongest; of equal ones the first stay. */
  cut(): void {
    const { count } = this;
    if (count <= MOST_LINES) return;
    const sizes = this.weight.slice(0, count).map(Math.abs).sort();
    const least = sizes[count - MOST_LINES] as number;
    let numEqual = sizes.subarray(count - MOST_LINES).lastIndexOf(least) + 1;
    this.count = 0;
    for (let from = 0; from < count; from++) {
      const size = Math.abs(this.weight[from] as number);
      if (size < least || (size === least && numEqual-- <= 0)) continue;
      const to = this.count++;
      for (const field of [this.series, this.query, this.key, this.weight, this.share])
        field[to] = field[from] as number;
    }
    this.#tooWeak = least;
  }
}

/** How far the share of what is left out may be off where weights are: see `Shares`. */
function leftOutError(
  weights: Pick<Weights, "error" | "numReached">,
  options: Pick<LineOptions, "leftOut">,
  sums: { total: number; leftOut: number; rows: number },
  sumToOne: boolean,
): number {
  const count = options.leftOut.reduce((all, each) => all + each, 0);
  if (weights.error === 0 || sums.total === 0 || count === 0) return 0;
  const share = sums.leftOut / sums.total;
  const off = (count * weights.error * sums.rows) / sums.total;
  // A row sums to one: how far its sum is from that is known. Else any key may be off.
  const whole = sumToOne
    ? Math.abs(sums.rows / sums.total - 1)
    : (weights.numReached * weights.error * sums.rows) / sums.total;
  return Math.min(1, off + share * whole);
}

/**
 * How far weights may be off that were divided by their sum: of a true weight w in a true sum r, the
 * quotient differs from that of v in s by no more than (|v - w| + (v / s) |s - r|) / r.
 */
function quotientError(largest: number, sum: number, error: number, sumError: number): number {
  if (error === 0) return 0;
  const least = sum - sumError;
  return least > 0 ? Math.min(1, (error + (largest / sum) * sumError) / least) : 1;
}

/** Lines and shares of what the options leave of the weights. */
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
  const faintest = FAINTEST * weights.maximum;
  const isMeant = (key: number): boolean => !options.leftOut[key] && options.pairKeys[key] === 1;
  let numMeant = 0;
  for (let key = left; key < right; key++) if (isMeant(key)) numMeant++;
  const sums = { total: 0, rows: 0, drawn: 0, leftOut: 0, otherPair: 0, outside: 0, faint: 0 };
  const strongest = new StrongestLines();
  let emptyQueries = 0;
  let error = weights.error;

  const drawn = shown.map(({ head, name, matrix }, place) => {
    const drawnMatrix = options.renormalize ? matrix.slice() : matrix;
    for (let query = top; query < bottom; query++) {
      if (!options.pairQueries[query]) continue;
      const start = (query - weights.rows[0]) * numColumns;
      const row = matrix.subarray(start, start + numColumns);
      let [kept, leftOut, otherPair, inSight, largestKept] = [0, 0, 0, 0, 0];
      for (let key = left; key < right; key++) {
        const size = Math.abs(row[key - left] as number);
        // Most of a long text's weights are, as a page has them.
        if (size === 0) continue;
        if (options.leftOut[key]) leftOut += size;
        else if (!options.pairKeys[key]) otherPair += size;
        else {
          kept += size;
          if (key >= first && key < last) inSight += size;
          if (size > largestKept) largestKept = size;
        }
      }
      // The rest of the weight has left the window.
      if (!wholeRows && sumToOne) kept += Math.max(0, 1 - kept - leftOut - otherPair);
      const total = kept + leftOut + otherPair;
      // Nothing in the window is not nothing at all.
      if (total === 0 && wholeRows) emptyQueries++;
      if (total > 0) sums.rows++;
      sums.total += total;
      sums.leftOut += leftOut;
      sums.otherPair += otherPair;
      sums.outside += kept - inSight;
      const factor = options.renormalize && kept > 0 ? 1 / kept : 1;
      if (options.renormalize) {
        for (let key = left; key < right; key++)
          drawnMatrix[start + key - left] = isMeant(key) ? (row[key - left] as number) * factor : 0;
        // Of a row that sums to one, what is kept is off by what its sum and the other keys are.
        const sumError = sumToOne
          ? Math.abs(1 - total) + (numColumns - numMeant) * weights.error
          : numMeant * weights.error;
        if (kept > 0)
          error = Math.max(error, quotientError(largestKept, kept, weights.error, sumError));
      }
      const add = (key: number): void => {
        const share = row[key - left] as number;
        const value = share * factor;
        const size = Math.abs(value);
        // A weight of 0 has no line, also where the maximum is nothing.
        if (value === 0 || size < options.threshold) return;
        if (size < faintest) sums.faint += Math.abs(share);
        else strongest.add(place, query, key, value, share);
      };
      if (options.topK !== null) {
        const inWindow = (at: number): boolean =>
          at + left >= first && at + left < last && isMeant(at + left);
        for (const at of topKeys(row, options.topK, inWindow)) add(at + left);
      } else {
        for (let key = first; key < last; key++) if (isMeant(key)) add(key);
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
  const series = drawn.map((each, place) => ({ ...each, ...strongest.of(place) }));

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
    ...{ series, total: strongest.total, shares, faint: share(sums.faint), largest },
    ...{ error, emptyQueries, wholeRows, outsideKnown: wholeRows || sumToOne },
  };
}
