/** State of the head view, and the loading of the weights that it requires. */

import type { Range, StackDescription, TokenList } from "../../client/protocol";
import {
  DEFAULT_WINDOW,
  type HEAD_VIEW_TRAITS,
  MAX_WHOLE_TEXT,
  type StateOf,
} from "../../client/traits";
import {
  type BySide,
  bySide,
  type Exclusion,
  isWithin,
  openingWindows,
  type Side,
  sizeOf,
  type TokenAxis,
  tokenAxis,
  windowAround,
} from "../../ui/axis";
import { keysInWords, pairOf, textOf } from "../../ui/pairs";
import { quoted } from "../../ui/text/captions";
import type { RecordState, Selection } from "../../ui/view/record";
import { same } from "../../ui/view/state";

export type HeadState = RecordState & StateOf<typeof HEAD_VIEW_TRAITS>;
export type Combine = HeadState["combine"];
/** Entry of the keys to leave out: special tokens, the first token, or the index of a key. */
export type LeaveOut = HeadState["leave_out"][number];

/**
 * Return the changes of traits with a change of the stack. The default number of keys, which Python
 * sends, is replaced by that of the new stack. Windows and left-out keys are token indices, which
 * mean other tokens in another stack.
 */
export function changesWithStack(
  { top_k, leave_out }: Pick<HeadState, "top_k" | "leave_out">,
  from: Pick<StackDescription, "top_k"> | undefined,
  to: Pick<StackDescription, "top_k" | "query_tokens" | "key_tokens">,
): Partial<HeadState> {
  return {
    ...(from && top_k === (from.top_k ?? null) && { top_k: to.top_k ?? null }),
    ...openingWindows(to, (count) => clipWindow(null, count)),
    leave_out: leave_out.filter((item) => typeof item === "string"),
  };
}

/** Maximum number of tokens in a window. */
const MAX_WINDOW = 2000;

/**
 * Clip a window to a list of `count` tokens. The result has at least one token, unless the list is
 * empty. If `window` is null, return the default window.
 */
export function clipWindow(window: Range | null, count: number): Range {
  if (!window) return [0, count <= MAX_WHOLE_TEXT ? count : DEFAULT_WINDOW];
  const [first, last] = window;
  const start = Math.max(0, Math.min(first, count - 1));
  const stop = Math.max(start + 1, Math.min(last, start + MAX_WINDOW));
  return [start, Math.min(stop, count)];
}

/** Selected stack, layer and heads, with the visible tokens and the weights to load. */
export interface Plan extends Selection {
  axes: BySide<TokenAxis>;
  /** Queries whose weights are loaded. */
  rows: Range;
  /** Keys whose weights are loaded. */
  columns: Range;
  /** Number of keys that the loaded queries may attend to. A causal mask excludes later keys. */
  numReached: number;
}

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

/** Return the name in captions of the keys that the reader leaves out. */
function leftOutInWords({ text }: TokenList, leaveOut: readonly LeaveOut[]): string {
  const words = leaveOut.map((item) => {
    if (item === "special") return "special tokens";
    return item === "first" ? "first token" : quoted(text[item] ?? `#${item}`);
  });
  return words.join(", ");
}

/** Return the tokens of a side that do not count, by the choices of the reader. */
function exclusionsOf(selection: Selection, state: PlanState, side: Side): Exclusion[] {
  const tokens = side === "query" ? selection.queries : selection.keys;
  const exclusion = (
    words: string,
    look: Exclusion["look"],
    has: (token: number) => boolean,
  ): Exclusion => {
    return { words, look, flags: Uint8Array.from(tokens.text, (_, token) => Number(has(token))) };
  };
  const exclusions: Exclusion[] = [];
  const { leave_out: leaveOut } = state;
  // Signed numbers are not shares of 1, so no keys can be left out.
  if (side === "key" && !selection.stack.signed && leaveOut.length > 0) {
    const all = new Set(leaveOut.flatMap((item) => (item === "special" ? tokens.special : item)));
    const isLeftOut = (key: number): boolean => all.has(key) || (key === 0 && all.has("first"));
    exclusions.push(exclusion(leftOutInWords(tokens, leaveOut), "struck", isLeftOut));
  }
  const pair = pairOf(selection, state.pair);
  if (pair !== "all") {
    const words = `tokens outside ${keysInWords(pair, selection.queries)}`;
    const chosen = textOf(pair, side);
    exclusions.push(exclusion(words, "muted", (token) => tokens.sequence[token] !== chosen));
  }
  return exclusions;
}

