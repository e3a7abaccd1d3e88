/** Rows of a layer's weights, independent of the form in which an exported page contains them. */

import { codeValues } from "../codec";
import type { Encoding } from "../protocol";
import { inflatedText } from "./texts";

/** Weights of all heads of a layer, read row by row. */
export interface Rows {
  /** Heads, queries and keys. */
  shape: [number, number, number];
  maximum: number;
  /** Largest absolute error of a weight. */
  error: number;
  /** Queries of the rows of a small map whose rows are a sample of the queries. */
  sampled?: number[];
  /** Size in memory. */
  bytes: number;
  /** Adds a row's weights of several heads to `line`. The first number of `line` is of key `left`. */
  add: (heads: readonly number[], row: number, left: number, line: Float32Array) => void;
  /** Writes a row of one head into a `line` of zeros. Undefined if that is no faster than `add`. */
  write?: (head: number, row: number, left: number, line: Float32Array) => void;
}

/** All weights of a layer, or its small maps. */
export interface EmbeddedPiece {
  stack: string;
  layer: number;
  shape: [number, number, number];
  encoding: Encoding;
  /**
   * If set, row r stores only its first r + 1 + reach keys, because all later weights are 0.
   * Undefined if rows are stored completely.
   */
  reach?: number;
  maximum: number;
  error: number;
  /** Queries of the rows of a small map whose rows are a sample of the queries. */
  sampled?: number[];
  /** Deflated bytes (see `texts.ts`). */
  data: string;
}

/** @throws Error if the number of bytes does not fit the shape. */
export async function wholeRows(piece: EmbeddedPiece): Promise<Rows> {
  const { shape, encoding, maximum, error } = piece;
  const [count, numRows, columns] = shape;
  const bytes = await inflatedText(piece.data);
  /** Start of each row in the stored values of a head, and the end of the last row. */
  const ends = new Float64Array(numRows + 1);
  for (let row = 0; row < numRows; row++) {
    const width = Math.max(0, Math.min(columns, row + 1 + (piece.reach ?? columns)));
    ends[row + 1] = (ends[row] as number) + width;
  }
  const each = ends[numRows] as number;
  const size = { "uint8-sqrt": 1, "int8-sqrt": 1, float32: 4, "float32-deflated": 4 }[encoding];
  if (bytes.length !== count * each * size) {
    throw new Error(
      `Layer ${piece.layer} has ${bytes.length} bytes, but its shape ${shape.join(" x ")} needs ${count * each * size}.`,
    );
  }
  const weights = READERS[encoding](bytes, maximum);
  return {
    ...{ shape, maximum, error, bytes: bytes.length },
    ...(piece.sampled && { sampled: piece.sampled }),
    add: (heads, row, left, line) => {
      for (const head of heads) {
        const start = head * each + (ends[row] as number) + left;
        const stop = Math.min(line.length, head * each + (ends[row + 1] as number) - start);
        weights.add(start, stop, line);
      }
    },
  };
}

/** Weights in their embedded encoding. */
export interface EmbeddedWeights {
  value: (at: number) => number;
  /** Adds `count` weights, from index `start`, to the first numbers of `line`. */
  add: (start: number, count: number, line: Float32Array) => void;
}

/** Read weights stored as one code per byte. */
export function byteWeights(codes: Uint8Array, maximum: number, signed = false): EmbeddedWeights {
  const values = codeValues(maximum, signed);
  return {
    value: (at) => values[codes[at] as number] as number,
    add: (start, count, line) => {
      for (let x = 0; x < count; x++) {
        line[x] = (line[x] as number) + (values[codes[start + x] as number] as number);
      }
    },
  };
}

function exactWeights(bytes: Uint8Array): EmbeddedWeights {
  const values = new Float32Array(bytes.buffer as ArrayBuffer);
  return {
    value: (at) => values[at] as number,
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
} satisfies Record<EmbeddedPiece["encoding"], unknown>;
