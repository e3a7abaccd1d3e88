/**
 * Signals of the atlas: the data of the chosen stack and head, the grid of heads, and the captions.
 */

import { batch, computed, type ReadonlySignal } from "@preact/signals";
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
import { assign } from "../../ui/view/state";
import { coverageOf, headTitle, sentenceOf, subtitleOf } from "./captions";
import { edgesOf, offsetsOf, type Table, tableOf, textsOf } from "./client/atlas";
import {
  byRole,
  byStatistic,
  type Coloring,
  everyHead,
  type RoleEntry,
  roleEntries,
} from "./coloring";
import { galleryOf, layOut } from "./layout";
import type { AtlasState, DescribedAtlas } from "./state";

type Context = ViewContext<AtlasState>;
type Data = ReturnType<typeof createData>;

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
  const { current: edges } = record.answer(layer, ({ stack, layer }, ended) =>
    edgesOf(source, stack, layer, ended),
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

/** Grid of all heads: their order, their colours, and the head at the cursor. */
function createGrid(
  context: Context,
  { stack, table, tables, head, inGrid }: Data,
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
    choose: (index: HeadIndex) =>
      batch(() => {
        const { stack: of, layer, head } = inGrid(index);
        heads.cursor.value = { layer, head, ...(of !== undefined && { stack: of }) };
        if (of === undefined || of === stack.peek()?.name) assign(state, { layer, heads: [head] });
        else assign(state, { stack: of, layer, heads: [head] });
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
  const { record } = context;
  const data = createData(context);
  const grid = createGrid(context, data, width);
  return {
    ...data,
    /** Chosen head with its title and the numbers of its stack, or null until loaded. */
    chosen: computed(() => {
      const [table, head] = [data.table.value, data.head.value];
      return (
        table && head && { head, table, stack: table.stack, title: headTitle(head, table.stack) }
      );
    }),
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
    /** Whether all data for the current state is loaded. */
    settled: computed(() => {
      const parts = [data.table, data.texts, data.offsets, data.edges, grid.grid];
      return parts.every((part) => part.value !== null);
    }),
  };
}

export type AtlasStore = ReturnType<typeof createAtlasStore>;
