/**
 * Signals of the atlas. They compute the grid, the data of the chosen head and the search result
 * from the traits. A class system assigns each token to a class, such as its part of speech.
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
  joinGrids,
  layerGrid,
  offeredHeads,
  rankedCells,
  type ScoredHead,
} from "../../ui/head-grid/grid";
import { BY_ROLE } from "../../ui/head-grid/head-roles";
import { createHeadGrid } from "../../ui/head-grid/store";
import type { ViewContext } from "../../ui/view/define-view";
import { kindOf, otherListsInWords } from "../../ui/view/model-layers";
import { assign, follow } from "../../ui/view/state";
import { coverageOf, sentenceOf, subtitleOf } from "./captions";
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
  type RoleEntry,
  roleEntries,
} from "./coloring";
import { galleryOf, layOut } from "./layout";
import {
  type Count,
  countMatches,
  type MatchedHead,
  parseSearch,
  rankedByMatches,
  type Search,
  type SearchResult,
  searchOf,
} from "./search";
import type { AtlasState, DescribedAtlas } from "./state";

export type AtlasStore = ReturnType<typeof createAtlasStore>;

/**
 * Maximum number of classes in the table of weights by class. An exported page does not contain
 * larger tables (`attnviz/atlas/page.py`).
 */
export const MAX_CLASSES = 24;

