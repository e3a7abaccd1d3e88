/**
 * Numbers of the neuron view: products of q and k, shares of dimensions, and colour scales. A
 * product is q x k x scale in one dimension, and is drawn as a cell. The share of a dimension is
 * the absolute value of its product, divided by the sum of the absolute values of all products of
 * the same key.
 */

import { capped } from "../../client/attention";
import type { Vectors } from "../../client/requests/vectors";
import { tokenIn } from "../../ui/axis";
import type { Selection } from "../../ui/view/record";

/**
 * Share of the numbers that a colour scale must contain. It is below 1, because a scale that
 * contains a single outlier would show all other numbers in pale colours.
 */
const INSIDE = 0.98;

/**
 * Return the smallest colour scale, from `-limit` to `limit`, that contains the share `INSIDE` of
 * all numbers. `beyond` is true if a number is outside of the scale. The limit is rounded up to two
 * significant digits. It is 1 if all numbers are 0.
 */
export function scaleOf(numbers: readonly number[]) {
  const sizes = numbers.map(Math.abs).sort((a, b) => a - b);
  const largest = sizes.at(-1) ?? 0;
  // If at least the share `INSIDE` of the numbers is 0, the largest absolute value is the limit.
  const inside = sizes[Math.ceil(INSIDE * sizes.length) - 1] || largest;
  if (inside === 0) return { limit: 1, beyond: false };
  const power = 10 ** (Math.floor(Math.log10(inside)) - 1);
  const limit = Number((Math.ceil(inside / power - 1e-9) * power).toPrecision(2));
  return { limit, beyond: largest > limit };
}

export type Scale = ReturnType<typeof scaleOf>;

/**
 * Return one row for each key: its vector, its products with the query, and its logit and weight.
 */
function rowsOf(vectors: Vectors) {
  const { query, headDim, header, keys } = vectors;
  return Array.from(vectors.weights, (weight, i) => {
    const vector = vectors.keyVectors.subarray(i * headDim, (i + 1) * headDim);
    // Products q x k x scale, one per dimension.
    const cells = Float64Array.from(
      vector,
      (value, dimension) => value * (query[dimension] as number) * header.scale,
    );
    const total = cells.reduce((sum, cell) => sum + Math.abs(cell), 0);
    const sum = cells.reduce((sum, cell) => sum + cell, 0);
    return {
      key: tokenIn(keys, i),
      // Whether the query may attend to the key. If not, its logit is minus infinity.
      allowed: vectors.allowed[i] === 1,
      // Why the key is not allowed.
      unscored: vectors.allowed[i] === -1 ? ("not chosen" as const) : ("masked" as const),
      vector,
      cells,
      // Share of each dimension in the sum of |cells|, or zeros if all cells are 0.
      shares: cells.map((cell) => (total > 0 ? Math.abs(cell) / total : 0)),
      sum,
      // Sum after the soft cap, or `sum` if the layer has no soft cap.
      capped: capped(sum, header.softcap),
      bias: vectors.bias[i] as number,
      logit: vectors.logits[i] as number,
      weight,
    };
  });
}

export type Row = ReturnType<typeof rowsOf>[number];

/** Largest relative rounding error of half precision (IEEE 754 binary16). */
const HALF_STEP = 2 ** -11;
/** Largest absolute rounding error of subnormal numbers in half precision. */
const MIN_HALF_STEP = 2 ** -25;

/** Return the largest possible error of q x k x scale if q and k are rounded to half precision. */
export function halfError(q: number, k: number, scale: number): number {
  const step = (value: number): number => Math.max(Math.abs(value) * HALF_STEP, MIN_HALF_STEP);
  return (Math.abs(q) * step(k) + Math.abs(k) * step(q) + step(q) * step(k)) * Math.abs(scale);
}

/**
 * Compute the displayed numbers from the reply `vectors`. `selection` is the stack, layer, head and
 * query that were requested, with the tokens of the stack.
 */
export function tableOf(vectors: Vectors, selection: Selection & { head: number; token: number }) {
  const rows = rowsOf(vectors);
  const [strongest] = rows.filter((row) => row.allowed).sort((a, b) => b.weight - a.weight);
  // The row of the pinned key if this key is displayed, otherwise the row of the displayed key with
  // the largest weight. Null if all displayed keys are masked and none of them is pinned.
  const highlighted = rows.find(({ key }) => key === selection.key) ?? strongest ?? null;
  const shareOf = (dimension: number): number => highlighted?.shares[dimension] ?? 0;
  return {
    selection,
    vectors,
    rows,
    highlighted,
    // Dimensions by decreasing share in the highlighted row.
    ranking: Array.from(vectors.query, (_, dimension) => dimension).sort(
      (a, b) => shareOf(b) - shareOf(a),
    ),
    vectorScale: scaleOf([...vectors.query, ...vectors.keyVectors]),
    cellScale: scaleOf(rows.flatMap((row) => (row.allowed ? [...row.cells] : []))),
  };
}

export type Table = ReturnType<typeof tableOf>;

/**
 * Select the `count` dimensions with the largest shares in the highlighted row. They get separate
 * cells. The products of the other dimensions are summed in one shared cell.
 *
 * @param sorted whether dimensions are ordered by share instead of number.
 */
export function dimensionsOf({ ranking }: Table, sorted: boolean, count: number) {
  const [shown, others] = [ranking.slice(0, count), ranking.slice(count)];
  if (!sorted) for (const dimensions of [shown, others]) dimensions.sort((a, b) => a - b);
  return { sorted, shown, others };
}

export type Dimensions = ReturnType<typeof dimensionsOf>;

/** Return the sum of the cells or shares of the given dimensions. */
export function sumOf(values: Float64Array, dimensions: readonly number[]): number {
  return dimensions.reduce((sum, dimension) => sum + (values[dimension] as number), 0);
}

/** Return the sum of the weights on keys that are not displayed. */
export function weightElsewhere({ header, weightInRange }: Vectors): number {
  if (header.num_allowed === 0) return 0;
  return Math.max(0, 1 - (header.sink?.weight ?? 0) - weightInRange);
}
