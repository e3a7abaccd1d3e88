/**
 * Signals of the model view. They compute the grid, its layout and the requested maps from the
 * traits.
 *
 * The map of a head is its attention matrix, pooled to few cells for a thumbnail. The detail is the
 * larger heat map of the open head.
 */

import { batch, computed, type ReadonlySignal, signal } from "@preact/signals";
import type { StackDescription } from "../../client/protocol";
import type { HeadMap } from "../../client/source";
import { isPrinted } from "../../draw/figure-request";
import {
  CHUNK,
  galleryGrid,
  type HeadGrid,
  type HeadIndex,
  layerGrid,
  offeredHeads,
  rankedCells,
  SCROLLBAR,
} from "../../ui/head-grid/grid";
import { type HeadRole, signsOfHeads } from "../../ui/head-grid/head-roles";
import { BY_PIN, orderLabel } from "../../ui/head-grid/pinned-weights";
import { createHeadGrid } from "../../ui/head-grid/store";
import { sentence } from "../../ui/heat-map/captions";
import { createHeatMapImage, createHeatMapStore } from "../../ui/heat-map/store";
import { sharingRoom } from "../../ui/image/store";
import { pairOf, pairRange } from "../../ui/pairs";
import type { ViewContext } from "../../ui/view/define-view";
import { assign, computedValue } from "../../ui/view/state";
import { baseName } from "../../ui/what-if/changed-run";
import {
  BETWEEN,
  type CellSize,
  cellsInRow,
  detailWidth as detailWidthFor,
  groupByLayer,
  type Layout,
  layOut,
  mapSizeFor,
} from "./layout";
import { cachedMap, type MapSet, type Part } from "./maps";
import type { ModelState } from "./state";

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
    return now && { ...now, chosen, heads: chosen };
  });
  const record = { ...context.record, selection };
  const inner = sharingRoom({ ...context, record, width, setDrawn });
  const matrix = createHeatMapStore(inner);
  return { context: inner, matrix, panel: createHeatMapImage(inner, matrix) };
}

export type DetailStore = ReturnType<typeof createDetail>;