export function createAtlasStore(context: ViewContext<AtlasState>, width: ReadonlySignal<number>) {
  const { record, state, source } = context;
  const atlas = computed(() => (record.description.value as DescribedAtlas | null)?.atlas ?? null);
  const stack = computed(() => {
    const name = record.selection.value?.stack.name;
    return atlas.value?.stacks.find((candidate) => candidate.name === name) ?? null;
  });
  // Stack and its siblings (see `model-layers.ts`). The order does not depend on which of them the
  // stack is.
  const siblings = computed(() => {
    const names = record.selection.value?.siblings.map(({ name }) => name) ?? [];
    const all = atlas.value?.stacks.filter(({ name }) => names.includes(name)) ?? [];
    return all.length > 0 ? all : null;
  });
  const { current: tables } = record.answer(siblings, (all, ended) =>
    Promise.all(all.map((each) => tableOf(source, each, ended))),
  );
  const table = computed(() => {
    const name = stack.value?.name;
    return tables.value?.find((candidate) => candidate.stack.name === name) ?? null;
  });
  const { current: texts } = record.answer(stack, ({ name }, ended) =>
    textsOf(source, name, ended),
  );

  /** Return the index of a head in the grid: with the name of its stack if the stack has siblings. */
  const inGrid = <Head extends HeadIndex>(head: Head): Head =>
    stack.value && (siblings.value?.length ?? 0) > 1
      ? { ...head, stack: head.stack ?? stack.value.name }
      : head;
  const head = computed<HeadIndex | null>(() => {
    const selection = record.selection.value;
    const first = selection?.heads[0];
    return selection && first !== undefined
      ? inGrid({ layer: selection.layer, head: first })
      : null;
  });
  const layer = computed(() => {
    const [currentStack, now] = [stack.value, head.value];
    return currentStack && now && { stack: currentStack, layer: now.layer };
  });
  const { current: offsets } = record.answer(layer, ({ stack, layer }, ended) =>
    offsetsOf(source, stack, layer, ended),
  );
  // `edgesOf` looks up tokens in the texts, so edges are requested after the texts have arrived.
  const edgesAsked = computed(() => texts.value && layer.value);
  const { current: edges } = record.answer(edgesAsked, ({ stack, layer }, ended) =>
    edgesOf(source, stack, layer, texts.peek() as Texts, ended),
  );

  const chosenSystem = signal("");
  const systems = computed(() =>
    (stack.value?.classes ?? [])
      .filter(({ values }) => values.length > 0 && values.length <= MAX_CLASSES)
      .map(({ name }) => name),
  );
  const system = computed(() =>
    systems.value.includes(chosenSystem.value) ? chosenSystem.value : (systems.value[0] ?? null),
  );
  const classesAsked = computed(() => {
    const [name, now, of] = [stack.value?.name, head.value, system.value];
    return name !== undefined && now && of !== null ? { ...now, stack: name, system: of } : null;
  });
  const { current: classes } = record.answer(classesAsked, (asked, ended) =>
    classWeightsOf(source, asked, ended),
  );

  const terms = computed(() => {
    const parse = (typed: string) => {
      try {
        return { term: parseSearch(typed, stack.value?.classes ?? []), problem: null };
      } catch (reason) {
        return { term: null, problem: (reason as Error).message };
      }
    };
    return { query: parse(state.query_search.value), key: parse(state.key_search.value) };
  });
  const search = computed<Search | null>(() => {
    const [tokens, { query, key }] = [texts.value, terms.value];
    if (!tokens || query.problem !== null || key.problem !== null) return null;
    return searchOf(tokens, query.term, key.term, state.offsets.value);
  });
  const searching = computed(
    () => terms.value.query.term !== null || terms.value.key.term !== null,
  );
  const sought = computed(() => (searching.value ? search.value : null));
  const result = createSearch(context, stack, texts, sought);

  /** Name of the score that orders the heads of one stack, or null in a grid of all layers. */
  const order = computed(() => {
    const name = state.order.value;
    return name === BY_ROLE || (table.value?.indexOf(name) ?? -1) >= 0 ? name : null;
  });
  const shown = computed(() =>
    order.value === null ? tables.value : table.value && [table.value],
  );
  const roles = computed(() => shown.value && roleEntries(shown.value, context.palette.value));
  const coloring = computed<Coloring | null>(() => {
    const [numbers, all, entries] = [table.value, shown.value, roles.value];
    if (!numbers || !all || !entries) return null;
    const room = { palette: context.palette.value, theme: context.theme.value };
    if (result.value) return byMatches(numbers.stack, room, result.value.of);
    const statistic = numbers.indexOf(state.color.value);
    return statistic < 0 ? byRole(all, entries) : byStatistic(numbers, statistic, room);
  });

  const grid = computed<HeadGrid | null>(() => {
    const [now, numbers, entries] = [record.selection.value, table.value, roles.value];
    const description = record.description.value;
    if (!description || !now || !numbers || !entries) return null;
    const name = order.value;
    if (name === null) {
      const parts = now.siblings.map((one) => ({
        grid: layerGrid(one, offeredHeads(one, null)),
        ...{ stack: one.name, kind: kindOf(description, one) },
      }));
      return joinGrids(parts);
    }
    // Only heads of one stack are ordered, because numbers of its siblings have another scale.
    const offered = offeredHeads(now.stack, null);
    const cells =
      name === BY_ROLE
        ? cellsByRole(numbers, entries)
        : rankedCells(now.stack, offered, numbers.means(numbers.indexOf(name)), null);
    const { perRow } = galleryOf(cells.length, width.value);
    return galleryGrid(now.stack, offered, cells.map(inGrid), name, perRow);
  });
  const hasKinds = computed(() => grid.value?.kinds !== undefined);
  const layout = computed<GridLayout | null>(
    () => grid.value && layOut(grid.value, width.value, isPrinted(context.figure)),
  );
  const heads = createHeadGrid({ grid, layout, current: head, highlighted: true });

  return {
    stack,
    /** Statistics and roles of the stack and of its siblings, or null until loaded. */
    tables,
    /** Statistics and roles of the stack, or null until loaded. */
    table,
    texts,
    /** Chosen head: the first head of the selection, or null until the atlas is loaded. */
    head,
    /** Mean weights by offset of each head in the chosen head's layer, or null until loaded. */
    offsets,
    edges,
    /**
     * Name of the class system of the table. Null if every system has no classes or more than
     * `MAX_CLASSES`.
     */
    system,
    systems,
    /** Weights of the chosen head by class of token, or null until loaded. */
    classes,
    chooseSystem: (name: string): void => {
      chosenSystem.value = name;
    },
    /**
     * Indices of the chosen head's edges, in the list that is shown, that match the range of
     * offsets and the search. If a search text is invalid, all edges match.
     */
    listed: computed<number[]>(() => {
      const [layerEdges, now, matches] = [edges.value, head.value, search.value];
      if (!layerEdges || !now) return [];
      const list = layerEdges[state.edges.value];
      const all = list.of(now.head);
      return matches ? all.filter((i) => matches(list, i)) : all;
    }),
    /** Roles with letters and colours, and an entry for heads without a role. */
    roles,
    coloring,
    heads,
    grid,
    /** Whether the grid has linear and other layers. */
    hasKinds,
    layout,
    searching,
    /** Error messages of the two search texts. Each is null if its text is valid. */
    problems: computed(() => ({
      query_search: terms.value.query.problem,
      key_search: terms.value.key.problem,
    })),
    result,
    /**
     * Captions of the view, or null until the atlas is loaded. The sentence is empty until the
     * roles of the heads are loaded.
     */
    captions: computed(() => {
      const [now, currentStack] = [atlas.value, stack.value];
      const selection = record.selection.value;
      if (!now || !currentStack || !selection) return null;
      return {
        subtitle: subtitleOf(now, hasKinds.value ? (siblings.value ?? []) : [currentStack]),
        sentence: table.value && head.value ? sentenceOf(table.value, head.value) : "",
        coverage: coverageOf(now, currentStack, {
          hasKinds: hasKinds.value,
          otherLists: order.value === null ? "" : otherListsInWords(selection),
        }),
      };
    }),
    /** Whether all data for the current state is loaded and the search, if any, is complete. */
    settled: computed(() => {
      const done = result.value === null || result.value.done === result.value.layers;
      const classesReady = system.value === null || classes.value !== null;
      const parts = [table.value, texts.value, offsets.value, edges.value, grid.value];
      return done && classesReady && parts.every((each) => each !== null);
    }),
    /**
     * Name of the highlighted role, or null if the heads without a role are highlighted. Undefined
     * if no heads are highlighted.
     */
    role: signal<string | null | undefined>(undefined),
    choose: (index: HeadIndex) =>
      batch(() => {
        const { stack: of, layer, head } = inGrid(index);
        heads.cursor.value = { layer, head, ...(of !== undefined && { stack: of }) };
        if (of === undefined || of === stack.peek()?.name) assign(state, { layer, heads: [head] });
        else assign(state, { stack: of, layer, heads: [head], text: null, edge: null });
      }),
    /** Close the open text. Return whether a text was open. */
    closeText: (): boolean => {
      const isOpen = state.text.peek() !== null;
      assign(state, { text: null, edge: null });
      return isOpen;
    },
  };
}

