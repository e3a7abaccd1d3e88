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
export interface Found {
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

export interface Strongest {
  rows: Range;
  k: number;
  matrices: Found[];
}

/** Flags of the included queries and keys: 1 if the condition holds. */
export interface Meant {
  leftOut: Uint8Array;
  pairQueries: Uint8Array;
  pairKeys: Uint8Array;
}

/** Weights per request: a tenth of a second of a kernel's time, two tenths on a busy machine. */
const ENTRIES = 1 << 23;

/** Split a request by heads, then rows, so that each is answered soon and its reply fits. */
export function splitStrongest(request: StrongestRequest, numKeys: number): StrongestRequest[] {
  const { heads, rows } = request;
  const separate = request.combine === "separate";
  const numRows = rows[1] - rows[0];
  const rowBytes = 8 * request.k + 12;
  const fitting = Math.min(ENTRIES / (numRows * numKeys), MAX_REPLY_BYTES / (numRows * rowBytes));
  const headsEach = separate
    ? Math.min(heads.length, Math.max(1, Math.floor(fitting)))
    : heads.length;
  const rowsEach =
    headsEach > 1 && separate
      ? numRows
      : Math.max(
          1,
          Math.floor(Math.min(ENTRIES / (headsEach * numKeys), MAX_REPLY_BYTES / rowBytes)),
        );
  const parts: StrongestRequest[] = [];
  for (let head = 0; head < heads.length; head += headsEach) {
    for (let row = rows[0]; row < rows[1]; row += rowsEach) {
      parts.push({
        ...request,
        heads: heads.slice(head, head + headsEach),
        rows: [row, Math.min(rows[1], row + rowsEach)],
      });
    }
  }
  return parts;
}

function nothing(numRows: number, k: number): Found {
  return {
    keys: new Int32Array(numRows * k).fill(-1),
    weights: new Float32Array(numRows * k),
    sums: new Float32Array(numRows * 3),
  };
}

export function readStrongest(reply: Reply): Found[] {
  // A page returns its result without encoding it.
  if (!reply.data) return (reply.header as { found: Found[] }).found;
  const { shape } = reply.header as StrongestHeader;
  const [matrices, rows, k] = shape;
  // A copy, because a view of a message may start at an offset that is not a multiple of 4.
  const { buffer } = asBytes(reply.data as ArrayBuffer).slice();
  const expected = 4 * matrices * (2 * rows * k + 3 * rows);
  if (buffer.byteLength !== expected) {
    throw new Error(`The reply has ${buffer.byteLength} bytes, but its shape needs ${expected}.`);
  }
  let at = 0;
  const each = <T>(size: number, read: (start: number) => T): T[] =>
    Array.from({ length: matrices }, () => {
      at += 4 * size;
      return read(at - 4 * size);
    });
  const floats = (size: number): Float32Array[] =>
    each(size, (start) => new Float32Array(buffer, start, size));
  const keys = each(rows * k, (start) => new Int32Array(buffer, start, rows * k));
  const [weights, sums] = [floats(rows * k), floats(rows * 3)];
  return keys.map((of, m) => ({
    keys: of,
    weights: weights[m] as Float32Array,
    sums: sums[m] as Float32Array,
  }));
}

function bytesOf(found: Found[]): number {
  return found.reduce((sum, { keys, sums }) => sum + 4 * (2 * keys.length + sums.length), 0);
}

/** Return the k included keys with the largest weights of a row. Equal weights keep their order. */
export function topKeys(row: Float32Array, k: number, isMeant: (key: number) => boolean): number[] {
  const keys: number[] = [];
  const sizeAt = (place: number): number => Math.abs(row[keys[place] as number] as number);
  for (let key = 0; key < row.length; key++) {
    const size = Math.abs(row[key] as number);
    // Causal masks and the compact form of pages leave many weights exactly 0.
    if (size === 0 || (keys.length === k && size <= sizeAt(k - 1)) || !isMeant(key)) continue;
    let place = keys.length;
    while (place > 0 && sizeAt(place - 1) < size) place--;
    keys.splice(place, 0, key);
    if (keys.length > k) keys.pop();
  }
  return keys;
}

/** Find the strongest keys of each query from complete rows of one matrix. */
export function strongestOf(
  rowAt: (row: number) => Float32Array,
  request: Pick<StrongestRequest, "rows" | "k">,
  numKeys: number,
  meant: Pick<Meant, "leftOut" | "pairKeys">,
): Found {
  const [top, bottom] = request.rows;
  const k = Math.min(request.k, numKeys);
  const found = nothing(bottom - top, k);
  const isMeant = (key: number): boolean => !meant.leftOut[key] && meant.pairKeys[key] === 1;
  for (let row = top; row < bottom; row++) {
    const values = rowAt(row);
    let [kept, leftOut, otherPair] = [0, 0, 0];
    for (let key = 0; key < numKeys; key++) {
      const size = Math.abs(values[key] as number);
      if (meant.leftOut[key]) leftOut += size;
      else if (!meant.pairKeys[key]) otherPair += size;
      else kept += size;
    }
    topKeys(values, k, isMeant).forEach((key, i) => {
      found.keys[(row - top) * k + i] = key;
      found.weights[(row - top) * k + i] = values[key] as number;
    });
    found.sums.set([kept, leftOut, otherPair], 3 * (row - top));
  }
  return found;
}

/** Return for each key whether it is left out. */
export function leftOutKeys(keys: TokenList, leaveOut: readonly (string | number)[]): Uint8Array {
  const out = new Uint8Array(keys.text.length);
  for (const each of leaveOut) {
    if (each === "special") for (const index of keys.special) out[index] = 1;
    else if (each === "first") out[0] = 1;
    else if (typeof each === "number" && each >= 0 && each < out.length) out[each] = 1;
  }
  return out;
}

/** Return for each token whether it belongs to the text on one side of a pair such as "a-b". */
export function pairMembers(tokens: TokenList, pair: string, side: "query" | "key"): Uint8Array {
  const out = new Uint8Array(tokens.text.length).fill(1);
  if (pair === "all") return out;
  const wanted = pair[side === "query" ? 0 : 2] === "a" ? 0 : 1;
  for (let i = 0; i < out.length; i++) out[i] = tokens.sequence[i] === wanted ? 1 : 0;
  return out;
}

/** Return which queries and keys are included, given the keys to leave out and a pair of texts. */
export function meantBy(
  { queries, keys }: { queries: TokenList; keys: TokenList },
  leaveOut: readonly (string | number)[],
  pair: string,
): Meant {
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
): Promise<Strongest> {
  const { rows } = request;
  const k = Math.min(request.k, numKeys);
  const count = request.combine === "separate" ? request.heads.length : 1;
  const matrices = Array.from({ length: count }, () => nothing(rows[1] - rows[0], k));
  await Promise.all(
    splitStrongest(request, numKeys).map(async (part) => {
      const found = await source.fetch("strongest", part, readStrongest, bytesOf, signal);
      const first = count === 1 ? 0 : request.heads.indexOf(part.heads[0] as number);
      const row = part.rows[0] - rows[0];
      found.forEach((each, i) => {
        const into = matrices[first + i] as Found;
        into.keys.set(each.keys, row * k);
        into.weights.set(each.weights, row * k);
        into.sums.set(each.sums, row * 3);
      });
    }),
  );
  return { rows, k, matrices };
}

/** Return the total weight of a row. */
export function wholeSum({ sums }: Pick<Found, "sums">, row: number): number {
  const [kept = 0, leftOut = 0, otherPair = 0] = sums.subarray(3 * row, 3 * row + 3);
  return kept + leftOut + otherPair;
}
