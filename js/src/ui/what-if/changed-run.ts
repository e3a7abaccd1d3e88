/**
 * A changed run is a run of the model with changed attention. This file requests the answer and the
 * weights of a changed run. The view can show these weights instead of those of the unchanged run.
 */

import { computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { isAbort } from "../../client/kernel";
import type {
  ChangedHeader,
  Description,
  EdgeHeader,
  EdgeRequest,
  OutcomeHeader,
  StackDescription,
  StackNumbers,
} from "../../client/protocol";
import { withNumber, withoutNumber } from "../../client/record-number";
import type { Source } from "../../client/source";
import type { Reply } from "../../client/transport";
import { assign, type Signals, same } from "../view/state";

/**
 * Run whose weights are shown: the unchanged run ("before"), the changed run ("after") or the
 * difference of both.
 */
export type ShownRun = "before" | "after" | "difference";

interface ChangeOfHeads {
  stack: string;
  /** Number of the layer and of the head. null means all layers or all heads. */
  layers: number | null;
  heads: number | null;
}

/** Removal of the attention of a query to a key. null means all queries or all keys. */
export interface CutChange extends ChangeOfHeads {
  kind: "Knockout";
  queries: number | null;
  keys: number | null;
  /**
   * Whether the pair is removed before the softmax, so that its weight is distributed among the
   * other keys. If false, the weight is set to 0 after the softmax.
   */
  renormalize: boolean;
}

/**
 * JSON form of a change of the attention. `kind` is the name of the class in Python, and the other
 * fields are those of the class.
 */
export type Change =
  | (ChangeOfHeads & { kind: "Ablate" })
  | (ChangeOfHeads & { kind: "HideTokens"; tokens: number })
  | CutChange;

/** Result of a list of changes, as a page stores it. */
export interface CarriedOutcome {
  changes: Change[];
  described: string[];
  sentence: string;
}

/** Token or class, by number or by text. */
type AnswerToken = number | string;

/** Name and id of a function of the model's output. Only the kernel has the function. */
interface AnswerFunction {
  function: string;
  id: number;
}

/**
 * Traits of changed runs. They have the same names in Python. The last three are data of a page. A
 * live view requests these data from the kernel instead.
 */
export interface ChangedRunState {
  /**
   * Whether the kernel has the model, so the view can run it with changes. Only Python sets this
   * trait.
   */
  runs_model: boolean;
  /**
   * Answer that is measured: a token, two tokens whose difference is measured, or a function. null
   * means the default of the kernel.
   */
  answer: AnswerToken | AnswerToken[] | AnswerFunction | null;
  changes: Change[];
  run: ShownRun;
  outcomes: CarriedOutcome[];
  known_edges: (EdgeRequest & EdgeHeader)[];
  /**
   * Changed run that a page contains, or null. `stacks` has the names of its stacks, by the name of
   * the unchanged stack.
   */
  changed_run: {
    changes: Change[];
    stacks: Record<string, { after: string; difference: string }>;
  } | null;
}

export const CHANGED_RUN_DEFAULTS: ChangedRunState = {
  runs_model: false,
  answer: null,
  changes: [],
  run: "before",
  outcomes: [],
  known_edges: [],
  changed_run: null,
};

/** Fields of each kind of change after its stack, layers and heads, in their order. */
const FIELDS: Record<Change["kind"], readonly string[]> = {
  Ablate: [],
  HideTokens: ["tokens"],
  Knockout: ["queries", "keys", "renormalize"],
};

/** Parse the changes in a URL fragment. Return undefined for invalid text. */
export const readChanges = Object.assign(
  (text: string): Change[] | undefined => {
    if (text === "") return [];
    const changes = text.split(",").map((item): Change | null => {
      const [kind = "", stack = "", ...values] = item.split(".");
      if (!Object.hasOwn(FIELDS, kind)) return null;
      const names = ["layers", "heads", ...FIELDS[kind as Change["kind"]]];
      const entries = names.map((name, i): [string, unknown] => {
        const value = values[i] ?? "-";
        if (name === "renormalize") return [name, value === "true"];
        return [name, /^\d{0,9}$/.test(value) ? (value === "" ? null : Number(value)) : undefined];
      });
      const valid = values.length === names.length && entries.every(([, one]) => one !== undefined);
      if (!valid) return null;
      return { kind, stack: decoded(stack), ...Object.fromEntries(entries) } as Change;
    });
    return changes.includes(null) ? undefined : (changes as Change[]);
  },
  { off: [] as Change[] },
);

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const readShownRun = Object.assign(
  (text: string): ShownRun | undefined =>
    (["before", "after", "difference"] as const).find((run) => run === text),
  { off: "before" as const },
);

/** Latest reply of the kernel, with the changes and the measured answer of the request. */
export interface ChangeResult {
  changes: Change[];
  measured: AnswerToken[] | null;
  outcome: OutcomeHeader | null;
  problem: string | null;
}

/** Return whether the measured answer is a function of the model's output. */
export function isFunction(answer: ChangedRunState["answer"]): answer is AnswerFunction {
  return answer !== null && typeof answer === "object" && !Array.isArray(answer);
}

/**
 * Convert the trait `answer` to the field `measured` of a request. A function becomes null, because
 * only the kernel has the function.
 */
export function measuredOf(answer: ChangedRunState["answer"]): AnswerToken[] | null {
  if (isFunction(answer)) return null;
  if (answer === null) return [];
  return Array.isArray(answer) ? answer : [answer];
}

/** Stacks of the changed run and of the difference, by the name of the unchanged stack. */
type Stacks = Record<string, Record<"after" | "difference", StackDescription>>;

export interface ChangedRun {
  /** Whether the panel "What if" is open. Answers are requested while it is open. */
  panelOpen: Signal<boolean>;
  latest: ReadonlySignal<ChangeResult | null>;
  /** Measure another answer. Resolve to null after success, otherwise to an error message. */
  measure: (answer: string) => Promise<string | null>;
  /** Number of answers and errors received so far. */
  answers: ReadonlySignal<number>;
  /** Run that is drawn. It remains "before" until the weights of the changed run have arrived. */
  shown: ReadonlySignal<ShownRun>;
  /** Whether the view can show a changed run: it has one, or the kernel can compute one. */
  drawable: ReadonlySignal<boolean>;
  /** Reason why the weights of the changed run cannot be shown, or null. */
  problem: ReadonlySignal<string | null>;
  /** Description of the record. Its stacks are those of the shown run. */
  description: ReadonlySignal<Description | null>;
  retry: () => void;
}

interface ShownStack extends StackDescription {
  of?: string;
}

/** Return the name of the unchanged stack for a stack of any run. */
export function baseName(stack: StackDescription): string {
  return (stack as ShownStack).of ?? withoutNumber(stack.name);
}

/** Describe the changes of the run that a stack belongs to. Return "" for the unchanged run. */
export function changedInWords({ name }: Pick<StackDescription, "name">): string {
  const plain = withoutNumber(name);
  const [, words] = / · ((?:after|difference after): .*)$/s.exec(plain) ?? [];
  if (!words) return "";
  const dot = words.endsWith(".") ? "" : ".";
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}${dot}`;
}

/**
 * Return a stack of a changed run. Its tokens are those of the unchanged stack, with new
 * predictions if the run has any.
 */
function withTokens(
  stack: StackDescription,
  numbers: StackNumbers,
  predictions: ChangedHeader["stacks"][number]["predictions"],
): StackDescription {
  const { query_tokens, key_tokens } = stack;
  const queries = predictions.length > 0 ? { ...query_tokens, predictions } : query_tokens;
  return { ...numbers, query_tokens: queries, key_tokens };
}

export function createChangedRun(
  source: Source,
  state: Signals<ChangedRunState>,
  described: ReadonlySignal<Description | null>,
  number: ReadonlySignal<number>,
  live: (run: () => (() => void) | undefined) => void,
): ChangedRun {
  const panelOpen = signal(false);
  const latest = signal<ChangeResult | null>(null);
  const answers = signal(0);
  const attempt = signal(0);
  const problem = signal<string | null>(null);
  const arrived = signal<{ changes: Change[]; stacks: Stacks } | null>(null);
  const text = computed(() => JSON.stringify(state.changes.value));
  const asks = computed(
    () => panelOpen.value || (state.changes.value.length > 0 && state.run.value !== "before"),
  );
  const reasonOf = (reason: unknown): string =>
    reason instanceof Error ? reason.message : String(reason);
  const ask = (
    changes: Change[],
    measured: AnswerToken[] | null,
    signal?: AbortSignal,
  ): Promise<OutcomeHeader> => {
    const read = ({ header }: Reply): OutcomeHeader => header as OutcomeHeader;
    // A request does not contain the measured function. A cached reply could belong to another
    // function, so do not use the cache.
    if (measured === null)
      return source.transport.request("intervene", { changes }, signal).then(read);
    const bytesOf = (outcome: OutcomeHeader): number => 2 * JSON.stringify(outcome).length;
    return source.fetch("intervene", { changes, measured }, read, bytesOf, signal);
  };

  if (source.transport.live && BUNDLE_FOR !== "page") {
    // When the record changes, drop the answers about the earlier record.
    live(() => {
      number.value;
      latest.value = null;
      arrived.value = null;
      return undefined;
    });
    live(() => {
      attempt.value;
      number.value;
      text.value;
      if (!asks.value) return undefined;
      const changes = state.changes.peek();
      const measured = measuredOf(state.answer.value);
      const ended = new AbortController();
      const say = (result: Partial<ChangeResult>): void => {
        if (ended.signal.aborted) return;
        latest.value = { changes, measured, outcome: null, problem: null, ...result };
        answers.value += 1;
      };
      ask(changes, measured, ended.signal).then(
        (outcome) => say({ outcome }),
        (reason) => {
          if (!isAbort(reason)) say({ problem: reasonOf(reason) });
        },
      );
      return () => ended.abort();
    });
    // Request the weights only after the answer has arrived. The request for the answer runs the
    // model.
    const draws = computed(() => {
      const now = latest.value;
      const changes = state.changes.value;
      const answered = now?.outcome && changes.length > 0 && same(now.changes, changes);
      return answered && described.value !== null && state.run.value !== "before";
    });
    live(() => {
      text.value;
      problem.value = null;
      if (!draws.value) return undefined;
      const changes = state.changes.peek();
      const ended = new AbortController();
      source.transport.request("changed", { changes }, ended.signal).then(
        ({ header }) => {
          if (ended.signal.aborted) return;
          const stacks: Stacks = {};
          for (const changedStack of (header as ChangedHeader).stacks) {
            const all = described.peek()?.stacks ?? [];
            const unchangedStack = all.find(
              ({ name }) => withoutNumber(name) === changedStack.stack,
            );
            if (!unchangedStack) continue;
            const of = (numbers: StackNumbers): StackDescription => ({
              ...withTokens(unchangedStack, numbers, changedStack.predictions),
              name: withNumber(numbers.name, number.peek()),
            });
            stacks[changedStack.stack] = {
              after: of(changedStack.after),
              difference: of(changedStack.difference),
            };
          }
          arrived.value = { changes, stacks };
        },
        (reason) => {
          if (!isAbort(reason)) problem.value = reasonOf(reason);
        },
      );
      return () => ended.abort();
    });
  }

  /**
   * Changed run for the current changes. Until it arrives, this is the previous changed run. null
   * without changes, after an error, or if a page has no run with these changes.
   */
  const run = computed<{ changes: Change[]; stacks: Stacks } | null>(() => {
    const carried = state.changed_run.value;
    const changes = state.changes.value;
    if (changes.length === 0) return null;
    if (!carried) {
      const failed = latest.value?.problem != null || problem.value !== null;
      return failed && !same(arrived.value?.changes, changes) ? null : arrived.value;
    }
    const all = described.value?.stacks ?? [];
    const named = (stackName: string): StackDescription | undefined =>
      all.find(({ name }) => name === stackName);
    const stacks: Stacks = {};
    for (const [name, { after, difference }] of Object.entries(carried.stacks)) {
      const [one, other] = [named(after), named(difference)];
      if (one && other) stacks[name] = { after: one, difference: other };
    }
    return same(carried.changes, changes) ? { changes, stacks } : null;
  });
  const shown = computed<ShownRun>(() => (run.value ? state.run.value : "before"));
  const description = computed<Description | null>(() => {
    const whole = described.value;
    if (!whole) return null;
    const changed = new Set(
      Object.values(state.changed_run.value?.stacks ?? {}).flatMap((names) => Object.values(names)),
    );
    const shownRun = shown.value;
    const unchangedStacks = whole.stacks.filter(({ name }) => !changed.has(name));
    if (shownRun === "before")
      return changed.size === 0 ? whole : { ...whole, stacks: unchangedStacks };
    const stacks = unchangedStacks.map((stack): ShownStack => {
      const of = withoutNumber(stack.name);
      const instead = run.value?.stacks[of]?.[shownRun];
      return instead ? { ...instead, of } : stack;
    });
    return { ...whole, stacks };
  });
  return {
    panelOpen,
    latest,
    answers,
    shown,
    drawable: computed(() =>
      source.transport.live ? state.changes.value.length > 0 : !!run.value,
    ),
    problem,
    description,
    measure: (answer) =>
      ask(state.changes.peek(), [answer]).then(() => {
        assign(state, { answer });
        return null;
      }, reasonOf),
    retry: () => {
      attempt.value += 1;
    },
  };
}
