/** State of the head view, and the loading of the weights that it requires. */

import type { Range, StackDescription } from "../../client/protocol";
import type { Source, WeightBlock } from "../../client/source";
import {
  DEFAULT_WINDOW,
  type HEAD_VIEW_TRAITS,
  MAX_WHOLE_TEXT,
  type StateOf,
} from "../../client/traits";
import type { RecordState, Selection } from "../../ui/view/record";
import { same } from "../../ui/view/state";

export const SIDES = ["query", "key"] as const;
export type Side = (typeof SIDES)[number];

export type HeadState = RecordState & StateOf<typeof HEAD_VIEW_TRAITS>;
export type Combine = HeadState["combine"];
export type LeaveOut = HeadState["leave_out"][number];

/**
 * Return `top_k` after a change of the stack. The default of the old stack is replaced by that of the
 * new stack. Any other value, which the reader chose, is kept. Python sends the defaults.
 */
export function topKAfter(
  topK: number | null,
  { from, to }: { from: StackDescription; to: StackDescription },
): number | null {
  return topK === (from.top_k ?? null) ? (to.top_k ?? null) : topK;
}

/** Maximum number of tokens in a window. */
const MAX_WINDOW = 2000;

/**
 * Clip a window to a list of `count` tokens. The result has at least one token, unless the list is
 * empty. If `window` is null, return the default window.
 */
export function clipWindow(window: Range | null, count: number): Range {
  if (!window) return [0, count <= MAX_WHOLE_TEXT ? count : DEFAULT_WINDOW];
  const start = Math.max(0, Math.min(window[0], count - 1));
  const stop = Math.max(start + 1, Math.min(window[1], start + MAX_WINDOW));
  return [start, Math.min(stop, count)];
}

/** Selected stack, layer and heads, with the displayed tokens and the weights to load. */
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

/** Maximum number of weights for which a page loads all heads of a layer at once. */
const MAX_PRELOADED = 1_000_000;
/** Maximum number of weights that are loaded in complete rows. */
const MAX_COMPLETE = 4_000_000;
/**
 * Maximum number of keys in rows that are loaded completely. Pages round the smallest weights to 0.
 * In longer rows, the sum of these weights is too large to ignore.
 */
const MAX_COMPLETE_KEYS = 2048;
/**
 * Rows are loaded in multiples of this number, so that a small move of the window needs no request.
 */
const ROWS_AT_ONCE = 64;

/** Return the plan of a selection: its windows, and the queries and keys to load. */
export function planOf(
  selection: Selection,
  state: Pick<HeadState, "query_window" | "key_window">,
): Plan {
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

/** Return a window of `size` tokens that begins at `start`, or as near as `count` tokens allow. */
export function windowAt(start: number, size: number, count: number): Range {
  const fitting = Math.min(size, count);
  const first = Math.max(0, Math.min(count - fitting, start));
  return [first, first + fitting];
}

/** Return whether a token is in the window of its side. */
export function isInSight(plan: Plan, side: Side, index: number): boolean {
  const [start, stop] = windowOf(plan, side);
  return index >= start && index < stop;
}

/**
 * Return the window of the queries or of the keys. If the token is not in it, move the window so
 * that the token is in its middle.
 */
export function windowAround(plan: Plan, side: Side, index: number): Range {
  const window = windowOf(plan, side);
  if (isInSight(plan, side, index)) return window;
  const size = window[1] - window[0];
  return windowAt(index - Math.floor(size / 2), size, tokensOf(plan, side).text.length);
}

/** Return whether queries and keys have a common window: the same range of the same tokens. */
export function hasOneWindow({ stack, queryWindow, keyWindow }: Plan): boolean {
  return stack.key_tokens === null && same(queryWindow, keyWindow);
}

/**
 * Return values of the window traits that make a token visible, or no traits if it is visible. If
 * queries and keys have a common window, it moves. Otherwise only the window of `side` moves.
 */
export function windowsShowing(
  plan: Plan,
  index: number,
  side: Side = "query",
): Partial<HeadState> {
  // If no window moves, change no trait. A trait that is null must stay null.
  if (isInSight(plan, side, index)) return {};
  const moved = windowAround(plan, side, index);
  if (hasOneWindow(plan)) return { query_window: moved, key_window: moved };
  return { query_window: plan.queryWindow, key_window: plan.keyWindow, [`${side}_window`]: moved };
}

/** Return the fields of a plan that determine the requested weights and the drawn lines. */
export function partOf({ stack, layer, heads, chosen, ...plan }: Plan) {
  const { rows, columns, queryWindow, keyWindow } = plan;
  const noneChosen = chosen.length === 0;
  return { stack: stack.name, layer, heads, noneChosen, rows, columns, queryWindow, keyWindow };
}

/**
 * Load the weights of a plan. In an exported page, load all heads of the layer, unless they have
 * more than `MAX_PRELOADED` weights together.
 */
export async function load(source: Source, plan: Plan, signal: AbortSignal) {
  const { layer, rows, columns, stack, allHeads } = plan;
  const numWeights = (rows[1] - rows[0]) * (columns[1] - columns[0]);
  // The reader can then choose another head without delay.
  const all = !source.transport.live && allHeads.length * numWeights <= MAX_PRELOADED;
  const heads = all ? allHeads : plan.heads;
  const block = await source.block({ stack: stack.name, layer, heads, rows, columns }, signal);
  const matrices = plan.heads.map((head) => block.matrices[heads.indexOf(head)] as Float32Array);
  const weights: WeightBlock = { ...block, matrices };
  return { plan, weights };
}
