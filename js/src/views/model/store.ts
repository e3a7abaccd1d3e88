/**
 * Signals of the model view. They compute the grid, its layout and the requested maps from the
 * traits.
 *
 * The map of a head is its attention matrix, pooled to few cells for a thumbnail. The detail is the
 * larger heat map of the open head.
 */

import { batch, computed, type ReadonlySignal, signal, untracked } from "@preact/signals";
import type { StackDescription } from "../../client/protocol";
import { type Matrix, wholeOf } from "../../client/source";
import { isPrinted } from "../../draw/figure-request";
import { indexIn, isWithin, sizeOf } from "../../ui/axis";
import { effectsOf, type HeadEffects, headEffectsOf } from "../../ui/effects/effects";
import {
  CHUNK,
  galleryGrid,
  type HeadGrid,
  type HeadIndex,
  layerGrid,
  rankedCells,
  SCROLLBAR,
} from "../../ui/head-grid/grid";
import { type HeadRole, joinRoles, roleOf, signsOfHeads } from "../../ui/head-grid/head-roles";
import { headOrderOf } from "../../ui/head-grid/order";
import { createHeadGrid } from "../../ui/head-grid/store";
import { sentence } from "../../ui/heat-map/captions";
import { createHeatMapImage, createHeatMapStore } from "../../ui/heat-map/store";
import { sharingRoom } from "../../ui/image/store";
import { pairOf, pairRange } from "../../ui/pairs";
import { BY_PIN, orderLabel } from "../../ui/text/captions";
import type { ViewContext } from "../../ui/view/define-view";
import { baseName } from "../../ui/view/model-layers";
import { assign, computedValue, follow } from "../../ui/view/state";
import {
  BETWEEN,
  cellsInRow,
  detailWidth as detailWidthFor,
  groupByLayer,
  type Layout,
  layOut,
  mapSizeFor,
} from "./layout";
import { cachedMap, type MapSet, type Part, requestOf } from "./maps";
import type { ModelState } from "./state";

type Context = ViewContext<ModelState>;
type Heads = ReturnType<typeof createHeads>;
type Widths = ReturnType<typeof createWidths>;
type Grid = ReturnType<typeof createGrid>;

/** Cells per side of the maps of a long text, whose rows are a sample of its queries. */
const SAMPLED_SIZE = 32;
/** Minimum width in pixels of a view that has the detail beside the grid instead of below. */
const BESIDE = 740;
/** Maximum height of the grid in pixels. In a low browser window, it is 80% of the window. */
const MAX_HEIGHT = 640;
/**
 * Lower limit of the grid's maximum height in pixels. It applies to browser windows that are less
 * than 300 pixels high.
 */
const MIN_HEIGHT = 240;

/** Maximum height of the grid in a dashboard. A wide grid has other panes below it. */
const embeddedHeight = (width: number): number => (width >= 560 ? 250 : 420);

/** Create the context and the stores of the heat map, which shows only the open head. */
export function createDetail(
  context: ViewContext<ModelState>,
  width: ReadonlySignal<number>,
  setDrawn: (drawnId: string | null) => void,
) {
  const selection = computed(() => {
    const now = context.record.selection.value;
    const chosen = now?.chosen.slice(0, 1) ?? [];
    // If no head is open, the detail is about to be removed. Request nothing until then.
    return now && chosen.length > 0 ? { ...now, chosen, heads: chosen } : null;
  });
  const record = { ...context.record, selection };
  const inner = sharingRoom({ ...context, record, width, setDrawn });
  const matrix = createHeatMapStore(inner);
  return { context: inner, matrix, panel: createHeatMapImage(inner, matrix) };
}

export type DetailStore = ReturnType<typeof createDetail>;

