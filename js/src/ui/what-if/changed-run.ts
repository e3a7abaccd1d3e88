/**
 * A changed run is a run of the model with changed attention. The measured answer is a number that
 * is computed from the model's output, such as the logit of one token minus the logit of another.
 * This file requests the measured answer and the weights of a changed run from the kernel. The view
 * can show these weights instead of those of the unchanged run.
 *
 * A stack is a group of attention layers. A page is an exported HTML file, which has no kernel.
 */

import { computed, type ReadonlySignal, signal } from "@preact/signals";
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
import { capital } from "../text/captions";
import { createAnswer } from "../view/answer";
import type { ShownStack } from "../view/model-layers";
import type { Feature, RecordState, RecordStore } from "../view/record";
import { type Signals, same } from "../view/state";

/**
 * Choices of the weights that the view shows: those of the unchanged run ("before"), those of the
 * changed run ("after"), and the changed weights minus the unchanged ones ("difference").
 */
export const RUNS = ["before", "after", "difference"] as const;

interface ChangeOfHeads {
  stack: string;
  /**
   * Number of the only layer (`layers`) and of the only head (`heads`) that are changed. null means
   * all layers or all heads.
   */
  layers: number | null;
  heads: number | null;
}

/**
 * Change that removes the attention of a query to a key. `queries` is the index of the query, and
 * `keys` is the index of the key. null means all queries or all keys.
 */
export interface CutChange extends ChangeOfHeads {
  kind: "Knockout";
  queries: number | null;
  keys: number | null;
  /**
   * Whether the attention is removed before the softmax. The weight that it had is then distributed
   * among the other keys. If false, the weight is set to 0 after the softmax.
   */
  renormalize: boolean;
}

/**
 * A change of the attention, in the form in which it is sent to the kernel. `kind` is the name of a
 * class in Python, and the other fields are the arguments of this class.
 */
export type Change =
  | (ChangeOfHeads & { kind: "Ablate" })
  | (ChangeOfHeads & { kind: "HideTokens"; tokens: number })
  | CutChange;

/**
 * Token of the vocabulary whose logit is measured, by its id or its text. For a classifier: class,
 * by its index or its name.
 */
type AnswerToken = number | string;

/**
 * Function of the model's output that is measured: its name (`function`) and an id, which differs
 * for functions with the same name. Only the kernel has the function itself.
 */
interface AnswerFunction {
  function: string;
  id: number;
}

/** State of changed runs: traits of Python, and results for a page, which cannot request them. */
export type ChangedRunState = Pick<RecordState, "runs_model" | "run"> & {
  answer: AnswerToken | AnswerToken[] | AnswerFunction | null;
  changes: Change[];
  /**
   * Results that a page contains, one for each list of changes. `described` has one text for each
   * change. `sentence` states the measured answer before and after the changes, and the noise.
   */
  outcomes: { changes: Change[]; described: string[]; sentence: string }[];
  /**
   * Results about edges that a page contains: what share the key contributes to the output of the
   * head for the query, and the effects of earlier runs that cut the edge (see `EdgeHeader`). An
   * edge is a query and a key in one head.
   */
  known_edges: (EdgeRequest & EdgeHeader)[];
  /**
   * Changes of the run whose weights a page contains, or null. For each stack of the unchanged run,
   * `stacks` has the names of two other stacks: the one with the changed weights (`after`) and the
   * one with their differences from the unchanged weights (`difference`).
   */
  changed_run: {
    changes: Change[];
    stacks: Record<string, { after: string; difference: string }>;
  } | null;
};

/** Fields of `ChangedRunState` that have no simple value. */
const CHANGED_RUN_TRAITS = {
  outcomes: { value: [] },
  known_edges: { value: [] },
  changed_run: { value: null },
};

export function isFunction(answer: ChangedRunState["answer"]): answer is AnswerFunction {
  return answer !== null && typeof answer === "object" && !Array.isArray(answer);
}

/**
 * Convert the trait `answer` to the field `measured` of a request: a list of tokens, which is empty
 * for the default of the kernel.
 *
 * Return null if the trait is a function, which a request cannot contain. The request is then sent
 * without this field, and the kernel measures the answer that the user chose in Python.
 */
export function measuredOf(answer: ChangedRunState["answer"]): AnswerToken[] | null {
  if (isFunction(answer)) return null;
  if (answer === null) return [];
  return Array.isArray(answer) ? answer : [answer];
}

