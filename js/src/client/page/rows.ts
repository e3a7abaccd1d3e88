/** Rows of a layer's weights, in whichever form an exported page contains them. */

import { codeValues, fromBase64, inflate } from "../codec";
import type { Encoding } from "../protocol";

/** A layer's heads, row by row; heads by their place among those that were kept. */
export interface Rows {
  /** Heads, queries and keys. */
  shape: [number, number, number];
  maximum: number;
  /** Largest absolute error of a weight. */
  error: number;
  /** Bytes that it takes to keep them. */
  bytes: number;
  /** Adds some heads' weights of a row, from the key `left` on, to the numbers in `line`. */
  add: (heads: readonly number[], row: number, left: number, line: Float32Array) => void;
}

/** Every weight of all kept heads of a layer; also its small maps, where they are embedded. */
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
  /** base64 of the deflated bytes. */
  data: string;
}

/** @throws Error where the bytes are not those of the shape. */
export async function wholeRows(piece: EmbeddedPiece): Promise<Rows> {
  const { shape, encoding, maximum, error } = piece;
  const [count, rows, columns] = shape;
  const bytes = await inflate(fromBase64(piece.data));
  const ends = new Float64Array(rows + 1);
  for (let row = 0; row < rows; row++) {
    const width = Math.max(0, Math.min(columns, row + 1 + (piece.reach ?? columns)));
    ends[row + 1] = (ends[row] as number) + width;
  }
  const each = ends[rows] as number;
  const size = encoding === "float32" ? 4 : 1;
  if (bytes.length !== count * each * size) {
    throw new Error(
      `Layer ${piece.layer} holds ${bytes.length} bytes; its shape ${shape.join(" x ")} needs ${count * each * size}.`,
    );
  }
  const exact = encoding === "float32";
  const codes = exact ? new Float32Array(bytes.buffer as ArrayBuffer) : bytes;
  const values = codeValues(maximum);
  return {
    ...{ shape, maximum, error, bytes: bytes.length },
    add: (heads, row, left, line) => {
      for (const head of heads) {
        const start = head * each + (ends[row] as number) + left;
        const stop = Math.min(line.length, head * each + (ends[row + 1] as number) - start);
        for (let x = 0; x < stop; x++) {
          const code = codes[start + x] as number;
          line[x] = (line[x] as number) + (exact ? code : (values[code] as number));
        }
      }
    },
  };
}
