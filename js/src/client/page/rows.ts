/**
 * Rows of a layer's weights, as an exported page contains them: all weights of each query, or the
 * largest ones. A small map is the attention matrix of a head, pooled to few cells at the export,
 * and is stored in the same way.
 *
 * The keys whose weights a page contains are called embedded. The remaining weight of a row is the
 * sum of its other weights. It is spread evenly over the other keys between the first and the last
 * key of the row with a weight that is not 0. For signed numbers, nothing is spread, and the other
 * keys have the value 0. `attnviz/pages/rows.py` describes the format and writes it. The tests of
 * both modules read `tests/fixtures/rows.json`.
 */

import { codeValues } from "../codec";
import { inflatedText } from "./texts";

/** Stack and layer. The layer has the number that it has in the model. */
export interface LayerKey {
  stack: string;
  layer: number;
}

/** Weights of all heads of a layer, or of a part of the layer, read row by row. */
export interface WeightRows {
  /** Query of the first row. */
  start: number;
  /**
   * Number of heads, queries and keys. For small maps, number of heads, and of rows and columns of
   * cells.
   */
  shape: [number, number, number];
  maximum: number;
  /** Largest absolute error of a weight. */
  error: number;
  /** Query that each row of a small map stands for, if its rows are a sample of the queries. */
  sampled?: number[];
  /** Size in memory, in bytes. */
  bytes: number;
  /** Return the lost weight of a query. Undefined if the model does not choose keys. */
  lost?: (head: number, query: number) => number;
  /**
   * Add the weights of the query `row` in each of several heads to `line`. The first number of
   * `line` belongs to key `left`, and the others to the keys after it.
   */
  add: (heads: readonly number[], row: number, left: number, line: Float32Array) => void;
}

/** Some rows of all heads of a layer, or its small maps, as encoded bytes. */
export interface EmbeddedRows extends LayerKey {
  /** Query of the first row. Omitted if it is 0. */
  start?: number;
  shape: [number, number, number];
  maximum: number;
  /**
   * Largest remaining weight among all rows. The remaining weight of a row is stored as one byte
   * ("uint8-sqrt"), in which 255 stands for `max_rest`.
   */
  max_rest: number;
  /** Whether the weights are signed numbers. The bytes that stand for them are then signed, too. */
  signed?: boolean;
  /**
   * Largest distance from a query to a later key with a weight that is not 0. 0 if no query attends
   * to later keys.
   */
  reach: number;
  /** Length in bytes of each of the six arrays that `data` contains, one after the other. */
  runs: number[];
  error: number;
  /** Query that each row of a small map stands for, if its rows are a sample of the queries. */
  sampled?: number[];
  /** Deflated bytes (see `texts.ts`). */
  data: string;
}

/**
 * Decode numbers in base 128 with the lowest digit first. Every byte is a digit, with the highest
 * bit set if another digit follows. Often, all numbers have one digit.
 */
