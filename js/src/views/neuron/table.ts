/** Numbers of the neuron view: rows of products, shares of dimensions and ranges of colours. */

import { capped } from "../../client/attention";
import type { Vectors } from "../../client/requests/vectors";

/** Numbers of one key. */
export interface Row {
  key: number;
  allowed: boolean;
  vector: Float32Array;
  /** Products q x k x scale of the dimensions. */
  cells: Float64Array;
  /** Sum of the cells. */
  sum: number;
  /** Sum after the soft cap, or the sum without one. */
  capped: number;
  bias: number;
  /** Logit, or minus infinity if the key is masked. */
  logit: number;
  weight: number;
}

/** Largest value of a colour scale, and whether numbers exceed it. */
export interface Scale {
  limit: number;
  beyond: boolean;
}

/** All displayed numbers of a query. */
export interface Table {
  vectors: Vectors;
  query: Float32Array;
  rows: Row[];
  /** Index of the highlighted row, or null if all keys are masked and none is pinned. */
  highlighted: number | null;
  /** Share of each dimension in the highlighted row: |cell| over the sum of |cells|. */
  shares: Float64Array;
  /** Dimensions in descending order of their share. */
  ranking: number[];
  /** Colour scales of q and k, and of their products. */
  vectorScale: Scale;
  cellScale: Scale;
}

/** Share of the numbers inside the range of colours. One outlier must not make the others pale. */
const INSIDE = 0.98;

/** Return the smallest range of colours that contains nearly all numbers, rounded to two digits. */
export function scaleOf(sizes: number[]): Scale {
  sizes.sort((a, b) => a - b);
  const largest = sizes[sizes.length - 1] ?? 0;
  const inside = sizes[Math.ceil(INSIDE * sizes.length) - 1] ?? 0;
  // If nearly all numbers are 0, the others must be visible.
  const limitFromNumbers = inside > 0 ? inside : largest;
  if (!(limitFromNumbers > 0)) return { limit: 1, beyond: false };
  const power = 10 ** (Math.floor(Math.log10(limitFromNumbers)) - 1);
  const limit = Number((Math.ceil(limitFromNumbers / power - 1e-9) * power).toPrecision(2));
  return { limit, beyond: largest > limit };
}

/** Return the share of each dimension in a row. */
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
/** Largest absolute rounding error of its smallest (subnormal) numbers. */
const MIN_HALF_STEP = 2 ** -25;

/** Return the largest error of q x k x scale if q and k are rounded to half precision. */
export function halfError(q: number, k: number, scale: number): number {
  const step = (value: number): number => Math.max(Math.abs(value) * HALF_STEP, MIN_HALF_STEP);
  return (Math.abs(q) * step(k) + Math.abs(k) * step(q) + step(q) * step(k)) * Math.abs(scale);
}

/** Return the index of the highlighted row: the pinned key, or else the strongest key. */
function highlightedOf(rows: readonly Row[], key: number | null): number | null {
  const pinned = rows.findIndex((row) => row.key === key);
  if (pinned >= 0) return pinned;
  let best: number | null = null;
  rows.forEach((row, index) => {
    if (row.allowed && (best === null || row.weight > (rows[best] as Row).weight)) best = index;
  });
  return best;
}

/** Return the displayed numbers of a reply. */
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

/** Displayed dimensions in their order, and the others, which share one cell. */
export interface Dimensions {
  shown: number[];
  others: number[];
}

/** Return the order of the dimensions. The `count` dimensions with the largest shares have cells. */
export function dimensionsOf(table: Table, sorted: boolean, count: number): Dimensions {
  const shown = table.ranking.slice(0, count);
  const others = table.ranking.slice(count);
  if (!sorted) {
    shown.sort((a, b) => a - b);
    others.sort((a, b) => a - b);
  }
  return { shown: shown, others };
}

/** Return the sum of the cells of some dimensions. */
export function sumOf(cells: Float64Array, dimensions: readonly number[]): number {
  return dimensions.reduce((sum, dimension) => sum + (cells[dimension] as number), 0);
}

/** Return the weight of the keys that are not displayed. */
export function weightElsewhere(vectors: Vectors): number {
  const { header, weightInRange } = vectors;
  if (header.log_sum_exp === null || header.num_allowed === 0) return 0;
  return Math.max(0, 1 - (header.sink?.weight ?? 0) - weightInRange);
}
