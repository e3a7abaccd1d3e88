/** The numbers of the neuron view: rows that add up, shares of dimensions, ranges of colours. */

import { capped } from "../../client/attention";
import type { Vectors } from "../../client/requests/vectors";

/** One key against the query. */
export interface Row {
  key: number;
  allowed: boolean;
  vector: Float32Array;
  /** q x k x scale, dimension by dimension. */
  cells: Float64Array;
  /** Of the cells. */
  sum: number;
  /** The sum after the soft cap, where there is one. */
  capped: number;
  bias: number;
  /** Minus infinity where the key is masked. */
  logit: number;
  weight: number;
}

/** A colour's full strength, and whether some numbers go beyond it. */
export interface Scale {
  limit: number;
  beyond: boolean;
}

/** All that is shown of a query. */
export interface Table {
  vectors: Vectors;
  query: Float32Array;
  rows: Row[];
  /** The index of the row that stands out; null where no key is allowed. */
  highlighted: number | null;
  /** Each dimension's part of the highlighted row: |cell| over the sum of |cells|. */
  shares: Float64Array;
  /** Dimensions by falling share. */
  ranking: number[];
  /** Colours of q and k, and of their products. */
  vectorScale: Scale;
  cellScale: Scale;
}

/** So much of the numbers is inside the range of colours, so that one outlier hides no other. */
const INSIDE = 0.98;

/** The least range of colours that holds nearly all numbers, rounded up to two digits. */
export function scaleOf(sizes: number[]): Scale {
  sizes.sort((a, b) => a - b);
  const largest = sizes[sizes.length - 1] ?? 0;
  const inside = sizes[Math.ceil(INSIDE * sizes.length) - 1] ?? 0;
  // Where nearly all are zero, the others still have to be seen.
  const wanted = inside > 0 ? inside : largest;
  if (!(wanted > 0)) return { limit: 1, beyond: false };
  const power = 10 ** (Math.floor(Math.log10(wanted)) - 1);
  const limit = Number((Math.ceil(wanted / power - 1e-9) * power).toPrecision(2));
  return { limit, beyond: largest > limit };
}

/** Each dimension's part of a row. */
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

/** Half the distance between halves (IEEE 754 binary16), relative to one, and the least there is. */
const HALF_STEP = 2 ** -11;
const LEAST_HALF_STEP = 2 ** -25;

/** How far rounding a query and a key to half precision can move their product, with its scale. */
export function halfError(q: number, k: number, scale: number): number {
  const step = (value: number): number => Math.max(Math.abs(value) * HALF_STEP, LEAST_HALF_STEP);
  return (Math.abs(q) * step(k) + Math.abs(k) * step(q) + step(q) * step(k)) * Math.abs(scale);
}

/** The index of the row that stands out: the pinned key's, else the strongest. */
function highlightedOf(rows: readonly Row[], key: number | null): number | null {
  const pinned = rows.findIndex((row) => row.key === key);
  if (pinned >= 0) return pinned;
  let best: number | null = null;
  rows.forEach((row, place) => {
    if (row.allowed && (best === null || row.weight > (rows[best] as Row).weight)) best = place;
  });
  return best;
}

/** All that is shown of an answer, with one key that stands out. */
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

/** Dimensions in the order in which they are shown, and those that share one cell. */
export interface Dimensions {
  shown: number[];
  others: number[];
}

/** The order of dimensions; where only `count` fit, the largest shares are shown. */
export function dimensionsOf(table: Table, sorted: boolean, count: number): Dimensions {
  const kept = table.ranking.slice(0, count);
  const others = table.ranking.slice(count);
  if (!sorted) {
    kept.sort((a, b) => a - b);
    others.sort((a, b) => a - b);
  }
  return { shown: kept, others };
}

/** The sum of some of a row's cells. */
export function sumOf(cells: Float64Array, dimensions: readonly number[]): number {
  return dimensions.reduce((sum, dimension) => sum + (cells[dimension] as number), 0);
}

/** The weight that goes to keys that are not shown. */
export function weightElsewhere(vectors: Vectors): number {
  const { header, weightInRange } = vectors;
  if (header.log_sum_exp === null || header.num_allowed === 0) return 0;
  return Math.max(0, 1 - (header.sink?.weight ?? 0) - weightInRange);
}
