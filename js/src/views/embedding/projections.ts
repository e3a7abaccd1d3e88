/** Signals of the projections: small plots of all heads, and the plot of the enlarged head. */

import { computed, type ReadonlySignal, signal } from "@preact/signals";
import type { StackDescription } from "../../client/protocol";
import { countHeads, headsOf } from "../../client/source";
import type { HeadIndex } from "../../ui/head-grid/grid";
import type { ViewContext } from "../../ui/view/define-view";
import { same } from "../../ui/view/state";
import {
  type Corpus,
  type HeadTrust,
  type Overview,
  overviewOf,
  type Placing,
  type Projecting,
  type Projection,
  type ProjectionRequest,
  projectionOf,
  trustOf,
} from "./client/requests";
import {
  type EmbeddingState,
  headKey,
  OVERVIEW_PROJECTING,
  overviewGroups,
  pause,
  projectingOf,
} from "./state";

/** Milliseconds between progress requests of a running projection. */
const POLL_MS = 700;

type Context = ViewContext<EmbeddingState>;

function followPlacing({ scaling, translate, lift }: Context["state"]): Placing {
  return { scaling: scaling.value, translate: translate.value, lift: lift.value };
}

function followProjecting(state: Context["state"]): Projecting {
  const { method, dimensions, perplexity, neighbors, seed } = state;
  return projectingOf({
    method: method.value,
    dimensions: dimensions.value,
    perplexity: perplexity.value,
    neighbors: neighbors.value,
    seed: seed.value,
  });
}

/** Settings that the overview and its trust figures depend on. */
interface Whole {
  stack: string;
  placing: Placing;
}

type Measured = ReadonlyMap<string, HeadTrust | null>;

export function createOverview(
  { record, state, source }: Context,
  corpus: ReadonlySignal<Corpus | null>,
  stack: ReadonlySignal<StackDescription | null>,
) {
  const whole = computed<Whole | null>(
    () => corpus.value && { stack: corpus.value.stack, placing: followPlacing(state) },
  );
  // Do not load the overview while a head is enlarged, so that the plot of this head need not wait.
  const asked = computed(() => (state.enlarged.value ? null : whole.value));
  const progress = signal<[number, number] | null>(null);
  // Keep the last overview, because the cache of the source may be too small for the overview of a
  // large model. When the reader returns from one head, the overview is then shown without a
  // request.
  let last: Overview | null = null;
  const answered = record.answer(asked, async (question, ended): Promise<Overview | null> => {
    const [currentStack, count] = [stack.peek(), corpus.peek()?.count ?? 0];
    if (!currentStack || count === 0) return null;
    if (last && last.stack === question.stack && same(last.placing, question.placing)) return last;
    const all = countHeads(currentStack);
    let done = 0;
    progress.value = [0, all];
    const parts: Overview[] = [];
    for (const layers of overviewGroups(currentStack, count)) {
      const part = await overviewOf(source, { ...question, layers }, ended);
      parts.push(part);
      done += part.heads.length;
      if (!ended.aborted) progress.value = [done, all];
    }
    const [first] = parts;
    last = first ? { ...first, heads: parts.flatMap((part) => part.heads) } : null;
    return last;
  });
  const settled = computed(() => {
    const had = answered.value;
    return had !== null && whole.value !== null && same(had.question, whole.value);
  });

  const measured = signal<{ of: Whole; heads: Measured } | null>(null);
  const measuring = computed(() => (settled.value ? asked.value : null));
  record.answer(measuring, async (question, ended) => {
    const currentStack = stack.peek();
    if (!currentStack) return;
    const had = measured.peek();
    const heads = new Map(had && same(had.of, question) ? had.heads : []);
    const missing = (layer: number): number[] =>
      headsOf(currentStack, layer).filter((head) => !heads.has(headKey({ layer, head })));
    const first = record.selection.peek()?.layer;
    const layers = [...currentStack.layers].sort(
      (a, b) => Number(b === first) - Number(a === first),
    );
    for (const layer of layers) {
      const wantedHeads = missing(layer);
      if (wantedHeads.length === 0) continue;
      const request = { ...question, ...OVERVIEW_PROJECTING, layer, heads: wantedHeads };
      const trusts = await trustOf(source, request, ended);
      if (ended.aborted) return;
      wantedHeads.forEach((head, i) => {
        heads.set(headKey({ layer, head }), trusts[i] ?? null);
      });
      measured.value = { of: question, heads: new Map(heads) };
    }
  });

  return {
    /**
     * Plots of all heads of the stack. After a change of the settings, the previous plots stay
     * until all new plots are loaded.
     */
    overview: computed(() => {
      const had = answered.value;
      // After a change of the stack, do not show the heads of the previous stack.
      return had && had.question.stack === whole.value?.stack ? had.answer : null;
    }),
    /** Number of loaded heads and number of all heads, or null if nothing is loading. */
    overviewProgress: computed(() => (asked.value && !settled.value ? progress.value : null)),
    overviewSettled: settled,
    /**
     * Trust figures of the overview's plots by `headKey`. A head that is not measured yet has no
     * entry.
     */
    trust: computed(() => {
      const had = measured.value;
      return had && same(had.of, whole.value) ? had.heads : NOTHING;
    }),
  };
}