function unpacked(bytes: Uint8Array, count: number): Uint8Array | Uint32Array {
  if (bytes.length === count) return bytes;
  const numbers = new Uint32Array(count);
  let offset = 0;
  for (let i = 0; i < count; i++) {
    let digit = bytes[offset++] as number;
    numbers[i] = digit;
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

/** Join consecutive parts of a layer. */
export function joinParts(parts: readonly WeightRows[]): WeightRows {
  return {
    ...(parts[0] as WeightRows),
    error: Math.max(...parts.map(({ error }) => error)),
    add: (heads, row, left, line) => {
      const part = parts.find(({ start, shape }) => row < start + shape[1]) as WeightRows;
      part.add(heads, row, left, line);
    },
  };
}

/**
 * Decode some rows of a layer.
 *
 * @throws Error if the bytes do not fit the shape.
 */
export async function readRows(embedded: EmbeddedRows): Promise<WeightRows> {
  const { start: firstRow = 0, shape, maximum, error, sampled } = embedded;
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
  const numAfter = unpacked(array(2), totalRows);
  // For each row, `starts` has the index of its first code (the byte of a weight), and `gapStarts`
  // has the index of its first gap. A gap is the number of keys between an embedded key and the
  // previous one. Rows in which every key is embedded have no gaps.
  const starts = new Uint32Array(totalRows + 1);
  const gapStarts = new Uint32Array(totalRows + 1);
  const restValues = codeValues(embedded.max_rest);
  const restCodes = array(3);
  function endKey(row: number): number {
    const last = Math.min(columns, firstRow + (row % numRows) + 1 + embedded.reach);
    return Math.max(firstKeys[row] as number, last - (numAfter[row] as number));
  }
  for (let row = 0; row < totalRows; row++) {
    const numGaps = counts[row] as number;
    const numKeys = numGaps || endKey(row) - (firstKeys[row] as number);
    starts[row + 1] = (starts[row] as number) + numKeys;
    gapStarts[row + 1] = (gapStarts[row] as number) + numGaps;
  }
  const gaps = unpacked(array(4), gapStarts[totalRows] as number);
  const codes = array(5);
  if (codes.length !== starts[totalRows]) {
    throw new Error(
      `Layer ${embedded.layer} has ${codes.length} weights, but its rows need ${starts[totalRows]}.`,
    );
  }
  const values = codeValues(maximum, embedded.signed);
  const size = bytes.length + 20 * totalRows + gaps.byteLength;

  /** Add the embedded weights of a row in which every key is embedded. */
  function addAll(rowIndex: number, left: number, line: Float32Array): void {
    // Index of the code of key `left`.
    const offset = (starts[rowIndex] as number) - (firstKeys[rowIndex] as number) + left;
    const from = Math.max(0, (firstKeys[rowIndex] as number) - left);
    const to = Math.min(line.length, endKey(rowIndex) - left);
    for (let x = from; x < to; x++) {
      line[x] = (line[x] as number) + (values[codes[offset + x] as number] as number);
    }
  }

  /**
   * Add the embedded weights of a row in which some keys are embedded. The caller also adds a share
   * of the remaining weight to every key of the row, so subtract this share from embedded keys.
   */
  function addSome(rowIndex: number, left: number, line: Float32Array, perKey: number): void {
    const count = counts[rowIndex] as number;
    const start = starts[rowIndex] as number;
    const gapStart = gapStarts[rowIndex] as number;
    let x = (firstKeys[rowIndex] as number) - 1 - left;
    for (let i = 0; i < count; i++) {
      x += (gaps[gapStart + i] as number) + 1;
      if (x < 0 || x >= line.length) continue;
      line[x] = (line[x] as number) - perKey + (values[codes[start + i] as number] as number);
    }
  }

  return {
    ...{ start: firstRow, shape, maximum, error, bytes: size },
    ...(sampled && { sampled }),
    add: (headIndices, row, left, line) => {
      let [rest, from, to] = [0, 0, 0];
      const spreadRest = (): void => {
        for (let x = from; rest > 0 && x < to; x++) line[x] = (line[x] as number) + rest;
      };
      for (const head of headIndices) {
        const rowIndex = head * numRows + row - firstRow;
        if (counts[rowIndex] === 0) {
          addAll(rowIndex, left, line);
          continue;
        }
        const start = Math.max(0, (firstKeys[rowIndex] as number) - left);
        const end = endKey(rowIndex);
        const stop = Math.min(line.length, end - left);
        // In most heads, the remaining weight is spread over the same keys. Sum it over such heads
        // first, so that it is added to the keys only once.
        if (start !== from || stop !== to) {
          spreadRest();
          [rest, from, to] = [0, start, stop];
        }
        const numOthers = end - (firstKeys[rowIndex] as number) - (counts[rowIndex] as number);
        const perKey = (restValues[restCodes[rowIndex] as number] as number) / numOthers;
        rest += perKey;
        addSome(rowIndex, left, line, perKey);
      }
      spreadRest();
    },
  };
}
