/** Signals of the overview: order, layout, visible part and colours of the tiles. */

import { computed, type ReadonlySignal } from "@preact/signals";
import { isPrinted } from "../../../draw/figure-request";
import type { HeadGrid, HeadIndex } from "../../../ui/head-grid/grid";
import { createHeadGrid } from "../../../ui/head-grid/store";
import type { ViewContext } from "../../../ui/view/define-view";
import { assign } from "../../../ui/view/state";
import { mixedOrder } from "../plot/cloud";
import { type EmbeddingState, headKey } from "../state";
import type { EmbeddingStore } from "../store";
import {
  isMeasured,
  layOutTiles,
  type TileLayout,
  tileGrid,
  tileOrder,
  tilesInRow,
} from "./layout";
import { type TileLook, tileLook } from "./marks";

/**
 * Return a signal of an array with 1 for each point in the search result or the lasso. The signal
 * is null if neither a search result nor a lasso exists.
 */
export function standingOut(
  context: ViewContext<EmbeddingState>,
  store: EmbeddingStore,
): ReadonlySignal<Uint8Array | null> {
  return computed(() => {
    const [corpus, matches] = [store.corpus.value, store.matches.value];
    const selected = context.state.selected.value;
    if (!corpus || (!matches && selected.length === 0)) return null;
    const points = matches ? matches.points.slice() : new Uint8Array(corpus.count);
    for (const point of selected) if (point < points.length) points[point] = 1;
    return points;
  });
}

export function createOverviewStore(context: ViewContext<EmbeddingState>, store: EmbeddingStore) {
  const { record, state, width } = context;
  const order = computed(() => tileOrder(state.order.value, record.roles.value !== null));
  const stack = computed(() => record.selection.value?.stack ?? null);
  const measured = computed(() => (isMeasured(order.value) ? store.trust.value : null));
  const grid = computed<HeadGrid | null>(() => {
    const currentStack = stack.value;
    return (
      currentStack &&
      tileGrid(
        currentStack,
        order.value,
        measured.value ?? new Map(),
        tilesInRow(width.value),
        record.roles.value,
      )
    );
  });
  const layoutOf = (now: HeadGrid): TileLayout =>
    layOutTiles({
      columns: now.columns?.length ?? tilesInRow(width.value),
      rows: now.rows.length,
      named: now.columns === null,
      width: width.value,
      mostHeight: Math.max(480, Math.floor((globalThis.innerHeight || 900) * 0.85)),
      printed: isPrinted(context.figure),
      roles: record.roles.value !== null,
    });
  const layout = computed(() => grid.value && layoutOf(grid.value));
  /** Plot of each head by `headKey`. */
  const plots = computed(
    () => new Map((store.overview.value?.heads ?? []).map((head) => [headKey(head), head])),
  );
  const standing = standingOut(context, store);
  const mixed = computed(() => {
    const overview = store.overview.value;
    if (!overview) return null;
    const { stride, points } = overview;
    return mixedOrder(points, (point) => store.shown(point * stride));
  });
  const look = computed<TileLook | null>(() => {
    const [corpus, overview, points] = [store.corpus.value, store.overview.value, mixed.value];
    const colors = store.colors.value;
    if (!corpus || !overview || !points) return null;
    const index = colors?.index ?? new Uint8Array(corpus.count);
    return tileLook({
      order: points,
      stride: overview.stride,
      numQueries: corpus.numQueries,
      index,
      colors: colors?.palette ?? [context.palette.value.neutral],
      standsOut: standing.value,
    });
  });
  return {
    order,
    /** The grid of heads, its visible part, and the keyboard cursor. */
    heads: createHeadGrid({ grid, layout, current: store.head }),
    grid,
    layout,
    plots,
    look,
    open: ({ layer, head }: HeadIndex) => assign(state, { layer, heads: [head], enlarged: true }),
  };
}

export type OverviewStore = ReturnType<typeof createOverviewStore>;
