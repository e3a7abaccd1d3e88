/**
 * Bars of numbers along tokens, with their zero line, axis and numbers. The head view, the heat map
 * and the neuron view draw bars of weights with this file. Bars of effects use only `barMarks`.
 *
 * A full bar is the longest bar of a scale. It stands for its value and for all larger numbers.
 * Bars are lying (horizontal) or standing (vertical). Positions and sizes are stated for lying
 * bars. For standing bars, x is y and y is x, so "left" means "top".
 */

import { measureText } from "../../draw/canvas";
import { textMark } from "../../draw/figure";
import { fontOf, type Mark, type RectMark, transposed } from "../../draw/marks";
import type { Palette } from "../colors/palette";
import { isTiny, plainNumber, type Quantity, written } from "../text/captions";
import { roundedUp } from "../text/csv";

/**
 * Up to this many keys, the value of a full bar is the largest number that a stack can contain,
 * which is 1 for weights. With more keys, it is smaller (see `barEnd`).
 */
const MANY_KEYS = 100;
const LABEL_SIZE = 10;
/** Height of the axis below lying bars, in pixels. */
export const AXIS_HEIGHT = 16;
/** Smallest gap between the label "0" and the label at the end of an axis, in pixels. */
const LABELS_APART = 1;
/**
 * Minimum length of a full bar, in pixels, for which the labels of an axis with negative and
 * positive numbers are centred at its two ends. On a shorter axis, they would touch. They are then
 * written beside 0, the negative one on its left and the positive one on its right.
 */
const MIN_LENGTH_CENTRED = 17;
/** Pixels by which the numbers of standing bars may extend beyond the end of their zero line. */
const BEYOND_LINE = 6;
/** Smallest gap between the numbers of standing bars, in pixels. */
export const NUMBERS_APART = 4;
/** Font size in pixels of the numbers at the ends of bars. */
export const NUMBER_SIZE = 10.5;

export interface BarScale {
  /** Position of 0, in pixels. */
  zero: number;
  /**
   * Length of a full bar in pixels. It is negative if bars of positive numbers extend to the left
   * or upwards.
   */
  reach: number;
  /** Value of a full bar. */
  end: number;
  /**
   * Form of the bars of negative numbers: "both" if they extend to the other side of 0, "hollow" if
   * they extend to the same side as positive numbers and are drawn as outlines. Undefined if all
   * numbers are positive.
   */
  signs?: "both" | "hollow" | undefined;
  standing?: boolean;
}

/**
 * Number that is drawn as a bar. `from` is the position of its upper edge (standing: its left
 * edge), and `thick` is its size from there to the opposite edge, in pixels.
 */
export interface Bar {
  value: number;
  from: number;
  thick: number;
  color: string;
}

/**
 * Return the value of a full bar. It does not depend on the layer, head or token, so that their
 * bars can be compared.
 *
 * The weights of a query sum to 1, so most of them are small if there are many keys. Therefore,
 * with more than `MANY_KEYS` keys, a full bar stands for 100 times the weight that each key would
 * get if all weights were equal. The value is rounded up to one significant digit.
 *
 * @param maximum the largest number that the stack can contain, which is 1 for weights.
 */
export function barEnd(maximum: number, numKeys: number): number {
  return roundedUp(maximum * Math.min(1, MANY_KEYS / Math.max(1, numKeys))) || 1;
}

/** Return the direction in which a bar extends from 0: 1 (to the right or downwards) or −1. */
function sideOf({ reach, signs }: BarScale, value: number): number {
  return Math.sign(reach) * (signs === "both" ? Math.sign(value) : 1);
}

/**
 * Return the length of a bar in pixels. It is 0 for the value 0. For other values it is at least
 * 0.75, so that the bar is visible.
 */
function barLength({ reach, end }: Pick<BarScale, "reach" | "end">, value: number): number {
  const full = Math.abs(reach);
  return value === 0 ? 0 : Math.min(full, Math.max(0.75, (Math.abs(value) / end) * full));
}

