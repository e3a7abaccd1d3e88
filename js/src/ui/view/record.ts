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
import { headsOf, type Matrix, mapsRead, type Source, wholeOf } from "../../client/source";
import { RECORD_TRAITS, type StateOf } from "../../client/traits";
import type { Connection } from "../../client/transport";
import { withPatchNames } from "../../draw/patches";
import { withPlaceNames } from "../text/places";
import { createAnswer } from "./answer";
import { baseName, layersOf, type ModelLayer, siblingsOf } from "./model-layers";
import type { Opening } from "./opening";
import { type Declared, follow, type Signals } from "./state";

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
export type RecordState = StateOf<typeof RECORD_TRAITS> & {
  _generating: Generating | null;
  opening: Opening | null;
};

/** Feature of views, which has its own part of the store (see `RecordStore.part`). */
export interface Feature {
  /** Fields of the state that are no traits of all views. */
  traits?: Declared<object>;
  /** Start the feature in a new view. */
  start(record: RecordStore): {
    /** Return the description that the view shows. The argument is that of the record. */
    describe?: (description: Description) => Description;
    /** Whether the picture waits for numbers of the feature. */
    loading?: ReadonlySignal<boolean>;
  };
}

/** Return the declarations of the state of a view with the traits `own`. */
export function viewTraits<T extends object>(own: T, features: readonly Feature[] = []) {
  const ofFeatures = Object.assign({}, ...features.map(({ traits }) => traits)) as object;
  return { ...RECORD_TRAITS, ...own, ...ofFeatures };
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
 * Create the store of a view: its record, selection and data as signals, functions that request more
 * data, and the parts of its features.
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
  features: readonly Feature[] = [],
): RecordStore {
  const parts = new Map<unknown, unknown>();
  let started: ReturnType<Feature["start"]>[] = [];
  const change = (whole: Description): Description =>
    started.reduce((all, { describe }) => describe?.(all) ?? all, whole);
  const record: RecordStore = {
    ...createRecord(source, state, ended, drawn, takeUp, change),
    loading: computed(() => started.some(({ loading }) => loading?.value)),
    part: (create) => {
      if (!parts.has(create)) parts.set(create, create(record));
      return parts.get(create) as ReturnType<typeof create>;
    },
  };
  started = features.map((feature) => feature.start(record));
  return record;
}

export interface RecordStore extends ReturnType<typeof createRecord> {
  /** Whether numbers of a feature that the picture needs are loading. */
  loading: ReadonlySignal<boolean>;
  /** Return the part of the store that `create` makes at its first call. */
  part<T>(create: (record: RecordStore) => T): T;
}

function createRecord(
  source: Source,
  state: Signals<RecordState>,
  ended: AbortSignal,
  drawn: ReadonlySignal<string | null>,
  takeUp: (record: number) => void,
  change: (whole: Description) => Description,
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
  const replied = answer(version, (_, signal) => source.describe(signal));
  const number = signal(0);
  const whole = signal<Description | null>(null);
  // When the description of another record arrives, set the description and the traits of this
  // record in one batch. Otherwise, an effect could see the new description with the old traits.
  live(() => {
    const now = replied.latest.value;
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
  const described = computed(() => whole.value && withPatchNames(withPlaceNames(whole.value)));
  const description = computed(() => described.value && change(described.value));
  const selection = computed<Selection | null>(() => {
    const record = description.value;
    return record && selectionOf(record, follow(state));
  });
  const mapsWanted = signal(false);
  const at = computed(() => {
    const current = mapsWanted.value ? selection.value : null;
    return current && { stack: current.stack, layer: current.layer, heads: current.allHeads };
  });
  const maps = answer(at, async ({ stack, layer, heads }, signal) => {
    // A kernel handles one request at a time, and requests for the picture have priority.
    await pictured(signal);
    const whole = { stack: stack.name, layer, heads, ...wholeOf(stack) };
    const request = mapsRead({ ...whole, size: MAP_SIZE });
    const headMaps = await source.maps(stack, request, signal);
    return new Map(heads.map((head, i) => [head, headMaps[i] as Matrix]));
  });

  return {
    source,
    ended,
    /** State that all views have. */
    state,
    /** Description of the record. */
    described,
    /** Description of what the view shows: stacks may be those of a changed run. */
    description,
    /** Number of the record that `description` describes (see `client/record-number.ts`). */
    number,
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
