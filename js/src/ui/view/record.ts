/**
 * State and data of a view of one record: the traits, the selection (stack, layer, heads and pinned
 * tokens), and the data that the kernel or the exported page returns.
 *
 * A record is the stored attention of one run of a model. A stack is a group of attention layers,
 * such as the self-attention of the decoder. Answers to questions are explained in `answer.ts`.
 */

import { batch, computed, effect, type ReadonlySignal, signal, untracked } from "@preact/signals";
import { idle } from "../../client/idle";
import { isAbort } from "../../client/kernel";
import type { Description, StackDescription, TokenList } from "../../client/protocol";
import { type HeadMap, headsOf, type Source } from "../../client/source";
import {
  GENERATED_TOKEN_TRAITS,
  HEAD_ORDER_TRAITS,
  HEAD_ROLES_TRAITS,
  HEADS_VIEW_TRAITS,
  POSITIONED_VIEW_TRAITS,
  RECORD_VIEW_TRAITS,
  type StateOf,
  TOKEN_SCORES_TRAITS,
  VIEW_TRAITS,
  WHAT_IF_TRAITS,
} from "../../client/traits";
import type { Connection } from "../../client/transport";
import { withPatchNames } from "../../draw/patches";
import { headEffectsOf, rankOf, tokenEffectsOf } from "../effects/effects";
import { type Cursor, settled } from "../generated-token/state";
import { BY_ROLE, type HeadRole, roleOf } from "../head-grid/head-roles";
import { BY_PIN, type Pin, pinnedWeights } from "../head-grid/pinned-weights";
import {
  baseName,
  CHANGED_RUN_TRAITS,
  type ChangedRunState,
  createChangedRun,
} from "../what-if/changed-run";
import { createAnswer } from "./answer";
import { layersOf, type ModelLayer, siblingsOf } from "./model-layers";
import type { Opening } from "./opening";
import { assign, follow, type Signals, valuesOf } from "./state";

/** State of a text generation that is running or has failed. */
export interface Generating {
  /** Number of tokens produced so far. */
  came: number;
  /**
   * Maximum number of tokens to produce, or null if only the length of prompt plus generated text
   * is limited.
   */
  most: number | null;
  /** Message of the error that ended the generation. Undefined while the generation is running. */
  problem?: string;
}

export function isGenerating(state: Signals<RecordState>): boolean {
  const now = state._generating.value;
  return now !== null && now.problem === undefined;
}

/**
 * Form of the controls. "full" shows all controls in rows. "compact" shows layer and heads in one
 * row, and the other controls in a box, which a button opens. "none" shows no controls.
 */
export type ControlsForm = "full" | "compact" | "none";

/** State that all views have. A view that lacks a trait in Python has its default. */
const RECORD_TRAITS = {
  ...HEADS_VIEW_TRAITS,
  ...GENERATED_TOKEN_TRAITS,
  ...POSITIONED_VIEW_TRAITS,
  ...VIEW_TRAITS,
  ...RECORD_VIEW_TRAITS,
  ...HEAD_ROLES_TRAITS,
  ...HEAD_ORDER_TRAITS,
  ...TOKEN_SCORES_TRAITS,
  ...WHAT_IF_TRAITS,
};

export type RecordState = StateOf<typeof RECORD_TRAITS> &
  ChangedRunState & { _generating: Generating | null; opening: Opening | null };

/** Return the declarations of the state of a view with the traits `own`. */
export function viewTraits<T extends object>(own: T) {
  return { ...RECORD_TRAITS, ...own, ...CHANGED_RUN_TRAITS };
}

/** Stack, layer, heads and pins that a view shows. All of them exist in the record. */
export type Selection = ReturnType<typeof selectionOf>;

/**
 * Return the selection for a state. If the record lacks the stack of the state, its first stack is
 * selected. If that stack lacks the layer of the state, a sibling that has it is selected (see
 * `model-layers.ts`). Without such a sibling, the first layer is selected. Heads that the layer
 * lacks are omitted. A pin is null if its index is not that of a token.
 */
