/**
 * Signals of the atlas. They compute the grid, the data of the chosen head and the search result
 * from the traits.
 */

import { batch, computed, type ReadonlySignal, signal } from "@preact/signals";
import type { AtlasStack } from "../../client/protocol";
import { countHeads } from "../../client/source";
import { isPrinted } from "../../draw/figure-request";
import {
  type GridLayout,
  galleryGrid,
  type HeadGrid,
  type HeadIndex,
  layerGrid,
  offeredHeads,
  type ScoredHead,
} from "../../ui/head-grid/grid";
import { createHeadGrid } from "../../ui/head-grid/store";
import type { ViewContext } from "../../ui/view/define-view";
import { assign, same } from "../../ui/view/state";
import {
  classWeightsOf,
  edgesOf,
  offsetsOf,
  type Table,
  type Texts,
  tableOf,
  textsOf,
} from "./client/atlas";
import {
  byMatches,
  byRole,
  byStatistic,
  type Coloring,
  everyHead,
  rankedByMatches,
} from "./coloring";
import { galleryOf, hasCaptions, layOut } from "./layout";
import {
  type Count,
  countMatches,
  matchesSearch,
  parseSearch,
  type Search,
  type SearchTerm,
  searchOf,
} from "./search";
import type { AtlasState, DescribedAtlas } from "./state";

/** Head with its number of matching edges. */
export interface MatchedHead extends HeadIndex {
  count: Count;
}

/** Result of a search over all heads. It is incomplete while the search runs. */
export interface SearchResult {
  /** Return the count of a head, or null if the head's edges are not counted yet. */
  of: (layer: number, head: number) => Count | null;
  /** Number of layers whose edges are counted. */
  done: number;
  /** Number of all layers. */
  layers: number;
  /** Heads whose edges are counted, ordered by decreasing share of matching edges. */
  ranked: MatchedHead[];
}

export type AtlasStore = ReturnType<typeof createAtlasStore>;

const MAX_HEIGHT = 1000;
/**
 * Maximum number of classes in the table of weights by class. An exported page does not contain
 * larger tables (`attnviz/atlas/page.py`).
 */
export const MAX_CLASSES = 24;

