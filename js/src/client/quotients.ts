/**
 * How far weights may be off that were divided by what is kept of their row.
 *
 * A page knows each weight to lie between two numbers. A weight w whose row keeps r beside it is
 * shown as w / (w + r), which grows with w and falls with r: it lies between the quotient of the
 * least w with the most r and that of the most w with the least r.
 */

/** What is known of a row of one head. */
export interface RowRange {
  /** Each key's weight is at least the one and at most the other. */
  low: Float64Array;
  high: Float64Array;
  /** Keys, 1 where they are, that have so much together, at least and at most; null where none. */
  shared: { keys: Uint8Array; low: number; high: number } | null;
}

/** Finds what is known of a row; heads and queries are those of the answer that it came with. */
export type RangeOf = (row: number) => RowRange;

/** Numbers may have been rounded to the nearest of single precision, and their sums. */
const ROUNDED = 2e-6;

/** Of each key the least and the most weight, and of the kept keys beside it. */
interface Kept {
  low: Float64Array;
  high: Float64Array;
  othersLow: Float64Array;
  othersHigh: Float64Array;
}

function keptOf({ low, high, shared }: RowRange, isKept: (key: number) => boolean): Kept {
  const count = low.length;
  const isShared = (key: number): boolean => shared?.keys[key] === 1;
  let [least, most] = [0, 0];
  // Of what keys have together those that are not kept may have some.
  let [sharedLow, sharedHigh] = [shared?.low ?? 0, shared?.high ?? 0];
  let [keptLow, keptHigh] = [0, 0];
  for (let key = 0; key < count; key++) {
    const [from, to] = [low[key] as number, high[key] as number];
    if (!isShared(key)) {
      if (isKept(key)) {
        least += from;
        most += to;
      }
    } else if (isKept(key)) {
      keptLow += from;
      keptHigh += to;
    } else {
      sharedLow -= to;
      sharedHigh -= from;
    }
  }
  sharedLow = Math.max(keptLow, sharedLow);
  sharedHigh = Math.max(0, Math.min(keptHigh, sharedHigh));
  const othersLow = new Float64Array(count);
  const othersHigh = new Float64Array(count);
  for (let key = 0; key < count; key++) {
    if (!isKept(key)) continue;
    const [from, to] = [low[key] as number, high[key] as number];
    if (isShared(key)) {
      othersLow[key] = least + Math.max(0, sharedLow - to);
      othersHigh[key] = most + Math.max(0, sharedHigh - from);
    } else {
      othersLow[key] = Math.max(0, least - from) + sharedLow;
      othersHigh[key] = Math.max(0, most - to) + sharedHigh;
    }
  }
  return { low, high, othersLow, othersHigh };
}

function together(each: readonly Kept[], how: "mean" | "max", isKept: (key: number) => boolean) {
  const [first, ...more] = each as [Kept, ...Kept[]];
  if (more.length === 0) return first;
  const count = first.low.length;
  const of = (field: keyof Kept, put: (a: number, b: number) => number): Float64Array => {
    const out = first[field].slice();
    for (const next of more)
      for (let i = 0; i < count; i++) out[i] = put(out[i] as number, next[field][i] as number);
    return out;
  };
  const add = (a: number, b: number): number => a + b;
  if (how === "mean") {
    // The number of heads is in all of them, and in no quotient.
    const fields = ["low", "high", "othersLow", "othersHigh"] as const;
    const [low, high, othersLow, othersHigh] = fields.map((field) => of(field, add));
    return { low, high, othersLow, othersHigh } as Kept;
  }
  const [low, high] = [of("low", Math.max), of("high", Math.max)];
  let [least, most] = [0, 0];
  for (let key = 0; key < count; key++) {
    if (!isKept(key)) continue;
    least += low[key] as number;
    most += high[key] as number;
  }
  // The maxima of the other keys are at least any head's weights, and at most all heads' together.
  const [othersLow, othersHigh] = [of("othersLow", Math.max), of("othersHigh", add)];
  for (let key = 0; key < count; key++) {
    if (!isKept(key)) continue;
    othersLow[key] = Math.max(othersLow[key] as number, least - (low[key] as number));
    othersHigh[key] = Math.min(othersHigh[key] as number, most - (high[key] as number));
  }
  return { low, high, othersLow, othersHigh };
}

/** How far a key's share of what is kept of a row may be off. */
export type ErrorOf = (key: number, shown: number) => number;

/**
 * How far the weights of one row may be off that were divided by what is kept of it.
 *
 * @param ranges of the row in each head whose mean or maximum is shown.
 */
export function quotientErrors(
  ranges: readonly RowRange[],
  how: "mean" | "max",
  isKept: (key: number) => boolean,
): ErrorOf {
  const each = ranges.map((range) => keptOf(range, isKept));
  const { low, high, othersLow, othersHigh } = together(each, how, isKept);
  return (key, shown) => {
    if (!isKept(key)) return 0;
    const [from, to] = [low[key] as number, high[key] as number];
    const most = to > 0 ? to / (to + (othersLow[key] as number)) : 0;
    const least = from > 0 ? from / (from + (othersHigh[key] as number)) : 0;
    return Math.min(1, Math.max(most - shown, shown - least, 0) + ROUNDED * shown);
  };
}
