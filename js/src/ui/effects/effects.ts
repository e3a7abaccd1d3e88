/**
 * Effects: numbers of heads, or of keys, that are drawn as bars around a zero line. All of a stack
 * have one scale. Pure functions.
 */

import type { StackDescription } from "../../client/protocol";
import type { Scores } from "../../client/source";
import { type Mark, printable } from "../../draw/marks";
import type { Palette } from "../colors/palette";
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

/** What bars are of, and what a full one stands for. */
export interface EffectScale {
  /** The reader's own name of them. */
  name: string;
  /** What they measure, in words; "" where that is not known. */
  note: string;
  /** The largest size of any, with its standard error. */
  end: number;
  /** Whether standard errors are known. */
  spread?: boolean;
}

/** Of the heads of a stack, layer by layer. */
export interface HeadEffects extends EffectScale {
  rows: Scores;
  /** Their standard errors, where they are known. */
  errors: Scores | null;
}

/** Of the keys of a stack. */
export interface TokenEffects extends EffectScale {
  values: readonly (number | null)[];
}

/** Where a score stands among others: heads without one come last. */
export function rankOf(score: number | null, bySize: boolean): number {
  if (score === null) return Number.NEGATIVE_INFINITY;
  return bySize ? Math.abs(score) : score;
}

function largestOf(values: readonly (number | null)[]): number {
  return values.reduce<number>((most, value) => Math.max(most, Math.abs(value ?? 0)), 0);
}

/** Scores of heads as they were given. */
interface ScoreState {
  order: string;
  scores: Record<string, Record<string, Scores>>;
  score_notes: Record<string, string>;
  score_errors?: Record<string, Record<string, Scores>>;
}

/** The scores of a name as effects: those of both signs, and those that say what they measure. */
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
  const some = (sign: number): boolean => values.some((value) => sign * (value ?? 0) > 0);
  if (note === "" && !(some(1) && some(-1))) return null;
  const spread = errors?.flat() ?? [];
  const reach = values.map((value, i) => value && Math.abs(value) + (spread[i] ?? 0));
  return { name, note, rows, errors, end: largestOf(reach), spread: spread.some(Boolean) };
}

/** The effects that heads are ordered by, or else the first that there are; null without any. */
export function headEffectsOf(stack: StackDescription, state: ScoreState): HeadEffects | null {
  for (const name of [state.order, ...Object.keys(state.scores)]) {
    const found = effectsNamed(name, stack, state);
    if (found) return found;
  }
  return null;
}

/** Names of the token scores that a stack has. */
export function tokenScoreNames(
  stack: StackDescription,
  scores: Record<string, Record<string, unknown>>,
): string[] {
  const own = baseName(stack);
  return Object.keys(scores).filter((name) => scores[name]?.[own] !== undefined);
}

/** The effects of keys that were chosen, or the first that there are; null without any. */
export function tokenEffectsOf(
  stack: StackDescription,
  state: {
    token_scores: Record<string, Record<string, (number | null)[]>>;
    token_score_notes: Record<string, string>;
    token_score?: string | null;
  },
): TokenEffects | null {
  const names = tokenScoreNames(stack, state.token_scores);
  const name = names.find((each) => each === state.token_score) ?? names[0];
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

/** Its standard error; null where it is not known. */
export function headError(
  { errors }: HeadEffects,
  stack: StackDescription,
  cell: { layer: number; head: number },
): number | null {
  return errors?.[stack.layers.indexOf(cell.layer)]?.[cell.head] ?? null;
}

/** How an effect is written: with its sign. */
function quantityOfEffects({ name, end }: EffectScale): Quantity {
  return { name, signed: true, maximum: end };
}

/** "−14.9", "−14.9 ± 0.2" with a standard error; "none" where there is none. */
export function effectText(
  scale: EffectScale,
  value: number | null,
  error: number | null = null,
): string {
  if (value === null) return "none";
  return writtenSmall(quantityOfEffects(scale), value) + errorText(error);
}

/** " ± 0.2", or "". */
export function errorText(error: number | null): string {
  return error === null ? "" : ` ± ${plainNumber(Number(error.toPrecision(2)))}`;
}

/** The same where there is little room: what is nothing beside the others is written as 0. */
export function shortEffectText(scale: EffectScale, value: number | null): string {
  if (value === null) return "–";
  const text = written(quantityOfEffects(scale), value);
  return text.includes("<") ? "0" : text;
}

/** What a full bar stands for: "14.9". */
export function endText({ end }: EffectScale): string {
  return plainNumber(end);
}

/** Of several keys together the effect that is largest in size. */
export function tokenEffect(
  { values }: TokenEffects,
  [start, stop]: readonly [number, number],
): number | null {
  let found: number | null = null;
  for (let key = start; key < stop; key++) {
    const value = values[key] ?? null;
    if (value !== null && (found === null || Math.abs(value) > Math.abs(found))) found = value;
  }
  return found;
}

/** What bars of keys are, and of which keys there are none. */
export function tokenEffectsInWords(effects: TokenEffects, standing: boolean): string {
  const none = effects.values.filter((value) => value === null).length;
  const has = none === 1 ? "has" : "have";
  const without =
    none === 0
      ? ""
      : ` ${none} of ${several(effects.values.length, "key")} ${has} no number, and no bar.`;
  return effectsInWords(effects, "beside keys", standing) + without;
}

/** What is read out: the effect of the keys that stand out, else the largest. */
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
  const which = key === null ? "largest in size at " : "at ";
  return `${capital(effects.name)}, ${which}${quotedAt(texts, at)}: ${text}.`;
}

