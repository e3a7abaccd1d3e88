/**
 * Signals of the projections: small plots of all heads, the plot of the enlarged head, and their
 * trust figures, which measure how well distances follow q·k.
 */

import { computed, type ReadonlySignal, signal } from "@preact/signals";
import type { HeadIndex } from "../../ui/head-grid/grid";
import type { Answer } from "../../ui/view/answer";
import { follow, same } from "../../ui/view/state";
import {
  type Corpus,
  type HeadPlot,
  type Projection,
  projectionOf,
  type SmallPlot,
  smallPlotsOf,
  trustOf,
} from "./client/requests";
import { type Context, headKey, placingOf, projectingOf } from "./state";
import type { TrustMap } from "./trust";

/** Milliseconds between progress requests of a running projection. */
const POLL_MS = 700;

/**
 * Return the latest answer about the current stack. After a change of other settings, it stays until
 * the new answer is loaded.
 */
export function answerOfStack<A>(
  corpus: ReadonlySignal<Corpus | null>,
  answered: ReadonlySignal<Answer<{ stack: string }, A> | null>,
): ReadonlySignal<A | null> {
  return computed(() => {
    const last = answered.value;
    return last && last.question.stack === corpus.value?.stack ? last.answer : null;
  });
}

export function createOverview(
  { record, state, source }: Context,
  corpus: ReadonlySignal<Corpus | null>,
) {
  const settings = computed(
    () => corpus.value && { stack: corpus.value.stack, placing: placingOf(follow(state)) },
  );
  // Do not load the overview while a head is enlarged, so that the plot of this head need not wait.
  const asked = computed(() => (state.enlarged.value ? null : settings.value));
  const { latest } = record.answer(asked, async ({ placing }, ended) => {
    const [stack, points] = [record.selection.peek()?.stack, corpus.peek()];
    if (!stack || !points || points.count === 0) return null;
    const plots: SmallPlot[] = [];
    for (const layer of stack.layers) {
      plots.push(...(await smallPlotsOf(source, points, { layer, placing }, ended)));
    }
    return plots;
  });
  const settled = computed(
    () => latest.value !== null && same(latest.value.question, settings.value),
  );

  const measured = signal<Answer<typeof settings.value, TrustMap> | null>(null);
  const trust = computed(() =>
    measured.value && same(measured.value.question, settings.value)
      ? measured.value.answer
      : NOTHING,
  );
  const measuring = computed(() => (settled.value ? asked.value : null));
  record.answer(measuring, async (question, ended) => {
    const selection = record.selection.peek();
    if (!selection) return;
    const { stack, layer: first } = selection;
    const layers = [...stack.layers].sort((a, b) => Number(b === first) - Number(a === first));
    for (const layer of layers) {
      const ofLayer = await trustOf(source, { ...question, layer }, ended);
      if (ended.aborted) return;
      const entries = ofLayer.map((trust, head) => [headKey({ layer, head }), trust] as const);
      measured.value = { question, answer: new Map([...trust.peek(), ...entries]) };
    }
  });

  return {
    /** Plots of all heads of the stack. After a change of the settings, the previous plots stay. */
    overview: answerOfStack(corpus, latest),
    settled,
    /** Trust figures of the overview's plots. */
    trust,
  };
}

const NOTHING: TrustMap = new Map();

export function createProjection(
  { record, state, source }: Context,
  corpus: ReadonlySignal<Corpus | null>,
  head: ReadonlySignal<HeadIndex | null>,
) {
  const request = computed<HeadPlot | null>(() => {
    const [points, at] = [corpus.value, head.value];
    if (!points || !at || points.count === 0) return null;
    const settings = follow(state);
    const placing = placingOf(settings);
    return { stack: points.stack, ...at, placing, ...projectingOf(settings) };
  });
  /** Number of times that the reader has cancelled or restarted a projection. */
  const actions = signal(0);
  const asked = computed(() => {
    const question = { plot: request.value, actions: actions.value };
    return question.plot && state.enlarged.value ? question : null;
  });
  const newest = signal<Projection | null>(null);
  record.answer(asked, async ({ plot: question }, ended) => {
    // While the projection runs, repeat the request to get later frames.
    while (question && !ended.aborted) {
      const plot = await projectionOf(source, question, ended);
      if (ended.aborted) return;
      newest.value = plot;
      if (plot.work?.state !== "running") return;
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  });
  const act = (action: "restart" | "cancel") => (): void => {
    const plot = request.peek();
    const sent = plot && source.transport.request("plot", { ...plot, action });
    sent?.then(() => actions.value++).catch(record.fail);
  };
  const settled = computed(
    () => newest.value !== null && same(newest.value.request, request.value),
  );

  const measuring = computed(() => {
    const plot = newest.value;
    // Do not measure a plot that still changes.
    const final = plot && settled.value && (plot.work === null || plot.work.state === "done");
    return final ? plot.request : null;
  });
  const { current: figures } = record.answer(measuring, (question, ended) =>
    trustOf(source, question, ended),
  );

  return {
    /**
     * Plot of the enlarged head. After a change of head or settings, the previous plot stays until
     * the new one is loaded.
     */
    projection: computed(() =>
      newest.value?.request.stack === corpus.value?.stack ? newest.value : null,
    ),
    /** Trust figures of the enlarged head, or null while the plot changes or is being measured. */
    headTrust: computed(() => figures.value?.[0] ?? null),
    settled,
    /** Cancel a running t-SNE or UMAP. */
    cancel: act("cancel"),
    /** Restart a cancelled or failed projection. */
    restart: act("restart"),
  };
}
