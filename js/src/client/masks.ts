/**
 * Masks and position biases, each in the form in which Python keeps it (`attnviz/record/masks.py`):
 * what a page contains, and what a saved record does, is read by the same functions. Pure functions.
 */

/** Something of each key of a row of a head. */
export type OfRow<T> = (head: number, token: number) => (key: number) => T;

/** Keys within a band around the query, null without limit. */
export function bandMask(
  before: number | null,
  after: number | null,
  offset: number,
): OfRow<boolean> {
  return (_, token) => (key) =>
    (after === null || key - token - offset <= after) &&
    (before === null || token + offset - key <= before);
}

/** Any other mask, one bit an entry; the lowest bit is the first key. */
export function packedMask(
  bits: Uint8Array,
  { heads, queries, keys }: { heads: number; queries: number; keys: number },
): OfRow<boolean> {
  const each = Math.ceil(keys / 8);
  return (head, token) => {
    const from = ((heads > 1 ? head : 0) * queries + token) * each;
    return (key) => (((bits[from + (key >> 3)] as number) >> (key & 7)) & 1) === 1;
  };
}

/** What depends on the distance from query to key alone. */
export function distanceBias(
  values: Float32Array,
  { heads, queries, keys }: { heads: number; queries: number; keys: number },
): OfRow<number> {
  return (head, token) => {
    const from = (heads > 1 ? head : 0) * (queries + keys - 1) + queries - 1 - token;
    return (key) => values[from + key] as number;
  };
}

/** Any other bias, (heads or 1, rows or 1, keys). */
export function denseBias(
  values: Float32Array,
  { heads, rows, keys }: { heads: number; rows: number; keys: number },
): OfRow<number> {
  return (head, token) => {
    const from = ((heads > 1 ? head : 0) * rows + (rows > 1 ? token : 0)) * keys;
    return (key) => values[from + key] as number;
  };
}

/**
 * What is said of some tokens, among others of which nothing is known.
 *
 * @param queries for each of the query tokens its place among these, or -1; `keys` likewise.
 */
export function inserted<T>(
  queries: Int32Array,
  keys: Int32Array,
  base: OfRow<T>,
  missing: T,
): OfRow<T> {
  return (head, token) => {
    const query = queries[token] ?? -1;
    if (query < 0) return () => missing;
    const row = base(head, query);
    return (key) => {
      const place = keys[key] ?? -1;
      return place < 0 ? missing : row(place);
    };
  };
}