export function selectionOf(
  description: Description,
  state: Pick<RecordState, "stack" | "layer" | "heads" | "token" | "key"> & { as_query?: boolean },
) {
  const named =
    description.stacks.find((candidate) => baseName(candidate) === state.stack) ??
    description.stacks[0];
  const hasLayer = ({ layers }: StackDescription): boolean => layers.includes(state.layer);
  const stack =
    named && !hasLayer(named) ? (siblingsOf(description, named).find(hasLayer) ?? named) : named;
  if (!stack) throw new Error("The record has no stack of attention layers.");
  const queries = stack.query_tokens;
  const keys = stack.key_tokens ?? queries;
  const layer = stack.layers.includes(state.layer) ? state.layer : stack.layers[0];
  if (layer === undefined) throw new Error(`The stack “${stack.name}” has no layer.`);
  const siblings = siblingsOf(description, stack);
  const layers = layersOf(description, siblings);
  const allHeads = headsOf(stack, layer);
  const chosen = [...new Set(state.heads)].filter((head) => allHeads.includes(head));
  const tokenWithin = (index: number | null, { text }: TokenList): number | null =>
    index !== null && index in text ? index : null;
  return {
    stack,
    queries,
    keys,
    layer,
    /** The stack and its siblings (see `model-layers.ts`), and the layers of all of them. */
    siblings,
    layers,
    /** Entry of `layers` for the selected layer. */
    modelLayer: layers.find((item) => item.stack === stack && item.layer === layer) as ModelLayer,
    /**
     * Numbers of all heads of the layer (`allHeads`) and of the heads that are chosen (`chosen`).
     */
    allHeads,
    chosen,
    /** Heads that are shown: the chosen heads, or all heads if none is chosen. */
    heads: chosen.length > 0 ? chosen : allHeads,
    token: tokenWithin(state.token, queries),
    key: tokenWithin(state.key, keys),
    /**
     * Whether a chosen generated token is shown by the row of weights in which it is the query
     * itself. If false, it is shown by the row of the query that predicted it.
     */
    asQuery: state.as_query === true,
  };
}

/**
 * Heads in display order, with their scores in the same order. `scores` is null if the heads are
 * not ordered by a score.
 */
export type HeadOrder = ReturnType<typeof orderHeads>;

/**
 * Order heads by decreasing score or, if `bySize`, by decreasing absolute value of the score.
 *
 * Heads without a score come last if `minScore` is null. Otherwise, they are dropped, and so are
 * heads whose score (or absolute value, if `bySize`) is less than `minScore`.
 *
 * @param scores scores by number of the head. If null, all heads are kept in their order.
 */
export function orderHeads(
  heads: readonly number[],
  scores: readonly (number | null)[] | null,
  minScore: number | null,
  bySize = false,
) {
  if (!scores) return { heads: [...heads], scores: null };
  const scoreOf = (head: number): number => rankOf(scores[head] ?? null, bySize);
  const shownHeads = heads.filter((head) => minScore === null || scoreOf(head) >= minScore);
  shownHeads.sort((a, b) => scoreOf(b) - scoreOf(a) || a - b);
  return { heads: shownHeads, scores: shownHeads.map((head) => scores[head] ?? null) };
}

/** Progress of a running export of an HTML page, for the message in the frame. */
export interface Job {
  /** Sentence that says what is done and, if known, how far it is. */
  text: string;
  /** Finished share of the job, from 0 to 1, or null if it is unknown. */
  done: number | null;
  cancel: () => void;
}

/** Maximum number of cells per side of the small heat map of a head. */
const MAP_SIZE = 32;
/** Maximum time in milliseconds for which less urgent requests wait for the picture to be drawn. */
const PICTURED_WITHIN_MS = 1_000;

/**
 * Create the store of a view: its record, selection and data as signals, and functions that request
 * more data.
 *
 * @param drawn id of the picture that is drawn (see `setDrawn` in `define-view.tsx`). It is null
 *   while the data of a newer picture are loading.
 * @param takeUp called with the number of a record (see `client/record-number.ts`) when the
 *   description of this record has arrived. It sets the signals of `state` to the traits of this
 *   record.
 */
