/** Marks of a head's cell and of its weights by offset. Pure functions. */

import { textMark } from "../../draw/figure";
import type { Mark } from "../../draw/marks";
import type { Palette } from "../../ui/colors/palette";
import { plainNumber } from "../../ui/text/captions";
import type { CellLook } from "./coloring";
import { WITH_LETTER, WITH_NUMBER } from "./layout";

/** Opacity of heads that are not highlighted. */
const DIM = 0.14;

/** Return a head's cell with its letter or number. Its top left corner is (x, y). */
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

/** Mean weights by offset of one head, for the bar chart. */
export interface Profile {
  /** Labels of all bins: "-64" to "64", "first", "rest". */
  labels: readonly string[];
  /** Mean weight of each bin. NaN if no pair has the offset. */
  weights: Float32Array;
  width: number;
  height: number;
  /** Drawn bins in order. */
  bins: number[];
  /** Weight at the upper end of the axis. */
  end: number;
  /** Largest drawn offset, or null if all are drawn. Bars beyond it would be invisible. */
  beyond: number | null;
}

/** Bars below `end / LEFT_OUT` are invisible. */
export const LEFT_OUT = 100;
const RANGES = [8, 16, 32];

/** Return the drawn bins: those with pairs, except distant ones whose bars would be invisible. */
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
  const seen = withPairs.filter((bin) => (weights[bin] as number) >= end / LEFT_OUT);
  const needed = Math.max(0, ...seen.map(sizeOf));
  const range =
    RANGES.find((candidate) => candidate >= needed && candidate < largestOffset) ?? null;
  return {
    bins: range === null ? withPairs : withPairs.filter((bin) => sizeOf(bin) <= range),
    beyond: range,
  };
}

export const PROFILE = { left: 34, right: 6, top: 8, bottom: 34 };
/** Pixels between the offsets and the bars of the first token and the rest. */
const APART = 10;
/** Maximum width of a bar. */
const MAX_BAR = 26;

/** Return the offset of a bin, or null for the first token and the rest. */
export function offsetOf(label: string | undefined): number | null {
  return label !== undefined && /^-?\d+$/.test(label) ? Number(label) : null;
}

/** Return the left edge of each drawn bar, and the width of the offsets' bars. */
export function barPositions({ labels, bins, width }: Profile): { x: number[]; bar: number } {
  const others = bins.filter((bin) => offsetOf(labels[bin]) === null).length;
  const room = width - PROFILE.left - PROFILE.right - APART * others;
  // The separate bars are wide enough for their names.
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

/** Return the width of the bar at an index of `profile.bins`. */
function barWidth(profile: Profile, i: number, bar: number): number {
  const others = profile.bins.filter((bin) => offsetOf(profile.labels[bin]) === null).length;
  const room = profile.width - PROFILE.left - PROFILE.right - APART * others;
  return offsetOf(profile.labels[profile.bins[i] ?? -1]) === null ? Math.min(30, room / 6) : bar;
}

/** Return the index in `profile.bins` of the bar at `x`, or -1. */
export function barAt(profile: Profile, x: number): number {
  const { x: left, bar } = barPositions(profile);
  return left.findIndex((start, i) => x >= start && x < start + barWidth(profile, i, bar));
}

/** Return the index in `profile.bins` of the offset nearest to `x`, or -1. */
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

/** Offsets that have labels if there is room, the smallest first. */
const LABELLED = [0, 1, 2, 4, 8, 16, 32, 64].flatMap((offset) =>
  offset === 0 ? [0] : [-offset, offset],
);
/** Minimum distance between the middles of labels. */
const LABEL_APART = 24;

/** Return the indices of the bars with labels. */
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
/** Maximum width of a character of the axis title, including figures of a stated width. */
const AXIS_SIGN = 6.4;

/** Return the axis title, in two lines if one would be too long. */
function axisLines({ beyond, end, width }: Profile): string[] {
  const words = "offset of the key from the query";
  if (beyond === null) return [words];
  const far = `beyond ${beyond}: less than ${plainNumber(end / LEFT_OUT)} each`;
  const one = `${words}; ${far}`;
  return one.length * AXIS_SIGN <= width - PROFILE.left ? [one] : [words, far];
}

export interface ProfileLook {
  palette: Palette;
  /** Colour of the bars. */
  color: string;
  /** Selected range of offsets. */
  brush: readonly [number, number] | null;
}

/** Return the bars with their axis and the brush. */
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
