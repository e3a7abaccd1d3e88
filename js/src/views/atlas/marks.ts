/**
 * Marks of a head's cell and of its bar chart of weights by offset. Pure functions.
 *
 * The chart has one bar per bin. A bin is an offset, the first token ("first"), or all keys with
 * larger offsets ("rest"). The last two bins are drawn apart, on the right.
 */

import { textMark } from "../../draw/figure";
import type { Mark } from "../../draw/marks";
import type { Palette } from "../../ui/colors/palette";
import { plainNumber } from "../../ui/text/captions";
import type { CellLook } from "./coloring";
import { WITH_LETTER, WITH_NUMBER } from "./layout";

/** Opacity of the heads that are not highlighted, while others are. */
const DIM = 0.14;

/** Return the marks of a head's cell, with its top left corner at (x, y). */
export function cellMarks(
  look: CellLook,
  x: number,
  y: number,
  cell: number,
  palette: Palette,
  dim = false,
): Mark[] {
  const { fill, ink, sign } = look;
  const opacity = dim ? DIM : 1;
  const bounds = { x, y, width: cell, height: cell, radius: cell < 14 ? 0 : 2 };
  const marks: Mark[] = [
    fill === null
      ? { kind: "rect", ...bounds, stroke: palette.rule, opacity }
      : { kind: "rect", ...bounds, fill, opacity },
  ];
  const room = sign.length === 1 ? WITH_LETTER : WITH_NUMBER;
  if (cell >= room && sign !== "" && !dim) {
    const size = sign.length === 1 ? Math.min(13, cell - 1) : sign.length > 3 ? 9 : 10.5;
    marks.push(textMark(sign, x + cell / 2, y + cell / 2 + 0.5, ink, size, { align: "middle" }));
  }
  return marks;
}

/** Data of the bar chart: mean weights by offset of one head. */
export interface Profile {
  /** Labels of all bins: "-64" to "64", "first", "rest". */
  labels: readonly string[];
  /** Mean weight of each bin. NaN if no query-key pair is in the bin. */
  weights: Float32Array;
  width: number;
  height: number;
  /** Indices in `labels` of the drawn bins, ascending. */
  bins: number[];
  /** Weight at the upper end of the vertical axis. */
  end: number;
  /**
   * Largest absolute value of the drawn offsets, or null if all offsets are drawn. The bars of
   * larger offsets would be invisible.
   */
  beyond: number | null;
}

/** Bars are invisible if their weight is less than `end / INVISIBLE_DIVISOR`. */
export const INVISIBLE_DIVISOR = 100;
/** Possible values of `Profile.beyond`. */
const RANGES = [8, 16, 32];

/**
 * Select the bins to draw. Bins without query-key pairs are omitted. Offsets beyond a distance of
 * 8, 16 or 32 are omitted if all of their bars would be invisible.
 */
export function drawnBins(
  labels: readonly string[],
  weights: Float32Array,
  end: number,
): Pick<Profile, "bins" | "beyond"> {
  const withPairs = labels
    .map((_, bin) => bin)
    .filter((bin) => !Number.isNaN(weights[bin] as number));
  const sizeOf = (bin: number): number => Math.abs(offsetOf(labels[bin]) ?? 0);
  const largestOffset = Math.max(0, ...withPairs.map(sizeOf));
  const seen = withPairs.filter((bin) => (weights[bin] as number) >= end / INVISIBLE_DIVISOR);
  const needed = Math.max(0, ...seen.map(sizeOf));
  const range =
    RANGES.find((candidate) => candidate >= needed && candidate < largestOffset) ?? null;
  return {
    bins: range === null ? withPairs : withPairs.filter((bin) => sizeOf(bin) <= range),
    beyond: range,
  };
}

export const PROFILE = { left: 34, right: 6, top: 8, bottom: 34 };
/** Pixels to the left of the bars "first" and "rest", which separate them from the others. */
const APART = 10;
/** Maximum width in pixels of the bar of an offset. */
const MAX_BAR = 26;

/** Return the offset of a bin's label, or null for "first" and "rest". */
export function offsetOf(label: string | undefined): number | null {
  return label !== undefined && /^-?\d+$/.test(label) ? Number(label) : null;
}

/** Return the left edges of all drawn bars, and the width of the bars of offsets. */
export function barPositions({ labels, bins, width }: Profile): { x: number[]; bar: number } {
  const others = bins.filter((bin) => offsetOf(labels[bin]) === null).length;
  const room = width - PROFILE.left - PROFILE.right - APART * others;
  // The bars "first" and "rest" are wide enough for these labels.
  const wide = others > 0 ? Math.min(30, room / 6) : 0;
  const count = bins.length - others;
  const bar = Math.min(MAX_BAR, (room - others * wide) / Math.max(1, count));
  let at = PROFILE.left;
  const x = bins.map((bin) => {
    const apart = offsetOf(labels[bin]) === null;
    const left = at + (apart ? APART : 0);
    at = left + (apart ? wide : bar);
    return left;
  });
  return { x, bar };
}

/** Return the width of the bar of `profile.bins[i]`. `bar` is the width of an offset's bar. */
function barWidth(profile: Profile, i: number, bar: number): number {
  const others = profile.bins.filter((bin) => offsetOf(profile.labels[bin]) === null).length;
  const room = profile.width - PROFILE.left - PROFILE.right - APART * others;
  return offsetOf(profile.labels[profile.bins[i] ?? -1]) === null ? Math.min(30, room / 6) : bar;
}

