/**
 * Lost weight of the pinned query: the weight that the keys that were not chosen would have if the
 * model chose no keys before the softmax.
 */

import { computed, type ReadonlySignal } from "@preact/signals";
import type { ReadRequest } from "../../client/protocol";
import { lostInWords } from "../text/captions";
import type { RecordContext } from "./define-view";

/**
 * Create a signal of the sentence about the lost weight of the pinned query, averaged over the shown
 * heads. It is "" if no query is pinned or the model does not choose keys, and null while the answer
 * is loading.
 */
export function createLostWeight({
  source,
  record,
}: Pick<RecordContext, "source" | "record">): ReadonlySignal<string | null> {
  const question = computed((): ReadRequest | null => {
    const selection = record.selection.value;
    if (!selection?.stack.chooses_keys || selection.token === null) return null;
    const { stack, layer, heads, token, keys } = selection;
    return {
      ...{ stack: stack.name, layer, heads: [...heads], reduce: { kind: "lost" } },
      ...{ rows: [token, token + 1], columns: [0, keys.text.length] },
    };
  });
  const { current } = record.answer(question, async (asked, ended) => {
    const matrices = await source.read(asked, ended);
    return matrices.flatMap(({ values }) => [...values]);
  });
  return computed(() => {
    if (question.value === null) return "";
    return current.value && lostInWords(current.value);
  });
}
