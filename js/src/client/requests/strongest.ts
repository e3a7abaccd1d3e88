/**
 * The strongest keys of queries: the keys with the largest weights, or the largest absolute values
 * of signed numbers. A request can exclude keys, such as special tokens.
 *
 * In a live view the kernel finds the strongest keys with `attnviz/server/strongest.py`. An
 * exported page finds them with `page/reductions.ts`.
 */

import type { Matrix } from "../source";

/** Strongest keys of one query. */
export interface StrongestKeys {
  /** Keys and their weights, the strongest first. Keys with a weight of 0 are omitted. */
  keys: { key: number; weight: number }[];
  /** Sum of the absolute weights of the included keys. */
  included: number;
  /** Sum of the absolute weights of all keys. */
  total: number;
}

/** Return the strongest keys of a row of an answer (see `Strongest` in `protocol.ts`). */
export function strongestIn({ values, columns }: Matrix, row: number): StrongestKeys {
  const numbers = values.subarray(row * columns, (row + 1) * columns);
  const k = (columns - 2) / 2;
  const keys = Array.from(numbers.subarray(0, k), (key, i) => {
    return { key, weight: numbers[k + i] as number };
  });
  // No sum is computed as a difference of others, because this would lose precision.
  const [included = 0, excluded = 0] = numbers.subarray(2 * k);
  return {
    keys: keys.filter(({ key }) => key >= 0),
    ...{ included, total: included + excluded },
  };
}

/**
 * Return the included keys with the k largest absolute weights of a row, the largest first. Keys
 * with a weight of 0 are omitted. Equal weights keep the order of the keys.
 */
export function topKeys(
  row: Float32Array,
  k: number,
  isIncluded: (key: number) => boolean,
): number[] {
  const keys: number[] = [];
  const sizeAt = (rank: number): number => Math.abs(row[keys[rank] as number] as number);
  for (let key = 0; key < row.length; key++) {
    const size = Math.abs(row[key] as number);
    // Weights that are exactly 0 are frequent, because of causal masks and because pages with
    // signed numbers may contain only the weights of the strongest keys.
    if (size === 0 || (keys.length === k && size <= sizeAt(k - 1)) || !isIncluded(key)) continue;
    let rank = keys.length;
    while (rank > 0 && sizeAt(rank - 1) < size) rank--;
    keys.splice(rank, 0, key);
    if (keys.length > k) keys.pop();
  }
  return keys;
}

/**
 * Return the keys with the k largest ranks of a row, among those that `isIncluded` accepts. If other
 * keys have the same rank as the last of them, they are returned, too. An indexer may give all keys
 * of a block the same rank.
 */
export function topRanks(
  row: Float32Array,
  k: number,
  isIncluded: (key: number) => boolean,
): number[] {
  const last = topKeys(row, k, isIncluded).at(-1);
  if (last === undefined) return [];
  const least = row[last] as number;
  return [...row.keys()].filter((key) => (row[key] as number) >= least && isIncluded(key));
}
