/**
 * Rows of a layer's weights. The interface is the same for all forms in which an exported page
 * embeds weights. A small map is the attention matrix of a head, pooled to few cells at the export.
 */

import { codeValues } from "../codec";
import type { Encoding } from "../protocol";
import { inflatedText } from "./texts";

/** Weights of all heads of a layer, read row by row. */
export interface WeightRows {
  /** Number of heads, queries and keys. */
  shape: [number, number, number];
  maximum: number;
  /** Largest absolute error of a weight. */
  error: number;
  /** Query that each row of a small map stands for, if its rows are a sample of the queries. */
  sampled?: number[];
  /** Size in memory, in bytes. */
  bytes: number;
  /**
   * Add a row's weights, for each of several heads, to `line`. The first number of `line` belongs
   * to key `left`.
   */
  add: (heads: readonly number[], row: number, left: number, line: Float32Array) => void;
  /**
   * Write a row of one head into `line`, which contains zeros. Undefined if `write` would be no
   * faster than `add`.
   */
  write?: (head: number, row: number, left: number, line: Float32Array) => void;
}

/** All weights of a layer, or its small maps. */
export interface EmbeddedWeights {
  stack: string;
  layer: number;
  shape: [number, number, number];
  encoding: Encoding;
  /**
   * If set, row r contains only its first r + 1 + reach keys, because the weights of all later keys
   * are 0. If undefined, every row contains all keys.
   */
  reach?: number;
  maximum: number;
  error: number;
  /** Query that each row of a small map stands for, if its rows are a sample of the queries. */
  sampled?: number[];
  /** Deflated bytes (see `texts.ts`). */
  data: string;
}

/**
 * Decode all weights of a layer, or its small maps.
 *
 * @throws Error if the number of bytes does not fit the shape.
 */
export async function completeRows(embedded: EmbeddedWeights): Promise<WeightRows> {
  const { shape, encoding, maximum, error } = embedded;
  const [numHeads, numRows, columns] = shape;
  const bytes = await inflatedText(embedded.data);
  /** Index of each row's first value in its head. The last entry is the number of values. */
  const rowStarts = new Float64Array(numRows + 1);
  for (let row = 0; row < numRows; row++) {
    const width = Math.max(0, Math.min(columns, row + 1 + (embedded.reach ?? columns)));
    rowStarts[row + 1] = (rowStarts[row] as number) + width;
  }
  const headLength = rowStarts[numRows] as number;
  const size = { "uint8-sqrt": 1, "int8-sqrt": 1, float32: 4, "float32-deflated": 4 }[encoding];
  if (bytes.length !== numHeads * headLength * size) {
    throw new Error(
      `Layer ${embedded.layer} has ${bytes.length} bytes, but its shape ${shape.join(" x ")} needs ${numHeads * headLength * size}.`,
    );
  }
  const weights = READERS[encoding](bytes, maximum);
  return {
    ...{ shape, maximum, error, bytes: bytes.length },
    ...(embedded.sampled && { sampled: embedded.sampled }),
    add: (heads, row, left, line) => {
      for (const head of heads) {
        const start = head * headLength + (rowStarts[row] as number) + left;
        const length = Math.min(
          line.length,
          head * headLength + (rowStarts[row + 1] as number) - start,
        );
        weights.add(start, length, line);
      }
    },
  };
}

/** Access to weights in the encoding in which a page embeds them. */
export interface WeightReader {
  value: (index: number) => number;
  /** Add `count` weights, beginning with index `start`, to the first numbers of `line`. */
  add: (start: number, count: number, line: Float32Array) => void;
}

/** Return a reader of weights that are stored as one code per byte. */
export function byteWeights(codes: Uint8Array, maximum: number, signed = false): WeightReader {
  const values = codeValues(maximum, signed);
  return {
    value: (index) => values[codes[index] as number] as number,
    add: (start, count, line) => {
      for (let x = 0; x < count; x++) {
        line[x] = (line[x] as number) + (values[codes[start + x] as number] as number);
      }
    },
  };
}

function exactWeights(bytes: Uint8Array): WeightReader {
  const values = new Float32Array(bytes.buffer as ArrayBuffer);
  return {
    value: (index) => values[index] as number,
    add: (start, count, line) => {
      for (let x = 0; x < count; x++) {
        line[x] = (line[x] as number) + (values[start + x] as number);
      }
    },
  };
}

const READERS = {
  "uint8-sqrt": byteWeights,
  "int8-sqrt": (codes: Uint8Array, maximum: number) => byteWeights(codes, maximum, true),
  float32: exactWeights,
  "float32-deflated": exactWeights,
} satisfies Record<EmbeddedWeights["encoding"], unknown>;
