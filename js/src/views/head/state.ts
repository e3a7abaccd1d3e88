/** Traits of the head view, and the loading of the weights that they require. */

import type { Range } from "../../client/protocol";
import type { Source } from "../../client/source";
import { RECORD_DEFAULTS, type RecordState, type Selection } from "../../ui/view/record";
import { same } from "../../ui/view/state";
import type { Combine, LeaveOut, Weights } from "./lines";

export type Orientation = "vertical" | "horizontal";
export const SIDES = ["query", "key"] as const;
export type Side = (typeof SIDES)[number];

/** Traits of the head view, named as in Python. */
export interface HeadState extends RecordState {
  combine: Combine;
  top_k: number | null;
  threshold: number;
  leave_out: LeaveOut[];
  renormalize: boolean;
  query_window: Range | null;
  key_window: Range | null;
  orientation: Orientation;
}

export const HEAD_DEFAULTS: HeadState = {
  ...RECORD_DEFAULTS,
  combine: "separate",
  top_k: null,
  threshold: 0,
  leave_out: [],
  renormalize: false,
  query_window: null,
  key_window: null,
  orientation: "vertical",
};

/** Return the default window: all tokens if there are at most 100, otherwise the first 64. */
export function defaultWindow(count: number): Range {
  return count <= 100 ? [0, count] : [0, 64];
}

/** Maximum number of tokens in a window. */
const MAX_WINDOW = 2000;

/**
 * Clip a window to a list of `count` tokens. The result has at least one token, unless the list is
 * empty. If `window` is null, return the default window.
 */
export function clipWindow(window: Range | null, count: number): Range {
  if (!window) return defaultWindow(count);
  const start = Math.max(0, Math.min(Math.floor(window[0]), Math.max(0, count - 1)));
  const requestedStop = Math.min(Math.floor(window[1]), count, start + MAX_WINDOW);
  const stop = Math.max(start + 1, requestedStop);
  return [start, Math.min(stop, count)];
}

/** Selection with the displayed tokens and the weights to load. */
export interface Plan extends Selection {
  /** Queries that the view shows. */
  queryWindow: Range;
  /** Keys that the view shows. */
  keyWindow: Range;
  /** Queries whose weights are loaded. */
  rows: Range;
  /** Keys whose weights are loaded. */
  columns: Range;
  /** Number of keys that the loaded queries may attend to. A causal mask excludes later keys. */
  numReached: number;
}

/** Plan with its loaded weights. */
export interface Loaded {
  plan: Plan;
  weights: Weights;
}

/** Maximum number of weights for which a page loads all heads of a layer at once. */
const MAX_PRELOADED = 1_000_000;
/** Maximum number of weights that are loaded in complete rows. */
const MAX_COMPLETE = 4_000_000;
/**
 * Maximum number of keys in rows that are loaded completely. Pages round the smallest weights to 0.
 * In longer rows, the sum of these weights is too large to ignore.
 */
const MAX_COMPLETE_KEYS = 2048;
/** Rows are loaded in multiples of this number. A small move of the window needs no request. */
const ROWS_AT_ONCE = 64;

/** Traits that determine the windows of a plan. */
export type PlanState = Pick<HeadState, "query_window" | "key_window">;

/** Return the plan of a selection: its windows, and the queries and keys to load. */
export function planOf(selection: Selection, state: PlanState): Plan {
  const { heads } = selection;
  const numQueries = selection.queries.text.length;
  const numKeys = selection.keys.text.length;
  const queryWindow = clipWindow(state.query_window, numQueries);
  const keyWindow = clipWindow(state.key_window, numKeys);
  let rows: Range = [
    Math.floor(queryWindow[0] / ROWS_AT_ONCE) * ROWS_AT_ONCE,
    Math.min(numQueries, Math.ceil(queryWindow[1] / ROWS_AT_ONCE) * ROWS_AT_ONCE),
  ];
  const { causal, key_tokens } = selection.stack;
  const numReached = causal && key_tokens === null ? rows[1] : numKeys;
  let columns: Range = [0, numReached];
  const tooLong = numKeys > MAX_COMPLETE_KEYS && keyWindow[1] - keyWindow[0] < numKeys;
  // Load only the window if complete rows would be too large. With complete rows, the weight
  // outside the window is known and the window can move without a request.
  if (tooLong || heads.length * (rows[1] - rows[0]) * numKeys > MAX_COMPLETE) {
    rows = queryWindow;
    columns = keyWindow;
  }
  return { ...selection, queryWindow, keyWindow, rows, columns, numReached };
}

