/** Signals of the overview: order, layout, visible part and colours of the tiles. */

import { computed } from "@preact/signals";
import { isPrinted } from "../../../draw/figure-request";
import type { HeadIndex } from "../../../ui/head-grid/grid";
import { headOrderOf } from "../../../ui/head-grid/order";
import { createHeadGrid } from "../../../ui/head-grid/store";
import { assign } from "../../../ui/view/state";
import { mixedOrder } from "../plot/cloud";
import { type Context, headKey } from "../state";
import type { EmbeddingStore } from "../store";
import { layOutTiles, tileGrid, tileOrder, tilesInRow } from "./layout";
import { overviewScene, tileLook } from "./marks";

export function createOverviewStore(context: Context, store: EmbeddingStore) {
  const { record, state, width } = context;
  const order = computed(() =>
    tileOrder(state.order.value, headOrderOf(record).roles.value !== null),
  );
  // Trust figures, which measure the quality of plots, arrive one layer at a time. If the order
  // does not depend on them, they must not change the grid.
  const measured = computed(() =>
    order.value === "correlation" || order.value === "recall" ? store.trust.value : new Map(),
  );
  const grid = computed(() => {
    const stack = record.selection.value?.stack;
    const perRow = tilesInRow(width.value);
    return stack
      ? tileGrid(stack, order.value, measured.value, perRow, headOrderOf(record).roles.value)
      : null;
  });
  const layout = computed(
    () =>
      grid.value &&
      layOutTiles(
        grid.value,
        width.value,
        isPrinted(context.figure),
        headOrderOf(record).roles.value !== null,
      ),
  );
  /** Plot of each head by `headKey`. */
  const plots = computed(
    () => new Map((store.overview.value ?? []).map((head) => [headKey(head), head])),
  );
  const mixed = computed(() => {
    if (!store.corpus.value) return null;
    const { count, facts } = store.corpus.value;
    const { stride } = facts;
    return mixedOrder(Math.ceil(count / stride), (point) => store.shown(point * stride));
  });
  const look = computed(() => {
    const [corpus, overview, colors] = [store.corpus, store.overview, store.colors];
    if (!corpus.value || !overview.value || !mixed.value || !colors.value) return null;
    const { stride } = corpus.value.facts;
    return tileLook(mixed.value, stride, corpus.value, colors.value, store.standing.value);
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
    /** Return the scene of all heads, or null if nothing is drawn yet. */
    scene: () => {
      const [rows, places, dots] = [grid.value, layout.value, look.value];
      if (!rows || !places || !dots) return null;
      return overviewScene(context, rows, places, dots, plots.value, store.trust.value);
    },
  };
}

export type OverviewStore = ReturnType<typeof createOverviewStore>;
