/** Which lines the head view draws, and how much of the weight they cover. Pure functions. */

import type { Range } from "../../client/protocol";
import { type ErrorOf, quotientErrors, type RangeOf } from "../../client/quotients";
import { type Strongest, strongestOf } from "../../client/requests/strongest";
import { larger } from "../../client/signs";
import { allInWords } from "../../ui/text/captions";
import type { Place } from "../../ui/view/record";

export type Combine = "separate" | "mean" | "max";
export type LeaveOut = "special" | "first" | number;

/** Weights of one layer, one matrix for each head. */
export interface Weights {
  heads: number[];
  /** Row-major, for the queries in `rows` and the keys in `columns`. */
  matrices: Float32Array[];
  rows: Range;
  columns: Range;
  /** All keys of the stack; those outside `columns` are not in hand. */
  numKeys: number;
  /** Whether a whole row sums to one. */
  normalized: boolean;
  maximum: number;
  error: number;
  /** Between which numbers each head's weights lie; left out where they are exact. */
  ranges?: readonly RangeOf[] | undefined;
}

/** What is to be drawn of them. */
export interface LineOptions {
  combine: Combine;
  /** Strongest keys for each query and matrix; null for all. */
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
  /** Behind so many follow lines to keys outside the window that are drawn for one query alone. */
  count: number;
  query: Int32Array;
  key: Int32Array;
  weight: Float32Array;
  /** How far each of these weights may be off. */
  error: Float64Array;
  /** The matrix that they come from, as drawn: renormalised where that is asked for. */
  matrix: Float32Array;
}

/**
 * Shares of the weight of the queries in sight; but for `away` they add up to one. Of signed
 * numbers they are shares of all sizes.
 */
export interface Shares {
  drawn: number;
  /** To keys that are left out. */
  leftOut: number;
  /** How far that may be off, as the weights of a page are; 0 where they are exact. */
  leftOutError: number;
  /** To keys that the sentence pair does not take. */
  otherPair: number;
  /** To keys outside the window, and the part of it that is drawn all the same. */
  outside: number;
  away: number;
  /** How many lines are. */
  far: number;
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
  /** Whether weights to keys outside the window are known, key by key. */
  wholeRows: boolean;
  /** Queries of which nothing is known yet. */
  awaited: number;
}

/** A line weaker than this share of the maximum cannot be seen: it is not drawn nor counted. */
export const FAINTEST = 0.002;
/** Of more lines the strongest are drawn: one could not tell them apart. */
export const MOST_LINES = 20_000;
/** So many lines at most end at keys outside the window, and so many of a query without top-k. */
const MOST_AWAY = 32;
/** So many of them to one place, of so many along the text: a sink would take them all. */
const TO_ONE_PLACE = 12;
const PLACES = 64;
const AWAY_OF_ALL = 3;

/** The mean over matrices, cell by cell, or the number that is largest in size. */
export function combineMatrices(matrices: Float32Array[], how: "mean" | "max"): Float32Array {
  const first = matrices[0];
  if (!first) return new Float32Array(0);
  const out = first.slice();
  if (how === "max") {
    for (const matrix of matrices.slice(1)) {
      for (let i = 0; i < out.length; i++) out[i] = larger(out[i] as number, matrix[i] as number);
    }
    return out;
  }
  const sums = new Float64Array(first);
  for (const matrix of matrices.slice(1)) {
    for (let i = 0; i < sums.length; i++) sums[i] = (sums[i] as number) + (matrix[i] as number);
  }
  for (let i = 0; i < sums.length; i++) out[i] = (sums[i] as number) / matrices.length;
  return out;
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
  place: Pick<Place, "kept" | "numHeads"> = { kept: weights.heads, numHeads: weights.heads.length },
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
  const all = heads.length === place.kept.length;
  const name = combinedName(how, all ? allInWords(place) : `${heads.length} heads`);
  return [{ head: null, name, matrix: combineMatrices(matrices, how) }];
}

