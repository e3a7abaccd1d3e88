/**
 * The strongest keys of queries: the keys with the largest weights, or the largest absolute values
 * of signed numbers.
 *
 * A request can leave out keys, such as special tokens. If the input of the model is a pair of
 * texts a and b, a request can also include only keys in one text. With the pair "a-b", for
 * example, it includes only keys in text b, and the view shows them only for queries in text a.
 *
 * In a live view the kernel finds the strongest keys with `attnviz/server/strongest.py`. An
 * exported page finds them with `strongestOf`.
 */

import { copiedBuffer } from "../codec";
import type { Range, StrongestHeader, StrongestRequest, TokenList } from "../protocol";
import { type Source, splitRequest } from "../source";
import { dataOf, MAX_REPLY_BYTES, type Reply } from "../transport";

/** Strongest keys of each row of one matrix. */
export interface StrongestKeys {
  /**
   * k keys for each row, the strongest first. If fewer than k included keys have a weight other
   * than 0, the remaining entries are -1.
   */
  keys: Int32Array;
  /** Weight of each key in `keys`, or 0 if the entry is -1. */
  weights: Float32Array;
  /**
   * Three sums of weights for each row: over the included keys, over the keys that are left out,
   * and over the other keys, which are not in the selected text. No sum is computed as a difference
   * of others, because this would lose precision. For signed numbers, the sums are of absolute
   * values.
   */
  sums: Float32Array;
}

export interface StrongestAnswer {
  rows: Range;
  k: number;
  matrices: StrongestKeys[];
}

export type TokenFilter = ReturnType<typeof tokenFilter>;

/**
 * Maximum number of weights that one request searches. A kernel needs a tenth of a second for this,
 * or two tenths on a busy machine.
 */
const MAX_ENTRIES = 1 << 23;

/**
 * Split a request by heads if they are not combined, and then by rows. A part searches at most
 * `MAX_ENTRIES` weights and its reply has at most `MAX_REPLY_BYTES` bytes, unless it is a single
 * row.
 */
export function splitStrongest(request: StrongestRequest, numKeys: number): StrongestRequest[] {
  const rowBytes = 8 * request.k + 12;
  const maxRows = Math.min(MAX_ENTRIES / numKeys, MAX_REPLY_BYTES / rowBytes);
  return splitRequest(request, maxRows, request.combine !== "separate");
}

function noKeys(numRows: number, k: number): StrongestKeys {
  return {
    keys: new Int32Array(numRows * k).fill(-1),
    weights: new Float32Array(numRows * k),
    sums: new Float32Array(numRows * 3),
  };
}

/** Return the reply with the strongest keys of some matrices, of which each has `k` for a row. */
export async function strongestReply(
  matrices: readonly StrongestKeys[],
  [top, bottom]: Range,
  k: number,
): Promise<Reply<StrongestHeader>> {
  const fields = ["keys", "weights", "sums"] as const;
  const arrays = fields.flatMap((field) => matrices.map((matrix) => matrix[field]));
  const data = await new Blob(arrays as BlobPart[]).arrayBuffer();
  return { header: { shape: [matrices.length, bottom - top, k] }, data };
}

export function readStrongest(reply: Reply<StrongestHeader>): StrongestKeys[] {
  const [matrices, rows, k] = reply.header.shape;
  const buffer = copiedBuffer(dataOf(reply));
  const expected = 4 * matrices * (2 * rows * k + 3 * rows);
  if (buffer.byteLength !== expected) {
    throw new Error(`The reply has ${buffer.byteLength} bytes, but its shape needs ${expected}.`);
  }
  const [keysEach, sumsEach] = [rows * k, rows * 3];
  const keys = new Int32Array(buffer, 0, matrices * keysEach);
  const weights = new Float32Array(buffer, keys.byteLength, matrices * keysEach);
  const sums = new Float32Array(buffer, 2 * keys.byteLength);
  return Array.from({ length: matrices }, (_, matrix) => ({
    keys: keys.subarray(matrix * keysEach, (matrix + 1) * keysEach),
    weights: weights.subarray(matrix * keysEach, (matrix + 1) * keysEach),
    sums: sums.subarray(matrix * sumsEach, (matrix + 1) * sumsEach),
  }));
}

