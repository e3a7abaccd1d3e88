/** Signals of the overview: layout, visible part and colours of the tiles. */

import { computed } from "@preact/signals";
import { isPrinted } from "../../../draw/figure-request";
import { type HeadIndex, layerGrid } from "../../../ui/head-grid/grid";
import { createHeadGrid } from "../../../ui/head-grid/store";
import { layersOf } from "../../../ui/view/model-layers";
import { assign } from "../../../ui/view/state";
import { mixedOrder } from "../plot/cloud";
import { type Context, headKey } from "../state";
import type { EmbeddingStore } from "../store";
import { layOutTiles } from "./layout";
import { overviewScene, tileLook } from "./marks";

export function createOverviewStore(context: Context, store: EmbeddingStore) {
  const { record, state, width } = context;
  const grid = computed(() => {
    const stack = record.selection.value?.stack;
    return stack ? layerGrid(layersOf({}, [stack])) : null;
  });
  const layout = computed(
    () => grid.value && layOutTiles(grid.value, width.value, isPrinted(context.figure)),
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
      return overviewScene(
        context.palette.value,
        rows,
        places,
        dots,
        plots.value,
        store.trust.value,
      );
    },
  };
}

export type OverviewStore = ReturnType<typeof createOverviewStore>;