/** Heads of the grid: their stacks and order, and their effects and roles. */
function createHeads({ record, state, palette }: Context) {
  const ordered = headOrderOf(record);
  const stack = computed(() => record.selection.value?.stack ?? null);
  const ranked = computed(() => {
    const scores = ordered.scores.value;
    if (!stack.value || !scores) return null;
    return rankedCells(stack.value, scores, {
      include: state.include_heads.value,
      bySize:
        effectsOf(record).heads.value?.name === state.order.value ||
        (state.order.value === BY_PIN && stack.value.signed === true),
    });
  });
  /**
   * Stacks in the grid: the shown stack and its siblings. A gallery has only the shown stack,
   * because scores of siblings have different scales.
   */
  const stacks = computed<StackDescription[]>(() => {
    if (ranked.value && stack.value) return [stack.value];
    return record.selection.value?.siblings ?? [];
  });
  /** Return the stack of a head in the grid. */
  const stackOf = (head: HeadIndex): StackDescription =>
    (stacks.value.find((other) => baseName(other) === head.stack) ??
      stack.value) as StackDescription;

  const opened = computed<HeadIndex | null>(() => {
    const selection = record.selection.value;
    const head = selection?.chosen[0];
    if (!selection || head === undefined) return null;
    const name = stacks.value.length > 1 && { stack: baseName(selection.stack) };
    return { layer: selection.layer, head, ...name };
  });
  const roles = computed(() =>
    joinRoles(stacks.value.map((one) => state.roles.value[baseName(one)])),
  );
  const roleSigns = computed(() => signsOfHeads(roles.value, palette.value));
  const effects = computed<HeadEffects | null>(() => {
    const scales = stacks.value.map((one) => headEffectsOf(one, follow(state)));
    const first = scales.find(Boolean);
    if (!first || scales.length === 1) return first ?? null;
    // The bars of all stacks have one scale, because effects on one answer have one unit. Stacks
    // whose effects have another name have no bars.
    const joined = scales.map((scale) => (scale?.name === first.name ? scale : null));
    return {
      ...first,
      end: Math.max(...joined.map((scale) => scale?.end ?? 0)),
      spread: joined.some((scale) => scale?.spread),
      of: (head: HeadIndex) =>
        joined[stacks.peek().indexOf(stackOf(head))]?.of(head) ?? { value: null, error: null },
    };
  });
  const reordering = computed(() => {
    const name = state.order.value;
    if (!stack.value || name === "number" || ordered.scores.value) return false;
    if (ordered.byRole.value) return true;
    if (name === BY_PIN) return record.selection.value?.token !== null;
    const stackScores = state.scores.value[name]?.[baseName(stack.value)];
    return stackScores !== undefined || stack.value.patterns.includes(name);
  });

  return {
    ranked,
    stacks,
    stackOf,
    /** Head that the detail shows, or null. */
    opened,
    /** Bars of the heads in the grid. */
    effects,
    hasRoles: computed(() => roles.value !== null),
    roleOf: (head: HeadIndex): HeadRole | null => {
      const of = stackOf(head);
      return roleOf(state.roles.value[baseName(of)], of, head);
    },
    /** Letters and colours of all roles. */
    roleSigns,
    /** Return the letter and colour of a role, or undefined if the role is null. */
    signOf: (role: HeadRole | null) => roleSigns.value.find(({ name }) => name === role?.name),
    byRole: ordered.byRole,
    /** Whether the scores that order the heads are loading. */
    reordering,
  };
}

/** Widths of the grid and of the detail, which share the width of the view. */
function createWidths(context: Context, { opened }: Heads) {
  /** Whether the view shows the detail. In a dashboard, other panes show the open head. */
  const showsDetail = computed(() => opened.value !== null && !context.embedded);
  const inner = computed(() => Math.max(200, context.width.value));
  const beside = computed(() => showsDetail.value && inner.value >= BESIDE);
  const detailWidth = computed(() => (beside.value ? detailWidthFor(inner.value) : inner.value));
  // The detail may add a scroll bar to the page, which makes the view a little narrower. Thumbnails
  // keep their size then.
  let lastWidth = 0;
  const cellsWidth = computed(() => {
    const gridWidth = inner.value - (beside.value ? detailWidth.value + BETWEEN : 0);
    const isScrollBar =
      showsDetail.value && lastWidth > 0 && Math.abs(gridWidth - lastWidth) <= SCROLLBAR + 2;
    if (!isScrollBar) lastWidth = gridWidth;
    return lastWidth;
  });

  return { inner, showsDetail, beside, detailWidth, cellsWidth };
}

