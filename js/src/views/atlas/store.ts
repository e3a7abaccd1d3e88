/**
 * Signals of the atlas: the data of the chosen stack and head, the search, the grid of heads, and
 * the captions. A class system assigns each token to a class, such as its part of speech.
 */

import { batch, computed, type ReadonlySignal, signal } from "@preact/signals";
import { countHeads } from "../../client/source";
import { isPrinted } from "../../draw/figure-request";
import {
  type GridLayout,
  galleryGrid,
  type HeadGrid,
  type HeadIndex,
  layerGrid,
  rankedCells,
  type ScoredHead,
} from "../../ui/head-grid/grid";
import { BY_ROLE } from "../../ui/head-grid/head-roles";
import { createHeadGrid } from "../../ui/head-grid/store";
import type { ViewContext } from "../../ui/view/define-view";
import { otherListsInWords } from "../../ui/view/model-layers";
import { assign, follow } from "../../ui/view/state";
import { coverageOf, headTitle, sentenceOf, subtitleOf } from "./captions";
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
  parseSearch,
  type Search,
  type SearchResult,
  searchOf,
  searchResult,
} from "./search";
import type { AtlasState, DescribedAtlas } from "./state";

type Context = ViewContext<AtlasState>;
type Data = ReturnType<typeof createData>;
type SearchStore = ReturnType<typeof createSearch>;

/**
 * Maximum number of classes in the table of weights by class. An exported page does not contain
 * larger tables (`attnviz/atlas/page.py`).
 */
export const MAX_CLASSES = 24;

/** Data of the chosen stack, and of the chosen head and its layer. They are null until loaded. */
function createData({ record, source }: Context) {
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
  const { current: texts } = record.answer(stack, ({ name }, ended) =>
    textsOf(source, name, ended),
  );
  const layer = computed(() => {
    const [of, selection] = [stack.value, record.selection.value];
    return of && selection && { stack: of, layer: selection.layer };
  });
  const { current: offsets } = record.answer(layer, ({ stack, layer }, ended) =>
    offsetsOf(source, stack, layer, ended),
  );
  // `edgesOf` looks up tokens in the texts, so edges are requested after the texts have arrived.
  const { current: edges } = record.answer(
    computed(() => texts.value && layer.value),
    ({ stack, layer }, ended) => edgesOf(source, stack, layer, texts.peek() as Texts, ended),
  );

  /** Return the index of a head in the grid: with the name of its stack if the stack has siblings. */
  const inGrid = <Head extends HeadIndex>(head: Head): Head =>
    stack.value && (siblings.value?.length ?? 0) > 1
      ? { ...head, stack: head.stack ?? stack.value.name }
      : head;
  return {
    atlas,
    stack,
    siblings,
    /** Statistics and roles of the stack and of its siblings. */
    tables,
    /** Statistics and roles of the stack. */
    table: computed(
      () => tables.value?.find((table) => table.stack.name === stack.value?.name) ?? null,
    ),
    texts,
    inGrid,
    /** First head of the selection. */
    head: computed<HeadIndex | null>(() => {
      const selection = record.selection.value;
      const head = selection?.heads[0];
      return selection && head !== undefined ? inGrid({ layer: selection.layer, head }) : null;
    }),
    /** Mean weights by offset of each head in the layer. */
    offsets,
    edges,
  };
}

/** Weights of the chosen head by class of token, and the class system that the reader chose. */
function createClassWeights({ record, source }: Context, { stack, head }: Data) {
  const chosen = signal("");
  const systems = computed(() =>
    (stack.value?.classes ?? [])
      .filter(({ values }) => values.length > 0 && values.length <= MAX_CLASSES)
      .map(({ name }) => name),
  );
  const system = computed(
    () => systems.value.find((name) => name === chosen.value) ?? systems.value[0],
  );
  const question = computed(() =>
    stack.value && head.value && system.value !== undefined
      ? { ...head.value, stack: stack.value.name, system: system.value }
      : null,
  );
  const { current: weights } = record.answer(question, (asked, ended) =>
    classWeightsOf(source, asked, ended),
  );
  return {
    /** Class systems with at most `MAX_CLASSES` classes. */
    systems,
    /** Class system of the table. Undefined if there is none. */
    system,
    choose: (name: string): void => {
      chosen.value = name;
    },
    /** Weights from each class of queries to each class of keys, or null until loaded. */
    weights,
  };
}