/**
 * Return a sentence about the changes of the run to which a stack belongs, such as "After: …". The
 * changes are part of the stack's name. Return "" for a stack of the unchanged run.
 */
export function changedInWords({ name }: Pick<StackDescription, "name">): string {
  const plain = withoutNumber(name);
  const [, words] = / · ((?:after|difference after): .*)$/s.exec(plain) ?? [];
  if (!words) return "";
  return capital(words) + (words.endsWith(".") ? "" : ".");
}

/**
 * Result of a request to the kernel: what the kernel returned (`content`) or, after an error, its
 * message (`problem`). The other field is null.
 */
interface Reply<A> {
  content: A | null;
  problem: string | null;
}

/**
 * Stack with the changed weights (`after`) and stack with the differences (`difference`), by the
 * name of the stack in the unchanged run.
 */
type Stacks = Record<string, Record<"after" | "difference", StackDescription>>;

/** Return the state of changed runs of a view. */
export function changedRunState({ state }: Pick<RecordStore, "state">): Signals<ChangedRunState> {
  return state as Signals<RecordState> as unknown as Signals<ChangedRunState>;
}

/** Return the changed run of a view. */
export function changedRunOf(record: RecordStore): ReturnType<typeof createChangedRun> {
  return record.part(createChangedRun);
}

/** Changed runs as a feature of views, which then show the stacks of these runs. */
export const CHANGED_RUN: Feature = {
  traits: CHANGED_RUN_TRAITS,
  start: (record) => ({ describe: changedRunOf(record).describe }),
};

