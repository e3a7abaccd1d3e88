/**
 * Axis of a plot: the visible queries or the visible keys, in the order of the plot. Every part of
 * a view that shows or names tokens takes them from the axis, so that all parts agree on which
 * tokens are visible, left out or merged.
 *
 * A position is the index of a place along the axis. It shows one token, or successive tokens that
 * are merged. A token is always named by its index in the text. All functions are pure.
 */

import type { Range, StackDescription, TokenList } from "../client/protocol";
import { gridTokens } from "../draw/patches";
import { axisLabel, decimalsOf, silenceOf, startOf, timeText } from "./text/places";

export type Side = "query" | "key";
export const SIDES = ["query", "key"] as const;

/** A value for the queries and one for the keys. */
export type BySide<T> = Record<Side, T>;

export function bySide<T>(make: (side: Side) => T): BySide<T> {
  return { query: make("query"), key: make("key") };
}

export function otherSide(side: Side): Side {
  return side === "query" ? "key" : "query";
}

/** Query and key, as tokens or as positions. Each is null if there is none. */
export type Focus = BySide<number | null>;

/** Pinned tokens, as a selection and the traits have them. */
export interface Pins {
  token: number | null;
  key: number | null;
}

/** Return the pinned tokens of a selection. */
export function pinsOf(selection: Pins | null): Focus {
  return { query: selection?.token ?? null, key: selection?.key ?? null };
}

/** Tokens that do not count, because of a choice of the reader. */
export interface Exclusion {
  /** Name of the tokens in captions, such as "special tokens". */
  words: string;
  /** 1 for each of the tokens. */
  flags: Uint8Array;
  /** Whether the tokens are struck out, written in a muted colour, or not visible. */
  look: "struck" | "muted" | "hidden";
}

export interface Axis {
  /** All tokens of the side, including those that are not visible. */
  tokens: TokenList;
  /** Range of the tokens that windows can show. A window may be larger (see `CellAxis`). */
  extent: Range;
  /** Range of tokens that the view shows. */
  window: Range;
  /** Tokens at each position. */
  groups: readonly Range[];
  /** Tokens that do not count. The first exclusion that has a token determines its look. */
  exclusions: readonly Exclusion[];
}

/** Axis with one token per position. */
export interface TokenAxis extends Axis {
  side: Side;
}

export function sizeOf([start, stop]: Range): number {
  return stop - start;
}

/** Return the index of a token in a range of tokens. */
export function indexIn([start]: Range, token: number): number {
  return token - start;
}

/** Return the token at an index in a range of tokens. */
export function tokenIn([start]: Range, index: number): number {
  return start + index;
}

export function isWithin([start, stop]: Range, token: number): boolean {
  return token >= start && token < stop;
}

/** Return whether a range contains another one. */
export function contains([start, stop]: Range, [first, last]: Range): boolean {
  return start <= first && stop >= last;
}

/** Queries and keys of the numbers of a matrix. */
interface Block {
  rows: Range;
  columns: Range;
}

/** Return the numbers of a query in a matrix. */
export function rowOf(matrix: Float32Array, { rows, columns }: Block, query: number): Float32Array {
  const start = indexIn(rows, query) * sizeOf(columns);
  return matrix.subarray(start, start + sizeOf(columns));
}

/** Return the range of one token. */
export function oneToken(token: number): Range {
  return [token, token + 1];
}

/** Divide a range of tokens into `count` groups of nearly equal sizes. */
export function dividedInto(range: Range, count: number): Range[] {
  const border = (index: number): number =>
    tokenIn(range, Math.floor((index * sizeOf(range)) / count));
  return Array.from({ length: count }, (_, index) => [border(index), border(index + 1)]);
}

/** Divide a range of tokens into groups of `size` tokens. The last group may have fewer. */
export function groupsOf([first, stop]: Range, size = 1): Range[] {
  return Array.from({ length: Math.ceil((stop - first) / size) }, (_, position) => {
    const start = first + position * size;
    return [start, Math.min(stop, start + size)];
  });
}

/** Return the axis of a window. If all of its tokens are hidden, it shows them. */
export function tokenAxis(
  side: Side,
  tokens: TokenList,
  window: Range,
  exclusions: readonly Exclusion[] = [],
): TokenAxis {
  const groups = groupsOf(window);
  const axis = { side, tokens, extent: [0, tokens.text.length] as Range, window, exclusions };
  const shown = groups.filter(([token]) => canShow(axis, token));
  return { ...axis, groups: shown.length > 0 ? shown : groups };
}

/** Return why a token does not count, or undefined without a reason. */
export function exclusionOf(
  { exclusions }: Pick<Axis, "exclusions">,
  token: number,
): Exclusion | undefined {
  return exclusions.find(({ flags }) => flags[token] === 1);
}