/**
 * Milliseconds between updates of a search result: `SHOWN_EVERY`, and `SHOWN_EVERY_OF_HEAD` for each
 * head. Painting all cells takes longer than the search itself, so a large grid is updated less
 * often.
 */
const SHOWN_EVERY = 60;
const SHOWN_EVERY_OF_HEAD = 0.1;

/**
 * Search for edges. While a query or a key is searched for, the sampled edges of one layer after the
 * other are loaded and counted. The result is incomplete until all layers are searched.
 */
function createSearch({ record, source, state }: Context, { stack, texts, head, edges }: Data) {
  const terms = computed(() => {
    const classes = stack.value?.classes ?? [];
    const { query_search, key_search } = follow({
      query_search: state.query_search,
      key_search: state.key_search,
    });
    return {
      query_search: parseSearch(query_search, classes),
      key_search: parseSearch(key_search, classes),
    };
  });
  const problem = computed(
    () => terms.value.query_search.problem ?? terms.value.key_search.problem,
  );
  const isActive = computed(() => Object.values(terms.value).some(({ term }) => term !== null));
  /** Condition that the listed edges meet, or null if a search text is invalid. */
  const condition = computed<Search | null>(() => {
    if (!texts.value || problem.value !== null) return null;
    const { query_search: query, key_search: key } = terms.value;
    return searchOf(texts.value, query.term, key.term, state.offsets.value);
  });
  const counted = signal<ReadonlyMap<number, Count[]>>(new Map());
  // A condition is a function. The question consists of the values that determine this function.
  const question = computed(() => {
    const { query_search, key_search, offsets } = state;
    return stack.value && isActive.value && condition.value
      ? { stack: stack.value, ...follow({ query_search, key_search, offsets }) }
      : null;
  });
  record.answer(question, async ({ stack }, ended) => {
    const [tokens, isMatch] = [texts.peek() as Texts, condition.peek() as Search];
    const counts = new Map<number, Count[]>();
    counted.value = new Map();
    const show = (): void => {
      if (!ended.aborted && counts.size > counted.peek().size) counted.value = new Map(counts);
    };
    const timer = setInterval(show, SHOWN_EVERY + SHOWN_EVERY_OF_HEAD * countHeads(stack));
    try {
      for (const [at, layer] of stack.layers.entries()) {
        const { sampled } = await edgesOf(source, stack, layer, tokens, ended);
        if (ended.aborted) return;
        counts.set(layer, countMatches(sampled, stack.heads_per_layer[at] ?? 0, isMatch));
      }
    } finally {
      clearInterval(timer);
      show();
    }
  });
  return {
    isActive,
    /** Parsed search texts, with an error message for an invalid one. */
    terms,
    /** Error message of the first invalid search text, or null. */
    problem,
    /** Result of the active search, or null without one. */
    result: computed<SearchResult | null>(
      () => question.value && searchResult(question.value.stack, counted.value),
    ),
    /**
     * Indices of the chosen head's edges, in the list that is shown, that meet the condition. If a
     * search text is invalid, all edges do.
     */
    listed: computed<number[]>(() => {
      const list = edges.value?.[state.edges.value];
      if (!list || !head.value) return [];
      const all = list.of(head.value.head);
      const isMatch = condition.value;
      return isMatch ? all.filter((i) => isMatch(list, i)) : all;
    }),
  };
}

