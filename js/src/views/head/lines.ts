/** Selection of the drawn lines, and computation of their share of the weight. Pure functions. */

import type { Range } from "../../client/protocol";
import { topKeys } from "../../client/requests/strongest";
import { larger } from "../../client/signs";
import type { WeightBlock } from "../../client/source";

export type Combine = "separate" | "mean" | "max";
export type LeaveOut = "special" | "first" | number;

/** Weights of one layer, with one matrix per head in row-major order. */
export interface Weights extends Pick<WeightBlock, "matrices" | "maximum" | "error"> {
  heads: number[];
  /** Queries and keys of the matrices. */
  rows: Range;
  columns: Range;
  /** Number of keys that the queries may attend to, including keys that are not loaded. */
  numReached: number;
  /** Whether complete rows sum to 1. */
  normalized: boolean;
}

/** Return whether rows are complete: all keys that may have a weight are loaded. */
export function hasWholeRows({ columns, numReached }: Weights): boolean {
  return columns[0] === 0 && columns[1] >= numReached;
}

/** Options of `computeLines`. */
export interface LineOptions {
  combine: Combine;
  /** Number of strongest keys that are drawn per query and series, or null for all keys. */
  topK: number | null;
  /** Smallest absolute value that is drawn. */
  threshold: number;
  /** 1 for each key of the stack that is left out, and 0 for the others. */
  leftOut: Uint8Array;
  /** 1 for each query in the chosen text of a pair of texts, and 0 for the others. */
  pairQueries: Uint8Array;
  /** 1 for each key in the chosen text of a pair of texts, and 0 for the others. */
  pairKeys: Uint8Array;
  /** Whether to divide each row by its sum over the keys that are not left out. */
  renormalize: boolean;
  /** Queries that the view shows. */
  queryWindow: Range;
  /** Keys that the view shows. */
  keyWindow: Range;
}

/**
 * Smallest visible weight, as a share of the maximum. Fainter lines are neither drawn nor counted.
 */
export const MIN_VISIBLE = 0.002;
/** Maximum number of drawn lines, because more lines could not be distinguished. */
export const MAX_LINES = 20_000;

/**
 * Combine matrices of equal shape element by element. "mean" returns the mean. "max" returns the
 * element with the largest absolute value, with its sign.
 */
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

/** Return the name of a combination of heads: "mean of 12 heads" or "maximum of 12 heads". */
export function combinedName(how: "mean" | "max", heads: string): string {
  return `${how === "mean" ? "mean" : "maximum"} of ${heads}`;
}

/**
 * Return the matrices to draw: one per head, or one combination of all heads.
 *
 * @param noneChosen whether no head is chosen. "separate" then stands for "mean".
 */
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

/**
 * Collector of the strongest `MAX_LINES` lines of all series. It stores lines in typed arrays,
 * which are much faster than objects.
 */
class StrongestLines {
  /** Number of lines that were added. */
  total = 0;
  /** Number of lines that are stored. */
  count = 0;
  readonly series = new Uint16Array(2 * MAX_LINES);
  readonly query = new Int32Array(2 * MAX_LINES);
  readonly key = new Int32Array(2 * MAX_LINES);
  readonly weight = new Float32Array(2 * MAX_LINES);
  /** Weight of each line before renormalisation. */
  readonly share = new Float32Array(2 * MAX_LINES);
  /** Weights up to this absolute value are not among the strongest. */
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

  /** Return the stored lines of one series. */
  of(series: number): { query: Int32Array; key: Int32Array; weight: Float32Array } {
    const isOf = (_: number, i: number): boolean => this.series[i] === series;
    return {
      query: this.query.subarray(0, this.count).filter(isOf),
      key: this.key.subarray(0, this.count).filter(isOf),
      weight: this.weight.subarray(0, this.count).filter(isOf),
    };
  }

