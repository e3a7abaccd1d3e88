/**
 * Pooling of positive and negative numbers, such as differences of weights. A cell is a rectangle
 * of a matrix whose numbers are pooled to one number. Positive and negative numbers of a cell are
 * pooled separately, because they would cancel in a sum.
 */

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
 * A cell shows its pooled negative numbers only if they exceed the positive ones in absolute value
 * by this share. Each row of a difference of weights sums to 0, so in a cell of complete rows the
 * sums of positive and of negative numbers have the same absolute value. Without this margin,
 * rounding would decide the sign of the cell.
 */
const TIE_MARGIN = 1e-3;

/**
 * Return the value of a cell: its pooled negative numbers if their absolute value exceeds that of
 * the pooled positive numbers by more than `TIE_MARGIN`, otherwise its pooled positive numbers.
 *
 * For a live view, `attnviz/record/pooling.py` computes the same. The tests of both modules read
 * `tests/fixtures/reads.json`.
 */
export function cellValue(positive: number, negative: number): number {
  return -negative > positive * (1 + TIE_MARGIN) ? negative : positive;
}

/**
 * Pool the numbers of a cell. Positive and negative numbers are pooled separately, and `cellValue`
 * chooses one of the results. With "mean", a result is a sum divided by the number of all `values`.
 */
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

/**
 * Combine the weights of several heads, element by element. "mean" returns the mean. "max" returns
 * the element with the largest absolute value, with its sign.
 */
export function combineHeads(heads: readonly Float32Array[], how: "mean" | "max"): Float32Array {
  // Start at −0. The result is then −0 only if the weights of all heads are −0 (see `zeros.ts`).
  const combined = new Float64Array(heads[0]?.length ?? 0).fill(-0);
  const result = new Float32Array(combined.length);
  if (how === "max") {
    for (const weights of heads) {
      for (let i = 0; i < combined.length; i++) {
        const [before, weight] = [combined[i] as number, weights[i] as number];
        combined[i] = before === 0 ? before + weight : larger(before, weight);
      }
    }
    result.set(combined);
    return result;
  }
  // A page runs these loops before its first picture, so they do nothing else.
  for (const weights of heads)
    for (let i = 0; i < combined.length; i++) (combined[i] as number) += weights[i] as number;
  for (let i = 0; i < combined.length; i++) result[i] = (combined[i] as number) / heads.length;
  return result;
}
