/**
 * Marks (shapes to draw) of a head's cell in the grid, and of the bar chart of its mean weights by
 * offset. Pure functions. An offset is the position of the key minus the position of the query.
 *
 * The chart has one bar per bin. A bin is an offset from -64 to 64, the first token of the text
 * ("first"), or all keys without another bin ("rest"). The last two bins are drawn apart, on the
 * right. The weight on the first token counts only in "first".
 */

import { textMark } from "../../draw/figure";
import type { Mark } from "../../draw/marks";
import { niceMaximum } from "../../ui/colors/color-scales";
import type { Palette } from "../../ui/colors/palette";
import type { ScoredHead } from "../../ui/head-grid/grid";
import type { Square } from "../../ui/head-grid/marks";
import { plainNumber } from "../../ui/text/captions";
import { sortedValue } from "./captions";
import type { CellLook } from "./coloring";
import { WITH_NUMBER } from "./layout";

/**
 * Return the marks of a head: its cell and, if `below` is positive, its number and the score that
 * orders the heads below the cell.
 */
export function headMarks(
  head: ScoredHead,
  { fill, ink, sign }: CellLook,
  { x, y, side: cell }: Square,
  below: number,
  palette: Palette,
): Mark[] {
  const look = fill === null ? { stroke: palette.rule } : { fill };
  const bounds = { x, y, width: cell, height: cell, radius: cell < 14 ? 0 : 2 };
  const marks: Mark[] = [{ kind: "rect", ...bounds, ...look }];
  // A single letter fits into every cell. Longer signs need a larger cell.
  if (sign !== "" && (sign.length === 1 || cell >= WITH_NUMBER)) {
    const size = sign.length === 1 ? Math.min(13, cell - 1) : sign.length > 3 ? 9 : 10.5;
    marks.push(textMark(sign, x + cell / 2, y + cell / 2 + 0.5, ink, size, { align: "middle" }));
  }
  const caption = (text: string, down: number, color: string): Mark =>
    textMark(text, x + cell / 2, y + cell + down, color, 10.5, { align: "middle" });
  if (below > 0) {
    marks.push(caption(`${head.layer}.${head.head}`, 8, palette.muted));
    marks.push(caption(sortedValue(head), 20, palette.ink));
  }
  return marks;
}

/** Bar with the mean weight of a bin. */
export interface OffsetBar {
  /** Label of the bin: "-64" to "64", "first", or "rest". */
  label: string;
  /** Offset of the bin, or null for "first" and "rest". */
  offset: number | null;
  weight: number;
  /** Left edge and width in pixels. */
  x: number;
  width: number;
}

/** Bar chart of the mean weights by offset of one head. */
export interface Profile {
  width: number;
  height: number;
  /** Drawn bars from left to right. */
  bars: OffsetBar[];
  /** Weight at the upper end of the vertical axis. */
  end: number;
  /**
   * Largest absolute value of the drawn offsets, or null if all offsets are drawn. Larger offsets
   * are omitted if their bars would be invisible.
   */
  beyond: number | null;
}

const HEIGHT = 170;
/** Bars are invisible if their weight is less than `end / INVISIBLE_DIVISOR`. */
const INVISIBLE_DIVISOR = 100;
/** Possible values of `Profile.beyond`. */
const RANGES = [8, 16, 32];
const EDGE = { left: 34, right: 6, top: 8, bottom: 34 };
/** Width in pixels of the gap to the left of each of the bars "first" and "rest". */
const APART = 10;
/** Maximum width in pixels of the bar of an offset. */
const MAX_BAR = 26;
/** Maximum width in pixels of the bars "first" and "rest", in which their labels fit. */
const MAX_APART_BAR = 30;

/**
 * Return the bar chart of a head. Bins without query-key pairs, whose weight is NaN, are omitted.
 * Offsets beyond a distance of 8, 16 or 32 are omitted if all of their bars would be invisible.
 */