const NOTHING: Measured = new Map();

export function createProjection(
  { record, state, source }: Context,
  corpus: ReadonlySignal<Corpus | null>,
  head: ReadonlySignal<HeadIndex | null>,
) {
  const request = computed<ProjectionRequest | null>(() => {
    const [points, at] = [corpus.value, head.value];
    if (!points || !at || points.count === 0) return null;
    return {
      stack: points.stack,
      ...at,
      placing: followPlacing(state),
      ...followProjecting(state),
    };
  });
  /** Action that the reader has chosen for a projection. */
  const chosen = signal<{ of: ProjectionRequest; action: "restart" | "cancel" } | null>(null);
  const asked = computed(() => {
    const [wanted, reader] = [request.value, chosen.value];
    if (!wanted || !state.enlarged.value || state.content.value !== "plot") return null;
    return { request: wanted, chosen: same(reader?.of, wanted) ? reader : null };
  });
  const newest = signal<Projection | null>(null);
  record.answer(asked, async (question, ended) => {
    let action: "show" | "restart" | "cancel" = question.chosen?.action ?? "show";
    // While the projection runs, repeat the request to get later frames.
    for (;;) {
      const next = await projectionOf(source, question.request, ended, action);
      action = "show";
      if (ended.aborted) return;
      newest.value = next;
      if (next.work?.state !== "running") return;
      await pause(POLL_MS, ended);
    }
  });
  const choose = (action: "restart" | "cancel"): void => {
    const of = asked.peek()?.request;
    if (of) chosen.value = { of, action };
  };
  const settled = computed(
    () => newest.value !== null && same(newest.value.request, request.value),
  );

  const measuring = computed(() => {
    const plot = newest.value;
    if (!plot || !settled.value) return null;
    // Do not measure a plot that still changes.
    if (plot.work !== null && plot.work.state !== "done") return null;
    const { head, ...rest } = plot.request;
    return { ...rest, heads: [head] };
  });
  const trusted = record.answer(measuring, (question, ended) => trustOf(source, question, ended));

  return {
    /**
     * Plot of the enlarged head. After a change of head or settings, the previous plot stays until
     * the new one is loaded.
     */
    projection: computed(() => {
      const plot = newest.value;
      return plot && plot.request.stack === corpus.value?.stack ? plot : null;
    }),
    /** Trust figures of the enlarged head, or null while the plot changes or is being measured. */
    headTrust: computed(() => {
      const had = trusted.value;
      const question = measuring.value;
      return had && question && same(had.question, question) ? (had.answer[0] ?? null) : null;
    }),
    projectionSettled: settled,
    /** Cancel a running t-SNE or UMAP. */
    cancel: () => choose("cancel"),
    /** Restart a cancelled or failed projection. */
    restart: () => choose("restart"),
  };
}