export function createRecordStore(
  source: Source,
  state: Signals<RecordState>,
  ended: AbortSignal,
  drawn: ReadonlySignal<string | null> = signal(""),
  takeUp: (record: number) => void = () => {},
) {
  const connection = source.transport.connection ?? signal<Connection>("ready");
  // Messages of errors. Each call of `answer` has its own key (`owner`), so that an answer to one
  // question does not remove the error of another. Errors without a question, such as a failed
  // export, have the key `general`. The next answer to any question removes them.
  const failures = signal<ReadonlyMap<object, string>>(new Map());
  const error = computed(() => [...failures.value.values()][0] ?? null);
  const general = {};
  const attempt = signal(0);
  const stops: (() => void)[] = [];
  ended.addEventListener("abort", () => {
    for (const stop of stops) stop();
  });
  /** Run an effect and stop it when the view is removed. */
  const live = (run: () => (() => void) | undefined): void => void stops.push(effect(run));
  const failed = (of: object, reason: unknown): void => {
    if (isAbort(reason) || ended.aborted) return;
    const text = reason instanceof Error ? reason.message : String(reason);
    failures.value = new Map(failures.value).set(of, text);
  };
  const clearErrors = (...of: object[]): void => {
    const remaining = [...failures.peek()].filter(([owner]) => !of.includes(owner));
    if (remaining.length < failures.peek().size) failures.value = new Map(remaining);
  };
  /**
   * Show an error that no question caused, such as a failed export. Ignore an error that says that
   * a request was aborted.
   */
  const fail = (reason: unknown): void => failed(general, reason);

  /**
   * Ask a question whenever it changes, and again after the reader presses "Try again". Return the
   * latest answer and the answer to the current question, as `createAnswer` does. After an error,
   * the frame shows its message until the question is answered or becomes null.
   */
  const answer = <Q, A>(
    question: ReadonlySignal<Q | null>,
    ask: (question: Q, ended: AbortSignal) => Promise<A>,
  ) => {
    const owner = {};
    const answered = createAnswer(question, ask, [attempt], (asked, reason) => {
      if (reason !== undefined) failed(owner, reason);
      else clearErrors(owner, ...(asked === null ? [] : [general]));
    });
    live(answered.run);
    return answered;
  };

  /**
   * Wait until the picture is drawn, until `PICTURED_WITHIN_MS` have passed, or until `over` is
   * aborted. Less urgent requests wait for this, so that they do not delay the picture. In a widget
   * that was stored without its kernel, the promise never resolves, because no request can be
   * answered.
   */
  const pictured = async (over: AbortSignal): Promise<void> => {
    if (source.transport.detached) await new Promise(() => {});
    // First let other effects run that depend on the same change of the state. One of them may
    // request the data of a new picture, and set `drawn` to null.
    await new Promise((resolve) => setTimeout(resolve));
    let stop = (): void => {};
    await new Promise<void>((resolve) => {
      setTimeout(resolve, PICTURED_WITHIN_MS);
      over.addEventListener("abort", () => resolve(), { once: true });
      stop = effect(() => {
        if (drawn.value !== null || over.aborted) resolve();
      });
    });
    stop();
    // A page computes weights on the thread that also paints, so wait until this thread is idle.
    if (!source.transport.live) await idle();
  };

  const version = computed(() => ({ record: source.record.value }));
  const described = answer(version, (_, signal) => source.describe(signal));
  const number = signal(0);
  const whole = signal<Description | null>(null);
  // When the description of another record arrives, set the description and the traits of this
  // record in one batch. Otherwise, an effect could see the new description with the old traits.
  live(() => {
    const now = described.latest.value;
    if (now === null) return undefined;
    untracked(() =>
      batch(() => {
        whole.value = now.answer;
        number.value = now.question.record;
        takeUp(now.question.record);
      }),
    );
    return undefined;
  });
  const changedRun = createChangedRun(
    source,
    state,
    computed(() => whole.value && withPatchNames(whole.value)),
    number,
    live,
  );
  const { description } = changedRun;
  const selection = computed<Selection | null>(() => {
    const record = description.value;
    const { stack, layer, heads, token, key, as_query } = state;
    return record && selectionOf(record, follow({ stack, layer, heads, token, key, as_query }));
  });
  let cursor: Cursor | null = null;
  const settleCursor = (): void => {
    const current = selection.peek();
    if (!current || ended.aborted) return;
    const { token, prediction, as_query } = state;
    const now = valuesOf({ token, prediction, as_query });
    cursor = settled(current.queries.predictions ?? [], cursor, now);
    assign(state, cursor);
  };
  live(() => {
    for (const dependency of [selection, state.token, state.prediction, state.as_query])
      dependency.value;
    // A change of `as_query` moves the pinned query, `token`. A linked view must receive `as_query`
    // before `token`, so set `token` in a microtask, which runs after all listeners of the first
    // change.
    queueMicrotask(settleCursor);
    return undefined;
  });
  const mapsWanted = signal(false);
  const at = computed(() => {
    const current = mapsWanted.value ? selection.value : null;
    return current && { stack: current.stack, layer: current.layer, heads: current.allHeads };
  });
  const maps = answer(at, async ({ stack, layer, heads }, signal) => {
    // A kernel handles one request at a time, and requests for the picture have priority.
    await pictured(signal);
    const request = { stack: stack.name, layer, heads, size: MAP_SIZE };
    const headMaps = await source.maps(stack, request, signal);
    return new Map(heads.map((head, i) => [head, headMaps[i] as HeadMap]));
  });

  const shownStack = computed(() => selection.value?.stack ?? null);
  const roles = computed(() => {
    const stack = shownStack.value;
    return (stack && state.roles.value[baseName(stack)]) ?? null;
  });
  const byRole = computed(() => {
    const stack = shownStack.value;
    const roleScores = stack && state.scores.value[BY_ROLE]?.[baseName(stack)];
    return state.order.value === BY_ROLE && roles.value !== null && !roleScores;
  });
  const pin = computed<Pin | null>(() => {
    const current = selection.value;
    return current && current.token !== null ? { query: current.token, key: current.key } : null;
  });
  const ordered = computed(() => {
    const name = state.order.value;
    const stack = shownStack.value;
    if (!stack || name === "number") return null;
    if (name === BY_PIN) return pin.value && { stack, name, knownScores: null, pin: pin.value };
    const ranks = byRole.value ? roles.value?.ranks : null;
    const knownScores = state.scores.value[name]?.[baseName(stack)] ?? ranks ?? null;
    return knownScores || stack.patterns.includes(name)
      ? { stack, name, knownScores, pin: null }
      : null;
  });
  const { current: scores } = answer(ordered, async ({ stack, name, knownScores, pin }, signal) => {
    if (knownScores) return knownScores;
    return pin
      ? pinnedWeights(source, stack, pin, signal)
      : source.scores(stack.name, name, signal);
  });
  const pair = computed(() => {
    const [stack, pinned] = [shownStack.value, pin.value];
    return stack && pinned && pinned.key !== null ? { stack, pin: pinned } : null;
  });
  const { current: pinnedScores } = answer(pair, async ({ stack, pin }, signal) => {
    await pictured(signal);
    return pinnedWeights(source, stack, pin, signal);
  });
  const headEffects = computed(() => {
    const { order, scores, score_notes, score_errors } = state;
    const values = follow({ order, scores, score_notes, score_errors });
    return shownStack.value && headEffectsOf(shownStack.value, values);
  });
  const order = computed<HeadOrder>(() => {
    const current = selection.value;
    if (!current) return { heads: [], scores: null };
    const rows = scores.value;
    const ofLayer = rows ? (rows[current.stack.layers.indexOf(current.layer)] ?? null) : null;
    const bySize =
      headEffects.value?.name === state.order.value ||
      (state.order.value === BY_PIN && current.stack.signed === true);
    const minScore = byRole.value ? null : state.min_score.value;
    return orderHeads(current.allHeads, ofLayer, minScore, bySize);
  });

  return {
    description,
    /** Number of the record that `description` describes (see `client/record-number.ts`). */
    number,
    /**
     * Run of the model with changed attention: what the kernel measured in the model's output, and
     * the stacks with the changed weights (see `changed-run.ts`).
     */
    changedRun,
    connection,
    /** Message of the oldest error that remains, or null without an error. */
    error,
    selection,
    /**
     * Small heat maps of the heads of the layer, by head. They are requested only after a call of
     * `wantMaps`. null until the first maps are loaded. When the layer changes, the old maps stay
     * until the new ones are loaded.
     */
    maps: computed(() => maps.latest.value?.answer ?? null),
    /** Whether `maps` belong to another layer. */
    hasOldMaps: computed(() => maps.latest.value !== null && maps.current.value === null),
    wantMaps: () => {
      mapsWanted.value = true;
    },
    /**
     * Scores by which the heads of the stack are ordered: one list for each layer, with one score
     * for each head. null until the scores are loaded.
     *
     * Also null if the heads are ordered by number. This is the case if the reader chose this
     * order, if the stack lacks the chosen score, or if the chosen order is "pinned tokens" and no
     * query is pinned.
     */
    scores,
    /** Whether the scores that the chosen order of the heads needs are missing. */
    ordering: computed(() => ordered.value !== null && scores.value === null),
    /**
     * Weights of all heads of the stack from the pinned query to the pinned key. null if one of the
     * two is not pinned, or until the weights are loaded.
     */
    pinnedScores,
    /**
     * Scores that are drawn as one bar for each head, from a zero line. null if the stack has no
     * such scores (see `effects.ts`).
     */
    headEffects,
    /** Roles of the heads of the stack over a corpus, or null if they are unknown. */
    roles,
    roleOf: (head: { layer: number; head: number }): HeadRole | null => {
      const stack = shownStack.value;
      return stack && roleOf(roles.value, stack, head);
    },
    byRole,
    tokenEffects: computed(() => {
      const { token_scores, token_score_notes, token_score } = state;
      const values = follow({ token_scores, token_score_notes, token_score });
      return shownStack.value && tokenEffectsOf(shownStack.value, values);
    }),
    /** Heads of the layer in display order, without the heads that `min_score` excludes. */
    order,
    live,
    fail,
    answer,
    pictured,
    /** Progress of the export of an HTML page, or null if none is running. */
    job: signal<Job | null>(null),
    retry: () => {
      failures.value = new Map();
      source.transport.retry?.();
      attempt.value += 1;
    },
    /**
     * Cancel the requests whose progress the view shows, because the kernel has been computing them
     * for a while (see `isLong` in `client/kernel.ts`).
     */
    stop: () => source.transport.stop?.(),
  };
}

export type RecordStore = ReturnType<typeof createRecordStore>;