export type PlanState = Omit<HeadState, keyof RecordState> & Pick<HeadState, "pair">;

/**
 * Return the plan of a selection: its axes, and the queries and keys to load.
 *
 * @param windows visible tokens. By default, those of the traits.
 */
export function planOf(
  selection: Selection,
  state: PlanState,
  windows: Partial<BySide<Pick<TokenAxis, "window">>> = {},
): Plan {
  const axes = bySide((side) => {
    const tokens = side === "query" ? selection.queries : selection.keys;
    const window = windows[side]?.window ?? clipWindow(state[`${side}_window`], tokens.text.length);
    return tokenAxis(side, tokens, window, exclusionsOf(selection, state, side));
  });
  const [numQueries, numKeys] = [selection.queries.text.length, selection.keys.text.length];
  const [first, stop] = axes.query.window;
  let rows: Range = [
    Math.floor(first / ROWS_AT_ONCE) * ROWS_AT_ONCE,
    Math.min(numQueries, Math.ceil(stop / ROWS_AT_ONCE) * ROWS_AT_ONCE),
  ];
  const { causal, key_tokens } = selection.stack;
  const numReached = causal && key_tokens === null ? rows[1] : numKeys;
  let columns: Range = [0, numReached];
  const tooLong = numKeys > MAX_COMPLETE_KEYS && sizeOf(axes.key.window) < numKeys;
  // Load only the window if complete rows would be too large. With complete rows, the weight
  // outside the window is known and the window can move without a request.
  if (tooLong || selection.heads.length * sizeOf(rows) * numKeys > MAX_COMPLETE) {
    rows = axes.query.window;
    columns = axes.key.window;
  }
  return { ...selection, axes, rows, columns, numReached };
}

/**
 * Return the window of the queries or of the keys. If the token is outside of it, move the window so
 * that the token is in its middle.
 */
export function windowShowing({ axes }: Plan, side: Side, index: number): Range {
  const { window, tokens } = axes[side];
  if (isWithin(window, index)) return window;
  return windowAround(index, sizeOf(window), [0, tokens.text.length]);
}

/** Return whether queries and keys have a common window: the same range of the same tokens. */
export function hasOneWindow({ stack, axes }: Plan): boolean {
  return stack.key_tokens === null && same(axes.query.window, axes.key.window);
}

/**
 * Return values of the window traits that contain a token, or no traits if they contain it. If
 * queries and keys have a common window, it moves. Otherwise only the window of `side` moves.
 */
export function windowsShowing(
  plan: Plan,
  index: number,
  side: Side = "query",
): Partial<HeadState> {
  // If no window moves, change no trait. A trait that is null must stay null.
  const { query, key } = plan.axes;
  if (isWithin(plan.axes[side].window, index)) return {};
  const moved = windowShowing(plan, side, index);
  if (hasOneWindow(plan)) return { query_window: moved, key_window: moved };
  return { query_window: query.window, key_window: key.window, [`${side}_window`]: moved };
}

/**
 * Return how the heads of a plan are combined. If no head is chosen, "separate" stands for "mean".
 * A single head is always separate.
 */
export function combineOf(
  { heads, chosen }: Pick<Plan, "heads" | "chosen">,
  combine: Combine,
): Combine {
  if (heads.length === 1) return "separate";
  return combine === "separate" && chosen.length === 0 ? "mean" : combine;
}

/** Return the request of a plan: for a matrix of each head, or for one of the combined heads. */
export function requestOf(plan: Plan, combine: Combine) {
  const { stack, layer, heads, rows, columns } = plan;
  return { stack: stack.name, layer, heads, combine: combineOf(plan, combine), rows, columns };
}