/**
 * Draw a bar. If its number is larger than the value of a full bar, draw a full bar with a thin
 * interruption near its end, so that it differs from a bar of exactly this value.
 */
export function barMarks(scale: BarScale, bar: Bar, palette: Palette): [RectMark, ...Mark[]] {
  const { zero, end, signs, standing = false } = scale;
  const { value, from, thick, color } = bar;
  const length = barLength(scale, value);
  const side = sideOf(scale, value);
  const look = value < 0 && signs === "hollow" ? { stroke: color } : { fill: color };
  const box = { x: side > 0 ? zero : zero - length, y: from, width: length, height: thick };
  const rect = transposed({ kind: "rect" as const, ...box, ...look }, standing);
  if (Math.abs(value) <= end * 1.0001) return [rect];
  const at = zero + 0.8 * side * length;
  const gap = { x0: at + 2, y0: from - 1, x1: at - 2, y1: from + thick + 1 };
  const line = { kind: "line" as const, ...gap, stroke: palette.background, strokeWidth: 2.5 };
  return [rect, transposed(line, standing)];
}

/**
 * Draw the axis of a scale with its labels: 0 if there is room, and the value of a full bar. If
 * numbers can be negative, this value has the sign ±, or one label each for − and +.
 *
 * @param at y of the axis below lying bars, or x of the axis beside standing bars.
 */
export function axisMarks(scale: BarScale, at: number, palette: Palette): Mark[] {
  const { zero, reach, end, signs, standing = false } = scale;
  const both = signs === "both";
  const size = Math.abs(reach);
  const direction = Math.sign(reach);
  const number = plainNumber(end);
  const ends: [number, string][] = both
    ? [-1, 1].map((side) => [side, `${side === direction ? "+" : "−"}${number}`])
    : [[direction, signs ? `±${number}` : number]];
  // Size of half a label along the axis. A standing axis has its labels one above the other.
  const half = (text: string): number =>
    (standing ? LABEL_SIZE : measureText(text, fontOf({ size: LABEL_SIZE, font: "text" }))) / 2;
  const widest = Math.max(...ends.map(([, text]) => half(text)));
  const withZero = size >= half("0") + widest + LABELS_APART;
  const outwards = both && !standing && size < MIN_LENGTH_CENTRED;
  const label = (text: string, side: number): Mark => {
    const along = zero + side * (outwards ? 2 : size);
    const { x, y } = transposed({ x: along, y: standing ? at - 4 : at + 8 }, standing);
    const align = standing ? "end" : outwards ? (side < 0 ? "end" : "start") : "middle";
    return textMark(text, x, y, palette.muted, LABEL_SIZE, { align });
  };
  const [x0, x1] = [both ? zero - size : zero, both ? zero + size : zero + reach];
  return [
    transposed({ kind: "line", x0, y0: at, x1, y1: at, stroke: palette.muted }, standing),
    ...(withZero ? [label("0", 0)] : []),
    ...ends.map(([side, text]) => label(text, side)),
  ];
}

/** Bar of a token, which may have a number at its end. */
export interface TokenBar extends Bar {
  /** Position along the axis (see `Axis`). */
  position: number;
  /**
   * Centre of the token's row (standing: of its column), in pixels. The number is centred there.
   */
  middle: number;
  /** Text after the number, such as the name of a head. For standing bars, it is a second line. */
  note?: string;
  /**
   * Whether only the number is drawn, in a muted colour, and not the bar. This is the case for keys
   * that the reader leaves out.
   */
  faded?: boolean;
}

/** Bars that share a zero line and an axis. */
export interface BarGroup {
  scale: BarScale;
  bars: readonly TokenBar[];
  /** Start and end of the line at 0, which crosses all bars, in pixels. */
  line: readonly [number, number];
  /** Position of the axis (see `axisMarks`). */
  axisAt: number;
  /** Distance between the centres of neighbouring tokens, in pixels. */
  step: number;
  quantity: Quantity;
  /**
   * Minimum absolute value of numbers in the colour of normal text. Smaller numbers have a muted
   * colour.
   */
  minProminent: number;
  palette: Palette;
}

