/**
 * Effects: signed numbers, one per head or per key, that are drawn as bars from a zero line. All
 * bars of a stack have the same scale. All functions are pure.
 */

import type { StackDescription } from "../../client/protocol";
import type { Scores } from "../../client/source";
import { type Area, type Mark, printable, transposed } from "../../draw/marks";
import type { Palette } from "../colors/palette";
import { type BarScale, barMarks } from "../plot/bars";
import {
  capital,
  plainNumber,
  type Quantity,
  quotedAt,
  several,
  written,
  writtenSmall,
} from "../text/captions";
import { baseName } from "../what-if/changed-run";

/** Name, description and scale of all bars of a stack. */
export interface EffectScale {
  /** Name that the user chose. */
  name: string;
  /** Description of the measured quantity, or "" if it is unknown. */
  note: string;
  /** Value of a full bar: the largest absolute value after adding known standard errors. */
  end: number;
  /** Whether at least one standard error is known and not 0. */
  spread?: boolean;
}

/** Effects of the heads of a stack, in one row per layer. */
export interface HeadEffects extends EffectScale {
  rows: Scores;
  /** Standard errors of `rows`, or null if they are unknown. */
  errors: Scores | null;
}

/** Effects of the keys of a stack, in the order of the keys. */
export interface TokenEffects extends EffectScale {
  values: readonly (number | null)[];
}

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

/** Traits with the scores of heads and with the order of heads. */
interface ScoreState {
  order: string;
  scores: Record<string, Record<string, Scores>>;
  score_notes: Record<string, string>;
  score_errors?: Record<string, Record<string, Scores>>;
}

/**
 * Return the scores with the given name as effects. Return null if they do not exist, or if they
 * have neither a description nor numbers of both signs.
 */
function effectsNamed(
  name: string,
  stack: StackDescription,
  { scores, score_notes, score_errors }: ScoreState,
): HeadEffects | null {
  const note = score_notes[name] ?? "";
  const rows = scores[name]?.[baseName(stack)];
  const errors = score_errors?.[name]?.[baseName(stack)] ?? null;
  if (!rows) return null;
  const values = rows.flat();
  const hasSign = (sign: number): boolean => values.some((value) => sign * (value ?? 0) > 0);
  if (note === "" && !(hasSign(1) && hasSign(-1))) return null;
  const spread = errors?.flat() ?? [];
  const reach = values.map((value, i) => value && Math.abs(value) + (spread[i] ?? 0));
  return { name, note, rows, errors, end: largestOf(reach), spread: spread.some(Boolean) };
}

/**
 * Return the scores that order the heads, if they are effects. Otherwise return the first scores
 * that are effects, or null.
 */
export function headEffectsOf(stack: StackDescription, state: ScoreState): HeadEffects | null {
  for (const name of [state.order, ...Object.keys(state.scores)]) {
    const effects = effectsNamed(name, stack, state);
    if (effects) return effects;
  }
  return null;
}

/** Return the names of the token scores of a stack. */
export function tokenScoreNames(
  stack: StackDescription,
  scores: Record<string, Record<string, unknown>>,
): string[] {
  const stackKey = baseName(stack);
  return Object.keys(scores).filter((name) => scores[name]?.[stackKey] !== undefined);
}

/**
 * Return the chosen scores of keys as effects. Without a valid choice, return the first scores of
 * the stack, or null if it has none.
 */
export function tokenEffectsOf(
  stack: StackDescription,
  state: {
    token_scores: Record<string, Record<string, (number | null)[]>>;
    token_score_notes: Record<string, string>;
    token_score?: string | null;
  },
): TokenEffects | null {
  const names = tokenScoreNames(stack, state.token_scores);
  const name = names.find((candidate) => candidate === state.token_score) ?? names[0];
  const values = name === undefined ? undefined : state.token_scores[name]?.[baseName(stack)];
  if (name === undefined || !values) return null;
  return { name, note: state.token_score_notes[name] ?? "", values, end: largestOf(values) };
}

export function headEffect(
  { rows }: HeadEffects,
  stack: StackDescription,
  cell: { layer: number; head: number },
): number | null {
  return rows[stack.layers.indexOf(cell.layer)]?.[cell.head] ?? null;
}

/** Return the standard error of a head's effect, or null if it is unknown. */
export function headError(
  { errors }: HeadEffects,
  stack: StackDescription,
  cell: { layer: number; head: number },
): number | null {
  return errors?.[stack.layers.indexOf(cell.layer)]?.[cell.head] ?? null;
}

/** Describe effects as a signed quantity with a maximum, which determines their number format. */
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

/** Format a standard error, for example " ± 0.2", or "" without one. */
export function errorText(error: number | null): string {
  return error === null ? "" : ` ± ${plainNumber(Number(error.toPrecision(2)))}`;
}

