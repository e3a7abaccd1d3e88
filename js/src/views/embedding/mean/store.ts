/** The mean weight by position of the enlarged head, as signals: asked for while it is shown. */

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

/** Where a mean weight is largest, "query 3 → key 0", and what it is the mean of. */
export interface MeanCaptionInput {
  weight: number;
  /** How far any mean may be off. */
  error: number;
  at: string;
  texts: number;
  ofTexts: number;
  queries: number;
  ofQueries: number;
  /** Positions of query and key that a bin is wide at most. */
  bin: [number, number];
  /** Texts that are as long as the last row; null where that is not known. */
  far: number | null;
}

export interface MeanStore {
  /** The last stays until the next has come. */
  aggregate: ReadonlySignal<Aggregate | null>;
  /** Whether it is of the head that is asked for. */
  current: ReadonlySignal<boolean>;
  captionInput: ReadonlySignal<MeanCaptionInput | null>;
  /** How many texts a bin is the mean of; null where that is not known. */
  textsAt: (bin: Bin) => number | null;
  scale: Signal<ColorScale>;
  hovered: Signal<Bin | null>;
  /** Everything but the pointer, as wide as it may be. */
  drawnAt: (width: number) => MeanMap | null;
}

/** Bins a side, at most. */
const SIZE = 64;

/** The most positions that a bin holds. */
function widest(edges: readonly number[]): number {
  return Math.max(1, ...edges.slice(1).map((edge, i) => edge - (edges[i] as number)));
}

// The plot, its captions and its figure are of the same answer.
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
    const wanted = state.enlarged.value && state.shown.value === "aggregate";
    if (!wanted || !corpus || !head || corpus.count === 0) return null;
    return { stack: corpus.stack, layer: head.layer, head: head.head, size: SIZE };
  });
  const given = record.answer(asked, (request, ended) => aggregateOf(source, request, ended));
  const aggregate = computed(() => {
    const answer = given.value;
    // Another stack's positions say nothing here.
    return answer?.question.stack === asked.value?.stack ? (answer?.answer ?? null) : null;
  });
  const current = computed(
    () => asked.value !== null && given.value !== null && same(given.value.question, asked.value),
  );
  const lengths = computed(() => {
    const [corpus, now] = [store.corpus.value, aggregate.value];
    // Which texts of a sample are long is not known here.
    const complete = corpus?.whole && now && now.texts === now.ofTexts;
    return complete ? lengthsOf(corpus) : null;
  });
  const reaching = (bin: Bin): number | null => {
    const [each, now] = [lengths.value, aggregate.value];
    return each && now && textsAt(each, now, bin);
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
      const far = reaching({ row: now.rows - 1, column: 0 });
      const of = { texts, ofTexts, queries, ofQueries, bin, far };
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
