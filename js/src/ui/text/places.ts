/**
 * Names of tokens by their places: seconds of a sound, steps of a series, named groups. The span of
 * a token (`TokenSpan`) says where the token begins and how long it is. All functions are pure.
 */

import type { Description, Range, TokenList, TokenSpan } from "../../client/protocol";
import { patchLabel } from "../../draw/patches";

type Placed = Pick<TokenList, "text" | "spans">;

/** Return the span that contains a token, or undefined if there is none. */
function spanAt({ spans }: Placed, token: number): TokenSpan | undefined {
  return spans?.find(({ start, columns }) => token >= start && token < start + columns);
}

/** Return the smallest number of decimals, at most 3, with which all numbers are exact. */
export function decimalsOf(...numbers: number[]): number {
  const isExact = (digits: number): boolean =>
    numbers.every((number) => Math.abs(number - Number(number.toFixed(digits))) < 1e-6);
  return [0, 1, 2].find(isExact) ?? 3;
}

/** Write a time: "12.4 s", or "1:02.5" from one minute on. */
export function timeText(seconds: number, decimals: number): string {
  const text = seconds.toFixed(decimals);
  const minutes = Math.floor(Number(text) / 60);
  if (minutes < 1) return `${text} s`;
  const rest = (Number(text) - 60 * minutes).toFixed(decimals);
  return `${minutes}:${Number(rest) < 10 ? "0" : ""}${rest}`;
}

export function startOf({ start, origin, step }: TokenSpan, token: number): number {
  return origin + (token - start) * step;
}

/** Return the place of tokens, the last of which is in `to`: "1.24–1.28 s", "2–3 s, silence". */
function placeOf(from: TokenSpan, [start, stop]: Range, to = from): string {
  if (from.unit !== "s") return from.unit ? "" : from.name;
  const ends = [startOf(from, start), startOf(to, stop - 1) + to.width];
  const digits = decimalsOf(from.origin, from.step, to.width);
  const [first = "", last = ""] = ends.map((seconds) => timeText(seconds, digits));
  const times = `${last.endsWith(" s") ? first.slice(0, -2) : first}–${last}`;
  return from.name ? `${times}, ${from.name}` : times;
}

/** Name of a frame of a video in Python: "0.5s". */
const FRAME_TIME = /^(\d+\.\d)s$/;
/** Name of a frame of a sound in Python: "0.04s", "2: 0.04s", "silence 0.04s", "3,0.04s". */
const FRAME = /^(.*[ ,])?\d+\.\d+s$/;

/**
 * Name frames of a sound and of a video by their times, and append the name of its group to the
 * name of each other token.
 */
function withPlaces(tokens: TokenList): TokenList {
  if (!tokens.spans && !tokens.grids) return tokens;
  const text = [...tokens.text];
  const grids = tokens.grids?.map((grid) => {
    const time = FRAME_TIME.exec(grid.name ?? "")?.[1];
    return time === undefined ? grid : { ...grid, name: timeText(Number(time), 1) };
  });
  for (const span of tokens.spans ?? [])
    for (let token = span.start; token < span.start + span.columns; token++) {
      const own = text[token] ?? "";
      const suffix = placeOf(span, [token, token + 1]);
      const has = span.unit ? FRAME.test(own) : `${own} `.startsWith(`${suffix} `);
      if (suffix) text[token] = !has ? `${own}, ${suffix}` : span.unit ? suffix : own;
    }
  return { ...tokens, text, ...(grids && { grids }) };
}

/** Return a description in which tokens are named by their places. */
export function withPlaceNames(description: Description): Description {
  const stacks = description.stacks.map((stack) => ({
    ...stack,
    query_tokens: withPlaces(stack.query_tokens),
    key_tokens: stack.key_tokens && withPlaces(stack.key_tokens),
  }));
  return { ...description, stacks };
}

/** Return whether some tokens are steps of a series, whose names may be dates. */
export function hasSteps({ spans = [] }: TokenList): boolean {
  return spans.some(({ unit }) => unit === "step");
}