/** Return the index in `profile.bins` of the bar that contains `x`, or -1. */
export function barAt(profile: Profile, x: number): number {
  const { x: left, bar } = barPositions(profile);
  return left.findIndex((start, i) => x >= start && x < start + barWidth(profile, i, bar));
}

/** Return the index in `profile.bins` of the offset whose bar is nearest to `x`, or -1. */
export function nearestOffset(profile: Profile, x: number): number {
  const { x: left, bar } = barPositions(profile);
  const away = left.map((start) => Math.abs(start + bar / 2 - x));
  let best = -1;
  profile.bins.forEach((bin, i) => {
    if (offsetOf(profile.labels[bin]) === null) return;
    if (best < 0 || (away[i] as number) < (away[best] as number)) best = i;
  });
  return best;
}

/** Offsets that get a label if there is room. Labels are placed in this order. */
const LABELLED = [0, 1, 2, 4, 8, 16, 32, 64].flatMap((offset) =>
  offset === 0 ? [0] : [-offset, offset],
);
/** Minimum distance in pixels between the middles of two labels. */
const LABEL_APART = 24;

/** Return the indices in `bins` of the offsets that get a label. */
function labelledBins({ labels, bins }: Profile, middles: readonly number[]): Set<number> {
  const chosen = new Set<number>();
  for (const offset of LABELLED) {
    const at = bins.findIndex((bin) => offsetOf(labels[bin]) === offset);
    if (at < 0) continue;
    const middle = middles[at] as number;
    const free = [...chosen].every(
      (other) => Math.abs((middles[other] as number) - middle) >= LABEL_APART,
    );
    if (free) chosen.add(at);
  }
  return chosen;
}

const AXIS_LINE = 13;
/** Maximum width in pixels of a character of the axis title, in the view and in figures. */
const AXIS_SIGN = 6.4;

/** Return the lines of the axis title: two if a single line would be too long. */
function axisLines({ beyond, end, width }: Profile): string[] {
  const words = "offset of the key from the query";
  if (beyond === null) return [words];
  const far = `beyond ${beyond}: less than ${plainNumber(end / INVISIBLE_DIVISOR)} each`;
  const one = `${words}; ${far}`;
  return one.length * AXIS_SIGN <= width - PROFILE.left ? [one] : [words, far];
}

export interface ProfileLook {
  palette: Palette;
  /** Colour of the bars. */
  color: string;
  /** Selected range of offsets, inclusive, or null without a selection. */
  brush: readonly [number, number] | null;
}

/** Return the marks of the bar chart: the brush, the axes and the bars. */
export function profileMarks(profile: Profile, { palette, color, brush }: ProfileLook): Mark[] {
  const { labels, weights, bins, width, height, end } = profile;
  const { x, bar } = barPositions(profile);
  const base = height - PROFILE.bottom - (axisLines(profile).length - 1) * AXIS_LINE;
  const tall = base - PROFILE.top;
  const marks: Mark[] = [];
  const inBrush = (offset: number | null): boolean =>
    brush === null || (offset !== null && offset >= brush[0] && offset <= brush[1]);
  const brushed = bins
    .map((bin, i) => ({ offset: offsetOf(labels[bin]), i }))
    .filter(({ offset }) => brush !== null && offset !== null && inBrush(offset));
  const [first, last] = [brushed[0], brushed.at(-1)];
  if (first && last) {
    const left = x[first.i] as number;
    const right = (x[last.i] as number) + bar;
    const bounds = { x: left, y: PROFILE.top - 4, width: right - left, height: tall + 4 };
    marks.push({ kind: "rect", ...bounds, fill: palette.searchMatch, opacity: 0.7 });
    marks.push({ kind: "rect", ...bounds, stroke: palette.ink, strokeWidth: 1 });
  }
  for (const share of [0, 0.5, 1]) {
    const y = base - share * tall;
    const line = { x0: PROFILE.left, y0: y, x1: width - PROFILE.right, y1: y };
    marks.push({ kind: "line", ...line, stroke: palette.rule });
    marks.push(
      textMark(plainNumber(share * end), PROFILE.left - 5, y, palette.muted, 10, { align: "end" }),
    );
  }
  const middles = bins.map((_, i) => (x[i] as number) + barWidth(profile, i, bar) / 2);
  const labelled = labelledBins(profile, middles);
  bins.forEach((bin, i) => {
    const weight = weights[bin] as number;
    const offset = offsetOf(labels[bin]);
    const wide = barWidth(profile, i, bar);
    const share = Math.min(1, Math.max(0, weight / end));
    const gap = wide > 4 ? 1 : 0;
    const bounds = { x: (x[i] as number) + gap / 2, y: base - share * tall, width: wide - gap };
    marks.push({
      kind: "rect",
      ...bounds,
      height: share * tall,
      fill: offset === null ? palette.neutral : color,
      opacity: inBrush(offset) ? 1 : 0.3,
      meaning: { bin },
    });
    if (offset !== null && !labelled.has(i)) return;
    const text = (labels[bin] ?? "").replace("-", "−");
    const more = { align: "middle" } as const;
    marks.push(textMark(text, middles[i] as number, base + 11, palette.muted, 10, more));
  });
  axisLines(profile).forEach((words, line) => {
    const [middle, y] = [(PROFILE.left + width) / 2, base + 26 + line * AXIS_LINE];
    marks.push(textMark(words, middle, y, palette.muted, 10.5, { align: "middle" }));
  });
  return marks;
}
