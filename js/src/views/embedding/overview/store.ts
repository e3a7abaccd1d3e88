/** What the overview of all heads shows: which tile stands where, what is in sight, its colours. */

import { computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import type { ViewContext } from "../../../ui/define-view";
import { assign } from "../../../ui/state";
import { type At, findCell, type Grid, stepCell } from "../../model/state";
import type { OverviewHead } from "../client/requests";
import { mixedOrder } from "../plot/scatter";
import { type EmbeddingState, type HeadPlace, headKey } from "../state";
import type { EmbeddingModel } from "../store";
import {
  layOutTiles,
  rowsInSight,
  type TileLayout,
  type TileLook,
  type TileOrder,
  tileGrid,
  tileLook,
  tilesInRow,
} from "./tiles";

export interface OverviewTiles {
  order: Signal<TileOrder>;
  grid: ReadonlySignal<Grid | null>;
  layout: ReadonlySignal<TileLayout | null>;
  /** Rows in sight. */
  sight: ReadonlySignal<[number, number]>;
  scrollTop: Signal<number>;
  /** Where the keyboard is. */
  cursor: Signal<HeadPlace | null>;
  /** Each head's plot by its `headKey`. */
  heads: ReadonlySignal<ReadonlyMap<string, OverviewHead>>;
  look: ReadonlySignal<TileLook | null>;
  /** The place in the grid where the keyboard is, or begins. */
  at: () => At | null;
  step: (rows: number, columns: number) => void;
  open: (head: HeadPlace) => void;
  width: ReadonlySignal<number>;
}

/** Which points stand out: those that a search found and those in the lasso; null without either. */
export function standingOut(
  context: ViewContext<EmbeddingState>,
  model: EmbeddingModel,
): ReadonlySignal<Uint8Array | null> {
  return computed(() => {
    const [corpus, found] = [model.corpus.value, model.found.value];
    const selected = context.state.selected.value;
    if (!corpus || (!found && selected.length === 0)) return null;
    const points = found ? found.points.slice() : new Uint8Array(corpus.count);
    for (const point of selected) if (point < points.length) points[point] = 1;
    return points;
  });
}

export function makeOverviewTiles(
  context: ViewContext<EmbeddingState>,
  model: EmbeddingModel,
): OverviewTiles {
  const { record, state, width } = context;
  const order = signal<TileOrder>("number");
  const cursor = signal<HeadPlace | null>(null);
  const scrollTop = signal(0);
  const stack = computed(() => record.place.value?.stack ?? null);
  const measured = computed(() => (order.value === "number" ? null : model.trust.value));
  const grid = computed<Grid | null>(() => {
    const here = stack.value;
    return (
      here && tileGrid(here, order.value, measured.value ?? new Map(), tilesInRow(width.value))
    );
  });
  const layoutOf = (now: Grid): TileLayout =>
    layOutTiles({
      columns: now.columns?.length ?? tilesInRow(width.value),
      rows: now.rows.length,
      named: now.columns === null,
      width: width.value,
      mostHeight: Math.max(480, Math.floor((globalThis.innerHeight || 900) * 0.85)),
    });
  const layout = computed(() => grid.value && layoutOf(grid.value));
  // As text, so that scrolling within a row changes nothing.
  const sightText = computed(() => {
    const [here, now] = [layout.value, grid.value];
    return JSON.stringify(
      here && now ? rowsInSight(here, now.rows.length, scrollTop.value) : [0, 0],
    );
  });
  const heads = computed(
    () => new Map((model.overview.value?.heads ?? []).map((head) => [headKey(head), head])),
  );
  const standing = standingOut(context, model);
  const mixed = computed(() => {
    const overview = model.overview.value;
    // Read here, because `shown` reads it without following.
    state.points.value;
    if (!overview) return null;
    const { stride, points } = overview;
    return mixedOrder(points, (point) => model.shown(point * stride));
  });
  const look = computed<TileLook | null>(() => {
    const [corpus, overview, points] = [model.corpus.value, model.overview.value, mixed.value];
    const colors = model.colors.value;
    if (!corpus || !overview || !points) return null;
    // While lengths are on their way points have no colour of their own.
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
  const at = (): At | null => {
    const now = grid.peek();
    if (!now) return null;
    const row = now.rows.findIndex((cells) => cells.some((cell) => cell !== null));
    const column = now.rows[row]?.findIndex((cell) => cell !== null) ?? -1;
    return (
      findCell(now, cursor.peek()) ??
      findCell(now, model.head.peek()) ??
      (column >= 0 ? { row, column } : null)
    );
  };
  return {
    order,
    grid,
    layout,
    sight: computed(() => JSON.parse(sightText.value) as [number, number]),
    scrollTop,
    cursor,
    heads,
    look,
    width,
    at,
    step: (rows, columns) => {
      const now = grid.peek();
      const from = at();
      if (!now || !from) return;
      // The first press only shows where the keyboard is.
      const to = cursor.peek() === null ? from : stepCell(now, from, rows, columns);
      const cell = now.rows[to.row]?.[to.column];
      if (cell) cursor.value = { layer: cell.layer, head: cell.head };
    },
    open: ({ layer, head }) => assign(state, { layer, heads: [head], enlarged: true }),
  };
}
