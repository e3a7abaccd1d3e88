/** Which lines the head view draws, and how much of the weight they cover. Pure functions. */

import type { Range, TokenList } from "../channel/source";
import { allInWords } from "../ui/kept";
import type { Place } from "../ui/record";

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
  count: number;
  query: Int32Array;
  key: Int32Array;
  weight: Float32Array;
  /** The matrix that they come from, as drawn: renormalised where that is asked for. */
  matrix: Float32Array;
}

/** Shares of the weight of the queries in sight; they add up to one. */
export interface Shares {
  drawn: number;
  /** To keys that are left out. */
  leftOut: number;
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
  /** Share of the weight, part of the rest, that only is not drawn because it could not be seen. */
  faint: number;
  /** Largest weight drawn. */
  largest: number;
  /** Queries without any weight, as masked rows are. */
  emptyQueries: number;
  /** Whether weights to keys outside the window are known, key by key. */
  wholeRows: boolean;
}

/** A line weaker than this share of the maximum cannot be seen: it is not drawn nor counted. */
export const FAINTEST = 0.002;

/** The mean or the maximum over matrices, cell by cell. */
export function combineMatrices(matrices: Float32Array[], how: "mean" | "max"): Float32Array {
  const first = matrices[0];
  if (!first) return new Float32Array(0);
  const out = first.slice();
  for (const matrix of matrices.slice(1)) {
    for (let i = 0; i < out.length; i++) {
      const value = matrix[i] as number;
      if (how === "mean") out[i] = (out[i] as number) + value;
      else if (value > (out[i] as number)) out[i] = value;
    }
  }
  if (how === "mean")
    for (let i = 0; i < out.length; i++) out[i] = (out[i] as number) / matrices.length;
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

/** For each key, whether it is left out. */
export function leftOutKeys(keys: TokenList, leaveOut: readonly LeaveOut[]): Uint8Array {
  const out = new Uint8Array(keys.text.length);
  for (const each of leaveOut) {
    if (each === "special") for (const index of keys.special) out[index] = 1;
    else if (each === "first") out[0] = 1;
    else if (each >= 0 && each < out.length) out[each] = 1;
  }
  return out;
}

/** Lines and shares of what the options leave of the weights. */
export function computeLines(
  weights: Weights,
  options: LineOptions,
  shown: { head: number | null; name: string; matrix: Float32Array }[],
): Lines {
  const rowsStart = weights.rows[0];
  const top = Math.max(rowsStart, options.queryWindow[0]);
  const bottom = Math.min(weights.rows[1], options.queryWindow[1]);
  const [left, right] = weights.columns;
  const numColumns = right - left;
  const wholeRows = numColumns === weights.numKeys;
  const first = Math.max(left, options.keyWindow[0]);
  const last = Math.min(right, options.keyWindow[1]);
  const faintest = FAINTEST * weights.maximum;
  const sums = { total: 0, drawn: 0, leftOut: 0, otherPair: 0, outside: 0, faint: 0 };
  let largest = 0;
  let emptyQueries = 0;

  const series = shown.map(({ head, name, matrix }) => {
    const query: number[] = [];
    const key: number[] = [];
    const weight: number[] = [];
    const drawnMatrix = options.renormalize ? matrix.slice() : matrix;
    const k = options.topK ?? numColumns;
    const bestKeys = new Int32Array(Math.min(k, numColumns));
    const bestWeights = new Float32Array(bestKeys.length);
    for (let row = top; row < bottom; row++) {
      if (!options.pairQueries[row]) continue;
      const offset = (row - rowsStart) * numColumns - left;
      let sum = 0;
      let leftOut = 0;
      let otherPair = 0;
      let inSight = 0;
      for (let column = left; column < right; column++) {
        const value = matrix[offset + column] as number;
        sum += value;
        if (options.leftOut[column]) leftOut += value;
        else if (!options.pairKeys[column]) otherPair += value;
        else if (column >= first && column < last) inSight += value;
      }
      // Without the whole row in hand what is missing from one has left the window.
      const total = wholeRows || !weights.normalized ? sum : Math.max(sum, 1);
      // Nothing in the window is not nothing at all.
      if (sum === 0 && wholeRows) emptyQueries++;
      const kept = total - leftOut - otherPair;
      const factor = options.renormalize && kept > 0 ? 1 / kept : 1;

      let found = 0;
      let faint = 0;
      for (let column = first; column < last; column++) {
        if (options.leftOut[column] || !options.pairKeys[column]) {
          if (options.renormalize) drawnMatrix[offset + column] = 0;
          continue;
        }
        const value = (matrix[offset + column] as number) * factor;
        if (options.renormalize) drawnMatrix[offset + column] = value;
        // Nothing is no line, also where the maximum is nothing.
        if (value === 0 || value < options.threshold) continue;
        if (value < faintest) {
          faint += value / factor;
          continue;
        }
        if (options.topK === null) {
          query.push(row);
          key.push(column);
          weight.push(value);
          sums.drawn += value / factor;
          if (value > largest) largest = value;
          continue;
        }
        if (found === bestKeys.length && value <= (bestWeights[found - 1] ?? Infinity)) continue;
        if (found < bestKeys.length) found++;
        let place = found - 1;
        while (place > 0 && (bestWeights[place - 1] as number) < value) {
          bestWeights[place] = bestWeights[place - 1] as number;
          bestKeys[place] = bestKeys[place - 1] as number;
          place--;
        }
        bestWeights[place] = value;
        bestKeys[place] = column;
      }
      if (options.topK === null || found < bestKeys.length) sums.faint += faint;
      for (let i = 0; i < found; i++) {
        const value = bestWeights[i] as number;
        query.push(row);
        key.push(bestKeys[i] as number);
        weight.push(value);
        sums.drawn += value / factor;
        if (value > largest) largest = value;
      }
      sums.total += total;
      sums.leftOut += leftOut;
      sums.otherPair += otherPair;
      sums.outside += kept - inSight;
    }
    return {
      head,
      name,
      count: query.length,
      query: Int32Array.from(query),
      key: Int32Array.from(key),
      weight: Float32Array.from(weight),
      matrix: drawnMatrix,
    };
  });

  const share = (sum: number): number =>
    sums.total > 0 ? Math.min(1, Math.max(0, sum / sums.total)) : 0;
  const shares = {
    drawn: share(sums.drawn),
    leftOut: share(sums.leftOut),
    otherPair: share(sums.otherPair),
    outside: share(sums.outside),
    rest: 0,
  };
  shares.rest = Math.max(
    0,
    sums.total > 0 ? 1 - shares.drawn - shares.leftOut - shares.otherPair - shares.outside : 0,
  );
  return { series, shares, faint: share(sums.faint), largest, emptyQueries, wholeRows };
}

/** The default window of a list of tokens: all up to a hundred, else the first 64. */
export function defaultWindow(count: number): Range {
  return count <= 100 ? [0, count] : [0, 64];
}

/** A window that lies inside the list, whatever was asked for. */
export function clipWindow(window: Range | null, count: number): Range {
  if (!window) return defaultWindow(count);
  const start = Math.max(0, Math.min(Math.floor(window[0]), Math.max(0, count - 1)));
  const stop = Math.max(start + 1, Math.min(Math.floor(window[1]), count));
  return [start, Math.min(stop, count)];
}