/** Tokens of an axis, without the window. */
export type Countable = Pick<Axis, "tokens" | "extent" | "exclusions">;

/** Return whether a token counts: it can have weights that are drawn, compared and named. */
export function isCounted(axis: Omit<Countable, "tokens">, token: number): boolean {
  return isWithin(axis.extent, token) && !exclusionOf(axis, token);
}

/** Return whether a token is visible in some window. */
export function canShow(axis: Omit<Countable, "tokens">, token: number): boolean {
  return isWithin(axis.extent, token) && exclusionOf(axis, token)?.look !== "hidden";
}

/** Return the ranges of the tokens that do not count, in ascending order. */
export function uncountedRanges(axis: Countable): Range[] {
  const ranges: Range[] = [];
  axis.tokens.text.forEach((_, token) => {
    if (isCounted(axis, token)) return;
    const last = ranges.at(-1);
    if (last?.[1] === token) last[1]++;
    else ranges.push(oneToken(token));
  });
  return ranges;
}

/** Return the tokens at a position. */
export function tokensAt({ groups }: Pick<Axis, "groups">, position: number): Range {
  return groups[position] as Range;
}

/** Return the first token at a position. */
export function tokenAt(axis: Pick<Axis, "groups">, position: number): number {
  return tokensAt(axis, position)[0];
}

/** Return the first token at each position. */
export function shownTokens({ groups }: Pick<Axis, "groups">): number[] {
  return groups.map(([first]) => first);
}

/** Return the first token at each position whose first token counts. */
export function countedTokens(axis: Axis): number[] {
  return shownTokens(axis).filter((token) => isCounted(axis, token));
}

