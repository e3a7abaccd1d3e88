/** Heads of which the record has no weights, because it was told to keep others: in words. */

import { headsInWords } from "./captions";
import type { Place } from "./record";

/** "12 heads", or "2 of 12 heads, those kept". */
export function allInWords({ kept, numHeads }: Pick<Place, "kept" | "numHeads">): string {
  return kept.length < numHeads
    ? `${kept.length} of ${numHeads} heads, those kept`
    : `${numHeads} heads`;
}

/** What is said where chosen heads are not there, or "". */
export function absentInWords(
  place: Pick<Place, "layer" | "kept" | "numHeads" | "absent">,
): string {
  const { layer, kept, numHeads, absent } = place;
  if (absent.length === 0) return "";
  const others = absent.join(", ");
  if (kept.length === numHeads || absent.every((head) => head >= numHeads))
    return `Layer ${layer} has ${numHeads} heads: no head ${others}.`;
  return `Layer ${layer} was kept with ${headsInWords(kept)} of ${numHeads}: no head ${others}.`;
}

/** What lies between two heads that are offered side by side: "head 2", "heads 2 to 4", or "". */
export function between(before: number, head: number): string {
  const [first, last] = [before + 1, head - 1];
  if (first > last) return "";
  return first === last ? `head ${first}` : `heads ${first} to ${last}`;
}
