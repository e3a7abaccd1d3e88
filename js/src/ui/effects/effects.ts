/**
 * Effects: signed numbers, one per head or per key, that are drawn as bars from a zero line. The
 * bars of all heads of a stack (a group of attention layers) have one scale, and the bars of all
 * keys another. A full bar has the value `EffectScale.end`.
 *
 * Scores are numbers per head or key that the user passes under a name. Scores of heads are effects
 * if they have a description or numbers of both signs. Scores of keys are always effects.
 */

import { computed } from "@preact/signals";
import type { Range, StackDescription } from "../../client/protocol";
import { measureText } from "../../draw/canvas";
import { textMark } from "../../draw/figure";
import { type Area, fontOf, type Mark, transposed } from "../../draw/marks";
import { type Countable, canShow } from "../axis";
import type { Palette } from "../colors/palette";
import { type BarScale, barMarks, NUMBER_SIZE, NUMBERS_APART, numberedBars } from "../plot/bars";
import {
  capital,
  plainNumber,
  type Quantity,
  quotedAt,
  several,
  shortened,
  written,
  writtenSmall,
} from "../text/captions";
import { baseName } from "../view/model-layers";
import type { RecordState, RecordStore } from "../view/record";
import { follow } from "../view/state";

/** Name, description and scale of the bars of all heads, or of all keys, of a stack. */
export interface EffectScale {
  /**
   * Name under which the user passed the effects, or "score" or "effect" if they passed no name.
   */
  name: string;
  /** Description of the measured quantity, or "" if it is unknown. */
  note: string;
  /**
   * Value of a full bar: the largest absolute value or, with standard errors, the largest sum of an
   * absolute value and its standard error.
   */
  end: number;
  /**
   * Whether at least one standard error is known and not 0. Undefined for keys, whose scores have
   * no standard errors.
   */
  spread?: boolean;
}

export type HeadEffects = NonNullable<ReturnType<typeof headEffectsOf>>;

export type TokenEffects = NonNullable<ReturnType<typeof tokenEffectsOf>>;

/**
 * Return the number by which a head is ordered: its score or, if `bySize`, the absolute value of
 * its score. Return minus infinity without a score.
 */
export function rankOf(score: number | null, bySize: boolean): number {
  if (score === null) return Number.NEGATIVE_INFINITY;
  return bySize ? Math.abs(score) : score;
}

function largestOf(values: readonly (number | null)[]): number {
  return values.reduce<number>((largest, value) => Math.max(largest, Math.abs(value ?? 0)), 0);
}

/**
 * Return the scores by which the heads are ordered, if they are effects. Otherwise, return the
 * first scores of the stack's heads that are effects, in the order of the trait `scores`. Return
 * null if no scores are.
 */
export function headEffectsOf(
  stack: StackDescription,
  state: Pick<RecordState, "order" | "scores" | "score_notes" | "score_errors">,
) {
  const stackKey = baseName(stack);
  for (const name of [state.order, ...Object.keys(state.scores)]) {
    const rows = state.scores[name]?.[stackKey];
    const note = state.score_notes[name] ?? "";
    if (!rows) continue;
    const values = rows.flat();
    const hasSign = (sign: number): boolean => values.some((value) => sign * (value ?? 0) > 0);
    if (note === "" && !(hasSign(1) && hasSign(-1))) continue;
    /** Standard errors of the effects, in one row per layer, or undefined if they are unknown. */
    const errors = state.score_errors[name]?.[stackKey];
    const spread = errors?.flat() ?? [];
    const reach = values.map((value, i) => value && Math.abs(value) + (spread[i] ?? 0));
    /** Return the effect of a head and its standard error. Each is null if it is unknown. */
    const of = ({ layer, head }: { layer: number; head: number }) => {
      const row = stack.layers.indexOf(layer);
      return { value: rows[row]?.[head] ?? null, error: errors?.[row]?.[head] ?? null };
    };
    return { name, note, end: largestOf(reach), spread: spread.some(Boolean), errors, of };
  }
  return null;
}

/**
 * Return the scores of keys that `token_score` names. If it is null, or if the stack lacks these
 * scores, return the first scores of the stack's keys, in the order of the trait `token_scores`.
 * Return null if the stack has none.
 */
export function tokenEffectsOf(
  stack: StackDescription,
  state: Pick<RecordState, "token_scores" | "token_score_notes" | "token_score">,
) {
  const [stackKey, scores] = [baseName(stack), state.token_scores];
  const names = Object.keys(scores).filter((name) => scores[name]?.[stackKey]);
  const name = names.find((candidate) => candidate === state.token_score) ?? names[0] ?? "";
  const values = scores[name]?.[stackKey];
  if (!values) return null;
  const note = state.token_score_notes[name] ?? "";
  return { name, names, note, values, end: largestOf(values) };
}

