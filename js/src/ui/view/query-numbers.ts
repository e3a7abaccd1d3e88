/**
 * Numbers of the pinned query that captions state. A number is one entry of `QUERY_NUMBERS`: the
 * reduction that computes it from the weights of the query, and its sentence.
 */

import { computed, type ReadonlySignal } from "@preact/signals";
import type { Range, Reduction, StackDescription } from "../../client/protocol";
import { oneToken } from "../axis";
import { lostInWords } from "../text/captions";
import type { RecordContext } from "./define-view";

interface QueryNumber {
  reduce: Reduction;
  isIn: (stack: StackDescription) => boolean;
  /** Return a sentence about the number in each shown head, or "" if there is nothing to say. */
  inWords: (numbers: readonly number[]) => string;
}

const QUERY_NUMBERS: readonly QueryNumber[] = [
  // The weight that the keys that were not chosen would have, if the model chose no keys.
  {
    reduce: { kind: "lost" },
    isIn: (stack) => stack.chooses_keys === true,
    inWords: lostInWords,
  },
];

/**
 * Create a signal of the sentences about the numbers of the pinned query. It is "" if no query is
 * pinned or its stack has no such number, and null while the answer is loading.
 */
export function createQueryNumbers({
  source,
  record,
}: Pick<RecordContext, "source" | "record">): ReadonlySignal<string | null> {
  const question = computed(() => {
    const selection = record.selection.value;
    if (!selection || selection.token === null) return null;
    const { stack, layer, heads, token, keys } = selection;
    const numbers = [...QUERY_NUMBERS.keys()].filter((i) => QUERY_NUMBERS[i]?.isIn(stack));
    if (numbers.length === 0) return null;
    const row = { rows: oneToken(token), columns: [0, keys.text.length] as Range };
    return { numbers, row: { stack: stack.name, layer, heads: [...heads], ...row } };
  });
  const { current } = record.answer(question, async ({ numbers, row }, ended) => {
    const sentences = numbers.map(async (i) => {
      const { reduce, inWords } = QUERY_NUMBERS[i] as QueryNumber;
      const matrices = await source.read({ ...row, reduce }, ended);
      return inWords(matrices.flatMap(({ values }) => [...values]));
    });
    return (await Promise.all(sentences)).filter(Boolean).join(" ");
  });
  return computed(() => (question.value === null ? "" : current.value));
}
