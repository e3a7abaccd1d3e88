/**
 * The strongest keys of some queries anywhere in a text, and how their weight is spread over it.
 *
 * `attnviz/server/strongest.py` is the other side; where whole rows are at hand, `strongestOf`
 * finds the same in them.
 */

import { LARGEST_REPLY, type Reply } from "../carrier";
import { asBytes } from "../codec";
import type { Range, StrongestHeader, StrongestRequest, TokenList } from "../protocol";
import type { Source } from "../source";

/** What was found in one matrix, row after row. */
export interface Found {
  /** k for each row, the strongest first; -1 where there is none. */
  keys: Int32Array;
  weights: Float32Array;
  /**
   * For each row the weight of the keys that are meant, of those left out and of those not taken;
   * NaN: not yet known. The first is summed directly: a difference would be rounding where it is little.
   * Of signed numbers these are sums of sizes, as in `spread`.
   */
  sums: Float32Array;
  /** Weight of all rows that are taken, without what is left out or not taken, along the keys. */
  spread: Float32Array;
}

export interface Strongest {
  rows: Range;
  k: number;
  binSize: number;
  matrices: Found[];
  /** The share of the answer that has come. */
  done: number;
}

/** Which queries and keys are meant: 1 where they are. */
export interface Meant {
  leftOut: Uint8Array;
  pairQueries: Uint8Array;
  pairKeys: Uint8Array;
}

/** Weights that one request looks at: a tenth of a second of a kernel's time, two on a busy machine. */
const ENTRIES = 1 << 23;