/** Grid of thumbnails with its layout, and the queries and keys that the thumbnails show. */
function createGrid(context: Context, heads: Heads, { inner, cellsWidth }: Widths) {
  const { record, state } = context;
  const grid = computed<HeadGrid | null>(() => {
    const [selection, include] = [record.selection.value, state.include_heads.value];
    if (!selection) return null;
    if (!heads.ranked.value) return layerGrid(selection.layers, include);
    const perRow = cellsInRow(cellsWidth.value);
    const label = orderLabel(state.order.value);
    return galleryGrid(selection.stack, heads.ranked.value, label, perRow);
  });
  const part = computed<Part>(() => {
    const selection = record.selection.value;
    if (!selection) return { rows: [0, 1], columns: [0, 1] };
    const pair = pairOf(selection, state.pair.value);
    return {
      rows: pairRange(selection.queries, pair, "query"),
      columns: pairRange(selection.keys, pair, "key"),
    };
  });
  const longest = computed(() => Math.max(sizeOf(part.value.rows), sizeOf(part.value.columns)));
  const layoutOf = (headGrid: HeadGrid, width: number, maxHeight: number): Layout =>
    layOut(
      headGrid,
      { width, maxHeight, printed: isPrinted(context.figure) },
      {
        longest: longest.value,
        ...{ hasBars: heads.effects.value !== null, hasRoles: heads.hasRoles.value },
      },
    );
  const layout = computed(() => {
    const window = globalThis.innerHeight || 800;
    const maxHeight = context.embedded
      ? embeddedHeight(inner.value)
      : Math.max(MIN_HEIGHT, Math.min(MAX_HEIGHT, Math.floor(window * 0.8)));
    return grid.value && layoutOf(grid.value, cellsWidth.value, maxHeight);
  });

  return {
    grid,
    /** Queries and keys that the maps cover. */
    part,
    longest,
    layout,
    /** Return the layout of a figure. It has the full width, no detail and no scroll box. */
    wholeLayout: () => {
      const headGrid = grid.peek();
      return headGrid && layoutOf(headGrid, inner.peek(), Number.POSITIVE_INFINITY);
    },
    /** Scroll position, visible cells and keyboard cursor of the grid. */
    heads: createHeadGrid({ grid, layout, current: heads.opened, highlighted: true }),
    /**
     * Top and bottom of the row to outline on each heat map, as shares of the height of the map. It
     * is the row of the query that predicts the chosen token of a generated text. Null for other
     * texts, and if the maps do not cover the query.
     */
    outlinedRow: computed(() => {
      const query = state.prediction.value === null ? null : state.token.value;
      const { rows } = part.value;
      if (query === null || !isWithin(rows, query)) return null;
      const shareOf = (row: number): number => indexIn(rows, row) / sizeOf(rows);
      return [shareOf(query), shareOf(query + 1)] as const;
    }),
  };
}

