/** Signals of the enlarged head's mean weights by position, loaded while they are shown. */

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

/** Largest mean weight, its positions ("query 3 → key 0"), and what the mean covers. */
export interface MeanCaptionInput {
  weight: number;
  /** Largest error of a mean. */
  error: number;
  at: string;
  texts: number;
  ofTexts: number;
  queries: number;
  ofQueries: number;
  /** Maximum number of query and key positions per bin. */
  bin: [number, number];
  /** Number of texts that reach the last row, or null if unknown. */
  numInLastRow: number | null;
}

export interface MeanStore {
  /** Mean weights. The previous ones stay until the next are loaded. */
  aggregate: ReadonlySignal<Aggregate | null>;
  /** Whether `aggregate` belongs to the current head. */
  current: ReadonlySignal<boolean>;
  captionInput: ReadonlySignal<MeanCaptionInput | null>;
  /** Return the number of texts in a bin's mean, or null if unknown. */
  textsAt: (bin: Bin) => number | null;
  scale: Signal<ColorScale>;
  hovered: Signal<Bin | null>;
  /** Return the heat map without the pointer, in the given width. */
  drawnAt: (width: number) => MeanMap | null;
}

/** Maximum number of bins per axis. */
const SIZE = 64;

/** Return the largest number of positions in a bin. */
function widest(edges: readonly number[]): number {
  return Math.max(1, ...edges.slice(1).map((edge, i) => edge - (edges[i] as number)));
}

// The plot, its captions and its figure share one store.
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
    // Do not show the mean weights of another stack.
    return answer?.question.stack === asked.value?.stack ? (answer?.answer ?? null) : null;
  });
  const current = computed(
    () =>
      asked.value !== null && answered.value !== null && same(answered.value.question, asked.value),
  );
  const lengths = computed(() => {
    const [corpus, now] = [store.corpus.value, aggregate.value];
    // The lengths of texts are unknown if the corpus or the mean is a sample.
    const complete = corpus?.whole && now && now.texts === now.ofTexts;
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
      const { texts, ofTexts, queries, ofQueries } = now;
      const bin: [number, number] = [widest(now.queryEdges), widest(now.keyEdges)];
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