/**
 * Format an effect for a narrow space: "–" for null, and "0" for a number that is negligible on the
 * scale.
 */
export function shortEffectText(scale: EffectScale, value: number | null): string {
  if (value === null) return "–";
  const text = written(quantityOfEffects(scale), value);
  return text.includes("<") ? "0" : text;
}

/** Format the value of a full bar, for example "14.9". */
export function endText({ end }: EffectScale): string {
  return plainNumber(end);
}

/**
 * Return the effect with the largest absolute value among the keys from `start` up to, but not
 * including, `stop`. Return null if none of them has an effect.
 */
export function tokenEffect(
  { values }: TokenEffects,
  [start, stop]: readonly [number, number],
): number | null {
  let largest: number | null = null;
  for (let key = start; key < stop; key++) {
    const value = values[key] ?? null;
    if (value !== null && (largest === null || Math.abs(value) > Math.abs(largest)))
      largest = value;
  }
  return largest;
}

/** Describe the bars of keys, and state how many keys have no number. */
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
 * largest absolute value.
 */
export function tokenEffectsSpoken(
  effects: TokenEffects,
  texts: readonly string[],
  key: number | null,
): string {
  let at = key ?? 0;
  if (key === null)
    effects.values.forEach((value, i) => {
      if (Math.abs(value ?? 0) > Math.abs(effects.values[at] ?? 0)) at = i;
    });
  const text = effectText(effects, effects.values[at] ?? null);
  const prefix = key === null ? "largest absolute value at " : "at ";
  return `${capital(effects.name)}, ${prefix}${quotedAt(texts, at)}: ${text}.`;
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
 * Return the start and length of a bar, as shares of the full width from −`end` to +`end`. The
 * length is 0 if the value is 0 or null.
 */
export function barShares(value: number | null, end: number): { from: number; length: number } {
  const share = end > 0 && value !== null ? value / end : 0;
  return { from: 0.5 + Math.min(0, share) / 2, length: Math.abs(share) / 2 };
}

/**
 * Box of a bar, whose edges are at −`end` and +`end`. If `standing`, the bar is vertical and
 * positive values point up.
 */
export interface BarBox extends Area {
  standing?: boolean;
}

/**
 * Return the marks of one bar: a rectangle, its zero line and, if the bar is horizontal, the line
 * of its standard error. Return no marks if `value` is null.
 */
export function effectMarks(
  box: BarBox,
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
  const whisker = error && end > 0 && !standing ? whiskerShares(value, error, end) : null;
  const middle = y + height / 2;
  return [
    ...(value === 0 ? [] : barMarks(scale, { value, from: y, thick: height, color }, palette)),
    line(zero, y - beyond, zero, y + height + beyond, palette.muted),
    ...(whisker
      ? [line(x + width * whisker.from, middle, x + width * whisker.to, middle, palette.ink)]
      : []),
  ];
}

/**
 * Return the start and end of the line of the standard error, as shares of the full width of the
 * bar. The line ends at the edges of the bar.
 */
export function whiskerShares(
  value: number,
  error: number,
  end: number,
): { from: number; to: number } {
  const at = (number: number): number => 0.5 + Math.max(-1, Math.min(1, number / end)) / 2;
  return { from: at(value - error), to: at(value + error) };
}

const MAX_NAME_LENGTH = 20;

/** Return two legend entries of a figure: the colours for numbers below and above 0. */
export function effectColors(
  scale: EffectScale,
  palette: Palette,
): { name: string; color: string }[] {
  const end = endText(scale);
  // The legend of a figure does not wrap lines, so shorten the name. The caption has the full name.
  const letters = Array.from(printable(scale.name));
  const name =
    letters.length > MAX_NAME_LENGTH
      ? `${letters.slice(0, MAX_NAME_LENGTH - 1).join("")}…`
      : letters.join("");
  return [
    { name: `${name} below 0, to −${end}`, color: palette.negative },
    { name: `above 0, to +${end}`, color: palette.positive },
  ];
}

/** Return the name of a table column for scores with a name, for example "score: induction". */
export function scoreColumn(name: string, of = "score"): string {
  return `${of}: ${name}`;
}

/** Return the names of the table columns that `effectCells` fills, or none without effects. */
export function effectColumns(effects: TokenEffects | null | undefined): string[] {
  if (!effects) return [];
  return [scoreColumn(effects.name, "key score"), ...(effects.note ? ["key_score_measure"] : [])];
}

/**
 * Return the cells of one table row for the columns of `effectColumns`. The row covers the keys
 * from `keys[0]` up to, but not including, `keys[1]`.
 */
export function effectCells(
  effects: TokenEffects | null | undefined,
  keys: readonly [number, number],
): (string | number | null)[] {
  if (!effects) return [];
  return [tokenEffect(effects, keys), ...(effects.note ? [effects.note] : [])];
}
