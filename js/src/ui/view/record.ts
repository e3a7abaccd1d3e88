/**
 * What every view shows of a record: its state, the place that it is at, and what is asked for
 * at that place.
 */

import {
  batch,
  computed,
  effect,
  type ReadonlySignal,
  type Signal,
  signal,
  untracked,
} from "@preact/signals";
import { idle } from "../../client/idle";
import { isAbort } from "../../client/kernel";
import type { Description, StackDescription, TokenList } from "../../client/protocol";
import { headsOf, type Scores, type Source, type WeightBlock } from "../../client/source";
import type { Connection } from "../../client/transport";
import { withPatchNames } from "../../draw/patches";
import type { ThemeName } from "../colors/palette";
import { headEffectsOf, rankOf, tokenEffectsOf } from "../effects/effects";
import { type Cursor, settled } from "../generated-token/state";
import { BY_ROLE, type HeadRole, type NamedHeads, roleOf } from "../head-grid/head-roles";
import { BY_PIN, isSamePin, type Pin, pinnedWeights } from "../head-grid/pinned-weights";
import type { Pair } from "../pairs";
import {
  baseName,
  CHANGED_RUN_DEFAULTS,
  type ChangedRunState,
  createChangedRun,
  readChanges,
  readShownRun,
} from "../what-if/changed-run";
import type { Opening } from "./opening";
import { assign, type HashFields, readIndex, readIndices, type Signals } from "./state";

/** A generation that goes on, or has failed. */
export interface Generating {
  /** Tokens that have come, and that may come; null where only the whole length is bounded. */
  came: number;
  most: number | null;
  /** The error that ended it. */
  problem?: string;
}

/** Whether more tokens may come. */
export function isGenerating(state: Signals<RecordState>): boolean {
  const now = state._generating.value;
  return now !== null && now.problem === undefined;
}

/** The traits that every view has; the names are Python's. */
export interface RecordState extends ChangedRunState {
  stack: string;
  /** The model's own number. */
  layer: number;
  /** In order of choice; empty for all together. */
  heads: number[];
  /**
   * Which of the tokens that the model produced is shown, and whether by the row where it is
   * itself the query. Before the pin, which they move: linked views hear of them in this order.
   */
  as_query: boolean;
  prediction: number | null;
  /** The pinned query and the pinned key. */
  token: number | null;
  key: number | null;
  /** Of a pair of texts, whose queries and whose keys. */
  pair: Pair;
  /** "number", "pinned", or the name of the scores that heads are ordered by. */
  order: string;
  /** Heads with a lower score, or one that is smaller in size, are not offered. */
  least_score: number | null;
  /** Scores that were given: by name, then by stack. */
  scores: Record<string, Record<string, Scores>>;
  /** What they measure, in words, by name. */
  score_notes: Record<string, string>;
  /** What heads do over a corpus, by stack. */
  roles: Record<string, NamedHeads>;
  /** Their standard errors: by name, then by stack. */
  score_errors: Record<string, Record<string, Scores>>;
  /** Numbers of the keys: by name, then by stack; and what they measure. */
  token_scores: Record<string, Record<string, (number | null)[]>>;
  token_score_notes: Record<string, string>;
  /** Which of them is drawn: the first where it is null. */
  token_score: string | null;
  theme: "auto" | ThemeName;
  /** Which controls are in sight; "auto" is "full", and "compact" in a small frame. */
  controls: "auto" | ControlsForm;
  /** How far a generation is whose text is shown; null where there is none, and to end it. */
  _generating: Generating | null;
  /** Where the view opened, and why there; null where that was given. Never set here. */
  opening: Opening | null;
}

/** All in rows; layer and heads in one row and the rest behind a button; none. */
export type ControlsForm = "full" | "compact" | "none";

export const RECORD_DEFAULTS: RecordState = {
  stack: "",
  layer: 0,
  heads: [],
  as_query: false,
  prediction: null,
  token: null,
  key: null,
  pair: "all",
  order: "number",
  least_score: null,
  scores: {},
  score_notes: {},
  roles: {},
  score_errors: {},
  token_scores: {},
  token_score_notes: {},
  token_score: null,
  theme: "auto",
  controls: "auto",
  _generating: null,
  opening: null,
  ...CHANGED_RUN_DEFAULTS,
};

/** What a page's URL keeps. */
export const RECORD_HASH: HashFields<RecordState> = {
  stack: (text) => text,
  layer: readIndex,
  heads: readIndices,
  as_query: (text) => text === "true",
  prediction: readIndex,
  token: readIndex,
  key: readIndex,
  changes: readChanges,
  shown_run: readShownRun,
};