export function createAtlasStore(context: ViewContext<AtlasState>, width: ReadonlySignal<number>) {
  const { record, state, source } = context;
  const atlas = computed(() => (record.description.value as DescribedAtlas | null)?.atlas ?? null);
  const stackName = computed(() => record.selection.value?.stack.name ?? null);
  const stack = computed(
    () => atlas.value?.stacks.find(({ name }) => name === stackName.value) ?? null,
  );
  const ofStack = <T>(ask: (stack: AtlasStack, ended: AbortSignal) => Promise<T>) => {
    const answered = record.answer(stackName, async (_, ended) =>
      ask(stack.peek() as AtlasStack, ended),
    );
    // After a change of the stack, drop the previous answer until the new one arrives.
    return computed(() =>
      answered.value && answered.value.question === stackName.value ? answered.value.answer : null,
    );
  };
  const table = ofStack((stack, ended) => tableOf(source, stack, ended));
  const texts = ofStack((stack, ended) => textsOf(source, stack.name, ended));

  const head = computed<HeadIndex | null>(() => {
    const selection = record.selection.value;
    const first = selection?.heads[0];
    return selection && first !== undefined ? { layer: selection.layer, head: first } : null;
  });
  const layer = computed(() => {
    const [name, now] = [stackName.value, head.value];
    return name !== null && now ? { stack: name, layer: now.layer } : null;
  });
  const ofLayer = <T>(
    ask: (stack: AtlasStack, layer: number, ended: AbortSignal) => Promise<T>,
    asked = layer,
  ) => {
    const answered = record.answer(asked, async ({ layer }, ended) =>
      ask(stack.peek() as AtlasStack, layer, ended),
    );
    return computed(() =>
      answered.value && same(answered.value.question, layer.value) ? answered.value.answer : null,
    );
  };
  const offsets = ofLayer((stack, at, ended) => offsetsOf(source, stack, at, ended));
  // `edgesOf` looks up tokens in `texts`, so edges are requested after the texts have arrived.
  const edgesAsked = computed(() => (texts.value ? layer.value : null));
  const edges = ofLayer(
    (stack, at, ended) => edgesOf(source, stack, at, texts.peek() as Texts, ended),
    edgesAsked,
  );

  const wantedSystem = signal("");
  const systems = computed(() =>
    (stack.value?.classes ?? [])
      .filter(({ values }) => values.length > 0 && values.length <= MAX_CLASSES)
      .map(({ name }) => name),
  );
  const system = computed(() =>
    systems.value.includes(wantedSystem.value) ? wantedSystem.value : (systems.value[0] ?? null),
  );
  const classesAsked = computed(() => {
    const [name, now, of] = [stackName.value, head.value, system.value];
    return name !== null && now && of !== null ? { stack: name, ...now, system: of } : null;
  });
  const classesGiven = record.answer(classesAsked, (asked, ended) =>
    classWeightsOf(source, asked, ended),
  );
  const classes = computed(() =>
    classesGiven.value && same(classesGiven.value.question, classesAsked.value)
      ? classesGiven.value.answer
      : null,
  );

  const sought = computed(() => {
    const classes = stack.value?.classes ?? [];
    const read = (typed: string): { sought: SearchTerm | null; problem: string | null } => {
      try {
        return { sought: parseSearch(typed, classes), problem: null };
      } catch (reason) {
        return { sought: null, problem: (reason as Error).message };
      }
    };
    return { query: read(state.query_search.value), key: read(state.key_search.value) };
  });
  const problem = computed(() => ({
    query: sought.value.query.problem,
    key: sought.value.key.problem,
  }));
  const search = computed<Search | null>(() => {
    const [tokens, { query, key }] = [texts.value, sought.value];
    if (!tokens || query.problem !== null || key.problem !== null) return null;
    return searchOf(tokens, query.sought, key.sought, state.offsets.value);
  });
  const searching = computed(
    () => sought.value.query.sought !== null || sought.value.key.sought !== null,
  );
  const result = createSearch(context, { stack, texts, search, searching });

  const coloring = computed<Coloring | null>(() => {
    const [currentStack, numbers] = [stack.value, table.value];
    if (!currentStack || !numbers) return null;
    const room = { palette: context.palette.value, theme: context.theme.value };
    if (result.value) return byMatches(currentStack, room, result.value.of);
    const statistic = currentStack.statistics.findIndex(({ name }) => name === state.color.value);
    return statistic < 0 ? byRole(numbers, room) : byStatistic(numbers, statistic, room);
  });

  const grid = computed<HeadGrid | null>(() => {
    const [now, numbers] = [record.selection.value, table.value];
    if (!now || !numbers) return null;
    const offered = offeredHeads(now.stack, null);
    const { perRow } = galleryOf(offered.flat().length, width.value);
    const cells = orderedCells(numbers, state.order.value);
    return cells
      ? galleryGrid(now.stack, offered, cells, state.order.value, perRow)
      : layerGrid(now.stack, offered);
  });
  const layout = computed<GridLayout | null>(() => {
    const now = grid.value;
    if (!now) return null;
    const listed = now.columns
      ? null
      : { cell: galleryOf(now.shown, width.value).cell, captions: hasCaptions(now.shown) };
    return layOut({
      columns: now.columns?.length ?? now.rows[0]?.length ?? 1,
      rows: now.rows.length,
      listed,
      width: Math.max(200, width.value),
      mostHeight: MAX_HEIGHT,
      printed: isPrinted(context.figure),
    });
  });
  const heads = createHeadGrid({ grid, layout, current: head, isOpen: () => true });

  const listed = computed<number[]>(() => {
    const [layerEdges, now, sieve] = [edges.value, head.value, search.value];
    if (!layerEdges || !now) return [];
    const list = layerEdges[state.edges.value];
    const [first, stop] = list.of(now.head);
    const all = Array.from({ length: stop - first }, (_, i) => first + i);
    return sieve ? all.filter((i) => matchesSearch(list, i, sieve)) : all;
  });

  return {
    atlas,
    stack,
    table,
    texts,
    /** Chosen head: the first head of the selection, or null until a record is loaded. */
    head,
    /** Mean weights by offset in the chosen head's layer, or null until loaded. */
    offsets,
    edges,
    /** Name of the class system of the table, or null if every system has too many classes. */
    system,
    systems,
    classes,
    chooseSystem: (name: string): void => {
      wantedSystem.value = name;
    },
    /** Indices of the chosen head's edges that match the range of offsets and the search. */
    listed,
    coloring,
    heads,
    grid,
    layout,
    /** Prepared search, or null if a search text is invalid or the texts are not loaded. */
    search,
    searching,
    problem,
    result,
    /** Width in pixels that is available for the grid. */
    width,
    /** Whether all data for the current state is loaded and the search, if any, is complete. */
    settled: computed(() => {
      const done = result.value === null || result.value.done === result.value.layers;
      const classesReady = system.value === null || classes.value !== null;
      const parts = [table.value, texts.value, offsets.value, edges.value, grid.value];
      return done && classesReady && parts.every((each) => each !== null);
    }),
    /**
     * Highlighted role: an index in the stack's roles, null if the heads without a role are
     * highlighted, or undefined if nothing is.
     */
    role: signal<number | null | undefined>(undefined),
    choose: ({ layer, head }: HeadIndex) =>
      batch(() => {
        heads.cursor.value = { layer, head };
        assign(state, { layer, heads: [head] });
      }),
  };
}

