/**
 * Strongest keys of each query. The remaining weight of the row is spread evenly over its other keys.
 * For signed numbers, which are not shares of 1, nothing is spread.
 *
 * `attnviz/pages/strongest.py` describes the format and writes it. Tests of both read
 * `tests/fixtures/sparse.json`.
 */

import { byteWeights, type Rows } from "./rows";
import { inflatedText } from "./texts";

/** The strongest weights of a layer's heads. */
export interface EmbeddedKeys {
  stack: string;
  layer: number;
  shape: [number, number, number];
  encoding: "strongest-keys";
  maximum: number;
  /** Value of the highest code for a row's remaining weight. */
  max_rest: number;
  /** Whether codes of weights have a sign. */
  signed?: boolean;
  reach: number;
  /** Length in bytes of each of the six arrays in `data`. */
  runs: number[];
  error: number;
  /** Deflated bytes (see `texts.ts`). */
  data: string;
}

/** Decode numbers written in base 128, the lowest digit first. */
function unpacked(bytes: Uint8Array, count: number): Uint32Array {
  const numbers = new Uint32Array(count);
  let at = 0;
  for (let i = 0; i < count; i++) {
    let digit = bytes[at++] as number;
    numbers[i] = digit;
    // Most numbers have one digit.
    if (digit < 128) continue;
    let number = digit - 128;
    for (let scale = 128; digit & 128; scale *= 128) {
      digit = bytes[at++] as number;
      number += (digit & 127) * scale;
    }
    numbers[i] = number;
  }
  if (at !== bytes.length) throw new Error("The page’s data do not match the number of rows.");
  return numbers;
}

/** @throws Error if the bytes do not fit the shape. */
export async function sparseRows(piece: EmbeddedKeys): Promise<Rows> {
  const { shape, maximum, error } = piece;
  const [heads, numRows, columns] = shape;
  const bytes = await inflatedText(piece.data);
  let end = 0;
  const runs = piece.runs.map((length) => {
    end += length;
    return bytes.subarray(end - length, end);
  });
  const run = (place: number): Uint8Array => runs[place] as Uint8Array;
  const all = heads * numRows;
  const counts = unpacked(run(0), all);
  const firsts = unpacked(run(1), all);
  const ends = unpacked(run(2), all);
  const spread = new Float32Array(all);
  const starts = new Uint32Array(all + 1);
  const rests = byteWeights(run(3), piece.max_rest);
  for (let row = 0; row < all; row++) {
    const first = firsts[row] as number;
    const count = counts[row] as number;
    const last = Math.min(columns, (row % numRows) + 1 + piece.reach) - (ends[row] as number);
    ends[row] = Math.max(first, last);
    const others = (ends[row] as number) - first - count;
    spread[row] = others > 0 ? rests.value(row) / others : 0;
    starts[row + 1] = (starts[row] as number) + count;
  }
  // Number of keys between each stored key and the previous one. Decoded on use, since most rows are
  // never requested.
  const gaps = unpacked(run(4), starts[all] as number);
  const { signed = false } = piece;
  const weights = byteWeights(run(5), maximum, signed);
  return {
    ...{ shape, maximum, error, bytes: bytes.length + 16 * all + 4 * gaps.length },
    add: (places, row, left, line) => {
      const length = line.length;
      let [rest, from, to] = [0, 0, 0];
      const spreadRest = (): void => {
        for (let x = from; rest > 0 && x < to; x++) line[x] = (line[x] as number) + rest;
      };
      for (const head of places) {
        const at = head * numRows + row;
        const each = spread[at] as number;
        const begin = Math.max(0, (firsts[at] as number) - left);
        const stop = Math.min(length, (ends[at] as number) - left);
        // Most heads cover the same keys, so their remaining weights are summed and added once.
        if (begin !== from || stop !== to) {
          spreadRest();
          [rest, from, to] = [0, begin, stop];
        }
        rest += each;
        const last = starts[at + 1] as number;
        let x = (firsts[at] as number) - 1 - left;
        for (let i = starts[at] as number; i < last; i++) {
          x += (gaps[i] as number) + 1;
          if (x < 0 || x >= length) continue;
          line[x] = (line[x] as number) - each + weights.value(i);
        }
      }
      spreadRest();
    },
    write: (head, row, left, line) => {
      const at = head * numRows + row;
      const first = (firsts[at] as number) - left;
      const each = spread[at] as number;
      if (each > 0) line.fill(each, Math.max(0, first), Math.max(0, (ends[at] as number) - left));
      let x = first - 1;
      for (let i = starts[at] as number; i < (starts[at + 1] as number); i++) {
        x += (gaps[i] as number) + 1;
        if (x >= 0 && x < line.length) line[x] = weights.value(i);
      }
    },
  };
}