/** Where in a record a view is, made whole: every part of it is there in the record. */
export interface Selection {
  stack: StackDescription;
  queries: TokenList;
  keys: TokenList;
  layer: number;
  /** Numbers of all heads of the layer, and of the chosen ones among them. */
  allHeads: number[];
  chosen: number[];
  /** Heads that are shown: the chosen, or all where none is. */
  heads: number[];
  token: number | null;
  key: number | null;
  /** Whether tokens that the model produced are shown where they are queries themselves. */
  asQuery?: boolean;
}

function within(index: number | null, count: number): number | null {
  return index !== null && index >= 0 && index < count ? index : null;
}

/** What a state means for a record; what the record does not have falls back to what it has. */
export function selectionOf(
  description: Description,
  state: Pick<RecordState, "stack" | "layer" | "heads" | "token" | "key"> & { as_query?: boolean },
): Selection {
  const stack =
    description.stacks.find((each) => baseName(each) === state.stack) ?? description.stacks[0];
  if (!stack) throw new Error("The record has no stack of attention layers.");
  const queries = stack.query_tokens;
  const keys = stack.key_tokens ?? queries;
  const at = Math.max(0, stack.layers.indexOf(state.layer));
  const layer = stack.layers[at];
  if (layer === undefined) throw new Error(`The stack “${stack.name}” has no layer.`);
  const wanted = [...new Set(state.heads)];
  const allHeads = headsOf(stack, layer);
  const chosen = wanted.filter((head) => allHeads.includes(head));
  return {
    stack,
    queries,
    keys,
    layer,
    allHeads,
    chosen,
    heads: chosen.length > 0 ? chosen : allHeads,
    token: within(state.token, queries.text.length),
    key: within(state.key, keys.text.length),
    asQuery: state.as_query === true,
  };
}

/** Heads in the order in which they are offered, with the scores that they are ordered by. */
export interface HeadOrder {
  heads: number[];
  /** As many as `heads`; null where they are ordered by their number. */
  scores: (number | null)[] | null;
}

/**
 * Heads by falling score, or by its size; those without one last, those below the least score not
 * at all.
 */
export function orderHeads(
  heads: readonly number[],
  scores: readonly (number | null)[] | null,
  least: number | null,
  bySize = false,
): HeadOrder {
  if (!scores) return { heads: [...heads], scores: null };
  const scoreOf = (head: number): number => rankOf(scores[head] ?? null, bySize);
  const kept = heads.filter((head) => least === null || scoreOf(head) >= least);
  kept.sort((a, b) => scoreOf(b) - scoreOf(a) || a - b);
  return { heads: kept, scores: kept.map((head) => scores[head] ?? null) };
}

/** A question and what was answered. */
export interface Answer<Q, A> {
  question: Q;
  answer: A;
}

/** Maps of some heads, in their order. */
export interface HeadMaps extends WeightBlock {
  heads: number[];
}

/** Work that a kernel does for the reader, who waits for it. */
export interface Job {
  /** What is done, how far it is and how long it takes, in words. */
  text: string;
  /** Share that is done, 0 to 1; null where that is not known. */
  done: number | null;
  cancel: () => void;
}

/** Maps in the strip have at most this many cells a side. */
const MAP_SIZE = 32;
/** What takes a picture longer keeps nothing else waiting. */
const PICTURED_WITHIN_MS = 1_000;
/** Weights that maps asked for together are made from: a few tenths of a second of computing. */
const WEIGHTS_AT_ONCE = 1 << 25;

