/**
 * Signals of the embedding view: corpus, plots, colours and the chosen point, which depend on its
 * traits.
 */

import { computed, type ReadonlySignal, signal } from "@preact/signals";
import { isAbort } from "../../client/kernel";
import type { HeadIndex } from "../../ui/head-grid/grid";
import { headName } from "../../ui/text/captions";
import type { ViewContext } from "../../ui/view/define-view";
import { assign, same } from "../../ui/view/state";
import { type Corpus, corpusOf, linesOf, normsOf } from "./client/requests";
import { type Coloring, coloring } from "./colors";
import { createOverview, createProjection } from "./projections";
import { findPoints, type PointMatches } from "./search";
import { type EmbeddingState, neighbourOf } from "./state";

export function createEmbeddingStore(context: ViewContext<EmbeddingState>) {
  const { record, state, source } = context;
  const hovered = signal<number | null>(null);

  const stack = computed(() => record.selection.value?.stack ?? null);
  const stackName = computed(() => stack.value?.name ?? null);
  const corpusAnswer = record.answer(stackName, (name, ended) => corpusOf(source, name, ended));
  // After a change of the stack, do not show the points of the previous stack.
  const corpus = computed(() => {
    const answered = corpusAnswer.value;
    return answered && answered.question === stackName.value ? answered.answer : null;
  });
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

  const all = createOverview(context, corpus, stack);
  const one = createProjection(context, corpus, head);
  const choice = createChosenPoint(context, corpus);

  const linesAsked = computed(() => {
    const [name, at, point] = [corpus.value?.stack, head.value, choice.chosen.value];
    return name === undefined || !at || point === null ? null : { stack: name, ...at, point };
  });
  const linesAnswer = record.answer(linesAsked, async (asked, ended) => {
    try {
      return await linesOf(source, asked, ended);
    } catch (reason) {
      // An exported page cannot load the lines later. Show the reason instead of an error with a
      // retry button.
      if (source.transport.live || isAbort(reason)) throw reason;
      return reason instanceof Error ? reason.message : String(reason);
    }
  });
  const currentLines = computed(() => {
    const answered = linesAnswer.value;
    return answered && same(answered.question, linesAsked.value) ? answered.answer : null;
  });

  const normsAsked = computed(() => {
    const [points, at] = [corpus.value, head.value];
    const own = points?.columns.some((column) => column.name === "norm");
    return points && at && state.color.value === "norm" && !own
      ? { stack: points.stack, ...at }
      : null;
  });
  const normsAnswer = record.answer(normsAsked, (asked, ended) =>
    normsOf(source, asked, corpus.peek()?.count ?? 0, ended),
  );
  const colors = computed<Coloring | null>(() => {
    const points = corpus.value;
    if (!points) return null;
    const answered = normsAnswer.value;
    const norms = answered?.question.stack === points.stack ? answered.answer : null;
    const of = answered ? headName(answered.question) : "";
    const [palette, theme] = [context.palette.value, context.theme.value];
    return coloring(points, state.color.value, { palette, theme, norms, head: of });
  });

  return {
    corpus,
    head,
    ...all,
    ...one,
    ...choice,
    /** Whether the visible plots have the settings of the current state. */
    current: computed(() =>
      state.enlarged.value ? one.projectionSettled.value : all.overviewSettled.value,
    ),
    /** Lines of the chosen point in the enlarged head. */
    lines: computed(() => (typeof currentLines.value === "string" ? null : currentLines.value)),
    /** Reason why the lines are missing, or null. An exported page may not contain them. */
    linesProblem: computed(() =>
      typeof currentLines.value === "string" ? currentLines.value : null,
    ),
    /** The point under the pointer. */
    hovered,
    colors,
    /** Result of the search, or null without a search. */
    matches: computed<PointMatches | null>(() => {
      const points = corpus.value;
      return points && findPoints(points, state.search.value, state.match_case.value);
    }),
    /** Whether a point is drawn. The reader can hide all queries or all keys. */
    shown: (point: number): boolean => {
      const [points, which] = [corpus.value, state.points.value];
      return which === "both" || points?.isKey(point) === (which === "keys");
    },
    /** Choose the head that is `layers` layers and `heads` heads after the current one. */
    neighbour: (layers: number, heads: number) => {
      const [currentStack, from] = [stack.peek(), head.peek()];
      if (!currentStack || !from) return;
      const to = neighbourOf(currentStack, from, layers, heads);
      assign(state, { layer: to.layer, heads: [to.head] });
    },
  };
}

export type EmbeddingStore = ReturnType<typeof createEmbeddingStore>;

export function createChosenPoint(
  { state, record }: ViewContext<EmbeddingState>,
  corpus: ReadonlySignal<Corpus | null>,
) {
  // Only one point can be chosen. If a query and a key are pinned, the chosen point is the one that
  // was set last, or the query if both were set at once.
  const byKey = signal(false);
  let [token, key] = [state.token.peek(), state.key.peek()];
  record.live(() => {
    const [nowToken, nowKey] = [state.token.value, state.key.value];
    if (nowToken !== token) byKey.value = false;
    else if (nowKey !== key) byKey.value = true;
    [token, key] = [nowToken, nowKey];
    return undefined;
  });
  const chosen = computed(() => {
    const points = corpus.value;
    // If no text is chosen, positions refer to the first text, as in Python.
    const text = state.text.value ?? 0;
    if (!points) return null;
    const [query, pinned] = [state.token.value, state.key.value];
    const isKey = pinned !== null && (byKey.value || query === null);
    const position = isKey ? pinned : query;
    if (position === null) return null;
    const point = points.pointOf(isKey ? "key" : "query", text, position);
    return point < 0 ? null : point;
  });
  const choose = (point: number | null): void => {
    const points = corpus.peek();
    if (!points || point === null) {
      assign(state, { text: null, token: null, key: null });
      return;
    }
    const [text, position] = [points.textOf(point), points.positionOf(point)];
    // Set only one of `token` and `key`, so that they show whether the point is a query or a key.
    const pin = points.isKey(point)
      ? { token: null, key: position }
      : { token: position, key: null };
    assign(state, { text, ...pin });
  };
  return { chosen, choose };
}