/** How far the weights of a query in a series, null for all heads together, may be off as shown. */
export function errorsOf(
  weights: Pick<Weights, "heads" | "ranges" | "error">,
  options: Pick<LineOptions, "combine" | "renormalize" | "leftOut" | "pairKeys">,
): (head: number | null, query: number) => ErrorOf {
  const { heads, ranges } = weights;
  if (!options.renormalize || !ranges) return () => () => weights.error;
  const how = options.combine === "max" ? "max" : "mean";
  const isKept = (key: number): boolean => !options.leftOut[key] && options.pairKeys[key] === 1;
  return (head, query) => {
    const meant = head === null ? ranges : [ranges[heads.indexOf(head)] as RangeOf];
    return quotientErrors(
      meant.map((of) => of(query)),
      how,
      isKept,
    );
  };
}

/** One line on its way to a key outside the window. */
interface Away {
  series: number;
  query: number;
  key: number;
  weight: number;
  /** Its share of the row. */
  value: number;
  error: number;
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
  readonly error = new Float64Array(2 * MOST_LINES);
  /** No weight of this size or less is among the strongest. */
  #tooWeak = 0;

  add(
    series: number,
    query: number,
    key: number,
    weight: number,
    share: number,
    error: number,
  ): void {
    this.total++;
    if (Math.abs(weight) <= this.#tooWeak) return;
    if (this.count === this.series.length) this.cut();
    const at = this.count++;
    this.series[at] = series;
    this.query[at] = query;
    this.key[at] = key;
    this.weight[at] = weight;
    this.share[at] = share;
    this.error[at] = error;
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
      for (const field of [this.series, this.query, this.key, this.weight, this.share, this.error])
        field[to] = field[from] as number;
    }
    this.#tooWeak = least;
  }
}

/** Lines of one series. */
class LineList {
  count = 0;
  query = new Int32Array(256);
  key = new Int32Array(256);
  weight = new Float32Array(256);
  error = new Float64Array(256);

  push(query: number, key: number, weight: number, error: number): void {
    if (this.count === this.query.length) this.#resize(2 * this.count);
    const at = this.count++;
    this.query[at] = query;
    this.key[at] = key;
    this.weight[at] = weight;
    this.error[at] = error;
  }

  /** The lines, those behind `count` among them. */
  whole(behind: LineList): Pick<Series, "query" | "key" | "weight" | "error"> {
    for (let i = 0; i < behind.count; i++) {
      this.push(
        behind.query[i] as number,
        behind.key[i] as number,
        behind.weight[i] as number,
        behind.error[i] as number,
      );
    }
    if (this.count < this.query.length) this.#resize(this.count);
    const { query, key, weight, error } = this;
    return { query, key, weight, error };
  }

  #resize(length: number): void {
    const resized = <T extends Int32Array | Float32Array | Float64Array>(from: T, to: T): T => {
      to.set(from.subarray(0, Math.min(length, this.count)));
      return to;
    };
    this.query = resized(this.query, new Int32Array(length));
    this.key = resized(this.key, new Int32Array(length));
    this.weight = resized(this.weight, new Float32Array(length));
    this.error = resized(this.error, new Float64Array(length));
  }
}

/** How far the share of what is left out may be off where weights are: see `Shares`. */
function leftOutError(
  weights: Pick<Weights, "error" | "numKeys">,
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
    : (weights.numKeys * weights.error * sums.rows) / sums.total;
  return Math.min(1, off + share * whole);
}

/**
 * Lines and shares of what the options leave of the weights.
 *
 * @param strongest of all keys, for each matrix and query; then lines leave the window, too.
 */