/**
 * Return effects as a quantity of signed numbers. Its maximum is the value of a full bar, from
 * which the number of decimals of all effects follows.
 */
function quantityOfEffects({ name, end }: EffectScale): Quantity {
  return { name, signed: true, maximum: end };
}

/** Format an effect: "−14.9", "−14.9 ± 0.2" with a standard error, or "none" for null. */
export function effectText(
  scale: EffectScale,
  value: number | null,
  error: number | null = null,
): string {
  if (value === null) return "none";
  return writtenSmall(quantityOfEffects(scale), value) + errorText(error);
}

/** Describe the effect of a head, for example "effect −14.9 ± 0.2". */
export function headEffectInWords(
  effects: HeadEffects,
  head: { layer: number; head: number },
): string {
  const { value, error } = effects.of(head);
  return `${effects.name} ${effectText(effects, value, error)}`;
}

/** Format a standard error, for example " ± 0.2", or "" without one. */
export function errorText(error: number | null | undefined): string {
  return error == null ? "" : ` ± ${plainNumber(Number(error.toPrecision(2)))}`;
}

/**
 * Format an effect for a narrow space, without its standard error: "–" for null, otherwise for
 * example "−14.9" or "−<0.1". The value of a full bar determines the number of decimals.
 */
export function shortEffectText(scale: EffectScale, value: number | null): string {
  return value === null ? "–" : written(quantityOfEffects(scale), value);
}

/** Format the value of a full bar, for example "14.9". */
export function endText({ end }: EffectScale): string {
  return plainNumber(end);
}

/**
 * Return the effect with the largest absolute value among the keys in a range, whose end is
 * exclusive. Return null if none of them has an effect.
 */
export function tokenEffect({ values }: TokenEffects, [start, stop]: Range): number | null {
  const larger = (one: number | null, other: number | null): number | null =>
    other !== null && (one === null || Math.abs(other) > Math.abs(one)) ? other : one;
  return values.slice(start, stop).reduce(larger, null);
}

/**
 * Describe the bars of keys, and state how many keys have no number. `standing` states whether the
 * bars are vertical.
 */
export function tokenEffectsInWords(effects: TokenEffects, standing: boolean): string {
  const none = effects.values.filter((value) => value === null).length;
  const has = none === 1 ? "has" : "have";
  const missingNote =
    none === 0
      ? ""
      : ` ${none} of ${several(effects.values.length, "key")} ${has} no number and no bar.`;
  return effectsInWords(effects, "beside keys", standing) + missingNote;
}

/**
 * Describe the effect of `key` for screen readers. Without a key, describe the effect with the
 * largest absolute value among the keys that windows can show.
 */
export function tokenEffectsSpoken(
  effects: TokenEffects,
  keys: Countable,
  key: number | null,
): string {
  const values = effects.values.map((value, token) => (canShow(keys, token) ? value : null));
  const at = key ?? values.indexOf(tokenEffect({ ...effects, values }, [0, values.length]));
  const text = effectText(effects, effects.values[at] ?? null);
  const prefix = key === null ? "largest absolute value at " : "at ";
  return `${capital(effects.name)}, ${prefix}${quotedAt(keys.tokens.text, at)}: ${text}.`;
}

/**
 * Describe what the bars show, the direction of positive numbers and the value of a full bar.
 *
 * @param where position of the bars, for example "below heads".
 * @param standing whether bars are vertical.
 */
export function effectsInWords(scale: EffectScale, where: string, standing = false): string {
  const none = scale.end === 0 ? ", all 0" : `. A full bar is ${endText(scale)}`;
  const sides = standing
    ? "negative downwards, positive upwards"
    : "negative to the left, positive to the right";
  const lines = scale.spread ? " Thin lines show one standard error on each side." : "";
  const note = (scale.note === "" ? "" : ` ${capital(scale.note)}.`) + lines;
  return `Bars ${where}: ${scale.name}, ${sides}${none}.${note}`;
}

/**
 * Return the position of a number on a bar from −`end` to +`end`, as a share of the bar's width
 * from 0 (left end) to 1. A number beyond an end has the position of this end.
 */
export function positionOn(end: number, value: number): number {
  return 0.5 + (end > 0 ? Math.max(-1, Math.min(1, value / end)) : 0) / 2;
}

/**
 * Return the marks of one bar: a rectangle unless `value` is 0, its zero line and, if the bar is
 * horizontal, the line of its standard error. Return no marks if `value` is null.
 *
 * @param box area whose edges are at −`end` and +`end`. If `standing`, the bar is vertical and
 *   positive values point up.
 */
