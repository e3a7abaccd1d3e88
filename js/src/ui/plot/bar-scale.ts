/** The one scale that all bars of a text's numbers have: its end, its axis, and longer bars. Pure functions. */

import type { Mark } from "../../draw/marks";
import type { Palette } from "../colors/palette";
import { roundedUp } from "../exports/csv";
import { plainNumber } from "../text/captions";

/** Keys up to which bars end at the largest number that there can be. */
const MANY_KEYS = 100;
const LABEL_SIZE = 10;
/** The height that an axis takes below lying bars. */
export const AXIS_HEIGHT = 16;
/** On a shorter axis there is no room for "0" beside its end. */
const LEAST_WITH_ZERO = { lying: 22, standing: 12 };
/** On a shorter axis the numbers of its two ends would touch. */
const LEAST_CENTRED = 17;

/**
 * The number that a full bar stands for. It depends on the text alone, so that bars of all layers, heads and
 * tokens compare. A query's weight is shared among its keys: of many keys a bar ends at a hundred
 * times a uniform share, and the few that would be longer are broken. Ends are rounded up to one digit.
 *
 * @param maximum the largest number of the stack: 1 for weights.
 */
export function barEnd(maximum: number, numKeys: number): number {
  return roundedUp(maximum * Math.min(1, MANY_KEYS / Math.max(1, numKeys))) || 1;
}

/** The pixels of a bar, of which a full one has `full`. What is not zero is seen. */
export function barLength(value: number, end: number, full: number): number {
  return value === 0 ? 0 : Math.min(full, Math.max(0.75, (Math.abs(value) / end) * full));
}

/** A bar from a zero line: `length` goes right, or down where it stands; a negative one the other way. */
interface Bar {
  zero: number;
  length: number;
  /** Across: where it begins, and how thick it is. */
  from: number;
  thick: number;
  standing?: boolean;
}

/** The gap in a bar that would be longer than the scale; nothing for others. */
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

/** Where an axis of bars lies: its zero, and how far it goes from there, with a sign as bars have it. */
interface Axis {
  x: number;
  y: number;
  reach: number;
  /** Its bars stand, and its numbers are left of it. */
  standing?: boolean;
  /** Bars go both ways from zero, or are hollow below it. */
  signs?: "both" | "hollow" | undefined;
}

/** The axis of bars, with the numbers at its ends. */
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
  const withZero = size >= LEAST_WITH_ZERO[standing ? "standing" : "lying"];
  const outwards = both && size < LEAST_CENTRED;
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
