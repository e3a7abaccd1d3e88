/** Pooling of numbers of both signs to one number, so that they never cancel. */

/** Return the number with the larger absolute value, or the first if they are equal. */
export function larger(a: number, b: number): number {
  return Math.abs(b) > Math.abs(a) ? b : a;
}

/** Return the number with the largest absolute value, or 0 for an empty array. */
export function largestOf(values: ArrayLike<number>): number {
  let largest = 0;
  for (let i = 0; i < values.length; i++) largest = larger(largest, values[i] as number);
  return largest;
}

/**
 * A pooled cell shows its negative sum only if that is larger by more than this share. Each row of a
 * difference sums to 0, so in a cell of whole rows rounding alone would decide the sign.
 */
const TIE_MARGIN = 1e-3;

/**
 * Return the value of a cell: the larger in size of its positive and its negative part.
 *
 * `attnviz/server/pooling.py` does the same for a live view. Tests of both read
 * `tests/fixtures/tiles.json`.
 */
export function cellValue(positive: number, negative: number): number {
  return -negative > positive * (1 + TIE_MARGIN) ? negative : positive;
}

/** Pool the numbers of a cell. */
export function pool(values: ArrayLike<number>, how: "mean" | "max"): number {
  let [positive, negative] = [0, 0];
  for (let i = 0; i < values.length; i++) {
    const value = values[i] as number;
    if (how === "max")
      [positive, negative] = [Math.max(positive, value), Math.min(negative, value)];
    else if (value < 0) negative += value;
    else positive += value;
  }
  return cellValue(positive, negative) / (how === "mean" ? values.length || 1 : 1);
}
