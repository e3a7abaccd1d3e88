/** The plots of a corpus: of all heads at once, and of one, which may take a while. */

import { computed, type ReadonlySignal, signal } from "@preact/signals";
import type { StackDescription } from "../../client/protocol";
import { countHeads, headsOf } from "../../client/source";
import type { HeadIndex } from "../../ui/head-grid/grid";
import type { ViewContext } from "../../ui/view/define-view";
import { same } from "../../ui/view/state";
import {
  type Corpus,
  cancelProjection,
  type HeadTrust,
  type Overview,
  overviewOf,
  type Projecting,
  type Projection,
  type ProjectionRequest,
  projectionOf,
  trustOf,
  type Way,
} from "./client/requests";
import {
  type EmbeddingState,
  headKey,
  inTurn,
  OVERVIEW_PROJECTING,
  overviewGroups,
  pause,
  projectingOf,
} from "./state";

/** Overview requests that travel at once: one of the channel's is left to what the reader does. */
const AT_ONCE = 3;
/** Between two questions on how far a running projection is. */
const POLL_MS = 700;

type Context = ViewContext<EmbeddingState>;

function followWay({ scaling, translate, lift }: Context["state"]): Way {
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

/** What an overview, and the trust in it, depend on. */
interface Whole {
  stack: string;
  way: Way;
}

type Measured = ReadonlyMap<string, HeadTrust | null>;

export function createOverview(
  { record, state, source }: Context,
  corpus: ReadonlySignal<Corpus | null>,
  stack: ReadonlySignal<StackDescription | null>,
) {
  const whole = computed<Whole | null>(
    () => corpus.value && { stack: corpus.value.stack, way: followWay(state) },
  );
  // One enlarged head does not wait for the others.
  const asked = computed(() => (state.enlarged.value ? null : whole.value));
  const progress = signal<[number, number] | null>(null);
  // Of whole models it may be more than what the source keeps: back from one head it is here.
  let last: Overview | null = null;
  const given = record.answer(asked, async (wanted, ended): Promise<Overview | null> => {
    const [here, count] = [stack.peek(), corpus.peek()?.count ?? 0];
    if (!here || count === 0) return null;
    if (last && last.stack === wanted.stack && same(last.way, wanted.way)) return last;
    const all = countHeads(here);
    let done = 0;
    progress.value = [0, all];
    const parts = await inTurn(overviewGroups(here, count), AT_ONCE, async (layers) => {
      const part = await overviewOf(source, { ...wanted, layers }, ended);
      done += part.heads.length;
      if (!ended.aborted) progress.value = [done, all];
      return part;
    });
    const [first] = parts;
    last = first ? { ...first, heads: parts.flatMap((part) => part.heads) } : null;
    return last;
  });
  const settled = computed(() => {
    const had = given.value;
    return had !== null && whole.value !== null && same(had.question, whole.value);
  });

  const measured = signal<{ of: Whole; heads: Measured } | null>(null);
  const measuring = computed(() => (settled.value ? asked.value : null));
  record.answer(measuring, async (wanted, ended) => {
    const here = stack.peek();
    if (!here) return;
    const had = measured.peek();
    const heads = new Map(had && same(had.of, wanted) ? had.heads : []);
    const missing = (layer: number): number[] =>
      headsOf(here, layer).filter((head) => !heads.has(headKey({ layer, head })));
    const first = record.selection.peek()?.layer;
    const layers = [...here.layers].sort((a, b) => Number(b === first) - Number(a === first));
    for (const layer of layers) {
      const wantedHeads = missing(layer);
      if (wantedHeads.length === 0) continue;
      const request = { ...wanted, ...OVERVIEW_PROJECTING, layer, heads: wantedHeads };
      const trusts = await trustOf(source, request, ended);
      if (ended.aborted) return;
      wantedHeads.forEach((head, i) => {
        heads.set(headKey({ layer, head }), trusts[i] ?? null);
      });
      measured.value = { of: wanted, heads: new Map(heads) };
    }
  });

  return {
    /** All heads of the stack, drawn at once. The last stay until the next come. */
    overview: computed(() => {
      const had = given.value;
      // Another stack's heads are not this one's.
      return had && had.question.stack === whole.value?.stack ? had.answer : null;
    }),
    /** Heads that are there, of how many; null where none is awaited. */
    overviewProgress: computed(() => (asked.value && !settled.value ? progress.value : null)),
    overviewSettled: settled,
    /** Trust of the overview's plots, by `headKey`; a head that is not in it was not measured yet. */
    trust: computed(() => {
      const had = measured.value;
      return had && same(had.of, whole.value) ? had.heads : NOTHING;
    }),
  };
}

const NOTHING: Measured = new Map();

export function createProjection(
  { record, state, source, ended: gone }: Context,
  corpus: ReadonlySignal<Corpus | null>,
  head: ReadonlySignal<HeadIndex | null>,
) {
  const request = computed<ProjectionRequest | null>(() => {
    const [points, at] = [corpus.value, head.value];
    if (!points || !at || points.count === 0) return null;
    return { stack: points.stack, ...at, way: followWay(state), ...followProjecting(state) };
  });
  const begun = signal(0);
  const asked = computed(() => {
    const wanted = request.value;
    const shown = state.enlarged.value && state.shown.value === "plot";
    return shown && wanted ? { request: wanted, begun: begun.value } : null;
  });
  const newest = signal<Projection | null>(null);
  let anew = false;
  let wake: (() => void) | null = null;
  record.answer(asked, async (wanted, ended) => {
    let restart = anew;
    anew = false;
    // Later frames come by the same question, each when it is asked again.
    for (;;) {
      const next = await projectionOf(source, wanted.request, ended, restart);
      restart = false;
      if (ended.aborted) return;
      newest.value = next;
      if (next.work?.state !== "running") return;
      const woken = new Promise<void>((resolve) => {
        wake = resolve;
      });
      await Promise.race([pause(POLL_MS, ended), woken]);
    }
  });
  const settled = computed(
    () => newest.value !== null && same(newest.value.request, request.value),
  );

  const measuring = computed(() => {
    const plot = newest.value;
    if (!plot || !settled.value) return null;
    // A plot that still moves would be measured again and again.
    if (plot.work !== null && plot.work.state !== "done") return null;
    const { head, ...rest } = plot.request;
    return { ...rest, heads: [head] };
  });
  const trusted = record.answer(measuring, (wanted, ended) => trustOf(source, wanted, ended));

  return {
    /** The enlarged head's plot; the last stays until the next has come. */
    projection: computed(() => {
      const plot = newest.value;
      return plot && plot.request.stack === corpus.value?.stack ? plot : null;
    }),
    /** null while the plot moves or is not measured. */
    headTrust: computed(() => {
      const had = trusted.value;
      const here = measuring.value;
      return had && here && same(had.question, here) ? (had.answer[0] ?? null) : null;
    }),
    projectionSettled: settled,
    /** Ends a t-SNE or UMAP that runs. */
    cancel: () => {
      const wanted = asked.peek()?.request;
      if (!wanted) return;
      // Told at once, and not with the next frame.
      cancelProjection(source, wanted, gone).then(() => wake?.(), record.fail);
    },
    /** Begins one again that was ended or has failed. */
    restart: () => {
      anew = true;
      begun.value += 1;
    },
  };
}