function createChangedRun(record: RecordStore) {
  const { source, described, number, live } = record;
  const state = changedRunState(record);
  const panelOpen = signal(false);
  const attempt = signal(0);
  const reasonOf = (reason: unknown): string =>
    reason instanceof Error ? reason.message : String(reason);

  /**
   * Ask the kernel a question about the current record whenever the question changes, and again
   * after a call of `retry`. In a page, ask nothing.
   *
   * Return the latest reply about the current record (`latest`) and the reply to the current
   * question (`current`). Both are null until such a reply arrives. An error becomes a reply whose
   * `problem` is the message.
   */
  const repliesTo = <Q extends object, A>(
    question: ReadonlySignal<Q | null>,
    ask: (question: Q, ended: AbortSignal) => Promise<A>,
  ) => {
    const asks = BUNDLE_FOR !== "page" && source.transport.live;
    const asked = computed(() => {
      const now = asks ? question.value : null;
      return now && { ...now, record: number.value };
    });
    const replies = createAnswer(
      asked,
      async (now, ended): Promise<Reply<A>> => {
        try {
          return { content: await ask(now, ended), problem: null };
        } catch (reason) {
          if (isAbort(reason)) throw reason;
          return { content: null, problem: reasonOf(reason) };
        }
      },
      [attempt],
    );
    live(replies.run);
    const latest = computed(() => {
      const last = replies.latest.value;
      return last?.question.record === number.value
        ? { question: last.question, ...last.answer }
        : null;
    });
    return { latest, asked, current: replies.current };
  };

  const intervene = (
    changes: Change[],
    measured: AnswerToken[] | null,
    ended?: AbortSignal,
    ranks = false,
  ): Promise<OutcomeHeader> => {
    const read = ({ header }: { header: unknown }): OutcomeHeader => header as OutcomeHeader;
    // Bypass the cache if a function is measured. Only the kernel knows which function it is, so a
    // cached reply could belong to another function.
    if (measured === null)
      return source.transport.request("intervene", { changes, ranks }, ended).then(read);
    const bytesOf = (outcome: OutcomeHeader): number => 2 * JSON.stringify(outcome).length;
    return source.fetch("intervene", { changes, measured, ranks }, read, bytesOf, ended);
  };
  const draws = computed(() => state.changes.value.length > 0 && state.run.value !== "before");
  const { latest, current } = repliesTo(
    computed(() => {
      const asked = { changes: state.changes.value, answer: state.answer.value };
      return panelOpen.value || draws.value ? asked : null;
    }),
    ({ changes, answer }, ended) => intervene(changes, measuredOf(answer), ended),
  );

  // Question whose effect the reader asked to compare with those of all heads, tokens or layers.
  const compared = signal<object | null>(null);
  const ranked = repliesTo(
    computed(() => {
      const now = current.value ? latest.value : null;
      if (!now?.content?.unranked) return null;
      const { changes, answer } = now.question;
      const isWanted = now.content.is_cheap || same(compared.value, { changes, answer });
      return isWanted ? { changes, answer } : null;
    }),
    ({ changes, answer }, ended) => intervene(changes, measuredOf(answer), ended, true),
  );

  // Request the weights only after the measured answer has arrived. To measure it, the kernel runs
  // the model, and then it has the weights of this run.
  const weightsQuestion = computed(() => {
    const now = latest.value;
    const changes = state.changes.value;
    const answered = now?.content && described.value && same(now.question.changes, changes);
    return answered && draws.value ? { changes } : null;
  });
  const weights = repliesTo(weightsQuestion, async ({ changes }, ended) => {
    const { header } = await source.transport.request("changed", { changes }, ended);
    return (header as ChangedHeader).stacks;
  });
  const problem = computed(() => weights.current.value?.problem ?? null);

  /**
   * Stacks of the changed run, or null without changes.
   *
   * In a page, they are also null unless the page contains the run with these changes. In a live
   * view, they are null until the first weights arrive. If the changes are replaced, the old stacks
   * stay until the new weights arrive or an error occurs.
   */
  const changedStacks = computed<Stacks | null>(() => {
    const changes = state.changes.value;
    if (changes.length === 0) return null;
    const all = described.value?.stacks ?? [];
    const carried = state.changed_run.value;
    const stacks: Stacks = {};
    if (carried) {
      const named = (stackName: string) => all.find(({ name }) => name === stackName);
      for (const [name, names] of Object.entries(carried.stacks)) {
        const [after, difference] = [named(names.after), named(names.difference)];
        if (after && difference) stacks[name] = { after, difference };
      }
      return same(carried.changes, changes) ? stacks : null;
    }
    const arrived = weights.latest.value;
    const failed = latest.value?.problem != null || problem.value !== null;
    if (!arrived?.content || (failed && !same(arrived.question.changes, changes))) return null;
    for (const { stack, after, difference, predictions } of arrived.content) {
      const unchanged = all.find(({ name }) => withoutNumber(name) === stack);
      if (!unchanged) continue;
      const { query_tokens, key_tokens } = unchanged;
      const queries = predictions.length > 0 ? { ...query_tokens, predictions } : query_tokens;
      const described = (numbers: StackNumbers): StackDescription => ({
        ...{ ...numbers, query_tokens: queries, key_tokens },
        name: withNumber(numbers.name, number.value),
      });
      stacks[stack] = { after: described(after), difference: described(difference) };
    }
    return stacks;
  });
  const shown = computed(() => (changedStacks.value ? state.run.value : "before"));
  /** Replace the stacks of the record by those of the shown run. */
  const describe = (whole: Description): Description => {
    const changed = new Set(
      Object.values(state.changed_run.value?.stacks ?? {}).flatMap((names) => Object.values(names)),
    );
    const shownRun = shown.value;
    const unchangedStacks = whole.stacks.filter(({ name }) => !changed.has(name));
    const stacks = unchangedStacks.map((stack): ShownStack => {
      const of = withoutNumber(stack.name);
      const instead = shownRun === "before" ? null : changedStacks.value?.[of]?.[shownRun];
      return instead ? { ...instead, of } : stack;
    });
    return { ...whole, stacks };
  };
  return {
    /**
     * Whether the panel "What if" is open. While it is open, the answer is measured again whenever
     * the changes or the choice of the answer change.
     */
    panelOpen,
    /**
     * Latest reply of the kernel about the measured answer. It may be about earlier changes, or
     * about an earlier choice of the answer. null before the first reply about the current record.
     */
    latest,
    /**
     * Reply about the measured answer for the current changes and the current choice of the answer.
     * null until it arrives.
     */
    current,
    /**
     * Reply with the rank of the effect, or null. If the rank is not cheap to measure, it is
     * requested only after a call of `compare`.
     */
    ranked: ranked.current,
    /** Whether the rank of the current effect is being measured. */
    ranks: computed(() => ranked.asked.value !== null && ranked.current.value === null),
    compare: () => {
      compared.value = { changes: state.changes.peek(), answer: state.answer.peek() };
    },
    /**
     * Weights that are drawn: "before", "after" or "difference". This is the value of the trait
     * `run`. While the weights of a changed run are not available, it is "before".
     */
    shown,
    /** Whether the weights of a changed run are available. */
    drawable: computed(() => changedStacks.value !== null),
    /** Error message of the request for the weights of the changed run, or null. */
    problem,
    describe,
    retry: () => {
      attempt.value += 1;
    },
  };
}