/** What bars are, where their zero is and where they end. */
export function effectsInWords(scale: EffectScale, where: string, standing = false): string {
  const none = scale.end === 0 ? ", all 0" : `; a full bar is ${endText(scale)}`;
  const sides = standing ? "down below 0, up above" : "to the left below 0, to the right above";
  const lines = scale.spread ? " Thin lines: a standard error to either side." : "";
  const note = (scale.note === "" ? "" : ` ${capital(scale.note)}.`) + lines;
  return `Bars ${where}: ${scale.name}, ${sides}${none}.${note}`;
}

/** Which part of its whole length a bar takes: from a share, for a share. */
export function barShares(value: number | null, end: number): { from: number; length: number } {
  const share = end > 0 && value !== null ? value / end : 0;
  return { from: 0.5 + Math.min(0, share) / 2, length: Math.abs(share) / 2 };
}

/** Where a bar with its two sides lies; `standing`: above zero is upwards, not to the right. */
export interface BarBox {
  x: number;
  y: number;
  width: number;
  height: number;
  standing?: boolean;
}

/** The marks of one bar and its zero line; none without a number. */
export function effectMarks(
  box: BarBox,
  value: number | null,
  end: number,
  palette: Palette,
  error: number | null = null,
): Mark[] {
  if (value === null) return [];
  const { x, y, width, height, standing = false } = box;
  const { from, length } = barShares(standing ? -value : value, end);
  const fill = value < 0 ? palette.negative : palette.positive;
  const [across, down] = [x + width / 2, y + height / 2];
  const bar = standing
    ? { x, y: y + from * height, width, height: length * height }
    : { x: x + from * width, y, width: length * width, height };
  const line = standing
    ? { x0: x, y0: down, x1: x + width, y1: down }
    : { x0: across, y0: y - 1, x1: across, y1: y + height + 1 };
  return [
    ...(length > 0 ? [{ kind: "rect", ...bar, fill } as const] : []),
    { kind: "line", ...line, stroke: palette.muted },
    ...(error && end > 0 && !standing
      ? [
          {
            kind: "line",
            x0: x + width * whiskerShares(value, error, end).from,
            x1: x + width * whiskerShares(value, error, end).to,
            y0: down,
            y1: down,
            stroke: palette.ink,
          } as const,
        ]
      : []),
  ];
}

/** From where to where the thin line of a standard error goes, as shares of a bar's whole length. */
export function whiskerShares(
  value: number,
  error: number,
  end: number,
): { from: number; to: number } {
  const at = (number: number): number => 0.5 + Math.max(-1, Math.min(1, number / end)) / 2;
  return { from: at(value - error), to: at(value + error) };
}

const LONGEST_NAME = 20;

/** What the two colours of bars are, for a figure's legend. */
export function effectColors(
  scale: EffectScale,
  palette: Palette,
): { name: string; color: string }[] {
  const end = endText(scale);
  // A figure's legend does not break its lines; its caption has the whole name.
  const letters = Array.from(printable(scale.name));
  const name =
    letters.length > LONGEST_NAME
      ? `${letters.slice(0, LONGEST_NAME - 1).join("")}…`
      : letters.join("");
  return [
    { name: `${name} below 0, to −${end}`, color: palette.negative },
    { name: `above 0, to +${end}`, color: palette.positive },
  ];
}

/** The name of a table's column with scores, which are the reader's own and may be called anything. */
export function scoreColumn(name: string, of = "score"): string {
  return `${of}: ${name}`;
}

/** Columns of a table for the effect of a row's keys. */
export function effectColumns(effects: TokenEffects | null | undefined): string[] {
  if (!effects) return [];
  return [scoreColumn(effects.name, "key score"), ...(effects.note ? ["key_score_measure"] : [])];
}

/** What stands in them. */
export function effectCells(
  effects: TokenEffects | null | undefined,
  keys: readonly [number, number],
): (string | number | null)[] {
  if (!effects) return [];
  return [tokenEffect(effects, keys), ...(effects.note ? [effects.note] : [])];
}