export function createModelStore(context: ViewContext<ModelState>) {
  const { record, state, source } = context;
  const size = signal<CellSize>("fit");
  const detail = signal<DetailStore | null>(null);

  const stack = computed(() => record.selection.value?.stack ?? null);
  const offered = computed(() =>
    stack.value ? offeredHeads(stack.value, state.include_heads.value) : [],
  );

  const opened = computed<HeadIndex | null>(() => {
    const selection = record.selection.value;
    const head = selection?.chosen[0];
    return selection && head !== undefined ? { layer: selection.layer, head } : null;
  });
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

  const ranked = computed(() => {
    const scores = record.scores.value;
    if (!stack.value || !scores) return null;
    return rankedCells(
      stack.value,
      offered.value,
      scores,
      record.byRole.value ? null : state.min_score.value,
      record.headEffects.value?.name === state.order.value ||
        (state.order.value === BY_PIN && stack.value.signed === true),
    );
  });
  const grid = computed<HeadGrid | null>(() => {
    if (!stack.value) return null;
    if (!ranked.value) return layerGrid(stack.value, offered.value);
    const perRow = cellsInRow(cellsWidth.value, size.value);
    const label = orderLabel(state.order.value);
    return galleryGrid(stack.value, offered.value, ranked.value, label, perRow);
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
  const longest = computed(() =>
    Math.max(...Object.values(part.value).map(([start, stop]) => stop - start)),
  );
  const layoutOf = (headGrid: HeadGrid, width: number, maxHeight: number): Layout =>
    layOut({
      columns: headGrid.columns?.length ?? cellsInRow(width, size.value),
      rows: headGrid.rows.length,
      gallery: headGrid.columns === null,
      ...{ width, maxHeight, size: size.value, longest: longest.value },
      hasBars: record.headEffects.value !== null,
      hasRoles: record.roles.value !== null,
      printed: isPrinted(context.figure),
    });
  const layout = computed(() => {
    const window = globalThis.innerHeight || 800;
    const maxHeight = context.embedded
      ? embeddedHeight(inner.value)
      : Math.max(MIN_HEIGHT, Math.min(MAX_HEIGHT, Math.floor(window * 0.8)));
    return grid.value && layoutOf(grid.value, cellsWidth.value, maxHeight);
  });

  const heads = createHeadGrid({ grid, layout, current: opened, highlighted: true });

  // The signal changes only with the values of the request, so that a new layout alone does not
  // load maps again.
  const mapSet = computedValue<MapSet>(() => {
    const selection = record.selection.value;
    const ratio = globalThis.devicePixelRatio || 1;
    const isWhole = !selection || pairOf(selection, state.pair.value) === "all";
    return {
      stack: selection?.stack.name ?? "",
      size:
        selection?.stack.sampled === undefined
          ? mapSizeFor(layout.value?.cell ?? 0, ratio, longest.value)
          : SAMPLED_SIZE,
      ...(isWhole ? {} : part.value),
    };
  });

  const reordering = computed(() => {
    const name = state.order.value;
    if (!stack.value || name === "number" || record.scores.value) return false;
    if (record.byRole.value) return true;
    if (name === BY_PIN) return record.selection.value?.token !== null;
    const stackScores = state.scores.value[name]?.[baseName(stack.value)];
    return stackScores !== undefined || stack.value.patterns.includes(name);
  });

  // Number of arrivals of maps. Its change makes the grid repaint.
  const arrivals = signal(0);
  // Any map of the latest reply. All maps have the same size and precision.
  const latestMap = signal<{ stack: string; map: HeadMap } | null>(null);
  const mapsRequest = computed(() => {
    const headGrid = grid.value;
    const sight = heads.sight.value;
    if (!headGrid || !sight) return null;
    const rows = headGrid.rows.slice(...sight.rows);
    const [from, to] = sight.chunks.map((chunk) => chunk * CHUNK);
    const cells = rows.flatMap((row) => row.slice(from, to));
    return { ...mapSet.value, layers: groupByLayer(cells) };
  });
  record.answer(mapsRequest, ({ layers, ...set }, ended) => {
    const now = stack.peek() as StackDescription;
    return Promise.all(
      layers.map(async ([layer, numbers]) => {
        const request = { ...set, layer, heads: numbers };
        const [map] = await source.maps(now, request, ended, () => arrivals.value++);
        if (map) latestMap.value = { stack: now.name, map };
      }),
    );
  });
  const roleSigns = computed(() => signsOfHeads(record.roles.value, context.palette.value));
  const mustShowDetail = signal(false);
  const moveTo = ({ layer, head }: HeadIndex): void => {
    heads.cursor.value = { layer, head };
    assign(state, { layer, heads: [head] });
  };
  const open = (head: HeadIndex): void => {
    batch(() => {
      mustShowDetail.value = true;
      moveTo(head);
    });
  };

  return {
    selection: record.selection,
    effects: record.headEffects,
    roleOf: record.roleOf,
    /** Letters and colours of all roles. */
    roleSigns,
    /** Return the letter and colour of a role, or undefined if the role is null. */
    signOf: (role: HeadRole | null) => roleSigns.value.find(({ name }) => name === role?.name),
    byRole: record.byRole,
    /** Scroll position, visible cells and keyboard cursor of the grid. */
    heads,
    grid,
    layout,
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
    /** Return the layout of a figure. It has the full width, no detail and no scroll box. */
    wholeLayout: () => {
      const headGrid = grid.peek();
      return headGrid && layoutOf(headGrid, inner.peek(), Number.POSITIVE_INFINITY);
    },
    /** Identifier of the content, which `data-attnviz-drawn` has after the content is drawn. */
    drawnId: computed(() => {
      const selection = record.selection.value;
      return selection && `model:${selection.stack.name}:${selection.layer}`;
    }),
    /** Whether the scores that order the heads are loading. */
    reordering,
    /** Queries and keys that the maps cover. */
    part,
    /**
     * Top and bottom of the row to outline on each heat map, as shares of the height of the map. It
     * is the row of the query that predicts the chosen token of a generated text. Null for other
     * texts, and if the maps do not cover the query.
     */
    outlinedRow: computed(() => {
      const query = state.prediction.value === null ? null : state.token.value;
      const [start, stop] = part.value.rows;
      if (query === null || query < start || query >= stop) return null;
      const shareOf = (row: number): number => (row - start) / (stop - start);
      return [shareOf(query), shareOf(query + 1)] as const;
    }),
    mapSet,
    arrivals,
    /** Any map of this stack, or null before the first reply. */
    anyMap: computed(() => {
      const latest = latestMap.value;
      return latest?.stack === stack.value?.name ? (latest?.map ?? null) : null;
    }),
    map: (head: HeadIndex) => cachedMap(source, mapSet.peek(), head),
    opened,
    showsDetail,
    beside,
    detailWidth,
    size,
    /** Whether the view must scroll to the detail when it is drawn. */
    mustShowDetail,
    /** Open a head and scroll to its detail. */
    open,
    /** Open a head without scrolling to its detail. */
    moveTo,
    close: () => {
      mustShowDetail.value = false;
      assign(state, { heads: [] });
    },
  };
}

export type ModelStore = ReturnType<typeof createModelStore>;