export function effectMarks(
  box: Area & { standing?: boolean },
  value: number | null,
  end: number,
  palette: Palette,
  error: number | null = null,
): Mark[] {
  if (value === null) return [];
  const { standing = false } = box;
  const { x, y, width, height } = transposed(box, standing);
  const zero = x + width / 2;
  const reach = ((standing ? -1 : 1) * width) / 2;
  const scale: BarScale = { zero, reach, end: end || 1, signs: "both", standing };
  const color = value < 0 ? palette.negative : palette.positive;
  const line = (x0: number, y0: number, x1: number, y1: number, stroke: string): Mark =>
    transposed({ kind: "line", x0, y0, x1, y1, stroke }, standing);
  const beyond = standing ? 0 : 1;
  const at = (number: number): number => x + width * positionOn(end, number);
  const middle = y + height / 2;
  return [
    ...(value === 0 ? [] : barMarks(scale, { value, from: y, thick: height, color }, palette)),
    line(zero, y - beyond, zero, y + height + beyond, palette.muted),
    ...(error && end > 0 && !standing
      ? [line(at(value - error), middle, at(value + error), middle, palette.ink)]
      : []),
  ];
}

const NUMBER_FONT = fontOf({ size: NUMBER_SIZE, font: "text" });

/** Return the width of the widest number that `effectNumbers` may write, in pixels. */
export function widestNumber(effects: TokenEffects): number {
  const texts = effects.values.map((value) =>
    value === null ? "" : shortEffectText(effects, value),
  );
  return Math.max(0, ...[...new Set(texts)].map((text) => measureText(text, NUMBER_FONT)));
}

/**
 * Return the marks of the numbers of bars, the largest first. Omit those that would touch a larger
 * one.
 *
 * @param bars values and centres of the bars along the tokens, in pixels. A null has no number.
 * @param form "lying" beside lying bars, "level" below standing bars, or "upright" to turn the
 *   numbers below standing bars.
 * @param at position of the numbers across the tokens: their right end or, if level, their centre.
 * @param limit position along the tokens that level numbers do not exceed.
 */
export function effectNumbers(
  scale: EffectScale,
  bars: readonly { value: number | null; middle: number }[],
  form: "lying" | "level" | "upright",
  { at, limit }: { at: number; limit: number },
  palette: Palette,
): Mark[] {
  const level = form === "level";
  const numbers = bars.flatMap(({ value, middle }) => {
    if (value === null) return [];
    const text = shortEffectText(scale, value);
    const half = (level ? measureText(text, NUMBER_FONT) : NUMBER_SIZE) / 2;
    return [{ value, text, half, at: level ? Math.min(middle, limit - half) : middle }];
  });
  const align = level ? "middle" : "end";
  return numberedBars(numbers, level ? NUMBERS_APART : 0.5).map(({ text, at: along }) => {
    const { x, y } = transposed({ x: at, y: along }, form !== "lying");
    const turned = form === "upright" && { rotate: -90 };
    return textMark(text, x, y, palette.ink, NUMBER_SIZE, { align, ...turned });
  });
}

const MAX_NAME_LENGTH = 20;

/** Return two entries for the legend of a figure, one for negative and one for positive effects. */
export function effectColors(
  scale: EffectScale,
  palette: Palette,
): { name: string; color: string }[] {
  const end = endText(scale);
  // The legend of a figure does not wrap lines, so shorten the name. The caption has the full name.
  const name = shortened(scale.name, MAX_NAME_LENGTH);
  return [
    { name: `${name} below 0, to −${end}`, color: palette.negative },
    { name: `above 0, to +${end}`, color: palette.positive },
  ];
}

/**
 * Return the column name for scores in an exported table, for example "score: induction". `of`
 * states what the column contains, for example "score error".
 */
export function scoreColumn(name: string, of = "score"): string {
  return `${of}: ${name}`;
}

/**
 * Return the columns for effects of keys in an exported table: the effect with the largest absolute
 * value among the keys of a row and, if the effects have a description, this description. `names`
 * has the names of the columns. `cells` returns the cells of the row with the given keys. Without
 * effects, both are empty.
 */
export function effectColumns(effects: TokenEffects | null) {
  if (!effects) return { names: [], cells: () => [] };
  const { name, note } = effects;
  return {
    names: [scoreColumn(name, "key score"), ...(note ? ["key_score_measure"] : [])],
    cells: (keys: Range) => [tokenEffect(effects, keys), ...(note ? [note] : [])],
  };
}

function createEffects({ state, selection }: RecordStore) {
  const stack = computed(() => selection.value?.stack ?? null);
  return {
    /** Scores that are drawn as one bar for each head. null if the stack has no such scores. */
    heads: computed(() => stack.value && headEffectsOf(stack.value, follow(state))),
    /** Scores that are drawn as one bar for each key. null if the stack has none. */
    tokens: computed(() => stack.value && tokenEffectsOf(stack.value, follow(state))),
  };
}

/** Return the effects that a view shows. */
export function effectsOf(record: RecordStore): ReturnType<typeof createEffects> {
  return record.part(createEffects);
}
