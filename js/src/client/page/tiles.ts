/** Cuts, pools and averages embedded weights, as the kernel does for a live view. Pure functions. */

import type { Pooled, Range } from "../protocol";
import { joined } from "../signs";
import type { Rows } from "./rows";

/** Cells of a tile's side; the kernel's is the same (`attnviz/server/tiles.py`). */
export const TILE = 256;

/** The queries or keys that a tile covers, of `count`. */
export function tileRange(place: number, level: number, count: number): Range {
  const span = TILE * 2 ** level;
  return [Math.min(count, place * span), Math.min(count, (place + 1) * span)];
}

/** Where each pooled row and column begins, with the end as the last entry. */
export interface Starts {
  rows: number[];
  columns: number[];
}

/**
 * The mean over heads of a block of a layer, pooled. Of numbers of both signs a cell shows the
 * larger in size: one of them, or the mean of the positive or of the negative ones.
 */
export function pooledMean(
  from: Rows,
  heads: readonly number[],
  starts: Starts,
  pooled: Pooled,
): Float32Array {
  const numRows = starts.rows.length - 1;
  const numColumns = starts.columns.length - 1;
  const out = new Float64Array(numRows * numColumns);
  const below = new Float64Array(numRows * numColumns);
  const left = starts.columns[0] as number;
  const line = new Float32Array((starts.columns[numColumns] as number) - left);
  for (let r = 0; r < numRows; r++) {
    const [top, bottom] = [starts.rows[r] as number, starts.rows[r + 1] as number];
    for (let row = top; row < bottom; row++) {
      line.fill(0);
      from.add(heads, row, left, line);
      for (let c = 0; c < numColumns; c++) {
        const begin = (starts.columns[c] as number) - left;
        const end = (starts.columns[c + 1] as number) - left;
        const cell = r * numColumns + c;
        let [over, under] = [out[cell] as number, below[cell] as number];
        for (let x = begin; x < end; x++) {
          const weight = line[x] as number;
          if (weight < 0) under = pooled === "max" ? Math.min(under, weight) : under + weight;
          else over = pooled === "max" ? Math.max(over, weight) : over + weight;
        }
        out[cell] = over;
        below[cell] = under;
      }
    }
    for (let c = 0; c < numColumns; c++) {
      const width = (starts.columns[c + 1] as number) - (starts.columns[c] as number);
      const cells = pooled === "max" ? 1 : (bottom - top) * width;
      const cell = r * numColumns + c;
      out[cell] = joined(out[cell] as number, below[cell] as number) / (cells * heads.length);
    }
  }
  return Float32Array.from(out);
}

/** Where runs of `each` begin within a range, and its end. */
export function runs([start, stop]: Range, each: number): number[] {
  const starts: number[] = [];
  for (let at = start; at < stop; at += each) starts.push(at);
  return [...starts, stop];
}

/** Where at most `most` parts of a range begin, as even as can be, and the end. */
export function parts([start, stop]: Range, most: number): number[] {
  const count = stop - start;
  const cells = Math.min(count, most);
  return Array.from({ length: cells + 1 }, (_, i) => start + Math.floor((i * count) / cells));
}
