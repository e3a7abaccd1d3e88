/** Rows of a layer's weights, in whichever form an exported page contains them. */

import { codeValues } from "../codec";
import type { Encoding } from "../protocol";
import { inflatedText } from "./texts";

/** A layer's heads, row by row. */
export interface Rows {
  /** Heads, queries and keys. */
  shape: [number, number, number];
  maximum: number;
  /** Largest absolute error of a weight. */
  error: number;
  /** Of small maps: the queries that stand for all, one a row. */
  sampled?: number[];
  /** Bytes that it takes to keep them. */
  bytes: number;
  /** Adds some heads' weights of a row, from the key `left` on, to the numbers in `line`. */
  add: (heads: readonly number[], row: number, left: number, line: Float32Array) => void;
  /** The same of one head, to zeros; left out where that is no faster. */
  write?: (head: number, row: number, left: number, line: Float32Array) => void;
}

/** Every weight of all heads of a layer; also its small maps, where they are embedded. */
export interface EmbeddedPiece {
  stack: string;
  layer: number;
  shape: [number, number, number];
  encoding: Encoding;
  /**
   * Row r has weights for its first r + 1 + reach keys alone, and none that is not zero after;
   * left out where all rows are whole.
   */
  reach?: number;
  maximum: number;
  error: number;
  /** Of small maps: the queries that stand for all, one a row; left out where none do. */
  sampled?: number[];
  /** The deflated bytes; see `texts.ts`. */
  data: string;
}

/** @throws Error if the piece has another number of bytes than its shape needs. */
export async function wholeRows(piece: EmbeddedPiece): Promise<Rows> {
  const { shape, encoding, maximum, error } = piece;
  const [count, numRows, columns] = shape;
  const bytes = await inflatedText(piece.data);
  /** Where each row of a head begins, and the end of the last. */
  const ends = new Float64Array(numRows + 1);
  for (let row = 0; row < numRows; row++) {
    const width = Math.max(0, Math.min(columns, row + 1 + (piece.reach ?? columns)));
    ends[row + 1] = (ends[row] as number) + width;
  }
  const each = ends[numRows] as number;
  const size = { "uint8-sqrt": 1, "int8-sqrt": 1, float32: 4, "float32-deflated": 4 }[encoding];
  if (bytes.length !== count * each * size) {
    throw new Error(
      `Layer ${piece.layer} holds ${bytes.length} bytes; its shape ${shape.join(" x ")} needs ${count * each * size}.`,
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

/** Weights as they are embedded. */
export interface EmbeddedWeights {
  value: (at: number) => number;
  /** Adds `count` of them, from `start` on, to the first numbers of `line`. */
  add: (start: number, count: number, line: Float32Array) => void;
}

/** A byte each, whose codes may have a sign. */
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