export function computeLines(
  weights: Weights,
  options: LineOptions,
  shown: { head: number | null; name: string; matrix: Float32Array }[],
  strongest: Strongest | null = null,
): Lines {
  const rowsStart = weights.rows[0];
  const top = Math.max(rowsStart, options.queryWindow[0]);
  const bottom = Math.min(weights.rows[1], options.queryWindow[1]);
  const [left, right] = weights.columns;
  const numColumns = right - left;
  const { numKeys } = weights;
  const wholeRows = strongest !== null || numColumns === numKeys;
  const first = Math.max(left, options.keyWindow[0]);
  const last = Math.min(right, options.keyWindow[1]);
  const { topK } = options;
  const k = strongest?.k ?? Math.min(topK ?? 0, numKeys);
  const most = Math.min(k, topK ?? AWAY_OF_ALL);
  const start = strongest?.rows[0] ?? top;
  const founds = shown.map(({ matrix }, place) => {
    if (strongest || topK === null || !wholeRows) return strongest?.matrices[place] ?? null;
    const rowAt = (row: number): Float32Array =>
      matrix.subarray((row - rowsStart) * numKeys, (row - rowsStart + 1) * numKeys);
    return strongestOf(rowAt, { rows: [top, bottom], k, bin_size: numKeys }, numKeys, options);
  });
  // Then there is nothing to find out about single weights.
  const noneAside = topK !== null && !options.renormalize && last - first === numKeys;
  const faintest = FAINTEST * weights.maximum;
  // The strongest of a long text are weak: what cannot be seen is measured by them.
  let strong = 0;
  for (const found of founds) {
    for (const value of found?.weights ?? []) strong = Math.max(strong, Math.abs(value));
  }
  const faintestFound = strongest ? Math.min(faintest, FAINTEST * strong) : faintest;
  const strongestLines = new StrongestLines();
  const sums = {
    total: 0,
    rows: 0,
    drawn: 0,
    leftOut: 0,
    otherPair: 0,
    outside: 0,
    away: 0,
    faint: 0,
  };
  const leaving: Away[] = [];
  let largest = 0;
  let emptyQueries = 0;
  let awaited = 0;
  const errorsIn = errorsOf(weights, options);
  const divides = options.renormalize && weights.ranges !== undefined;
  let largestError = divides ? 0 : weights.error;

  const drawn = shown.map(({ head, name, matrix }, series) => {
    const drawnMatrix = options.renormalize ? matrix.slice() : matrix;
    const found = founds[series];
    for (let row = top; row < bottom; row++) {
      if (!options.pairQueries[row]) continue;
      const offset = (row - rowsStart) * numColumns - left;
      const at = row - start;
      let [remaining, leftOut, otherPair] = [0, 0, 0];
      // What is in the window may not be in hand yet: at least so much is.
      let inSight = 0;
      if (found) {
        remaining = found.sums[3 * at] as number;
        leftOut = found.sums[3 * at + 1] as number;
        otherPair = found.sums[3 * at + 2] as number;
        if (Number.isNaN(remaining)) {
          awaited++;
          continue;
        }
      } else {
        for (let column = left; column < right; column++) {
          const value = Math.abs(matrix[offset + column] as number);
          // Most of a long text's weights are, as a page has them.
          if (value === 0) continue;
          if (options.leftOut[column]) leftOut += value;
          else if (!options.pairKeys[column]) otherPair += value;
          else remaining += value;
        }
      }
      // Without the whole row in hand what is missing from one has left the window.
      if (!found && !wholeRows && weights.normalized)
        remaining += Math.max(0, 1 - remaining - leftOut - otherPair);
      const total = remaining + leftOut + otherPair;
      // Nothing in the window is not nothing at all.
      if (total === 0 && wholeRows) emptyQueries++;
      const factor = options.renormalize && remaining > 0 ? 1 / remaining : 1;
      const rowErrors = divides ? errorsIn(head, row) : null;
      const errorOf: ErrorOf = (to, value) => {
        // Of the number that is kept, in single precision.
        const error = rowErrors ? rowErrors(to, Math.fround(value)) : weights.error;
        if (error > largestError) largestError = error;
        return error;
      };
      for (let i = at * k; found && i < at * k + most; i++) {
        const to = found.keys[i] as number;
        const share = found.weights[i] as number;
        const value = share * factor;
        const size = Math.abs(value);
        if (to < 0 || size < options.threshold) break;
        const away = to < options.keyWindow[0] || to >= options.keyWindow[1];
        const error = errorOf(to, value);
        if (size < faintestFound) sums.faint += away ? 0 : Math.abs(share);
        else if (away)
          leaving.push({ series, query: row, key: to, weight: value, value: share, error });
        else if (topK !== null) strongestLines.add(series, row, to, value, share, error);
      }
      if (numColumns === 0 || noneAside) inSight = remaining;
      for (let column = noneAside ? last : first; column < last; column++) {
        if (matrix[offset + column] === 0 && !divides) continue;
        if (options.leftOut[column] || !options.pairKeys[column]) {
          if (options.renormalize) drawnMatrix[offset + column] = 0;
          continue;
        }
        const share = matrix[offset + column] as number;
        const value = share * factor;
        const size = Math.abs(value);
        inSight += Math.abs(share);
        if (options.renormalize) drawnMatrix[offset + column] = value;
        const error = divides ? errorOf(column, value) : weights.error;
        // A weight of 0 has no line, also where the maximum is nothing.
        if (topK !== null || value === 0 || size < options.threshold) continue;
        if (size < faintest) sums.faint += Math.abs(share);
        else strongestLines.add(series, row, column, value, share, error);
      }
      sums.total += total;
      if (total > 0) sums.rows++;
      sums.leftOut += leftOut;
      sums.otherPair += otherPair;
      sums.outside += remaining - inSight;
    }
    return { head, name, list: new LineList(), behind: new LineList(), matrix: drawnMatrix };
  });
  strongestLines.cut();
  for (let i = 0; i < strongestLines.count; i++) {
    const weight = strongestLines.weight[i] as number;
    drawn[strongestLines.series[i] as number]?.list.push(
      strongestLines.query[i] as number,
      strongestLines.key[i] as number,
      weight,
      strongestLines.error[i] as number,
    );
    sums.drawn += Math.abs(strongestLines.share[i] as number);
    largest = Math.max(largest, Math.abs(weight));
  }
  // Each its part, so that none looks as if it never left the window.
  const each = Math.max(2, Math.floor(MOST_AWAY / drawn.length));
  leaving.sort((a, b) => Math.abs(b.weight) - Math.abs(a.weight));
  const starts = drawn.map(({ list }) => list.count);
  const ways = new Map<string, number>();
  let far = 0;
  for (const { series, query, key, weight, value, error } of leaving) {
    const { list, behind } = drawn[series] as (typeof drawn)[0];
    const way = `${series} ${Math.floor((PLACES * key) / weights.numKeys)}`;
    const taken = ways.get(way) ?? 0;
    const fits = list.count < (starts[series] as number) + each && taken < TO_ONE_PLACE;
    // Those that are drawn stand before the others.
    (fits ? list : behind).push(query, key, weight, error);
    if (!fits) continue;
    ways.set(way, taken + 1);
    far++;
    sums.away += Math.abs(value);
    largest = Math.max(largest, Math.abs(weight));
  }
  const series = drawn.map(({ head, name, list, behind, matrix }) => ({
    ...{ head, name, count: list.count, matrix },
    ...list.whole(behind),
  }));

  const maxima = options.combine === "max" && shown.some(({ head }) => head === null);
  const sumToOne = weights.normalized && !maxima;
  const share = (sum: number): number =>
    sums.total > 0 ? Math.min(1, Math.max(0, sum / sums.total)) : 0;
  const shares = {
    drawn: share(sums.drawn),
    leftOut: share(sums.leftOut),
    leftOutError: leftOutError(weights, options, sums, sumToOne),
    otherPair: share(sums.otherPair),
    outside: share(sums.outside),
    away: share(sums.away),
    far,
    rest: 0,
  };
  shares.rest = Math.max(
    0,
    sums.total > 0 ? 1 - shares.drawn - shares.leftOut - shares.otherPair - shares.outside : 0,
  );
  const faint = share(sums.faint);
  return {
    ...{ series, total: strongestLines.total, shares, faint, largest, error: largestError },
    ...{ emptyQueries, wholeRows, awaited },
  };
}