/** Draw bars with their zero line, their axis and their numbers. */
export function barGroupMarks(group: BarGroup): Mark[] {
  const { scale, line, quantity, palette } = group;
  const { zero, standing = false } = scale;
  const bars = group.bars.filter(({ value }) => value !== 0);
  const [y0, y1] = line;
  const stroke = quantity.signed ? palette.muted : palette.rule;
  return [
    transposed({ kind: "line" as const, x0: zero, y0, x1: zero, y1, stroke }, standing),
    ...axisMarks(scale, group.axisAt, palette),
    ...bars.flatMap((bar) => (bar.faded ? [] : barMarks(scale, bar, palette))),
    ...numbersOf({ ...group, bars }),
  ];
}

/**
 * Return the bars that have room for a number, those with the largest absolute values first. `at` is
 * the centre of the number along the tokens, and `half` is half its size there, in pixels. If two
 * numbers would be closer than `gap`, the one with the smaller absolute value is omitted.
 */
export function numberedBars<B extends { value: number; at: number; half: number }>(
  bars: readonly B[],
  gap: number,
): B[] {
  const numbered: B[] = [];
  for (const bar of [...bars].sort((a, b) => Math.abs(b.value) - Math.abs(a.value)))
    if (numbered.every(({ at, half }) => Math.abs(at - bar.at) >= half + bar.half + gap))
      numbered.push(bar);
  return numbered;
}

/**
 * Draw the numbers at the ends of bars, the largest first. Omit those that would touch a larger one
 * and those that say little (see `isTiny`).
 */
function numbersOf(group: BarGroup): Mark[] {
  const { scale, bars, step, quantity, minProminent, palette } = group;
  const { zero, standing } = scale;
  const lengthOf = (bar: TokenBar): number => (bar.faded ? 0 : barLength(scale, bar.value));
  // Rows of tokens can be lower than a number, which then overlaps the bars of neighbouring rows.
  // Begin the number after the longest of these bars, too.
  const numNeighbours = step < NUMBER_SIZE ? Math.ceil(NUMBER_SIZE / 2 / step) : 0;
  const lengthNear = (position: number, side: number): number =>
    bars
      .filter((other) => Math.abs(other.position - position) <= numNeighbours)
      .filter((other) => sideOf(scale, other.value) === side)
      .reduce((length, other) => Math.max(length, lengthOf(other)), 0);
  const widthOf = (line: string): number =>
    measureText(line, fontOf({ size: NUMBER_SIZE, font: "text" }));
  const numbers = bars.flatMap((bar) => {
    if (isTiny(quantity, bar.value)) return [];
    const text = written(quantity, bar.value);
    const lines = standing && bar.note ? [text, bar.note] : [text];
    const half = standing ? Math.max(...lines.map(widthOf)) / 2 : NUMBER_SIZE / 2;
    // The number of the last column may be wider than the column. Keep it inside the plot.
    const at = standing ? Math.min(bar.middle, group.line[1] + BEYOND_LINE - half) : bar.middle;
    return [{ ...bar, text, lines, at, half }];
  });
  return numberedBars(numbers, standing ? NUMBERS_APART : 0.5).flatMap((bar): Mark[] => {
    const { position, value, at, text, lines, note = "", faded = false } = bar;
    const side = sideOf(scale, value);
    const fill = faded || Math.abs(value) < minProminent ? palette.muted : palette.ink;
    if (standing) {
      const y = zero + side * (lengthOf(bar) + 8);
      return lines.map((line, i) =>
        textMark(line, at, y + 11 * i * side, fill, NUMBER_SIZE, { align: "middle" }),
      );
    }
    const x = zero + side * (lengthNear(position, side) + 5);
    const align = side > 0 ? "start" : "end";
    return [textMark(note ? `${text}, ${note}` : text, x, at, fill, NUMBER_SIZE, { align })];
  });
}
