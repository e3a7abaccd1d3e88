/**
 * Signals of the mean weights of the enlarged head by position. They are loaded while they are
 * shown.
 */

import { computed, signal } from "@preact/signals";
import type { ColorScale } from "../../../ui/colors/color-scales";
import type { ViewContext } from "../../../ui/view/define-view";
import { same } from "../../../ui/view/state";
import { aggregateOf } from "../client/requests";
import type { EmbeddingState } from "../state";
import type { EmbeddingStore } from "../store";
import { type Bin, endOf, layOutMean, lengthsOf, type MeanMap, textsAt } from "./marks";

/** Maximum number of bins per axis. */
const SIZE = 64;

/** Return the signals of the mean weights. The plot, its captions and its figure share them. */
export function meanStoreOf(
  context: ViewContext<EmbeddingState>,
  store: EmbeddingStore,
): MeanStore {
  const mean = stores.get(store) ?? createMeanStore(context, store);
  stores.set(store, mean);
  return mean;
}

export type MeanStore = ReturnType<typeof createMeanStore>;
const stores = new WeakMap<EmbeddingStore, MeanStore>();

function createMeanStore(context: ViewContext<EmbeddingState>, store: EmbeddingStore) {
  const { state, record, source } = context;
  const scale = signal<ColorScale>("linear");
  const hovered = signal<Bin | null>(null);
  const asked = computed(() => {
    const [corpus, head] = [store.corpus.value, store.head.value];
    const isShown = state.enlarged.value && state.content.value === "aggregate";
    if (!isShown || !corpus || !head || corpus.count === 0) return null;
    return { stack: corpus.stack, layer: head.layer, head: head.head, size: SIZE };
  });
  const answered = record.answer(asked, (request, ended) => aggregateOf(source, request, ended));
  const aggregate = computed(() => {
    const answer = answered.value;
    // After a change of the stack, do not show the mean weights of the previous stack.
    return answer?.question.stack === asked.value?.stack ? (answer?.answer ?? null) : null;
  });
  const current = computed(
    () =>
      asked.value !== null && answered.value !== null && same(answered.value.question, asked.value),
  );
  const lengths = computed(() => {
    const [corpus, now] = [store.corpus.value, aggregate.value];
    // Points give the lengths of all texts only if neither the corpus nor the mean is a sample.
    const complete = corpus?.facts.whole && now && now.texts === now.of_texts;
    return complete ? lengthsOf(corpus) : null;
  });
  return {
    /**
     * Mean weights of the current head, or of the previous head of the stack until they are loaded.
     */
    aggregate,
    /** Whether `aggregate` belongs to the current head. */
    current,
    /** Return the number of texts that have a pair in a bin, or null if unknown. */
    textsAt: (bin: Bin): number | null => {
      const [textLengths, now] = [lengths.value, aggregate.value];
      return textLengths && now && textsAt(textLengths, now, bin);
    },
    scale,
    hovered,
    /** Return the inputs of a heat map of the given width. Null until loaded. */
    drawnAt: (width: number): MeanMap | null => {
      const now = aggregate.value;
      return (
        now && {
          layout: layOutMean(now, width),
          palette: context.palette.value,
          theme: context.theme.value,
          aggregate: now,
          scale: scale.value,
          end: endOf(now),
          hovered: null,
        }
      );
    },
  };
}
