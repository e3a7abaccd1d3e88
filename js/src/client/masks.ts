/**
 * Masks and position biases in the formats in which Python stores them (`attnviz/record/masks.py`).
 * Exported pages and saved records use the same formats.
 */

/**
 * Function of a head and a query token that returns a function of the key. The second function
 * returns whether the mask allows the key, or the bias of the key.
 */
export type RowFunction<T> = (head: number, token: number) => (key: number) => T;

/**
 * Return a mask that allows the keys in a band around the query.
 *
 * @param before maximum number of positions from a key to a later query, or null without a limit.
 * @param after maximum number of positions from a query to a later key, or null without a limit.
 * @param offset position of the first query among the keys.
 */
export function bandMask(
  before: number | null,
  after: number | null,
  offset: number,
): RowFunction<boolean> {
  return (_, token) => (key) =>
    (after === null || key - token - offset <= after) &&
    (before === null || token + offset - key <= before);
}

/**
 * Return a mask that is stored as one bit per pair of query and key. The lowest bit of a byte
 * belongs to its first key, and every row starts with a new byte. If `heads` is 1, all heads have
 * the same mask.
 */
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

/**
 * Return a bias that depends only on the distance from query to key.
 *
 * @param values one bias for each distance (index of the key minus index of the query, ascending).
 *   They are stored for each head, or once for all heads.
 */
export function distanceBias(
  values: Float32Array,
  { heads, queries, keys }: { heads: number; queries: number; keys: number },
): RowFunction<number> {
  return (head, token) => {
    const start = (heads > 1 ? head : 0) * (queries + keys - 1) + queries - 1 - token;
    return (key) => values[start + key] as number;
  };
}

/**
 * Return a bias that is stored as an array of shape (heads or 1, rows or 1, keys). A length of 1
 * means that all heads or all queries have the same bias.
 */
export function denseBias(
  values: Float32Array,
  { heads, rows, keys }: { heads: number; rows: number; keys: number },
): RowFunction<number> {
  return (head, token) => {
    const start = ((heads > 1 ? head : 0) * rows + (rows > 1 ? token : 0)) * keys;
    return (key) => values[start + key] as number;
  };
}
