/** Numbers of both signs: which of two stands for both, so that they never cancel. Pure functions. */

/** The one that is larger in size, with its sign: the first of two that are as large. */
export function larger(a: number, b: number): number {
  return Math.abs(b) > Math.abs(a) ? b : a;
}

/** The largest in size of many numbers, with its sign; 0 of none. */
export function largestOf(values: ArrayLike<number>): number {
  let most = 0;
  for (let i = 0; i < values.length; i++) most = larger(most, values[i] as number);
  return most;
}

/**
 * Negative numbers are shown where they are larger by more than this share. Each row of a difference
 * sums to 0: in a cell that has whole rows, rounding would say which are larger.
 */
const TIE = 1e-3;

/**
 * What a cell shows of numbers that were pooled by their signs, the larger in size.
 *
 * `attnviz/server/pooling.py` does the same for a live view; both are held against
 * `tests/fixtures/tiles.json`.
 */
export function joined(above: number, below: number): number {
  return -below > above * (1 + TIE) ? below : above;
}

/** The numbers of a cell, pooled. */
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