  /** Keep only the strongest `MAX_LINES` lines. Among equal weights, the first lines stay. */
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

/**
 * Return the largest possible error of the share of the keys that are left out.
 *
 * @param sums sums of weights over all rows, and the number of rows with weight.
 * @param sumToOne whether the rows of the exact weights sum to 1.
 */
function leftOutError(
  { error, numReached }: Pick<Weights, "error" | "numReached">,
  { leftOut: flags }: Pick<LineOptions, "leftOut">,
  { total, leftOut, rows }: { total: number; leftOut: number; rows: number },
  sumToOne: boolean,
): number {
  const count = flags.reduce((all, flag) => all + flag, 0);
  if (error === 0 || total === 0 || count === 0) return 0;
  // If exact rows sum to 1, the error of the total is its distance from the number of rows.
  // Otherwise the errors of all keys may add up.
  const sumError = sumToOne ? Math.abs(rows / total - 1) : (numReached * error * rows) / total;
  return Math.min(1, (count * error * rows + leftOut * sumError) / total);
}

/**
 * Return the largest error of weights that are divided by their sum. Let v be a weight with exact
 * value w, and s the sum with exact value r. Then
 * |v / s - w / r| <= (|v - w| + (v / s) |s - r|) / r.
 *
 * @param largest largest weight (v).
 * @param error largest |v - w|.
 * @param sumError largest |s - r|.
 */
function quotientError(largest: number, sum: number, error: number, sumError: number): number {
  if (error === 0) return 0;
  const minSum = sum - sumError;
  return minSum > 0 ? Math.min(1, (error + (largest / sum) * sumError) / minSum) : 1;
}

/** Groups of keys: in the window, outside of it, left out, and not in the chosen text of a pair. */
const [IN_SIGHT, OUTSIDE, LEFT_OUT, OTHER_TEXT] = [0, 1, 2, 3] as const;

/** Return the group of each loaded key. */
function groupsOf({ columns }: Weights, options: LineOptions): Uint8Array {
  const [start, stop] = options.keyWindow;
  return Uint8Array.from({ length: columns[1] - columns[0] }, (_, column) => {
    const key = columns[0] + column;
    if (options.leftOut[key]) return LEFT_OUT;
    if (!options.pairKeys[key]) return OTHER_TEXT;
    return key >= start && key < stop ? IN_SIGHT : OUTSIDE;
  });
}

/**
 * Select the lines to draw, and compute their share of the weight.
 *
 * @param shown result of `shownMatrices`.
 */
export function computeLines(
  weights: Weights,
  options: LineOptions,
  shown: ReturnType<typeof shownMatrices>,
) {
  const { rows, columns, maximum } = weights;
  const { renormalize, topK, threshold } = options;
  const groups = groupsOf(weights, options);
  const isIncluded = (column: number): boolean => (groups[column] as number) <= OUTSIDE;
  const isInSight = (column: number): boolean => groups[column] === IN_SIGHT;
  const numColumns = groups.length;
  const numIncluded = groups.reduce((count, _, column) => count + (isIncluded(column) ? 1 : 0), 0);
  const top = Math.max(rows[0], options.queryWindow[0]);
  const bottom = Math.min(rows[1], options.queryWindow[1]);
  const wholeRows = hasWholeRows(weights);
  const maxima = options.combine === "max" && shown.some(({ head }) => head === null);
  const sumToOne = weights.normalized && !maxima;
  const faintest = MIN_VISIBLE * maximum;
  const sums = { total: 0, rows: 0, drawn: 0, leftOut: 0, otherPair: 0, outside: 0, faint: 0 };
  const strongest = new StrongestLines();
  let emptyQueries = 0;
  let { error } = weights;

  const drawn = shown.map(({ head, name, matrix }, series) => {
    const drawnMatrix = renormalize ? matrix.slice() : matrix;
    for (let query = top; query < bottom; query++) {
      if (!options.pairQueries[query]) continue;
      const start = (query - rows[0]) * numColumns;
      const row = matrix.subarray(start, start + numColumns);
      const ofGroup = [0, 0, 0, 0];
      for (let column = 0; column < numColumns; column++) {
        const size = Math.abs(row[column] as number);
        // Skip zeros quickly: on a page, most weights of a long text are rounded to 0.
        if (size > 0) (ofGroup[groups[column] as number] as number) += size;
      }
      const loaded = ofGroup.reduce((sum, size) => sum + size, 0);
      // If the loaded keys sum to less than 1, the keys that are not loaded have the missing
      // weight.
      const unloaded = !wholeRows && sumToOne ? Math.max(0, 1 - loaded) : 0;
      const [inSight, outside, leftOut, otherPair] = ofGroup as [number, number, number, number];
      const remaining = inSight + outside + unloaded;
      const total = loaded + unloaded;
      // An incomplete row is not counted as empty, because keys that are not loaded may have
      // weight.
      if (total === 0 && wholeRows) emptyQueries++;
      if (total > 0) sums.rows++;
      sums.total += total;
      sums.leftOut += leftOut;
      sums.otherPair += otherPair;
      sums.outside += outside + unloaded;
      const factor = renormalize && remaining > 0 ? 1 / remaining : 1;
      if (renormalize) {
        let largest = 0;
        for (let column = 0; column < numColumns; column++) {
          const value = isIncluded(column) ? (row[column] as number) : 0;
          drawnMatrix[start + column] = value * factor;
          largest = Math.max(largest, Math.abs(value));
        }
        // `remaining` is the sum of the row minus the excluded keys. If rows sum to 1, the error of
        // `remaining` is the error of the row's sum plus the errors of the excluded keys.
        const sumError = sumToOne
          ? Math.abs(1 - total) + (numColumns - numIncluded) * weights.error
          : numIncluded * weights.error;
        if (remaining > 0)
          error = Math.max(error, quotientError(largest, remaining, weights.error, sumError));
      }
      const add = (column: number): void => {
        const share = row[column] as number;
        const value = share * factor;
        const size = Math.abs(value);
        // A weight of 0 has no line. If the largest weight is 0, `faintest` is 0 as well and would
        // not exclude it.
        if (value === 0 || size < threshold) return;
        if (size < faintest) sums.faint += Math.abs(share);
        else strongest.add(series, query, columns[0] + column, value, share);
      };
      if (topK !== null) for (const column of topKeys(row, topK, isInSight)) add(column);
      else for (let column = 0; column < numColumns; column++) if (isInSight(column)) add(column);
    }
    return { head, name, matrix: drawnMatrix };
  });
  strongest.cut();
  let largest = 0;
  for (let i = 0; i < strongest.count; i++) {
    sums.drawn += Math.abs(strongest.share[i] as number);
    largest = Math.max(largest, Math.abs(strongest.weight[i] as number));
  }
  const share = (sum: number): number =>
    sums.total > 0 ? Math.min(1, Math.max(0, sum / sums.total)) : 0;
  return {
    /**
     * Query, key and weight of each line, and the loaded weights in row-major order. The weights
     * are renormalised if the options say so.
     */
    series: drawn.map((item, series) => ({ ...item, ...strongest.of(series) })),
    /**
     * Shares of the total weight of all queries in the window: of the drawn lines, and of the keys
     * that are left out, not in the chosen text of a pair, or outside the window. The rest is the
     * share of the lines that are not drawn, because they are too many or too faint. For signed
     * numbers, the total is the sum of the absolute values.
     */
    shares: {
      drawn: share(sums.drawn),
      leftOut: share(sums.leftOut),
      /** Largest error of `leftOut`, or 0 if the weights are exact. */
      leftOutError: leftOutError(weights, options, sums, sumToOne),
      otherPair: share(sums.otherPair),
      outside: share(sums.outside),
    },
    /** Number of lines, including those that are not drawn because of `MAX_LINES`. */
    total: strongest.total,
    /** Share of the lines that are not drawn because they are too faint. */
    invisibleShare: share(sums.faint),
    /** Largest absolute value of the drawn lines. */
    largest,
    /** Largest absolute error of the displayed weights, after renormalisation. */
    error,
    /** Number of rows without any weight, for example because all keys are masked. */
    emptyQueries,
    /** Whether the weights of all keys are loaded, not only of keys in the window. */
    wholeRows,
    /** Whether the total weight of the keys outside the window is known. */
    outsideKnown: wholeRows || sumToOne,
  };
}

export type Lines = ReturnType<typeof computeLines>;
/** Drawn lines of one head, or of the mean or maximum over several heads (`head` is null). */
export type Series = Lines["series"][number];
