/**
 * Scale that the bars of all weights of a text have in common: its end, its axis, and the break in
 * longer bars. All functions are pure.
 */

import type { Mark } from "../../draw/marks";
import type { Palette } from "../colors/palette";
import { roundedUp } from "../exports/csv";
import { plainNumber } from "../text/captions";

/** Up to this many keys, a full bar is the largest possible number. */
const MANY_KEYS = 100;
const LABEL_SIZE = 10;
/** Height of the axis below horizontal bars, in pixels. */
export const AXIS_HEIGHT = 16;
/**
 * Minimum distance in pixels between 0 and the end of an axis that leaves room for "0" beside the
 * number at the end, for horizontal and vertical bars.
 */
const MIN_LENGTH_WITH_ZERO = { lying: 22, standing: 12 };
/** Minimum distance in pixels from 0 to both ends at which centred numbers do not touch. */
const MIN_LENGTH_CENTRED = 17;

/**
 * Return the value of a full bar. It depends only on the stack and the number of keys, so bars of
 * all layers, heads and tokens can be compared.
 *
 * The weights of a query sum to 1, so weights are small if there are many keys. With more than 100
 * keys, a full bar is therefore 100 times the uniform weight, and longer bars have a break. The
 * value is rounded up to one significant digit.
 *
 * @param maximum the largest possible number of the stack, which is 1 for weights.
 */
export function barEnd(maximum: number, numKeys: number): number {
  return roundedUp(maximum * Math.min(1, MANY_KEYS / Math.max(1, numKeys))) || 1;
}

/**
 * Return the length of a bar in pixels. A full bar has the length `full`. A value other than 0 is
 * always visible.
 */
export function barLength(value: number, end: number, full: number): number {
  return value === 0 ? 0 : Math.min(full, Math.max(0.75, (Math.abs(value) / end) * full));
}

/** Bar from a zero line. A positive `length` extends to the right or, if `standing`, down. */
interface Bar {
  zero: number;
  length: number;
  /** Start and size of the bar across its length. For a horizontal bar, these are vertical. */
  from: number;
  thick: number;
  standing?: boolean;
}

/**
 * Return the mark of a break if the value of a bar exceeds the end of the scale. Otherwise return
 * no marks.
 */
export function breakMarks(bar: Bar, value: number, end: number, palette: Palette): Mark[] {
  if (Math.abs(value) <= end * 1.0001) return [];
  const { from, thick, standing } = bar;
  const at = bar.zero + 0.8 * bar.length;
  const [near, far] = [from - 1, from + thick + 1];
  const gap = { kind: "line", stroke: palette.background, strokeWidth: 2.5 } as const;
  return standing
    ? [{ ...gap, x0: near, y0: at + 2, x1: far, y1: at - 2 }]
    : [{ ...gap, x0: at + 2, y0: near, x1: at - 2, y1: far }];
}

/**
 * Axis of bars. Its 0 is at (x, y). The absolute value of `reach` is its length, and the sign of
 * `reach` is its direction.
 */
interface Axis {
  x: number;
  y: number;
  reach: number;
  /** Whether the bars are vertical. The numbers of the axis are then to its left. */
  standing?: boolean;
  /**
   * "both" if bars extend in both directions from zero, "hollow" if bars of negative values are
   * hollow. Undefined if all values are positive.
   */
  signs?: "both" | "hollow" | undefined;
}

/** Return the marks of an axis with the numbers at its ends. */
export function axisMarks(axis: Axis, end: number, palette: Palette): Mark[] {
  const { x, y, reach, standing = false, signs } = axis;
  const both = signs === "both";
  const size = Math.abs(reach);
  const number = plainNumber(end);
  const ends = both
    ? ([
        [-1, standing ? `+${number}` : `−${number}`],
        [1, standing ? `−${number}` : `+${number}`],
      ] as const)
    : ([[Math.sign(reach), signs ? `±${number}` : number]] as const);
  const withZero = size >= MIN_LENGTH_WITH_ZERO[standing ? "standing" : "lying"];
  const outwards = both && size < MIN_LENGTH_CENTRED;
  const first = both ? -size : 0;
  const label = (text: string, side: number): Mark => ({
    kind: "text",
    text,
    x: standing ? x - 4 : outwards ? x + 2 * side : x + side * size,
    y: standing ? y + side * size : y + 8,
    fill: palette.muted,
    size: LABEL_SIZE,
    font: "text",
    align: standing ? "end" : outwards ? (side < 0 ? "end" : "start") : "middle",
  });
  const line = { kind: "line", stroke: palette.muted } as const;
  const along = both ? size : reach;
  return [
    standing
      ? { ...line, x0: x, y0: y + first, x1: x, y1: y + along }
      : { ...line, x0: x + first, y0: y, x1: x + along, y1: y },
    ...(withZero ? [label("0", 0)] : []),
    ...ends.map(([side, text]) => label(text, side)),
  ];
}