/** Maps of the heads in sight. */
function createMaps(context: Context, { stacks, stackOf }: Heads, shown: Grid) {
  const { record, state, source } = context;
  const { grid, heads, layout, longest, part } = shown;
  // For each stack, the values that the requests of its maps have in common. The signal changes
  // only if one of these values does, so that a new layout alone does not load maps again.
  const mapSets = computedValue<MapSet[]>(() => {
    const selection = record.selection.value;
    const ratio = globalThis.devicePixelRatio || 1;
    const isWhole = !selection || pairOf(selection, state.pair.value) === "all";
    return stacks.value.map((stack) => ({
      stack: stack.name,
      size:
        stack.sampled === undefined
          ? mapSizeFor(layout.value?.cell ?? 0, ratio, longest.value)
          : SAMPLED_SIZE,
      ...(isWhole ? wholeOf(stack) : part.value),
    }));
  });
  const mapSetOf = (head: HeadIndex): MapSet => {
    const { name } = stackOf(head);
    return mapSets.peek().find((set) => set.stack === name) as MapSet;
  };

  // Number of arrivals of maps. Its change makes the grid repaint.
  const arrivals = signal(0);
  // Any map of the latest reply for each stack, by the name of the stack. All maps of a stack have
  // the same size and precision.
  const latestMaps = signal<ReadonlyMap<string, Matrix>>(new Map());
  const mapsRequest = computed(() => {
    const headGrid = grid.value;
    const sight = heads.sight.value;
    if (!headGrid || !sight) return null;
    const rows = headGrid.rows.slice(...sight.rows);
    const [from, to] = sight.chunks.map((chunk) => chunk * CHUNK);
    const cells = rows.flatMap((row) => row.slice(from, to));
    return { sets: mapSets.value, layers: groupByLayer(cells) };
  });
  record.answer(mapsRequest, ({ layers }, ended) =>
    Promise.all(
      layers.map(async (group) => {
        const now = untracked(() => stackOf(group[0]));
        const request = requestOf(mapSetOf(group[0]), group);
        const [map] = await source.maps(now, request, ended, () => arrivals.value++);
        if (map) latestMaps.value = new Map(latestMaps.peek()).set(now.name, map);
      }),
    ),
  );
  return {
    mapSets,
    mapSetOf,
    arrivals,
    /** Return any map of a stack, or null before the first reply. */
    anyMap: ({ name }: StackDescription): Matrix | null => latestMaps.value.get(name) ?? null,
    map: (head: HeadIndex) => cachedMap(source, mapSetOf(head), head),
  };
}

export function createModelStore(context: Context) {
  const { record, state } = context;
  const heads = createHeads(context);
  const widths = createWidths(context, heads);
  const grid = createGrid(context, heads, widths);
  const detail = signal<DetailStore | null>(null);
  const mustShowDetail = signal(false);
  const moveTo = (head: HeadIndex): void => {
    const { layer, stack: name } = head;
    grid.heads.cursor.value = head;
    assign(state, { ...(name && { stack: name }), layer, heads: [head.head] });
  };
  return {
    selection: record.selection,
    ...heads,
    ...widths,
    ...grid,
    ...createMaps(context, heads, grid),
    /** Identifier of the content, which `data-attnviz-drawn` has after the content is drawn. */
    drawnId: computed(() => {
      const selection = record.selection.value;
      return selection && `model:${selection.stack.name}:${selection.layer}`;
    }),
    /** Identifier of the content whose visible thumbnails are all painted, or null. */
    gridDrawn: signal<string | null>(null),
    /** Whether the detail is drawn. */
    detailDrawn: signal(false),
    /** Context and stores of the detail, or null if no detail is shown. */
    detail,
    /**
     * Captions of the view while the detail is open: the sentence below the grid, and the text for
     * screen readers. They are more exact than captions from the pooled map of the head. Null until
     * the detail has loaded.
     */
    detailCaptions: computed(() => {
      const heatMap = detail.value?.matrix.pinned.value;
      if (!detail.value || !heatMap) return null;
      const { matrix, panel } = detail.value;
      const summary = `${matrix.summary.value} ${panel.caption.value}`.trim();
      return { sentence: sentence(heatMap), summary };
    }),
    /** Progress of an export, which is shown below the view. Null if no export is running. */
    exporting: signal<string | null>(null),
    /** Whether the view must scroll to the detail when it is drawn. */
    mustShowDetail,
    /** Open a head and scroll to its detail. */
    open: (head: HeadIndex): void => {
      batch(() => {
        mustShowDetail.value = true;
        moveTo(head);
      });
    },
    /** Open a head without scrolling to its detail. */
    moveTo,
    close: () => {
      mustShowDetail.value = false;
      assign(state, { heads: [] });
    },
  };
}

export type ModelStore = ReturnType<typeof createModelStore>;
