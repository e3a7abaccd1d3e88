/**
 * The strongest keys of queries, in the whole text.
 *
 * A kernel finds them with `attnviz/server/strongest.py`, a page with `strongestOf`.
 */

import { asBytes } from "../codec";
import type { Range, StrongestHeader, StrongestRequest, TokenList } from "../protocol";
import type { Source } from "../source";
import { MAX_REPLY_BYTES, type Reply } from "../transport";

/** Strongest keys of each row of one matrix. */
export interface StrongestKeys {
  /** k keys for each row, the strongest first. -1 if there are fewer. */
  keys: Int32Array;
  weights: Float32Array;
  /**
   * Three sums for each row: the weight of the included keys, of the keys left out, and of the keys
   * outside the pair of texts. Each is summed directly, because a difference of sums would lose
   * precision. For signed numbers these are sums of absolute values.
   */
  sums: Float32Array;
}

export interface StrongestAnswer {
  rows: Range;
  k: number;
  matrices: StrongestKeys[];
}

/** Flags of the included queries and keys: 1 if the condition holds. */
export interface TokenFilter {
  leftOut: Uint8Array;
  pairQueries: Uint8Array;
  pairKeys: Uint8Array;
}

/** Weights per request: a tenth of a second of a kernel's time, two tenths on a busy machine. */
const MAX_ENTRIES = 1 << 23;

/**
 * Split a request into parts, by heads and then by rows. Each part is answered soon, and its reply
 * fits into MAX_REPLY_BYTES.
 */
export function splitStrongest(request: StrongestRequest, numKeys: number): StrongestRequest[] {
  const { heads, rows } = request;
  const isSeparate = request.combine === "separate";
  const numRows = rows[1] - rows[0];
  const rowBytes = 8 * request.k + 12;
  const fittingHeads = Math.min(
    MAX_ENTRIES / (numRows * numKeys),
    MAX_REPLY_BYTES / (numRows * rowBytes),
  );
  const headsPerPart = isSeparate
    ? Math.min(heads.length, Math.max(1, Math.floor(fittingHeads)))
    : heads.length;
  const rowsPerPart =
    headsPerPart > 1 && isSeparate
      ? numRows
      : Math.max(
          1,
          Math.floor(Math.min(MAX_ENTRIES / (headsPerPart * numKeys), MAX_REPLY_BYTES / rowBytes)),
        );
  const parts: StrongestRequest[] = [];
  for (let head = 0; head < heads.length; head += headsPerPart) {
    for (let row = rows[0]; row < rows[1]; row += rowsPerPart) {
      parts.push({
        ...request,
        heads: heads.slice(head, head + headsPerPart),
        rows: [row, Math.min(rows[1], row + rowsPerPart)],
      });
    }
  }
  return parts;
}

function noKeys(numRows: number, k: number): StrongestKeys {
  return {
    keys: new Int32Array(numRows * k).fill(-1),
    weights: new Float32Array(numRows * k),
    sums: new Float32Array(numRows * 3),
  };
}

export function readStrongest(reply: Reply): StrongestKeys[] {
  // A page returns its result without encoding it.
  if (!reply.data) return (reply.header as { matrices: StrongestKeys[] }).matrices;
  const { shape } = reply.header as StrongestHeader;
  const [matrices, rows, k] = shape;
  // A copy, because a view of a message may start at an offset that is not a multiple of 4.
  const { buffer } = asBytes(reply.data as ArrayBuffer).slice();
  const expected = 4 * matrices * (2 * rows * k + 3 * rows);
  if (buffer.byteLength !== expected) {
    throw new Error(`The reply has ${buffer.byteLength} bytes, but its shape needs ${expected}.`);
  }
  let offset = 0;
  const readArrays = <T>(size: number, read: (start: number) => T): T[] =>
    Array.from({ length: matrices }, () => {
      offset += 4 * size;
      return read(offset - 4 * size);
    });
  const floats = (size: number): Float32Array[] =>
    readArrays(size, (start) => new Float32Array(buffer, start, size));
  const keys = readArrays(rows * k, (start) => new Int32Array(buffer, start, rows * k));
  const [weights, sums] = [floats(rows * k), floats(rows * 3)];
  return keys.map((keyIndices, matrix) => ({
    keys: keyIndices,
    weights: weights[matrix] as Float32Array,
    sums: sums[matrix] as Float32Array,
  }));
}

function bytesOf(answers: StrongestKeys[]): number {
  return answers.reduce((sum, { keys, sums }) => sum + 4 * (2 * keys.length + sums.length), 0);
}

/** Return the k included keys with the largest weights of a row. Equal weights keep their order. */
export function topKeys(
  row: Float32Array,
  k: number,
  isIncluded: (key: number) => boolean,
): number[] {
  const keys: number[] = [];
  const sizeAt = (rank: number): number => Math.abs(row[keys[rank] as number] as number);
  for (let key = 0; key < row.length; key++) {
    const size = Math.abs(row[key] as number);
    // Causal masks and the compact form of pages leave many weights exactly 0.
    if (size === 0 || (keys.length === k && size <= sizeAt(k - 1)) || !isIncluded(key)) continue;
    let rank = keys.length;
    while (rank > 0 && sizeAt(rank - 1) < size) rank--;
    keys.splice(rank, 0, key);
    if (keys.length > k) keys.pop();
  }
  return keys;
}

/** Find the strongest keys of each query from complete rows of one matrix. */
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

/** Return for each key whether it is left out. */
export function leftOutKeys(keys: TokenList, leaveOut: readonly (string | number)[]): Uint8Array {
  const flags = new Uint8Array(keys.text.length);
  for (const entry of leaveOut) {
    if (entry === "special") for (const index of keys.special) flags[index] = 1;
    else if (entry === "first") flags[0] = 1;
    else if (typeof entry === "number" && entry >= 0 && entry < flags.length) flags[entry] = 1;
  }
  return flags;
}

/** Return for each token whether it belongs to the text on one side of a pair such as "a-b". */
export function pairMembers(tokens: TokenList, pair: string, side: "query" | "key"): Uint8Array {
  const members = new Uint8Array(tokens.text.length).fill(1);
  if (pair === "all") return members;
  const textIndex = pair[side === "query" ? 0 : 2] === "a" ? 0 : 1;
  for (let i = 0; i < members.length; i++) members[i] = tokens.sequence[i] === textIndex ? 1 : 0;
  return members;
}

/** Return which queries and keys are included, given the keys to leave out and a pair of texts. */
export function tokenFilter(
  { queries, keys }: { queries: TokenList; keys: TokenList },
  leaveOut: readonly (string | number)[],
  pair: string,
): TokenFilter {
  return {
    leftOut: leftOutKeys(keys, leaveOut),
    pairQueries: pairMembers(queries, pair, "query"),
    pairKeys: pairMembers(keys, pair, "key"),
  };
}

/** Request the strongest keys in parts, and join the replies. */
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

/** Return the total weight of a row. */
export function totalWeight({ sums }: Pick<StrongestKeys, "sums">, row: number): number {
  const [included = 0, leftOut = 0, otherPair = 0] = sums.subarray(3 * row, 3 * row + 3);
  return included + leftOut + otherPair;
}