export function windowOf(plan: Pick<Plan, "queryWindow" | "keyWindow">, side: Side): Range {
  return side === "query" ? plan.queryWindow : plan.keyWindow;
}

export function tokensOf<Tokens>(of: { queries: Tokens; keys: Tokens }, side: Side): Tokens {
  return side === "query" ? of.queries : of.keys;
}

/** Return whether the window shows only a part of the keys. */
export function isWindowed({ keyWindow, keys }: Pick<Plan, "keyWindow" | "keys">): boolean {
  return keyWindow[1] - keyWindow[0] < keys.text.length;
}

/** Move a window by `by` tokens, or as far as the ends of the list of `count` tokens allow. */
function moveWindow(window: Range, count: number, by: number): Range {
  const size = window[1] - window[0];
  const start = Math.max(0, Math.min(count - size, window[0] + by));
  return [start, start + size];
}

/** Change the size of a window. Its start moves only if its end would be beyond the list. */
export function resizeWindow(window: Range, count: number, size: number): Range {
  return moveWindow([window[0], window[0] + Math.min(size, count)], count, 0);
}

/**
 * Return `window` if it contains the token `index`. Otherwise return a window of the same size that
 * is centred on the token, or moved to fit the list of `count` tokens.
 */
export function windowAround(window: Range, count: number, index: number): Range {
  if (index >= window[0] && index < window[1]) return window;
  const size = window[1] - window[0];
  return moveWindow([0, size], count, index - Math.floor(size / 2));
}

/**
 * Return values of the window traits that make a token visible. If queries and keys are the same
 * tokens and their windows are equal, both windows move.
 */
export function windowsShowing(
  plan: Plan,
  index: number,
  side: Side = "query",
): Partial<HeadState> {
  const window = windowOf(plan, side);
  // If no window moves, change no trait. A trait that is null must stay null.
  if (index >= window[0] && index < window[1]) return {};
  const { queryWindow: query_window, keyWindow: key_window } = plan;
  const moved = windowAround(window, tokensOf(plan, side).text.length, index);
  if (plan.stack.key_tokens === null && same(query_window, key_window))
    return { query_window: moved, key_window: moved };
  return side === "query"
    ? { query_window: moved, key_window }
    : { query_window, key_window: moved };
}

/**
 * Return the keys to leave out: `leaveOut`, or none if the numbers are signed. Signed numbers are
 * not shares of 1, so they cannot be renormalised over the other keys.
 */
export function leftOutOf(
  { stack }: Selection,
  leaveOut: readonly LeaveOut[],
): readonly LeaveOut[] {
  return stack.signed ? [] : leaveOut;
}

/** Return whether all heads are shown as one combination, because no head is chosen. */
export function isTogether(plan: Pick<Plan, "chosen">): boolean {
  return plan.chosen.length === 0;
}

/** Return the fields of a plan that determine the requested weights and the drawn lines. */
export function partOf(plan: Plan) {
  const { layer, heads, rows, columns, queryWindow, keyWindow } = plan;
  const together = isTogether(plan);
  return { stack: plan.stack.name, layer, heads, together, rows, columns, queryWindow, keyWindow };
}

/** Return whether two plans show the same weights, even if they load different ranges. */
export function sameWeights(a: Plan, b: Plan): boolean {
  const part = (plan: Plan): unknown => ({ ...partOf(plan), rows: null, columns: null });
  return same(part(a), part(b));
}

/** Load the weights of a plan. A page also loads the other heads of the layer if they are small. */
export async function load(source: Source, plan: Plan, signal: AbortSignal): Promise<Loaded> {
  const { layer, rows, columns, numReached, stack, allHeads } = plan;
  const numWeights = (rows[1] - rows[0]) * (columns[1] - columns[0]);
  // A page decodes all heads of the layer at once, unless they have too many weights. The reader
  // can then choose another head without delay.
  const all = !source.transport.live && allHeads.length * numWeights <= MAX_PRELOADED;
  const heads = all ? allHeads : plan.heads;
  const block = await source.block({ stack: stack.name, layer, heads, rows, columns }, signal);
  const matrices = plan.heads.map((head) => block.matrices[heads.indexOf(head)] as Float32Array);
  const { maximum, error } = block;
  const loaded = { heads: plan.heads, matrices, rows, columns, numReached, maximum, error };
  return { plan, weights: { ...loaded, normalized: stack.normalized } };
}
