/**
 * Masks and position biases in the forms that Python stores (`attnviz/record/masks.py`). Exported pages
 * contain the same forms as saved records.
 */

/** Returns a function of the key for a query token of a head. */
export type RowFunction<T> = (head: number, token: number) => (key: number) => T;

/** Return a mask of the keys in a band around the query. A null limit means no limit on that side. */
export function bandMask(
  before: number | null,
  after: number | null,
  offset: number,
): RowFunction<boolean> {
  return (_, token) => (key) =>
    (after === null || key - token - offset <= after) &&
    (before === null || token + offset - key <= before);
}

/** Return a mask stored as one bit per entry. The lowest bit of a byte is its first key. */
export function packedMask(
  bits: Uint8Array,
  { heads, queries, keys }: { heads: number; queries: number; keys: number },
): RowFunction<boolean> {
  const bytesPerRow = Math.ceil(keys / 8);
  return (head, token) => {
    const start = ((heads > 1 ? head : 0) * queries + token) * bytesPerRow;
    return (key) => (((bits[start + (key >> 3)] as number) >> (key & 7)) & 1) === 1;
  };
}

/** Return a bias that depends only on the distance from query to key. */
export function distanceBias(
  values: Float32Array,
  { heads, queries, keys }: { heads: number; queries: number; keys: number },
): RowFunction<number> {
  return (head, token) => {
    const start = (heads > 1 ? head : 0) * (queries + keys - 1) + queries - 1 - token;
    return (key) => values[start + key] as number;
  };
}

/** Return a bias of shape (heads or 1, rows or 1, keys). */
export function denseBias(
  values: Float32Array,
  { heads, rows, keys }: { heads: number; rows: number; keys: number },
): RowFunction<number> {
  return (head, token) => {
    const start = ((heads > 1 ? head : 0) * rows + (rows > 1 ? token : 0)) * keys;
    return (key) => values[start + key] as number;
  };
}

/**
 * Extend a mask or bias to a longer text, with the value `missing` for the added tokens.
 *
 * @param queries for each query token of the longer text its index in `base`, or -1.
 * @param keys for each key token of the longer text its index in `base`, or -1.
 */
export function withInsertedTokens<T>(
  queries: Int32Array,
  keys: Int32Array,
  base: RowFunction<T>,
  missing: T,
): RowFunction<T> {
  return (head, token) => {
    const query = queries[token] ?? -1;
    if (query < 0) return () => missing;
    const row = base(head, query);
    return (key) => {
      const index = keys[key] ?? -1;
      return index < 0 ? missing : row(index);
    };
  };
}
