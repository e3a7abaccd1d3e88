/**
 * Signals of the embedding view: corpus, plots, colours and the chosen point, which depend on its
 * traits.
 */

import { computed, type ReadonlySignal, signal, untracked } from "@preact/signals";
import { headsOf } from "../../client/source";
import type { HeadIndex } from "../../ui/head-grid/grid";
import { headName } from "../../ui/text/captions";
import { assign } from "../../ui/view/state";
import { type Corpus, corpusOf, linesOf, normsOf } from "./client/requests";
import { coloring } from "./colors";
import { answerOfStack, createOverview, createProjection } from "./projections";
import { findPoints } from "./search";
import type { Context } from "./state";

export function createEmbeddingStore(context: Context) {
  const { record, state, source } = context;
  const hovered = signal<number | null>(null);

  const corpusAsked = computed(
    () => record.selection.value && { stack: record.selection.value.stack.name },
  );
  const { current: corpus } = record.answer(corpusAsked, (asked, ended) =>
    corpusOf(source, asked, ended),
  );
  let numbered: string | null = null;
  record.live(() => {
    const now = corpus.value?.stack ?? null;
    if (now === null || now === numbered) return undefined;
    // Hovered and selected points are numbered within the previous stack, so clear them.
    hovered.value = null;
    if (numbered !== null) assign(state, { selected: [] });
    numbered = now;
    return undefined;
  });
  /** The enlarged head: the first chosen head, or the first head of the layer. */
  const head = computed<HeadIndex | null>(() => {
    const selection = record.selection.value;
    const first = selection?.heads[0];
    return selection && first !== undefined ? { layer: selection.layer, head: first } : null;
  });

  /**
   * Return the head that is `layers` layers and `heads` heads after the current one. Negative
   * numbers count backwards. Beyond the first or last head, return the first or last one. Return
   * null until a record is loaded.
   */
  const neighbourOf = (layers: number, heads: number): HeadIndex | null => {
    const [stack, from] = [record.selection.value?.stack, head.value];
    if (!stack || !from) return null;
    const at = stack.layers.indexOf(from.layer) + layers;
    const layer = stack.layers[clip(at, stack.layers.length)] as number;
    return { layer, head: clip(from.head + heads, headsOf(stack, layer).length) };
  };

  const all = createOverview(context, corpus);
  const one = createProjection(context, corpus, head);
  const choice = createChosenPoint(context, corpus);
  const settled = computed(() => (state.enlarged.value ? one : all).settled.value);

  const linesAsked = computed(() => {
    const [stack, at, point] = [corpus.value?.stack, head.value, choice.chosen.value];
    return stack === undefined || !at || point === null ? null : { stack, ...at, point };
  });
  const { current: lines } = record.answer(linesAsked, (asked, ended) =>
    linesOf(source, corpus.peek() as Corpus, asked, ended),
  );

  const normsAsked = computed(() => {
    const [points, at] = [corpus.value, head.value];
    const own = points?.columns.some((column) => column.name === "norm");
    return points && at && state.color.value === "norm" && !own
      ? { stack: points.stack, ...at }
      : null;
  });
  // Until the norms of another head are loaded, the colours show those of the previous head.
  const normed = record.answer(normsAsked, async (asked, ended) => ({
    lengths: await normsOf(source, asked, ended),
    head: headName(asked),
  }));
  const norms = answerOfStack(corpus, normed.latest);

  const matches = computed(() => corpus.value && findPoints(corpus.value, state.search.value));

  return {
    corpus,
    head,
    ...all,
    ...one,
    ...choice,
    /** Whether the loaded data of the picture match the current state. */
    settled,
    /**
     * Return the identifier of the picture of one head or of all heads, or null while the view
     * shows the other one or newer data is loading.
     */
    drawnId: (enlarged: boolean): string | null => {
      const [stack, at] = [corpus.value?.stack, head.value];
      if (state.enlarged.value !== enlarged || !stack || !at || !settled.value) return null;
      return `embedding:${stack}:${enlarged ? at.layer : "all"}`;
    },
    /** Lines of the chosen point in the enlarged head, or null if they are missing. */
    lines: computed(() => (lines.value?.problem ? null : lines.value)),
    /** Reason why the lines are missing, or null. An exported page may not contain them. */
    linesProblem: computed(() => lines.value?.problem ?? null),
    /** The point under the pointer. */
    hovered,
    colors: computed(() => {
      const [palette, theme] = [context.palette.value, context.theme.value];
      const look = { palette, theme, norms: norms.value };
      return corpus.value && coloring(corpus.value, state.color.value, look);
    }),
    /** Result of the search, or null without a search. */
    matches,
    /** 1 for each point in the search result or the lasso. Null if neither exists. */
    standing: computed(() => {
      const selected = state.selected.value;
      if (!corpus.value || (!matches.value && selected.length === 0)) return null;
      const points = matches.value?.points.slice() ?? new Uint8Array(corpus.value.count);
      for (const point of selected) points[point] = 1;
      return points;
    }),
    /** Whether a point is drawn. The reader can hide all queries or all keys. */
    shown: (point: number): boolean => {
      const which = state.points.value;
      return which === "both" || corpus.value?.isKey(point) === (which === "keys");
    },
    neighbourOf,
    /** Choose the head that is `layers` layers and `heads` heads after the current one. */
    neighbour: (layers: number, heads: number) => {
      const to = untracked(() => neighbourOf(layers, heads));
      if (to) assign(state, { layer: to.layer, heads: [to.head] });
    },
  };
}

/** Return the index `at`, or the nearest one of `count` entries. */
export function clip(at: number, count: number): number {
  return Math.max(0, Math.min(count - 1, at));
}

export type EmbeddingStore = ReturnType<typeof createEmbeddingStore>;

/** Props of the components of the view. */
export interface EmbeddingProps {
  context: Context;
  store: EmbeddingStore;
}

function createChosenPoint({ state }: Context, corpus: ReadonlySignal<Corpus | null>) {
  return {
    /** The chosen point. If a query and a key are pinned, it is the query. */
    chosen: computed(() => {
      const [points, query, pinned] = [corpus.value, state.token.value, state.key.value];
      const position = query ?? pinned;
      if (!points || position === null) return null;
      // If no text is chosen, positions refer to the first text, as in Python.
      const point = points.pointOf(
        query === null ? "key" : "query",
        state.text.value ?? 0,
        position,
      );
      return point < 0 ? null : point;
    }),
    choose: (point: number | null): void => {
      const points = corpus.peek();
      const none = { text: null, token: null, key: null };
      // Set only one of `token` and `key`, so that they show whether the point is a query or a key.
      const chosen = points &&
        point !== null && {
          text: points.textOf(point),
          [points.isKey(point) ? "key" : "token"]: points.positionOf(point),
        };
      assign(state, { ...none, ...chosen });
    },
  };
}