/** Grid of all heads: their order, their colours, and the head at the cursor. */
function createGrid(
  context: Context,
  { stack, table, tables, head, inGrid }: Data,
  { result }: SearchStore,
  width: ReadonlySignal<number>,
) {
  const { record, state, palette, theme } = context;
  /** Name of the score that orders the heads of one stack, or null in a grid of all layers. */
  const order = computed(() => {
    const name = state.order.value;
    return name === BY_ROLE || (table.value?.indexOf(name) ?? -1) >= 0 ? name : null;
  });
  const shown = computed(() =>
    order.value === null ? tables.value : table.value && [table.value],
  );
  const roles = computed(() => shown.value && roleEntries(shown.value, palette.value));
  const coloring = computed<Coloring | null>(() => {
    const [numbers, all, entries] = [table.value, shown.value, roles.value];
    if (!numbers || !all || !entries) return null;
    const room = { palette: palette.value, theme: theme.value };
    if (result.value) return byMatches(numbers.stack, room, result.value.of);
    const statistic = numbers.indexOf(state.color.value);
    return statistic < 0 ? byRole(all, entries) : byStatistic(numbers, statistic, room);
  });
  const grid = computed<HeadGrid | null>(() => {
    const [now, numbers, entries] = [record.selection.value, table.value, roles.value];
    if (!now || !numbers || !entries) return null;
    const name = order.value;
    if (name === null) return layerGrid(now.layers);
    // Only heads of one stack are ordered, because numbers of its siblings have another scale.
    const cells =
      name === BY_ROLE
        ? cellsByRole(numbers, entries)
        : rankedCells(now.stack, numbers.means(numbers.indexOf(name)));
    const { perRow } = galleryOf(cells.length, width.value);
    return galleryGrid(now.stack, cells.map(inGrid), name, perRow);
  });
  const layout = computed<GridLayout | null>(
    () => grid.value && layOut(grid.value, width.value, isPrinted(context.figure)),
  );
  const heads = createHeadGrid({ grid, layout, current: head, highlighted: true });
  return {
    /** Roles with letters and colours, and an entry for heads without a role. */
    roles,
    coloring,
    heads,
    grid,
    /** Whether the grid has linear and other layers. */
    hasKinds: computed(() => grid.value?.kinds !== undefined),
    layout,
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

/** @param width available width of the grid, in pixels. */
export function createAtlasStore(context: Context, width: ReadonlySignal<number>) {
  const { record, state } = context;
  const data = createData(context);
  const classes = createClassWeights(context, data);
  const search = createSearch(context, data);
  const grid = createGrid(context, data, search, width);
  return {
    ...data,
    /** Chosen head with its title and the numbers of its stack, or null until loaded. */
    chosen: computed(() => {
      const [table, head] = [data.table.value, data.head.value];
      return (
        table && head && { head, table, stack: table.stack, title: headTitle(head, table.stack) }
      );
    }),
    classes,
    search,
    ...grid,
    /**
     * Captions of the view, or null until the atlas is loaded. The sentence is empty until the
     * roles of the heads are loaded.
     */
    captions: computed(() => {
      const [atlas, stack, selection] = [
        data.atlas.value,
        data.stack.value,
        record.selection.value,
      ];
      if (!atlas || !stack || !selection) return null;
      const [table, head, hasKinds] = [data.table.value, data.head.value, grid.hasKinds.value];
      const isList = grid.grid.value?.columns === null;
      return {
        subtitle: subtitleOf(atlas, hasKinds ? (data.siblings.value ?? []) : [stack]),
        sentence: table && head ? sentenceOf(table, head) : "",
        coverage: coverageOf(atlas, stack, {
          hasKinds,
          otherLists: isList ? otherListsInWords(selection) : "",
        }),
      };
    }),
    /** Whether all data for the current state is loaded and the search, if any, is complete. */
    settled: computed(() => {
      const result = search.result.value;
      const isSearched = result === null || result.done === result.layers;
      const hasClasses = classes.system.value === undefined || classes.weights.value !== null;
      const parts = [data.table, data.texts, data.offsets, data.edges, grid.grid];
      return isSearched && hasClasses && parts.every((part) => part.value !== null);
    }),
    /** Close the open text. Return whether a text was open. */
    closeText: (): boolean => {
      const isOpen = state.text.peek() !== null;
      assign(state, { text: null, edge: null });
      return isOpen;
    },
  };
}

export type AtlasStore = ReturnType<typeof createAtlasStore>;
