/** Numbers of the neuron view: products of q and k, shares of dimensions, and colour scales. */

import { capped } from "../../client/attention";
import type { Vectors } from "../../client/requests/vectors";

/** Numbers of one key. */
export interface Row {
  key: number;
  /** Whether the query may attend to the key. */
  allowed: boolean;
  /** Key vector. */
  vector: Float32Array;
  /** Products q x k x scale, one per dimension. */
  cells: Float64Array;
  /** Sum of `cells`. */
  sum: number;
  /** Sum after the soft cap, or `sum` if the layer has no soft cap. */
  capped: number;
  bias: number;
  /** Logit, or minus infinity if the key is masked. */
  logit: number;
  weight: number;
}

/** Colour scale from `-limit` to `limit`. */
export interface Scale {
  limit: number;
  /** Whether some numbers are larger than `limit` in size. */
  beyond: boolean;
}

/** All displayed numbers of a query. */
export interface Table {
  vectors: Vectors;
  query: Float32Array;
  rows: Row[];
  /** Index of the highlighted row, or null if all keys are masked and none is pinned. */
  highlighted: number | null;
  /** Share of each dimension: |cell| / sum of |cells| in the highlighted row, 0 without one. */
  shares: Float64Array;
  /** Dimensions by decreasing share. */
  ranking: number[];
  /** Colour scale of q and k. */
  vectorScale: Scale;
  /** Colour scale of the products. */
  cellScale: Scale;
}

/**
 * Share of the numbers that a colour scale must contain. It is below 1, because a scale that
 * contains a single outlier would show all other numbers in pale colours.
 */
const INSIDE = 0.98;

/**
 * Return the smallest scale that contains the share `INSIDE` of all numbers. The limit is rounded
 * up to two significant digits.
 *
 * @param sizes absolute values. They are sorted in place.
 */
export function scaleOf(sizes: number[]): Scale {
  sizes.sort((a, b) => a - b);
  const largest = sizes[sizes.length - 1] ?? 0;
  const inside = sizes[Math.ceil(INSIDE * sizes.length) - 1] ?? 0;
  // If nearly all numbers are 0, so is `inside`. Then the largest number is the limit.
  const limitFromNumbers = inside > 0 ? inside : largest;
  if (!(limitFromNumbers > 0)) return { limit: 1, beyond: false };
  const power = 10 ** (Math.floor(Math.log10(limitFromNumbers)) - 1);
  const limit = Number((Math.ceil(limitFromNumbers / power - 1e-9) * power).toPrecision(2));
  return { limit, beyond: largest > limit };
}

/** Return |cell| / sum of |cells| for each cell, or zeros if all cells are 0. */
export function sharesOf(cells: Float64Array): Float64Array {
  const total = cells.reduce((sum, cell) => sum + Math.abs(cell), 0);
  return cells.map((cell) => (total > 0 ? Math.abs(cell) / total : 0));
}

function rowsOf(vectors: Vectors): Row[] {
  const { query, headDim, header } = vectors;
  const [start, stop] = vectors.keys;
  return Array.from({ length: stop - start }, (_, i) => {
    const vector = vectors.keyVectors.subarray(i * headDim, (i + 1) * headDim);
    const cells = Float64Array.from(
      vector,
      (value, dimension) => value * (query[dimension] as number) * header.scale,
    );
    const sum = cells.reduce((total, cell) => total + cell, 0);
    return {
      key: start + i,
      allowed: vectors.allowed[i] === 1,
      vector,
      cells,
      sum,
      capped: capped(sum, header.softcap),
      bias: vectors.bias[i] as number,
      logit: vectors.logits[i] as number,
      weight: vectors.weights[i] as number,
    };
  });
}

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
 * Return the index of the highlighted row: the row of the pinned key, otherwise of the strongest
 * key, or null if every key is masked.
 */
function highlightedOf(rows: readonly Row[], key: number | null): number | null {
  const pinned = rows.findIndex((row) => row.key === key);
  if (pinned >= 0) return pinned;
  let best: number | null = null;
  rows.forEach((row, index) => {
    if (row.allowed && (best === null || row.weight > (rows[best] as Row).weight)) best = index;
  });
  return best;
}

/**
 * Compute the displayed numbers from a reply.
 *
 * @param key pinned key, or null.
 */
export function tableOf(vectors: Vectors, key: number | null): Table {
  const rows = rowsOf(vectors);
  const highlighted = highlightedOf(rows, key);
  const chosen = highlighted === null ? undefined : rows[highlighted];
  const shares = chosen ? sharesOf(chosen.cells) : new Float64Array(vectors.headDim);
  const ranking = Array.from(shares, (_, dimension) => dimension);
  ranking.sort((a, b) => (shares[b] as number) - (shares[a] as number) || a - b);
  const sizes = (values: Iterable<number>): number[] => Array.from(values, Math.abs);
  return {
    vectors,
    query: vectors.query,
    rows,
    highlighted,
    shares,
    ranking,
    vectorScale: scaleOf([...sizes(vectors.query), ...sizes(vectors.keyVectors)]),
    cellScale: scaleOf(rows.filter((row) => row.allowed).flatMap((row) => sizes(row.cells))),
  };
}

/** Dimensions in the order of their cells. */
export interface Dimensions {
  /** Dimensions with a separate cell. */
  shown: number[];
  /** Dimensions whose products are summed in the shared cell. */
  others: number[];
}

/**
 * Select the `count` dimensions with the largest shares for separate cells. All dimensions are
 * ordered by share if `sorted`, otherwise by number.
 */
export function dimensionsOf(table: Table, sorted: boolean, count: number): Dimensions {
  const shown = table.ranking.slice(0, count);
  const others = table.ranking.slice(count);
  if (!sorted) {
    shown.sort((a, b) => a - b);
    others.sort((a, b) => a - b);
  }
  return { shown: shown, others };
}

/** Return the sum of the cells of the given dimensions. */
export function sumOf(cells: Float64Array, dimensions: readonly number[]): number {
  return dimensions.reduce((sum, dimension) => sum + (cells[dimension] as number), 0);
}

/** Return the sum of the weights on keys that are not displayed. */
export function weightElsewhere(vectors: Vectors): number {
  const { header, weightInRange } = vectors;
  if (header.log_sum_exp === null || header.num_allowed === 0) return 0;
  return Math.max(0, 1 - (header.sink?.weight ?? 0) - weightInRange);
}