export function createRecordStore(
  source: Source,
  state: Signals<RecordState>,
  ended: AbortSignal,
  drawn: ReadonlySignal<string | null> = signal(""),
  takeUp: (record: number) => void = () => {},
) {
  const connection = signal<Connection>("ready");
  // Each question's own, so that an answer to one does not hide that another has none.
  const failures = signal<ReadonlyMap<object, string>>(new Map());
  const error = computed(() => [...failures.value.values()][0] ?? null);
  const general = {};
  const attempt = signal(0);
  const stops: (() => void)[] = [];
  ended.addEventListener("abort", () => {
    for (const stop of stops) stop();
  });
  /** Runs an effect until the view ends. */
  const live = (run: () => (() => void) | undefined): void => {
    stops.push(effect(run));
  };
  const failed = (of: object, reason: unknown): void => {
    if (isAbort(reason) || ended.aborted) return;
    const text = reason instanceof Error ? reason.message : String(reason);
    failures.value = new Map(failures.value).set(of, text);
  };
  const forget = (...of: object[]): void => {
    const left = [...failures.peek()].filter(([each]) => !of.includes(each));
    if (left.length < failures.peek().size) failures.value = new Map(left);
  };
  /** Shows an error, unless it only says that a request was aborted. */
  const fail = (reason: unknown): void => failed(general, reason);
  source.transport.watch((value) => {
    connection.value = value;
  }, ended);

  /**
   * Asks when the question changes, and again on "Try again". The last answer stays until the
   * next has come; null asks nothing.
   */
  const answer = <Q, A>(
    question: ReadonlySignal<Q | null>,
    ask: (question: Q, ended: AbortSignal) => Promise<A>,
  ): Signal<Answer<Q, A> | null> => {
    const given = signal<Answer<Q, A> | null>(null);
    // By its text, so that an equal question is not asked again.
    const text = computed(() => JSON.stringify(question.value));
    live(() => {
      attempt.value;
      text.value;
      const asked = untracked(() => question.value);
      if (asked === null) {
        // Nothing is asked, so nothing is wrong with the answer.
        forget(given);
        return undefined;
      }
      const controller = new AbortController();
      ask(asked, controller.signal)
        .then((value) => {
          batch(() => {
            given.value = { question: asked, answer: value };
            forget(given, general);
          });
        })
        .catch((reason: unknown) => {
          // What went wrong with a question that was given up says nothing of the next one.
          if (!controller.signal.aborted) failed(given, reason);
        });
      return () => controller.abort();
    });
    return given;
  };

  /**
   * Waits until the picture is drawn: what is not in the picture comes after it. It is awaited no
   * longer than a moment. A stored widget never gets it.
   */
  const pictured = async (over: AbortSignal): Promise<void> => {
    if (source.transport.detached) await new Promise(() => {});
    // Whatever follows the same change has then heard of it.
    await new Promise((resolve) => setTimeout(resolve));
    if (drawn.peek() === null && !over.aborted) await drawnOrLate(over);
    // A page computes where it paints.
    if (!source.transport.live) await idle();
  };
  const drawnOrLate = (over: AbortSignal): Promise<void> =>
    new Promise<void>((resolve) => {
      const go = (): void => {
        clearTimeout(late);
        stop();
        resolve();
      };
      const late = setTimeout(go, PICTURED_WITHIN_MS);
      const stop = effect(() => {
        if (drawn.value !== null) go();
      });
      over.addEventListener("abort", go, { once: true });
    });

  const version = computed(() => ({ record: source.record.value }));
  const described = answer(version, (_, signal) => source.describe(signal));
  const number = signal(0);
  const whole = signal<Description | null>(null);
  // A record and what belongs to it take their places in one step.
  live(() => {
    const now = described.value;
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
    return (
      record &&
      selectionOf(record, {
        stack: stack.value,
        layer: layer.value,
        heads: heads.value,
        token: token.value,
        key: key.value,
        as_query: as_query.value,
      })
    );
  });
  let cursor: Cursor | null = null;
  const settleCursor = (): void => {
    const here = selection.peek();
    if (!here || ended.aborted) return;
    cursor = settled(here.queries.predictions ?? [], cursor, {
      token: state.token.peek(),
      prediction: state.prediction.peek(),
      as_query: state.as_query.peek(),
    });
    assign(state, cursor);
  };
  live(() => {
    for (const each of [selection, state.token, state.prediction, state.as_query]) each.value;
    // After all listeners of the change: where traits are linked one by one, the other view has to
    // hear of the switch before it hears of the query that the switch moved.
    queueMicrotask(settleCursor);
    return undefined;
  });
  const mapsWanted = signal(false);
  const at = computed(() => {
    const here = mapsWanted.value ? selection.value : null;
    if (!here) return null;
    const { stack, layer, allHeads, queries, keys } = here;
    const longest = Math.max(queries.text.length, keys.text.length);
    // Of a long text a few heads at once, so that the kernel has a turn for other questions.
    const together = Math.max(1, Math.floor(WEIGHTS_AT_ONCE / (MAP_SIZE * longest)));
    return { stack: stack.name, layer, heads: allHeads, together };
  });
  const maps = answer(at, async ({ heads, together, ...where }, signal): Promise<HeadMaps> => {
    const size = MAP_SIZE;
    // A kernel answers in turn: what the view is of, first.
    await pictured(signal);
    if (heads.length <= together)
      return { heads, ...(await source.maps({ ...where, size }, signal)) };
    const some = heads.flatMap((_, i) => (i % together ? [] : [heads.slice(i, i + together)]));
    const pieces = await Promise.all(
      some.map((each) => source.maps({ ...where, size, heads: each }, signal)),
    );
    const matrices = pieces.flatMap((each) => each.matrices);
    return { heads, ...(pieces[0] as WeightBlock), matrices };
  });

  const roles = computed(() => {
    const stack = selection.value?.stack;
    return (stack && state.roles.value[baseName(stack)]) ?? null;
  });
  const byRole = computed(() => {
    const stack = selection.value?.stack;
    const given = stack && state.scores.value[BY_ROLE]?.[baseName(stack)];
    return state.order.value === BY_ROLE && roles.value !== null && given === undefined;
  });
  const pin = computed<Pin | null>(() => {
    const here = selection.value;
    return here && here.token !== null ? { query: here.token, key: here.key } : null;
  });
  const ordered = computed(() => {
    const name = state.order.value;
    const stack = selection.value?.stack;
    if (!stack || name === "number") return null;
    if (name === BY_PIN) return pin.value && { stack, name, given: null, pin: pin.value };
    const ranks = byRole.value ? roles.value?.ranks : null;
    const given = state.scores.value[name]?.[baseName(stack)] ?? ranks ?? null;
    return given || stack.patterns.includes(name) ? { stack, name, given, pin: null } : null;
  });
  const scored = answer(ordered, async ({ stack, name, given, pin }, signal) => {
    if (given) return given;
    return pin
      ? pinnedWeights(source, stack, pin, signal)
      : source.scores(stack.name, name, signal);
  });
  const scores = computed(() => {
    const wanted = ordered.value;
    const had = scored.value;
    // The scores of another stack, of another name or of other pinned tokens say nothing here.
    const fits =
      had?.question.stack.name === wanted?.stack.name &&
      had?.question.name === wanted?.name &&
      isSamePin(had?.question.pin ?? null, wanted?.pin ?? null);
    return wanted && fits ? (had?.answer ?? null) : null;
  });
  const pair = computed(() => {
    const stack = selection.value?.stack;
    return stack && pin.value && pin.value.key !== null ? { stack, pin: pin.value } : null;
  });
  const linked = answer(pair, async ({ stack, pin }, signal) => {
    await pictured(signal);
    return pinnedWeights(source, stack, pin, signal);
  });
  const pinnedScores = computed(() => {
    const [had, wanted] = [linked.value, pair.value];
    const fits =
      had?.question.stack.name === wanted?.stack.name &&
      isSamePin(had?.question.pin ?? null, wanted?.pin ?? null);
    return wanted && fits ? (had?.answer ?? null) : null;
  });
  const headEffects = computed(() => {
    const here = selection.value;
    return (
      here &&
      headEffectsOf(here.stack, {
        order: state.order.value,
        scores: state.scores.value,
        score_notes: state.score_notes.value,
        score_errors: state.score_errors.value,
      })
    );
  });
  const order = computed<HeadOrder>(() => {
    const here = selection.value;
    if (!here) return { heads: [], scores: null };
    const rows = scores.value;
    const ofLayer = rows ? (rows[here.stack.layers.indexOf(here.layer)] ?? null) : null;
    const bySize =
      headEffects.value?.name === state.order.value ||
      (state.order.value === BY_PIN && here.stack.signed === true);
    const least = byRole.value ? null : state.least_score.value;
    return orderHeads(here.allHeads, ofLayer, least, bySize);
  });

  return {
    description,
    /** The number of the record that is described. */
    number,
    /** The answer to changes of the attention, and the run whose weights are drawn. */
    changedRun,
    connection,
    /** The problem in words. */
    error,
    selection,
    /** Small maps of all heads of the layer; requested once `wantMaps` is called. */
    maps: computed(() => maps.value?.answer ?? null),
    wantMaps: () => {
      mapsWanted.value = true;
    },
    /** Scores of the stack's heads, layer by layer, where heads are ordered by any. */
    scores,
    /** Weights of all heads from the pinned query to the pinned key; null unless both are pinned. */
    pinnedScores,
    /** Effects of the stack's heads, which are drawn as bars; null where none are given. */
    headEffects,
    /** The roles of the stack's heads over a corpus; null if they are not known. */
    roles,
    roleOf: (head: { layer: number; head: number }): HeadRole | null => {
      const stack = selection.value?.stack;
      return stack ? roleOf(roles.value, stack, head) : null;
    },
    /** Whether heads of the same role stand together. */
    byRole,
    tokenEffects: computed(() => {
      const here = selection.value;
      return (
        here &&
        tokenEffectsOf(here.stack, {
          token_scores: state.token_scores.value,
          token_score_notes: state.token_score_notes.value,
          token_score: state.token_score.value,
        })
      );
    }),
    /** The layer's heads as they are offered. */
    order,
    live,
    fail,
    answer,
    pictured,
    /** The work that the reader waits for. */
    job: signal<Job | null>(null),
    retry: () => {
      failures.value = new Map();
      source.transport.retry();
      attempt.value += 1;
    },
    /** Gives up what the kernel computes for a while already. */
    stop: () => source.transport.stop?.(),
  };
}

/** A record as a view sees it. */
export type RecordStore = ReturnType<typeof createRecordStore>;
