/** Selection of the drawn lines, and computation of their share of the weight. Pure functions. */

import { topKeys, topRanks } from "../../client/requests/strongest";
import type { WeightBlock } from "../../client/source";
import { SCORED_ZERO } from "../../client/zeros";
import { countedTokens, isVisible, rowOf, sizeOf, tokenIn } from "../../ui/axis";
import type { Combine, HeadState, Plan } from "./state";

/**
 * Traits that determine the lines of the visible tokens. `combine` is that of the loaded weights: a
 * matrix for each head, or one of all heads.
 */
export type LineOptions = Pick<HeadState, "combine" | "top_k" | "threshold" | "renormalize">;

/** Weight of a query on a key. `series` is the index of its head or combination of heads. */
export interface Line {
  series: number;
  query: number;
  key: number;
  /** Weight, renormalised if requested. */
  weight: number;
}

/**
 * Smallest visible weight, as a share of the maximum. Fainter lines are neither drawn nor counted.
 */
export const MIN_VISIBLE = 0.002;
/** Maximum number of drawn lines, because more lines could not be distinguished. */
export const MAX_LINES = 20_000;

/** Return the loaded matrices with their names: one per head, or one combination of all heads. */
function namedMatrices(
  { heads }: Pick<Plan, "heads">,
  matrices: Float32Array[],
  combine: Combine,
): { head: number | null; name: string; matrix: Float32Array }[] {
  return matrices.map((matrix, i) => {
    const head = combine === "separate" ? (heads[i] as number) : null;
    const how = combine === "max" ? "maximum" : "mean";
    return {
      head,
      name: head === null ? `${how} of ${heads.length} heads` : `head ${head}`,
      matrix,
    };
  });
}

/** Return the `count` strongest lines, the strongest first. Equal weights keep their order. */
export function strongestLines(lines: readonly Line[], count: number): Line[] {
  return [...lines].sort((a, b) => Math.abs(b.weight) - Math.abs(a.weight)).slice(0, count);
}

/**
 * The strongest `MAX_LINES` of the added lines, in the order in which they are added. Until `cut`
 * is called, `lines` may have up to twice as many lines.
 */
class LineCollector {
  /** Lines. `share` is the absolute weight before renormalisation. */
  lines: (Line & { share: number })[] = [];
  /** Lines up to this absolute weight are not among the strongest. */
  tooWeak = 0;

  add(line: Line & { share: number }): void {
    this.lines.push(line);
    if (this.lines.length === 2 * MAX_LINES) this.cut();
  }

  /** Drop all lines except the strongest `MAX_LINES`. */
  cut(): void {
    const numWeak = this.lines.length - MAX_LINES;
    if (numWeak <= 0) return;
    const sizes = new Float64Array(this.lines.map(({ weight }) => Math.abs(weight))).sort();
    const smallest = sizes[numWeak] as number;
    // Among the lines with the smallest weight, the first ones stay.
    let numEqual = sizes.lastIndexOf(smallest) + 1 - numWeak;
    this.lines = this.lines.filter(({ weight }) => {
      const size = Math.abs(weight);
      return size > smallest || (size === smallest && numEqual-- > 0);
    });
    this.tooWeak = smallest;
  }
}

/** Part of a plan that determines the lines. */
export type LinesPlan = Pick<Plan, "heads" | "rows" | "columns" | "numReached" | "axes"> & {
  stack: Pick<Plan["stack"], "normalized" | "chooses_keys" | "measure">;
};

/**
 * Return the columns of the loaded matrices: of visible keys, of keys outside the window, and of the
 * keys of each exclusion.
 */
function dividedColumns({ columns, axes: { key: axis } }: LinesPlan) {
  const [inSight, outside]: [number[], number[]] = [[], []];
  const excluded = axis.exclusions.map((): number[] => []);
  for (let column = 0; column < sizeOf(columns); column++) {
    const token = tokenIn(columns, column);
    const index = axis.exclusions.findIndex(({ flags }) => flags[token] === 1);
    const counted = isVisible(axis, token) ? inSight : outside;
    (excluded[index] ?? counted).push(column);
  }
  return { inSight, outside, excluded };
}

/** Return the sum of the absolute weights of a row in some columns. */
function sizeIn(row: Float32Array, columns: readonly number[]): number {
  let sum = 0;
  for (const column of columns) sum += Math.abs(row[column] as number);
  return sum;
}

function sumOf(numbers: readonly number[]): number {
  return numbers.reduce((sum, number) => sum + number, 0);
}

/**
 * Return the largest error of weights that are divided by their sum. Let v be a weight with exact
 * value w, and s the sum with exact value r. Then |v / s - w / r| <= (|v - w| + |s - r|) / r,
 * because v <= s.
 *
 * @param error largest |v - w|.
 * @param sumError largest |s - r|.
 */
function quotientError(sum: number, error: number, sumError: number): number {
  if (error === 0) return 0;
  const minSum = sum - sumError;
  return minSum > 0 ? Math.min(1, (error + sumError) / minSum) : 1;
}

