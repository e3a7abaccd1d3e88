/** Numbers of both signs: which of two stands for both, so that they never cancel. Pure functions. */

/** The one that is larger in size, with its sign; of two as large the positive one. */
export function larger(a: number, b: number): number {
  const [one, other] = [Math.abs(a), Math.abs(b)];
  return one > other || (one === other && a > b) ? a : b;
}

/** The largest in size of many numbers, with its sign; 0 of none. */
export function largestOf(values: ArrayLike<number>): number {
  let most = 0;
  for (let i = 0; i < values.length; i++) most = larger(values[i] as number, most);
  return most;
}

/** The mean of the positive parts of numbers, or minus that of the negative ones' sizes. */
export function meanOf(values: ArrayLike<number>, count = values.length): number {
  let [above, below] = [0, 0];
  for (let i = 0; i < values.length; i++) {
    const value = values[i] as number;
    if (value < 0) below += value;
    else above += value;
  }
  return larger(above, below) / (count || 1);
}
