/**
 * Signals of the mean weights of the enlarged head by position. They are loaded while they are
 * shown.
 */

import { computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import type { ColorScale } from "../../../ui/colors/color-scales";
import type { ViewContext } from "../../../ui/view/define-view";
import { same } from "../../../ui/view/state";
import { type Aggregate, aggregateOf, meanError } from "../client/requests";
import type { EmbeddingState } from "../state";
import type { EmbeddingStore } from "../store";
import {
  type Bin,
  binCaption,
  endOf,
  largestOf,
  layOutMean,
  lengthsOf,
  type MeanMap,
  textsAt,
} from "./marks";

/**
 * Facts for captions: the largest mean weight, its positions ("query 3 → key 0"), and the number of
 * texts and queries in the mean.
 */
export interface MeanCaptionInput {
  weight: number;
  /** Largest error of a mean weight, or 0 if the means are exact. */
  error: number;
  at: string;
  texts: number;
  ofTexts: number;
  queries: number;
  ofQueries: number;
  /** Maximum number of query positions in a bin, and of key positions. */
  bin: [number, number];
  /** Number of texts that are long enough to reach the last row, or null if unknown. */
  numInLastRow: number | null;
}

export interface MeanStore {
  /**
   * Mean weights of the current head, or of the previous head of the stack until they are loaded.
   */
  aggregate: ReadonlySignal<Aggregate | null>;
  /** Whether `aggregate` belongs to the current head. */
  current: ReadonlySignal<boolean>;
  captionInput: ReadonlySignal<MeanCaptionInput | null>;
  /** Return the number of texts that have a pair in a bin, or null if unknown. */
  textsAt: (bin: Bin) => number | null;
  scale: Signal<ColorScale>;
  hovered: Signal<Bin | null>;
  /**
   * Return the inputs of a heat map of the given width, without a hovered bin. Null until loaded.
   */
  drawnAt: (width: number) => MeanMap | null;
}

/** Maximum number of bins per axis. */
const SIZE = 64;

/** Return the number of positions in the widest bin. */
function widest(edges: readonly number[]): number {
  return Math.max(1, ...edges.slice(1).map((edge, i) => edge - (edges[i] as number)));
}

// The plot, its captions and its figure get the same store.
const made = new WeakMap<EmbeddingStore, MeanStore>();

export function meanStoreOf(
  context: ViewContext<EmbeddingState>,
  store: EmbeddingStore,
): MeanStore {
  const existing = made.get(store);
  if (existing) return existing;
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
  const reaching = (bin: Bin): number | null => {
    const [textLengths, now] = [lengths.value, aggregate.value];
    return textLengths && now && textsAt(textLengths, now, bin);
  };
  const own: MeanStore = {
    aggregate,
    current,
    captionInput: computed(() => {
      const now = current.value ? aggregate.value : null;
      const largest = now && largestOf(now);
      if (!now || !largest) return null;
      const { texts, of_texts: ofTexts, queries, of_queries: ofQueries } = now;
      const bin: [number, number] = [widest(now.query_edges), widest(now.key_edges)];
      const numInLastRow = reaching({ row: now.rows - 1, column: 0 });
      const of = { texts, ofTexts, queries, ofQueries, bin, numInLastRow };
      const error = meanError(now, largest.weight);
      return { weight: largest.weight, error, at: binCaption(now, largest)[0], ...of };
    }),
    textsAt: reaching,
    scale,
    hovered,
    drawnAt: (width) => {
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
  made.set(store, own);
  return own;
}