/** Select the lines to draw, and compute their share of the weight. */
export function computeLines(
  plan: LinesPlan,
  weights: Pick<WeightBlock, "matrices" | "maximum" | "error">,
  options: LineOptions,
) {
  const { columns, axes } = plan;
  const { renormalize, top_k, threshold } = options;
  const divided = dividedColumns(plan);
  const inSight = new Set(divided.inSight);
  const left = divided.inSight[0] ?? 0;
  const right = (divided.inSight.at(-1) ?? -1) + 1;
  const isInSight = (x: number): boolean => inSight.has(left + x);
  const included = [...divided.inSight, ...divided.outside];
  const excluded = divided.excluded.flat();
  // Whether all keys that may have a weight are loaded.
  const [firstLoaded, stop] = columns;
  const wholeRows = firstLoaded === 0 && stop >= plan.numReached;
  const named = namedMatrices(plan, weights.matrices, options.combine);
  const sumToOne = plan.stack.normalized && options.combine !== "max";
  const faintest = MIN_VISIBLE * weights.maximum;
  // Sums of all rows over visible keys, keys outside the window, and the keys of each exclusion.
  const parts = [divided.inSight, divided.outside, ...divided.excluded];
  let allSums = parts.map(() => 0);
  const collected = new LineCollector();
  let total = 0;
  let faintSum = 0;
  let emptyQueries = 0;
  let { error } = weights;

  const addLines = (series: number, query: number, row: Float32Array, divisor: number): void => {
    const top = plan.stack.measure === "rank" ? topRanks : topKeys;
    // Search only the window, because a row can be many times longer.
    const seen = row.subarray(left, right);
    const selected =
      top_k === null ? divided.inSight : top(seen, top_k, isInSight).map((x) => left + x);
    for (const column of selected) {
      const share = Math.abs(row[column] as number);
      const size = share / divisor;
      // A weight of 0 has no line. If the largest weight is 0, `faintest` is 0 as well and would
      // not exclude it.
      if (size === 0 || size < threshold) continue;
      if (size < faintest) {
        faintSum += share;
        continue;
      }
      total++;
      if (size <= collected.tooWeak) continue;
      const weight = (row[column] as number) / divisor;
      collected.add({ series, query, key: tokenIn(columns, column), weight, share });
    }
  };

  const series = named.map((item, index) => {
    const matrix = renormalize ? item.matrix.slice() : item.matrix;
    for (const query of countedTokens(axes.query)) {
      const row = rowOf(item.matrix, plan, query);
      const sums = parts.map((columns) => sizeIn(row, columns));
      // If the loaded keys sum to less than 1, the keys that are not loaded have the missing weight.
      if (!wholeRows && sumToOne) (sums[1] as number) += Math.max(0, 1 - sumOf(sums));
      allSums = allSums.map((sum, i) => sum + (sums[i] as number));
      // An incomplete row may have weight on keys that are not loaded, so it is not empty.
      if (sumOf(sums) === 0 && wholeRows) emptyQueries++;
      const remaining = sumOf(sums.slice(0, 2));
      const divisor = renormalize && remaining > 0 ? remaining : 1;
      if (renormalize) {
        const scaled = rowOf(matrix, plan, query);
        for (const column of included) scaled[column] = (row[column] as number) / divisor;
        for (const column of excluded)
          if (row[column] !== 0) scaled[column] = plan.stack.chooses_keys ? SCORED_ZERO : 0;
        // `remaining` is the sum of the row minus the excluded keys. If rows sum to 1, its error is
        // the error of the row's sum plus the errors of the excluded keys.
        const sumError = sumToOne
          ? Math.abs(1 - sumOf(sums)) + excluded.length * weights.error
          : included.length * weights.error;
        if (remaining > 0)
          error = Math.max(error, quotientError(remaining, weights.error, sumError));
      }
      addLines(index, query, row, divisor);
    }
    return { ...item, matrix };
  });
  collected.cut();
  const { lines } = collected;
  const share = (sum = 0): number =>
    sumOf(allSums) > 0 ? Math.min(1, Math.max(0, sum / sumOf(allSums))) : 0;
  const [, outside, ...others] = allSums;
  return {
    /**
     * One series per head, or one for the combination of all heads. The matrices are renormalised
     * if `options.renormalize` is true.
     */
    series,
    /** Drawn lines, in the order of series and queries. */
    drawn: lines as readonly Line[],
    /**
     * Shares of the total weight of all queries in the window: of the drawn lines, of the keys
     * outside the window, and of the keys of each exclusion. The rest is the share of the lines that
     * are not drawn. These are below the threshold, not among the top keys, too faint, or too many.
     * For signed numbers, the total is the sum of the absolute values.
     */
    shares: {
      drawn: share(lines.reduce((sum, line) => sum + line.share, 0)),
      outside: share(outside),
      excluded: others.map(share),
    },
    /** Number of selected lines, including those that are not drawn because of `MAX_LINES`. */
    total,
    /** Share of the lines that are not drawn because they are too faint. */
    invisibleShare: share(faintSum),
    /** Largest absolute value of the drawn lines. */
    largest: lines.reduce((largest, { weight }) => Math.max(largest, Math.abs(weight)), 0),
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