/** Return the first and the last step of a token: "2024-01-01", "2024-01-16". */
function stepsOf(text: string, { name, width }: TokenSpan): [string, string] {
  const own = name && text.startsWith(`${name} `) ? text.slice(name.length + 1) : text;
  const ends = /^(.*) – (.*)$/.exec(own) ?? (width > 1 ? /^(\d+)-(\d+)$/.exec(own) : null);
  return [ends?.[1] ?? own, ends?.[2] ?? own];
}

const labels = new WeakMap<TokenList, string[]>();

/**
 * Return the label of a token on an axis, which is short: the time or the step at which the token
 * starts, or its name without its group. The labels of all tokens are cached.
 */
export function axisLabel(tokens: TokenList, token: number): string {
  const cached = labels.get(tokens) ?? tokens.text.map((_, index) => labelOf(tokens, index));
  labels.set(tokens, cached);
  return cached[token] ?? "";
}

function labelOf(tokens: TokenList, token: number): string {
  const text = tokens.text[token] ?? "";
  const span = spanAt(tokens, token);
  if (!span) return patchLabel(tokens, token);
  if (span.unit === "step") return stepsOf(text, span)[0];
  const suffix = placeOf(span, [token, token + 1]);
  if (text.endsWith(`, ${suffix}`)) return text.slice(0, -suffix.length - 2);
  if (!span.unit) return text.startsWith(`${suffix} `) ? text.slice(suffix.length + 1) : text;
  if (text !== suffix) return text;
  return timeText(startOf(span, token), decimalsOf(span.origin, span.step));
}

/** Return the texts of the first and the last token of a range: "cat", "1.24–1.44 s", "the – mat". */
export function spanOf(
  tokens: Placed,
  [start, stop]: Range,
  write = (text: string) => text,
): string {
  const texts = [start, stop - 1].map((token) => tokens.text[token] ?? "") as [string, string];
  if (stop - start < 2) return write(texts[0]);
  const [from, to] = [spanAt(tokens, start), spanAt(tokens, stop - 1)];
  if (from?.unit === "step" && from === to) {
    const [[first], [, last]] = [stepsOf(texts[0], from), stepsOf(texts[1], from)];
    const group = from.name && texts[0].startsWith(`${from.name} `) ? `${from.name} ` : "";
    return `${write(group + first)} – ${write(last)}`;
  }
  const isOneSound = from?.unit === "s" && to && (from === to || to.name === SILENCE);
  if (isOneSound && texts[0] === placeOf(from, [start, start + 1]))
    return write(placeOf(from, [start, stop], to));
  return texts.map(write).join(" – ");
}

/** Name of the span of the frames after the end of a sound. */
const SILENCE = "silence";

/** Return the tokens after the end of a sound, or undefined if there are none. */
export function silenceOf({ spans }: Pick<TokenList, "spans">): Range | undefined {
  const span = spans?.find(({ name, unit }) => name === SILENCE && unit === "s");
  return span && [span.start, span.start + span.columns];
}

/** Return the times of the silence after a sound: "4.04–30.00 s", or "" without silence. */
export function silenceTimes(tokens: TokenList): string {
  const silence = silenceOf(tokens);
  return silence ? (spanOf(tokens, silence).split(", ")[0] ?? "") : "";
}

/** Say that the silence after a sound is outside both windows, or return "" if it is not. */
export function silenceInWords(
  axes: Record<"query" | "key", { tokens: TokenList; window: Range }>,
): string {
  const sides = [axes.query, axes.key].filter(({ tokens }) => silenceOf(tokens));
  const isOutside = sides.every(({ tokens, window }) => window[1] <= (silenceOf(tokens)?.[0] ?? 0));
  const [side] = isOutside ? sides : [];
  return side
    ? `The silence after the sound, ${silenceTimes(side.tokens)}, is outside the window.`
    : "";
}