export function layOutProfile(
  labels: readonly string[],
  weights: Float32Array,
  width: number,
): Profile {
  const withPairs = labels
    .map((label, bin) => ({
      label,
      offset: /^-?\d+$/.test(label) ? Number(label) : null,
      weight: weights[bin] as number,
    }))
    .filter(({ weight }) => !Number.isNaN(weight));
  const end = niceMaximum(Math.max(0, ...withPairs.map(({ weight }) => weight)));
  const largest = (bins: typeof withPairs): number =>
    Math.max(0, ...bins.map(({ offset }) => Math.abs(offset ?? 0)));
  const largestOffset = largest(withPairs);
  const needed = largest(withPairs.filter(({ weight }) => weight >= end / INVISIBLE_DIVISOR));
  const beyond =
    RANGES.find((candidate) => candidate >= needed && candidate < largestOffset) ?? null;
  const drawn = withPairs.filter(
    ({ offset }) => Math.abs(offset ?? 0) <= (beyond ?? largestOffset),
  );

  const numApart = drawn.filter(({ offset }) => offset === null).length;
  const room = width - EDGE.left - EDGE.right - APART * numApart;
  const apart = Math.min(MAX_APART_BAR, room / 6);
  const rest = room - numApart * apart;
  const bar = Math.min(MAX_BAR, rest / Math.max(1, drawn.length - numApart));
  let right = EDGE.left;
  const bars = drawn.map((bin): OffsetBar => {
    const x = right + (bin.offset === null ? APART : 0);
    const barWidth = bin.offset === null ? apart : bar;
    right = x + barWidth;
    return { ...bin, x, width: barWidth };
  });
  return { width, height: HEIGHT, bars, end, beyond };
}

/** Return the index of the bar that contains `x`, or -1. */
export function barAt({ bars }: Profile, x: number): number {
  return bars.findIndex((bar) => x >= bar.x && x < bar.x + bar.width);
}

function middleOf(bar: OffsetBar): number {
  return bar.x + bar.width / 2;
}

/** Offsets that get a label if there is room. Labels are placed in this order. */
const LABELLED = [0, ...[1, 2, 4, 8, 16, 32, 64].flatMap((offset) => [-offset, offset])];
/** Minimum distance in pixels between the middles of two labels. */
const LABEL_APART = 24;

/** Return the bars that get a label: "first", "rest", and the labelled offsets that have room. */
function labelledBars({ bars }: Profile): OffsetBar[] {
  const chosen: OffsetBar[] = [];
  for (const bar of LABELLED.flatMap((offset) => bars.filter((bar) => bar.offset === offset))) {
    const isApart = (other: OffsetBar) => Math.abs(middleOf(other) - middleOf(bar)) >= LABEL_APART;
    if (chosen.every(isApart)) chosen.push(bar);
  }
  return bars.filter((bar) => bar.offset === null || chosen.includes(bar));
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
  return one.length * AXIS_SIGN <= width - EDGE.left ? [one] : [words, far];
}

/** Return the marks of the bar chart: the axes and the bars. */
export function profileMarks(profile: Profile, palette: Palette): Mark[] {
  const { bars, width, height, end } = profile;
  const title = axisLines(profile);
  const base = height - EDGE.bottom - (title.length - 1) * AXIS_LINE;
  const tall = base - EDGE.top;
  const marks: Mark[] = [];
  for (const share of [0, 0.5, 1]) {
    const y = base - share * tall;
    const line = { x0: EDGE.left, y0: y, x1: width - EDGE.right, y1: y };
    marks.push({ kind: "line", ...line, stroke: palette.rule });
    const number = plainNumber(share * end);
    marks.push(textMark(number, EDGE.left - 5, y, palette.muted, 10, { align: "end" }));
  }
  for (const bar of bars) {
    const share = Math.min(1, Math.max(0, bar.weight / end));
    const gap = bar.width > 4 ? 1 : 0;
    marks.push({
      kind: "rect",
      ...{ x: bar.x + gap / 2, y: base - share * tall, width: bar.width - gap },
      height: share * tall,
      fill: bar.offset === null ? palette.neutral : palette.positive,
    });
  }
  const label = (text: string, x: number, y: number, size: number): Mark =>
    textMark(text, x, y, palette.muted, size, { align: "middle" });
  return [
    ...marks,
    ...labelledBars(profile).map((bar) =>
      label(bar.label.replace("-", "−"), middleOf(bar), base + 11, 10),
    ),
    ...title.map((words, line) =>
      label(words, (EDGE.left + width) / 2, base + 26 + line * AXIS_LINE, 10.5),
    ),
  ];
}
