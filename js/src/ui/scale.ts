/** Ends of scales. */

/** The round number that a scale ends at: 0.1, 0.2, 0.25, 0.5 or 1 times a power of ten. */
export function niceMaximum(value: number): number {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  for (const factor of [1, 2, 2.5, 5, 10])
    if (value <= factor * power * 1.0001) return factor * power;
  return 10 * power;
}

/** How a scale's end is set: to the largest weight there can be, or to the largest shown. */
export type Scaling = "auto" | "whole" | "largest";

/** Weights are called small where none shown reaches this share of the maximum. */
const SMALL_SHARE = 0.4;

/** The weight that a scale ends at. */
export function scaleEnd(largest: number, maximum: number, scaling: Scaling): number {
  // Where all weights are small, nothing would be seen on the whole scale.
  const small = largest < SMALL_SHARE * maximum;
  const fitted = scaling === "largest" || (scaling === "auto" && small);
  return fitted && largest > 0 ? Math.min(niceMaximum(largest), maximum) : maximum;
}