/**
 * Return all heads with the scores of their strongest roles. They are sorted by these roles in the
 * order of the legend, then by decreasing score.
 */
function cellsByRole(table: Table, entries: readonly RoleEntry[]): ScoredHead[] {
  const ranks = new Map(entries.map(({ role }, rank) => [role, rank]));
  const cells = everyHead(table.stack).map((head) => {
    const [first] = table.roles(head);
    const rank = ranks.get(table.roleName(head)) as number;
    return { ...head, score: first?.score ?? null, rank };
  });
  return cells.sort((a, b) => a.rank - b.rank || (b.score ?? 0) - (a.score ?? 0));
}

/**
 * Milliseconds between updates of a search result. `SHOWN_EVERY_OF_HEAD` is added for each head.
 */
const SHOWN_EVERY = 60;
/**
 * Milliseconds per head that are added to `SHOWN_EVERY`. Painting all cells takes longer than the
 * search itself, so a large grid is updated less often.
 */
const SHOWN_EVERY_OF_HEAD = 0.1;

/**
 * Return the result of the active search, or null without one. The sampled edges of one layer after
 * the other are loaded and searched. The result is incomplete until all layers are searched.
 */
function createSearch(
  { record, source, state }: ViewContext<AtlasState>,
  stack: ReadonlySignal<AtlasStack | null>,
  texts: ReadonlySignal<Texts | null>,
  search: ReadonlySignal<Search | null>,
): ReadonlySignal<SearchResult | null> {
  const counted = signal<ReadonlyMap<number, Count[]>>(new Map());
  // A search is a function. The question consists of the values that determine this function.
  const question = computed(() => {
    const { query_search, key_search, offsets } = state;
    return stack.value && search.value
      ? { stack: stack.value.name, ...follow({ query_search, key_search, offsets }) }
      : null;
  });
  record.answer(question, async (_, ended) => {
    const currentStack = stack.peek() as AtlasStack;
    const [tokens, sought] = [texts.peek() as Texts, search.peek() as Search];
    const counts = new Map<number, Count[]>();
    const wait = SHOWN_EVERY + SHOWN_EVERY_OF_HEAD * countHeads(currentStack);
    let timer: ReturnType<typeof setTimeout> | undefined;
    const show = (): void => {
      clearTimeout(timer);
      timer = undefined;
      if (!ended.aborted) counted.value = new Map(counts);
    };
    show();
    for (const [at, layer] of currentStack.layers.entries()) {
      const { sampled } = await edgesOf(source, currentStack, layer, tokens, ended);
      if (ended.aborted) return;
      counts.set(layer, countMatches(sampled, currentStack.heads_per_layer[at] ?? 0, sought));
      timer ??= setTimeout(show, wait);
    }
    show();
  });
  return computed(() => {
    const [currentStack, counts] = [stack.value, counted.value];
    if (!currentStack || !search.value) return null;
    const of = ({ layer, head }: HeadIndex): Count | null => counts.get(layer)?.[head] ?? null;
    const ranked = rankedByMatches(
      everyHead(currentStack).flatMap((head): MatchedHead[] => {
        const count = of(head);
        return count ? [{ ...head, count }] : [];
      }),
    );
    const matching = ranked.filter(({ count }) => count.numFound > 0);
    return { of, done: counts.size, layers: currentStack.layers.length, ranked, matching };
  });
}