/** Cuts a request into requests that are answered soon, and whose replies fit: by heads, then rows. */
export function splitStrongest(request: StrongestRequest, numKeys: number): StrongestRequest[] {
  const { heads, rows } = request;
  const separate = request.combine === "separate";
  const numRows = rows[1] - rows[0];
  const rowBytes = 8 * request.k + 12;
  const room = LARGEST_REPLY - 4 * Math.ceil(numKeys / request.bin_size);
  const fitting = Math.min(
    ENTRIES / (numRows * numKeys),
    LARGEST_REPLY / (numRows * rowBytes + LARGEST_REPLY - room),
  );
  const headsEach = separate
    ? Math.min(heads.length, Math.max(1, Math.floor(fitting)))
    : heads.length;
  const rowsEach =
    headsEach > 1 && separate
      ? numRows
      : Math.max(1, Math.floor(Math.min(ENTRIES / (headsEach * numKeys), room / rowBytes)));
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

function nothing(numRows: number, k: number, bins: number): Found {
  return {
    keys: new Int32Array(numRows * k).fill(-1),
    weights: new Float32Array(numRows * k),
    sums: new Float32Array(numRows * 3).fill(Number.NaN),
    spread: new Float32Array(bins),
  };
}

/** Reads a reply. */
export function readStrongest(reply: Reply): Found[] {
  // A page hands over what it has found.
  if (!reply.data) return (reply.header as { found: Found[] }).found;
  const { shape } = reply.header as StrongestHeader;
  const [matrices, rows, k, bins] = shape;
  // A copy, because a view of a message need not start at a multiple of four bytes.
  const { buffer } = asBytes(reply.data as ArrayBuffer).slice();
  const expected = 4 * matrices * (2 * rows * k + 3 * rows + bins);
  if (buffer.byteLength !== expected) {
    throw new Error(`The reply holds ${buffer.byteLength} bytes; it says ${expected}.`);
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
  const [weights, sums, spread] = [floats(rows * k), floats(rows * 3), floats(bins)];
  return keys.map((of, m) => ({
    keys: of,
    weights: weights[m] as Float32Array,
    sums: sums[m] as Float32Array,
    spread: spread[m] as Float32Array,
  }));
}

function bytesOf(found: Found[]): number {
  return found.reduce(
    (sum, { keys, sums, spread }) => sum + 4 * (2 * keys.length + sums.length + spread.length),
    0,
  );
}

/** The same from whole rows of one matrix. */
export function strongestOf(
  rowAt: (row: number) => Float32Array,
  request: Pick<StrongestRequest, "rows" | "k" | "bin_size">,
  numKeys: number,
  meant: Meant,
): Found {
  const [top, bottom] = request.rows;
  const k = Math.min(request.k, numKeys);
  const found = nothing(bottom - top, k, Math.ceil(numKeys / request.bin_size));
  for (let row = top; row < bottom; row++) {
    const values = rowAt(row);
    const first = (row - top) * k;
    const spread = meant.pairQueries[row] ? found.spread : null;
    let [kept, leftOut, otherPair] = [0, 0, 0];
    for (let key = 0; key < numKeys; key++) {
      const value = values[key] as number;
      const size = Math.abs(value);
      // Half of the keys of a causal text, and of what a page contains most, have nothing.
      if (value === 0) continue;
      if (meant.leftOut[key]) {
        leftOut += size;
        continue;
      }
      if (!meant.pairKeys[key]) {
        otherPair += size;
        continue;
      }
      kept += size;
      if (spread) {
        const bin = Math.floor(key / request.bin_size);
        spread[bin] = (spread[bin] as number) + size;
      }
      let at = first + k - 1;
      if (size <= Math.abs(found.weights[at] as number)) continue;
      while (at > first && Math.abs(found.weights[at - 1] as number) < size) {
        found.weights[at] = found.weights[at - 1] as number;
        found.keys[at] = found.keys[at - 1] as number;
        at--;
      }
      found.weights[at] = value;
      found.keys[at] = key;
    }
    found.sums.set([kept, leftOut, otherPair], 3 * (row - top));
  }
  return found;
}

/** For each key, whether it is left out. */
export function leftOutKeys(keys: TokenList, leaveOut: readonly (string | number)[]): Uint8Array {
  const out = new Uint8Array(keys.text.length);
  for (const each of leaveOut) {
    if (each === "special") for (const index of keys.special) out[index] = 1;
    else if (each === "first") out[0] = 1;
    else if (typeof each === "number" && each >= 0 && each < out.length) out[each] = 1;
  }
  return out;
}

/** For each token, whether it is of the text that `side` of a pair names. */
export function pairMembers(tokens: TokenList, pair: string, side: "query" | "key"): Uint8Array {
  const out = new Uint8Array(tokens.text.length).fill(1);
  if (pair === "all") return out;
  const wanted = pair[side === "query" ? 0 : 2] === "a" ? 0 : 1;
  for (let i = 0; i < out.length; i++) out[i] = tokens.sequence[i] === wanted ? 1 : 0;
  return out;
}

/** Which queries and keys are meant by what is left out and by a pair. */
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

/**
 * Asks part by part.
 *
 * @param onPart is told what is known so far.
 */
export async function askStrongest(
  source: Source,
  request: StrongestRequest,
  numKeys: number,
  onPart: (found: Strongest) => void,
  signal: AbortSignal,
): Promise<void> {
  const [top, bottom] = request.rows;
  const k = Math.min(request.k, numKeys);
  const bins = Math.ceil(numKeys / request.bin_size);
  const count = request.combine === "separate" ? request.heads.length : 1;
  const all = Array.from({ length: count }, () => nothing(bottom - top, k, bins));
  const parts = splitStrongest(request, numKeys);
  let done = 0;
  await Promise.all(
    parts.map(async (part) => {
      const found = await source.question("strongest", part, readStrongest, bytesOf, signal);
      const first = count === 1 ? 0 : request.heads.indexOf(part.heads[0] as number);
      const row = part.rows[0] - top;
      found.forEach((each, i) => {
        const into = all[first + i] as Found;
        into.keys.set(each.keys, row * k);
        into.weights.set(each.weights, row * k);
        into.sums.set(each.sums, row * 3);
        each.spread.forEach((value, bin) => {
          into.spread[bin] = (into.spread[bin] as number) + value;
        });
      });
      done++;
      const { rows, bin_size: binSize } = request;
      if (!signal.aborted) onPart({ rows, k, binSize, matrices: all, done: done / parts.length });
    }),
  );
}

/** The whole weight of a row of what was found; NaN where it is not yet known. */
export function wholeSum({ sums }: Pick<Found, "sums">, row: number): number {
  const [kept = Number.NaN, leftOut = 0, otherPair = 0] = sums.subarray(3 * row, 3 * row + 3);
  return kept + leftOut + otherPair;
}