/** Return the last position whose tokens do not begin after a token, or -1 if all begin after it. */
function positionBefore({ groups }: Pick<Axis, "groups">, token: number): number {
  let [low, high] = [-1, groups.length - 1];
  while (low < high) {
    const middle = Math.floor((low + high + 1) / 2);
    if ((groups[middle] as Range)[0] <= token) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** Return the position of a token, or null if the token is not visible. */
export function positionOf(axis: Pick<Axis, "groups">, token: number | null): number | null {
  if (token === null) return null;
  const position = positionBefore(axis, token);
  const group = axis.groups[position];
  return group && token < group[1] ? position : null;
}

/** Return a token if it is visible, otherwise the nearest visible token before it or the first. */
export function nearestVisible(axis: Pick<Axis, "groups">, token: number): number {
  const [first, stop] = tokensAt(axis, Math.max(0, positionBefore(axis, token)));
  return Math.max(first, Math.min(stop - 1, token));
}

/**
 * Return the token one position after a token (`by` is 1) or before it (-1). At an end of the axis,
 * it is the next token that another window can show, or the token itself if there is none. Without
 * a token, begin at an end.
 */
export function neighbourOf(axis: Axis, token: number | null, by: 1 | -1): number {
  const { groups, extent } = axis;
  if (token === null) return tokenAt(axis, by > 0 ? 0 : groups.length - 1);
  const position = positionOf(axis, token);
  let next = (position === null ? undefined : groups[position + by])?.[0] ?? token + by;
  while (isWithin(extent, next) && !canShow(axis, next)) next += by;
  return isWithin(extent, next) ? next : token;
}

/** Return the positions whose first token is in a range of tokens. */
export function positionsIn(axis: Pick<Axis, "groups">, [start, stop]: Range): Range {
  return [positionBefore(axis, start - 1) + 1, positionBefore(axis, stop - 1) + 1];
}

export function isVisible(axis: Pick<Axis, "groups">, token: number | null): boolean {
  return positionOf(axis, token) !== null;
}

/** Return whether the axis shows the whole text, not only a window. */
export function isComplete({ window, tokens }: Pick<Axis, "window" | "tokens">): boolean {
  return sizeOf(window) === tokens.text.length;
}

/** Return whether a token is visible and is not the first visible token. */
export function isInside(axis: Pick<Axis, "groups">, token: number): boolean {
  return isVisible(axis, token) && token > tokenAt(axis, 0);
}

/**
 * Return a window of `size` tokens that begins at `start`. If it would extend beyond the range
 * `within`, move it into this range. It is smaller if the range has fewer tokens.
 */
export function windowAt(start: number, size: number, [first, stop]: Range): Range {
  const fitting = Math.min(size, stop - first);
  const begin = Math.max(first, Math.min(stop - fitting, start));
  return [begin, begin + fitting];
}

/** Return a window of `size` tokens with a token in its middle, moved into the range `within`. */
export function windowAround(token: number, size: number, within: Range): Range {
  return windowAt(token - Math.floor(size / 2), size, within);
}

/** Named point of an axis. `at` is its distance from the start of the text, in tokens. */
export interface Tick {
  at: number;
  text: string;
  /** Token at the point, or null if the point is a time. */
  token: number | null;
}

/** Intervals between ticks, in seconds. */
const SECONDS = [
  ...[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30],
  ...[60, 120, 300, 600, 1800, 3600],
];

/** Return the multiples in a range of the smallest of the numbers 1, 2, 5, 10, 20, … ≥ `least`. */
function roundIndices([start, stop]: Range, least: number): number[] {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  const every = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= least) ?? 1;
  const first = Math.ceil(start / every);
  return Array.from({ length: Math.ceil(stop / every) - first }, (_, i) => (first + i) * every);
}

/**
 * Return the ticks of the visible tokens, at least `apart` pixels apart: round times of a sound,
 * equally distant steps of each channel, and other tokens with round indices. The most important
 * ticks are first.
 *
 * @param step pixels per token.
 */
export function ticksOf(
  { tokens, window: [first, last] }: Pick<Axis, "tokens" | "window">,
  step: number,
  apart: number,
): Tick[] {
  const least = apart / step;
  const tick = (token: number): Tick => ({
    ...{ at: token + 0.5, token, text: axisLabel(tokens, token) },
  });
  const placed = (tokens.spans ?? []).filter(({ unit }) => unit);
  const free = roundIndices([first, last], least).filter((token) =>
    placed.every(({ start, columns }) => !isWithin([start, start + columns], token)),
  );
  const ticks = placed.flatMap((span): Tick[] => {
    const { start, columns, step, origin } = span;
    const [from, to] = [Math.max(first, start), Math.min(last, start + columns)];
    if (from >= to) return [];
    if (span.unit === "step")
      return roundIndices([from - start, to - start], least).map((index) => tick(start + index));
    const every = SECONDS.find((seconds) => seconds >= least * step) ?? 3600;
    const times: Range = [startOf(span, from), startOf(span, to)];
    return roundIndices([times[0] / every, times[1] / every], 1).map((index) => {
      const seconds = index * every;
      const text = timeText(seconds, decimalsOf(every));
      return { at: start + (seconds - origin) / step, text, token: null };
    });
  });
  // A channel begins with a tick, even if there is no room for the last tick of the one before it.
  const rank = ({ token }: Tick): number => Number(placed.every(({ start }) => start !== token));
  const sorted = [...ticks, ...free.map(tick)].sort((one, other) => one.at - other.at);
  return sorted.sort((one, other) => rank(one) - rank(other));
}

/** Successive tokens of an axis that are a named group, such as a channel or a frame. */
export interface Section {
  /** Name of the group, or "" for tokens between groups. */
  name: string;
  tokens: Range;
}

/** Return the sections of the visible tokens, or [] if none of them is in a named group. */
export function sectionsOf({ tokens, window }: Pick<Axis, "tokens" | "window">): Section[] {
  const spans = (tokens.spans ?? []).map(({ name, start, columns }) => {
    return { name, tokens: [start, start + columns] as Range };
  });
  const grids = (tokens.grids ?? []).map((grid) => {
    return {
      name: grid.name ?? "",
      tokens: [grid.start, (gridTokens(grid).at(-1) ?? 0) + 1] as Range,
    };
  });
  const sections: Section[] = [];
  let end = window[0];
  const add = (name: string, [start, stop]: Range): void => {
    if (start < stop) sections.push({ name, tokens: [start, stop] });
    end = Math.max(end, stop);
  };
  const groups = [...spans, ...grids].filter(({ name }) => name !== "");
  for (const group of groups.sort((one, other) => one.tokens[0] - other.tokens[0])) {
    const [start, stop] = group.tokens.map((at) => Math.max(end, Math.min(window[1], at))) as Range;
    if (start === stop) continue;
    add("", [end, start]);
    add(group.name, [start, stop]);
  }
  if (sections.length > 0) add("", [end, window[1]]);
  return sections;
}

/**
 * Return the windows with which a view of another stack opens: without the silence with which a
 * processor has filled up a sound. A window without silence is null.
 *
 * @param opened function that returns the window for a number of tokens.
 */
export function openingWindows(
  { query_tokens, key_tokens }: Pick<StackDescription, "query_tokens" | "key_tokens">,
  opened: (count: number) => Range = (count) => [0, count],
): { query_window: Range | null; key_window: Range | null } {
  const windowOf = (tokens: TokenList): Range | null => {
    const [start, stop] = opened(tokens.text.length);
    const end = silenceOf(tokens)?.[0] ?? stop;
    return start < end && end < stop ? [start, end] : null;
  };
  return { query_window: windowOf(query_tokens), key_window: windowOf(key_tokens ?? query_tokens) };
}
