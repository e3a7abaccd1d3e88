/** Pooling of numbers of both signs to one number, so that they never cancel. */

/** Return the number with the larger absolute value, or the first if they are equal. */
export function larger(a: number, b: number): number {
  return Math.abs(b) > Math.abs(a) ? b : a;
}

/** Return the number with the largest absolute value, or 0 if there are no numbers. */
export function largestOf(values: ArrayLike<number>): number {
  let most = 0;
  for (let i = 0; i < values.length; i++) most = larger(most, values[i] as number);
  return most;
}

/**
 * A pooled cell shows its negative sum only if that is larger by more than this share. Each row of a
 * difference sums to 0, so in a cell of whole rows rounding alone would decide the sign.
 */
const TIE = 1e-3;

/**
 * Return the value of a cell: the larger in size of its positive and its negative part.
 *
 * `attnviz/server/pooling.py` does the same for a live view. Tests of both read
 * `tests/fixtures/tiles.json`.
 */
export function joined(above: number, below: number): number {
  return -below > above * (1 + TIE) ? below : above;
}

/** Pool the numbers of a cell. */
export function pooled(values: ArrayLike<number>, how: "mean" | "max"): number {
  let [above, below] = [0, 0];
  for (let i = 0; i < values.length; i++) {
    const value = values[i] as number;
    if (how === "max") [above, below] = [Math.max(above, value), Math.min(below, value)];
    else if (value < 0) below += value;
    else above += value;
  }
  return joined(above, below) / (how === "mean" ? values.length || 1 : 1);
}
