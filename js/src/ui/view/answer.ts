/**
 * Answers to the questions of a view. A question is a value that determines a request to the kernel
 * or to the exported page, such as a layer and its heads. What the request returns is the answer to
 * the question.
 */

import { batch, computed, type ReadonlySignal, signal } from "@preact/signals";
import { same } from "./state";

/** Question, and the answer that the kernel or page returned to it. */
export interface Answer<Q, A> {
  question: Q;
  answer: A;
}

/**
 * Request the answer to a question whenever the question changes, and keep the latest answer.
 *
 * Nothing is requested while the question is null. When the question changes, a request that is
 * still running is aborted, and its answer or error is ignored.
 *
 * @param ask sends the request for a question. `ended` is aborted when the answer is no longer
 *   needed.
 * @param again signals whose changes repeat the request for the same question.
 * @param settled called with the question when its answer has arrived, with the question and the
 *   error when its request has failed, and with null when the question becomes null.
 */
export function createAnswer<Q, A>(
  question: ReadonlySignal<Q | null>,
  ask: (question: Q, ended: AbortSignal) => Promise<A>,
  again: readonly ReadonlySignal<unknown>[] = [],
  settled: (question: Q | null, reason?: unknown) => void = () => {},
) {
  const latest = signal<Answer<Q, A> | null>(null);
  // Compare questions by their JSON text. Otherwise, a new object with the same fields would cause
  // a request.
  const text = computed(() => JSON.stringify(question.value));
  return {
    /**
     * Send a request for the current question, and return a function that aborts it. The caller
     * passes `run` to `effect`, which calls it again when the question or a signal of `again`
     * changes.
     */
    run: (): (() => void) | undefined => {
      for (const cause of [text, ...again]) cause.value;
      const asked = question.peek();
      if (asked === null) {
        settled(null);
        return undefined;
      }
      const controller = new AbortController();
      const { signal: ended } = controller;
      ask(asked, ended)
        .then((answer) => {
          if (ended.aborted) return;
          batch(() => {
            latest.value = { question: asked, answer };
            settled(asked);
          });
        })
        .catch((reason: unknown) => {
          if (!ended.aborted) settled(asked, reason);
        });
      return () => controller.abort();
    },
    /**
     * Latest answer that arrived, with its question. The current question may be a newer one. null
     * before the first answer.
     */
    latest: latest as ReadonlySignal<Answer<Q, A> | null>,
    /**
     * Answer to the current question. null if it has not arrived yet or if the question is null.
     */
    current: computed(() => {
      const now = question.value;
      return now !== null && same(latest.value?.question, now)
        ? (latest.value?.answer ?? null)
        : null;
    }),
  };
}
