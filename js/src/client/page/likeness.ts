/**
 * Codes of blocks that a page computes from those of others, of which it holds the rest alone.
 *
 * `attnviz/pages/likeness.py` writes them and says how; both are held against
 * `tests/fixtures/likeness.json`.
 */

import { TOP_CODE, TOP_SIGNED_CODE } from "../codec";

/** The codes of a row of a head, and the weight of the highest code. */
export interface RowCodes {
  values: Uint8Array;
  maximum: number;
}

/** The code that one row of another stack gives, or two: of the second's weight less the first's. */
export function expectedCode(like: readonly RowCodes[], key: number, maximum: number): number {
  const [first, second] = like as [RowCodes, RowCodes?];
  const before = first.values[key] ?? 0;
  if (!second) return before;
  const after = second.values[key] ?? 0;
  // In this order, so that the bits are Python's.
  const change = after * after * second.maximum - before * before * first.maximum;
  const share = Math.min(Math.abs(change) / (TOP_CODE * TOP_CODE * maximum), 1);
  const code = Math.floor(Math.sqrt(share) * TOP_SIGNED_CODE + 0.5);
  return change < 0 ? -code : code;
}
