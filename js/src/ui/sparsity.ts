/** Exact zeros among given weights, in words: those of sparse attention, which no mask explains. */

import { formatShare, headsInWords } from "./captions";
import type { Place } from "./record";

/** "61% of head 3's weights are exactly 0.", or "" where none is. */
export function zerosInWords(place: Pick<Place, "stack" | "layer" | "heads">): string {
  const { stack, layer, heads } = place;
  // The kernel counts: a byte that is 0 may stand for a weight that was only small.
  const counts = stack.zeros?.[stack.layers.indexOf(layer)];
  let zeros = 0;
  let counted = 0;
  for (const head of heads) {
    const [ofHead = 0, amongHead = 0] = counts?.[head] ?? [];
    zeros += ofHead;
    counted += amongHead;
  }
  if (zeros === 0) return "";
  const numKeys = (stack.key_tokens ?? stack.query_tokens).text.length;
  const pairs = heads.length * stack.query_tokens.text.length * numKeys;
  const masked = counted < pairs ? ", masked pairs not counted" : "";
  const whose =
    heads.length === 1 ? `head ${heads[0]}'s weights` : `the weights of ${headsInWords(heads)}`;
  return `${formatShare(zeros / counted)} of ${whose} are exactly 0${masked}.`;
}
