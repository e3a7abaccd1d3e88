/**
 * Weights of a layer for which a page contains only the strongest keys of each query.
 *
 * The remaining weight of a row is spread evenly over the other keys in the row's range of keys.
 * Nothing is spread for signed numbers, because their rows do not sum to 1.
 * `attnviz/pages/strongest.py` describes the format and writes it. The tests of both modules read
 * `tests/fixtures/sparse.json`.
 */

import { byteWeights, type WeightRows } from "./rows";
import { inflatedText } from "./texts";

/** The strongest weights of a layer's heads. */
export interface EmbeddedKeys {
  stack: string;
  layer: number;
  shape: [number, number, number];
  encoding: "strongest-keys";
  maximum: number;
  /** Remaining weight that the largest code stands for. */
  max_rest: number;
  /** Whether the codes of weights are signed. */
  signed?: boolean;
  reach: number;
  /** Length in bytes of each of the six arrays that `data` contains, one after the other. */
  runs: number[];
  error: number;
  /** Deflated bytes (see `texts.ts`). */
  data: string;
}

/**
 * Decode numbers in base 128 with the lowest digit first. Every byte is a digit, with the highest
 * bit set if another digit follows.
 */
function unpacked(bytes: Uint8Array, count: number): Uint32Array {
  const numbers = new Uint32Array(count);
  let offset = 0;
  for (let i = 0; i < count; i++) {
    let digit = bytes[offset++] as number;
    numbers[i] = digit;
    // Most numbers have one digit, so check for this case first.
    if (digit < 128) continue;
    let number = digit - 128;
    for (let scale = 128; digit & 128; scale *= 128) {
      digit = bytes[offset++] as number;
      number += (digit & 127) * scale;
    }
    numbers[i] = number;
  }
  if (offset !== bytes.length) throw new Error("The page’s data do not match the number of rows.");
  return numbers;
}

/**
 * Decode the strongest keys of a layer.
 *
 * @throws Error if the bytes do not fit the shape.
 */
export async function sparseRows(embedded: EmbeddedKeys): Promise<WeightRows> {
  const { shape, maximum, error } = embedded;
  const [heads, numRows, columns] = shape;
  const bytes = await inflatedText(embedded.data);
  let end = 0;
  const runs = embedded.runs.map((length) => {
    end += length;
    return bytes.subarray(end - length, end);
  });
  const array = (index: number): Uint8Array => runs[index] as Uint8Array;
  const totalRows = heads * numRows;
  const counts = unpacked(array(0), totalRows);
  const firstKeys = unpacked(array(1), totalRows);
  const endKeys = unpacked(array(2), totalRows);
  const restPerKey = new Float32Array(totalRows);
  const starts = new Uint32Array(totalRows + 1);
  const rests = byteWeights(array(3), embedded.max_rest);
  for (let row = 0; row < totalRows; row++) {
    const first = firstKeys[row] as number;
    const count = counts[row] as number;
    const last = Math.min(columns, (row % numRows) + 1 + embedded.reach) - (endKeys[row] as number);
    endKeys[row] = Math.max(first, last);
    const numOthers = (endKeys[row] as number) - first - count;
    restPerKey[row] = numOthers > 0 ? rests.value(row) / numOthers : 0;
    starts[row + 1] = (starts[row] as number) + count;
  }
  // Number of keys between each stored key and the previous one. The keys of a row are computed
  // from these when the row is requested, because most rows are never requested.
  const gaps = unpacked(array(4), starts[totalRows] as number);
  const { signed = false } = embedded;
  const weights = byteWeights(array(5), maximum, signed);
  return {
    ...{ shape, maximum, error, bytes: bytes.length + 16 * totalRows + 4 * gaps.length },
    add: (headIndices, row, left, line) => {
      const length = line.length;
      let [rest, from, to] = [0, 0, 0];
      const spreadRest = (): void => {
        for (let x = from; rest > 0 && x < to; x++) line[x] = (line[x] as number) + rest;
      };
      for (const head of headIndices) {
        const rowIndex = head * numRows + row;
        const perKey = restPerKey[rowIndex] as number;
        const start = Math.max(0, (firstKeys[rowIndex] as number) - left);
        const stop = Math.min(length, (endKeys[rowIndex] as number) - left);
        // The remaining weight of most heads is spread over the same keys. For such heads it is
        // summed first and then added once.
        if (start !== from || stop !== to) {
          spreadRest();
          [rest, from, to] = [0, start, stop];
        }
        rest += perKey;
        const last = starts[rowIndex + 1] as number;
        let x = (firstKeys[rowIndex] as number) - 1 - left;
        for (let i = starts[rowIndex] as number; i < last; i++) {
          x += (gaps[i] as number) + 1;
          if (x < 0 || x >= length) continue;
          line[x] = (line[x] as number) - perKey + weights.value(i);
        }
      }
      spreadRest();
    },
    write: (head, row, left, line) => {
      const rowIndex = head * numRows + row;
      const first = (firstKeys[rowIndex] as number) - left;
      const perKey = restPerKey[rowIndex] as number;
      if (perKey > 0)
        line.fill(perKey, Math.max(0, first), Math.max(0, (endKeys[rowIndex] as number) - left));
      let x = first - 1;
      for (let i = starts[rowIndex] as number; i < (starts[rowIndex + 1] as number); i++) {
        x += (gaps[i] as number) + 1;
        if (x >= 0 && x < line.length) line[x] = weights.value(i);
      }
    },
  };
}
