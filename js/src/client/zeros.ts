/**
 * Zeros of three kinds, in answers about a stack whose model chooses keys before the softmax
 * (`StackNumbers.chooses_keys`). The weight of a masked key is −0, and that of a key that was not
 * chosen is +0. The weight of a key that the softmax scored is above 0: if it was rounded to 0, it
 * is `SCORED_ZERO` instead. The sum of several zeros is −0 only if all keys are masked.
 * `attnviz/server/zeros.py` writes the same zeros.
 */

import type { StackDescription } from "./protocol";

/** Number in place of a scored weight that is rounded to 0. */
export const SCORED_ZERO = 2 ** -100;

/** Reason why the softmax did not score a key. */
export type Unscored = "masked" | "not chosen";

/** Return why the weight is 0, or null if the key was scored or the reason is not known. */
export function zeroInWords(
  { chooses_keys }: Pick<StackDescription, "chooses_keys">,
  weight: number,
): Unscored | null {
  if (!chooses_keys || weight !== 0) return null;
  return Object.is(weight, -0) ? "masked" : "not chosen";
}
