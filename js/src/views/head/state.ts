/** What the head view's state asks of a record, and the loading of it. */

import type { Range } from "../../client/protocol";
import type { Piece, Source } from "../../client/source";
import { RECORD_DEFAULTS, type RecordState, type Selection } from "../../ui/view/record";
import { same } from "../../ui/view/state";
import type { Orientation, Side } from "./layout";
import type { Combine, LeaveOut, Weights } from "./lines";

/** The head view's traits; the names are Python's. */
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

/** The default window of a list of tokens: all up to a hundred, else the first 64. */
export function defaultWindow(count: number): Range {
  return count <= 100 ? [0, count] : [0, 64];
}

/** More tokens than this are never laid out at once. */
const MOST_IN_SIGHT = 2000;

/** A window that lies inside the list, whatever was asked for. */
export function clipWindow(window: Range | null, count: number): Range {
  if (!window) return defaultWindow(count);
  const start = Math.max(0, Math.min(Math.floor(window[0]), Math.max(0, count - 1)));
  const asked = Math.min(Math.floor(window[1]), count, start + MOST_IN_SIGHT);
  const stop = Math.max(start + 1, asked);
  return [start, Math.min(stop, count)];
}

/** A place, and what of it is in sight. */
export interface Plan extends Selection {
  queryWindow: Range;
  keyWindow: Range;
  /** The loaded weights: all of the windows that can have weight. */
  rows: Range;
  columns: Range;
  /** Keys that the loaded queries may attend to: of a causal text none that is ahead of all. */
  numReached: number;
}

/** Weights of one plan, in hand. */
export interface Loaded {
  plan: Plan;
  weights: Weights;
}

/** Values that are loaded at once so that what comes next is already there. */
const SMALL = 1_000_000;
const LARGE = 4_000_000;
/** Of longer rows the least weights, which a byte cannot tell from none, are too much together. */
const MOST_KEYS = 2048;
/** Rows are loaded in whole runs of this many, so that a window can move without a request. */
const ROWS_AT_ONCE = 64;

/** What of the state a plan depends on. */
export type PlanState = Pick<HeadState, "query_window" | "key_window">;

/** The part of a place that is in sight, and what has to be loaded for it. */
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
  const tooLong = numKeys > MOST_KEYS && keyWindow[1] - keyWindow[0] < numKeys;
  // Whole rows say how much weight goes where, and the window can move without a request.
  if (tooLong || heads.length * (rows[1] - rows[0]) * numKeys > LARGE) {
    rows = queryWindow;
    columns = keyWindow;
  }
  return { ...selection, queryWindow, keyWindow, rows, columns, numReached };
}

/** Whether only a part of the keys is in sight. */
export function isWindowed({ keyWindow, keys }: Pick<Plan, "keyWindow" | "keys">): boolean {
  return keyWindow[1] - keyWindow[0] < keys.text.length;
}

/** Moves a window by whole steps, inside the list. */
function moveWindow(window: Range, count: number, by: number): Range {
  const size = window[1] - window[0];
  const start = Math.max(0, Math.min(count - size, window[0] + by));
  return [start, start + size];
}

/** A window of another size that keeps its start where it can. */
export function resizeWindow(window: Range, count: number, size: number): Range {
  return moveWindow([window[0], window[0] + Math.min(size, count)], count, 0);
}

/** A window of the same size with the token near its middle. */
export function windowAround(window: Range, count: number, index: number): Range {
  if (index >= window[0] && index < window[1]) return window;
  const size = window[1] - window[0];
  return moveWindow([0, size], count, index - Math.floor(size / 2));
}

/** Windows that have a token of a side in sight; of the same tokens both go to it. */
export function windowsShowing(
  plan: Plan,
  index: number,
  side: Side = "query",
): Partial<HeadState> {
  const { queryWindow, keyWindow, queries, keys } = plan;
  const window = side === "query" ? queryWindow : keyWindow;
  // Windows that need not move keep their default.
  if (index >= window[0] && index < window[1]) return {};
  const query_window =
    side === "query" ? windowAround(queryWindow, queries.text.length, index) : queryWindow;
  const together = plan.stack.key_tokens === null && same(queryWindow, keyWindow);
  const key_window = together
    ? query_window
    : side === "key"
      ? windowAround(keyWindow, keys.text.length, index)
      : keyWindow;
  return { query_window, key_window };
}

/** The same of a place, for a view that shows this one in a part of it. */
export function windowsWith(
  selection: Selection,
  windows: PlanState,
  index: number,
  side: Side,
): Partial<HeadState> {
  return windowsShowing(planOf(selection, windows), index, side);
}

/**
 * What is left out: nothing of signed numbers, which are not shares of one that others could take
 * over; so they are not renormalised either.
 */
export function leftOutOf(
  { stack }: Selection,
  leaveOut: readonly LeaveOut[],
): readonly LeaveOut[] {
  return stack.signed ? [] : leaveOut;
}

/** Whether all heads are shown together because none is chosen: all may be chosen, too. */
export function isTogether(plan: Pick<Plan, "chosen">): boolean {
  return plan.chosen.length === 0;
}

/** What of a plan has to be asked for, and what tells two plots of it apart. */
export function partOf(plan: Plan) {
  const { layer, heads, rows, columns, queryWindow, keyWindow } = plan;
  const together = isTogether(plan);
  return { stack: plan.stack.name, layer, heads, together, rows, columns, queryWindow, keyWindow };
}

/** Whether two plans show the same weights. */
export function sameWeights(a: Plan, b: Plan): boolean {
  const part = (plan: Plan): unknown => ({ ...partOf(plan), rows: null, columns: null });
  return same(part(a), part(b));
}

function weightsOf(plan: Plan, piece: Piece): Weights {
  return {
    heads: plan.heads,
    matrices: piece.matrices,
    rows: plan.rows,
    columns: plan.columns,
    numReached: plan.numReached,
    normalized: plan.stack.normalized,
    maximum: piece.maximum,
    error: piece.error,
  };
}

/** Loads what a plan needs. */
export async function load(source: Source, plan: Plan, signal: AbortSignal): Promise<Loaded> {
  const values = (plan.rows[1] - plan.rows[0]) * (plan.columns[1] - plan.columns[0]);
  // A page has all heads at hand where they fit into one reply, so that choosing another is instant.
  const all = !source.carrier.live && plan.allHeads.length * values <= SMALL;
  const heads = all ? plan.allHeads : plan.heads;
  const request = {
    stack: plan.stack.name,
    layer: plan.layer,
    heads,
    rows: plan.rows,
    columns: plan.columns,
  };
  const piece = await source.block(request, signal);
  const matrices = plan.heads.map((head) => piece.matrices[heads.indexOf(head)] as Float32Array);
  return { plan, weights: weightsOf(plan, { ...piece, matrices }) };
}