/**
 * Return all heads ordered by "role" or by the statistic named `order`. Return null for any other
 * `order`, because the grid then has one row per layer.
 */
function orderedCells(table: Table, order: string): ScoredHead[] | null {
  const { stack } = table;
  if (order === "role") {
    const counts = new Map<number | null, number>();
    const cells = everyHead(stack).map((headIndex) => {
      const first = table.roles(headIndex.layer, headIndex.head)[0];
      const role = first?.role ?? null;
      counts.set(role, (counts.get(role) ?? 0) + 1);
      return { ...headIndex, score: first?.score ?? null, role };
    });
    // The rarest role comes first, as in the legend.
    const rank = (role: number | null): number =>
      role === null
        ? Number.POSITIVE_INFINITY
        : (counts.get(role) ?? 0) + role / stack.roles.length;
    return cells.sort((a, b) =>
      a.role === b.role ? (b.score ?? 0) - (a.score ?? 0) : rank(a.role) - rank(b.role),
    );
  }
  const statistic = stack.statistics.findIndex(({ name }) => name === order);
  if (statistic < 0) return null;
  const cells = everyHead(stack).map((headIndex) => ({
    ...headIndex,
    score: table.figure(statistic, headIndex.layer, headIndex.head).mean,
  }));
  const value = ({ score }: ScoredHead): number => score ?? Number.NEGATIVE_INFINITY;
  return cells.sort((a, b) => value(b) - value(a));
}

/** Milliseconds between updates of a search result, to which `SHOWN_EVERY_OF_HEAD` is added. */
const SHOWN_EVERY = 60;
/**
 * Milliseconds per head that are added to `SHOWN_EVERY`. Painting all cells takes longer than the
 * search itself, so a large grid is updated less often.
 */
const SHOWN_EVERY_OF_HEAD = 0.1;

/**
 * Return the result of the active search, or null without one. Load and search the sampled edges
 * of one layer after the other.
 */
function createSearch(
  { record, source }: ViewContext<AtlasState>,
  parts: {
    stack: ReadonlySignal<AtlasStack | null>;
    texts: ReadonlySignal<Texts | null>;
    search: ReadonlySignal<Search | null>;
    searching: ReadonlySignal<boolean>;
  },
): ReadonlySignal<SearchResult | null> {
  const { stack, texts, search, searching } = parts;
  const counted = signal<ReadonlyMap<number, Count[]>>(new Map());
  record.live(() => {
    const [currentStack, sought] = [stack.value, search.value];
    counted.value = new Map();
    const tokens = texts.value;
    if (!currentStack || !tokens || !sought || !searching.value) return undefined;
    const controller = new AbortController();
    const counts = new Map<number, Count[]>();
    const wait = SHOWN_EVERY + SHOWN_EVERY_OF_HEAD * countHeads(currentStack);
    let timer: ReturnType<typeof setTimeout> | undefined;
    const show = (): void => {
      clearTimeout(timer);
      timer = undefined;
      counted.value = new Map(counts);
    };
    const go = async (): Promise<void> => {
      for (const [at, layer] of currentStack.layers.entries()) {
        const { sampled } = await edgesOf(source, currentStack, layer, tokens, controller.signal);
        if (controller.signal.aborted) return;
        counts.set(layer, countMatches(sampled, currentStack.heads_per_layer[at] ?? 0, sought));
        timer ??= setTimeout(show, wait);
      }
      show();
    };
    go().catch(record.fail);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  });
  return computed(() => {
    const [currentStack, counts] = [stack.value, counted.value];
    if (!currentStack || !search.value || !searching.value) return null;
    const of = (layer: number, head: number): Count | null => counts.get(layer)?.[head] ?? null;
    const finished = everyHead(currentStack).flatMap((headIndex): MatchedHead[] => {
      const count = of(headIndex.layer, headIndex.head);
      return count ? [{ ...headIndex, count }] : [];
    });
    return {
      of,
      done: counts.size,
      layers: currentStack.layers.length,
      ranked: rankedByMatches(finished),
    };
  });
}