function bytesOf(answers: StrongestKeys[]): number {
  return answers.reduce((sum, { keys, sums }) => sum + 4 * (2 * keys.length + sums.length), 0);
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

/** Find the strongest keys of each requested query from complete rows of one matrix. */
export function strongestOf(
  rowAt: (row: number) => Float32Array,
  request: Pick<StrongestRequest, "rows" | "k">,
  numKeys: number,
  filter: Pick<TokenFilter, "leftOut" | "pairKeys">,
): StrongestKeys {
  const [top, bottom] = request.rows;
  const k = Math.min(request.k, numKeys);
  const strongest = noKeys(bottom - top, k);
  const isIncluded = (key: number): boolean => !filter.leftOut[key] && filter.pairKeys[key] === 1;
  for (let row = top; row < bottom; row++) {
    const values = rowAt(row);
    let [included, leftOut, otherPair] = [0, 0, 0];
    for (let key = 0; key < numKeys; key++) {
      const size = Math.abs(values[key] as number);
      if (filter.leftOut[key]) leftOut += size;
      else if (!filter.pairKeys[key]) otherPair += size;
      else included += size;
    }
    topKeys(values, k, isIncluded).forEach((key, i) => {
      strongest.keys[(row - top) * k + i] = key;
      strongest.weights[(row - top) * k + i] = values[key] as number;
    });
    strongest.sums.set([included, leftOut, otherPair], 3 * (row - top));
  }
  return strongest;
}

/**
 * Return 1 for each key that is left out, and 0 for the others. `leaveOut` contains "special" for
 * special tokens, "first" for the first token, or indices of keys.
 */
export function leftOutKeys(keys: TokenList, leaveOut: readonly (string | number)[]): Uint8Array {
  const flags = new Uint8Array(keys.text.length);
  for (const entry of leaveOut) {
    if (entry === "special") for (const index of keys.special) flags[index] = 1;
    else if (entry === "first") flags[0] = 1;
    else if (typeof entry === "number" && entry >= 0 && entry < flags.length) flags[entry] = 1;
  }
  return flags;
}

/**
 * Return 1 for each token of one text of a pair of texts, and 0 for the others. `pair`, such as
 * "a-b", names the text of the queries and the text of the keys, and `side` chooses one of these
 * texts. If `pair` is "all", return 1 for all tokens.
 */
export function pairMembers(tokens: TokenList, pair: string, side: "query" | "key"): Uint8Array {
  const textIndex = pair[side === "query" ? 0 : 2] === "a" ? 0 : 1;
  return Uint8Array.from(tokens.text, (_, i) =>
    pair === "all" || tokens.sequence[i] === textIndex ? 1 : 0,
  );
}

/**
 * Return flags of tokens, each 0 or 1: which keys are left out, and which queries and keys belong
 * to the selected pair of texts.
 */
export function tokenFilter(
  { queries, keys }: { queries: TokenList; keys: TokenList },
  leaveOut: readonly (string | number)[],
  pair: string,
) {
  return {
    leftOut: leftOutKeys(keys, leaveOut),
    pairQueries: pairMembers(queries, pair, "query"),
    pairKeys: pairMembers(keys, pair, "key"),
  };
}

/** Request the strongest keys in several requests, and join the answers. */
export async function requestStrongest(
  source: Source,
  request: StrongestRequest,
  numKeys: number,
  signal: AbortSignal,
): Promise<StrongestAnswer> {
  const { rows } = request;
  const k = Math.min(request.k, numKeys);
  const count = request.combine === "separate" ? request.heads.length : 1;
  const matrices = Array.from({ length: count }, () => noKeys(rows[1] - rows[0], k));
  await Promise.all(
    splitStrongest(request, numKeys).map(async (part) => {
      const answers = await source.fetch("strongest", part, readStrongest, bytesOf, signal);
      const first = count === 1 ? 0 : request.heads.indexOf(part.heads[0] as number);
      const row = part.rows[0] - rows[0];
      answers.forEach((answer, i) => {
        const target = matrices[first + i] as StrongestKeys;
        target.keys.set(answer.keys, row * k);
        target.weights.set(answer.weights, row * k);
        target.sums.set(answer.sums, row * 3);
      });
    }),
  );
  return { rows, k, matrices };
}

/** Return the total weight of a row over all of its keys: the sum of the absolute values. */
export function totalWeight({ sums }: Pick<StrongestKeys, "sums">, row: number): number {
  const [included = 0, leftOut = 0, otherPair = 0] = sums.subarray(3 * row, 3 * row + 3);
  return included + leftOut + otherPair;
}
