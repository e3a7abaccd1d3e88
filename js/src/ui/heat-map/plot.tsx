/** Heat map on two canvases, with pointer and keyboard control and a tooltip. */

import { useComputed, useSignal, useSignalEffect } from "@preact/signals";
import { useRef } from "preact/hooks";
import type { Range } from "../../client/protocol";
import { SCORED_ZERO, zeroInWords } from "../../client/zeros";
import { type BySide, bySide, type Focus, pinsOf, type Side, tokenAt, tokensAt } from "../axis";
import { actionsOf, runKey, type Shortcut } from "../controls/keys";
import { findShortcut, recordShortcuts } from "../controls/shortcuts";
import { effectText, tokenEffect } from "../effects/effects";
import { useGestures } from "../plot/gestures";
import { type Hint, pointIn, ScenePlot } from "../plot/plot";
import { useZoomWheel } from "../plot/wheel";
import {
  indicesOf,
  plainNumber,
  positionsInWords,
  quantityOf,
  quotedSpan,
  unscoredInWords,
  written,
  writtenSmall,
} from "../text/captions";
import { roundedTo, writtenError } from "../text/csv";
import type { ViewContext } from "../view/define-view";
import { assign, same } from "../view/state";
import { nothingInWords, pooledInWords, sentence } from "./captions";
import { cellAt } from "./layout";
import type { HeatMap } from "./marks";
import type { HeatMapState } from "./state";
import type { HeatMapStore } from "./store";
import { type CellAxis, distanceTo, isWhole, pixelOf, type Viewport } from "./viewport";

interface PlotProps {
  context: ViewContext<HeatMapState>;
  store: HeatMapStore;
  choose?: "head" | "heads";
}

/** Movement of a wheel, or of two fingers on a touchpad, that makes one zoom step, in pixels. */
const WHEEL_STEP = 40;
/** Ratio of the distances between two fingers that makes one zoom step. */
const PINCH_STEP = 1.2;

/**
 * Name the tokens of a row or column with their indices: “cat” (5), “0.04–0.10 s” (2–5).
 *
 * @param indexed function that formats the indices.
 */
function tokensInWords({ axes }: Viewport, side: Side, cell: number, indexed = indicesOf): string {
  const range = tokensAt(axes[side], cell);
  return quotedSpan(axes[side].tokens, range, indexed(range));
}

/**
 * Format the weight of a cell with the bound of its error, for example "weight  0.123 ± 0.0004". If
 * the error is 0, write "exact" in place of it. If some tiles are estimated, add "estimate". A
 * weight that is drawn as 0 is described by `nothingInWords`, and a missing one by "loading". If the
 * softmax did not score the keys of the cell, the reason is written in place of the weight.
 *
 * @param pooled whether the cell covers several weights.
 */
function weightInWords({ grid, layout }: HeatMap, value: number, pooled: boolean): string {
  const { stack } = layout.viewport;
  const quantity = quantityOf(stack);
  const { error, samplingInterval } = grid;
  const number = (decimals: number, tiny = 5e-5): string =>
    Math.abs(value) < tiny ? writtenSmall(quantity, value) : written(quantity, value, decimals);
  const within = error > 0 ? ` ± ${plainNumber(writtenError(error))}` : "";
  const text = (): string => {
    if (value === SCORED_ZERO && error === 0) return "less than 1e−30";
    if (error === 0 && samplingInterval === undefined) return `${number(5, 5e-4)}, exact`;
    if (value === 0 || value === SCORED_ZERO) return nothingInWords(grid, stack);
    if (samplingInterval !== undefined)
      return `${number(value < 0.00995 ? 4 : 3)}${within}, estimate`;
    const rounded = quantity.signed || value < 5e-5 ? number(4) : roundedTo(value, error);
    return `${rounded}${within}`;
  };
  const unscored = zeroInWords(stack, value);
  if (unscored) return unscoredInWords(unscored, pooled);
  return Number.isNaN(value) ? "loading" : `${quantity.name}  ${text()}`;
}

/** Return the content of the tooltip for a cell, a label or a bar. */
function hintOf(heatMap: HeatMap, { query, key }: Focus): Omit<Hint, "x" | "y"> {
  const { layout, grid, effects } = heatMap;
  const { viewport } = layout;
  if (query !== null && key !== null) {
    const pooling = pooledInWords(viewport, query, key);
    const value = grid.values[query * grid.columns + key] as number;
    return {
      title: `${tokensInWords(viewport, "query", query)} → ${tokensInWords(viewport, "key", key)}`,
      rows: [
        { text: weightInWords(heatMap, value, pooling !== ""), meant: true },
        ...(pooling ? [{ text: pooling }] : []),
      ],
    };
  }
  const side = query === null ? "key" : "query";
  const cell = (query ?? key) as number;
  const title = tokensInWords(
    viewport,
    side,
    cell,
    (range) => `, ${positionsInWords(range, side)}`,
  );
  if (side === "query" || !effects) return { title, rows: [] };
  const effect = effectText(effects, tokenEffect(effects, tokensAt(viewport.axes.key, cell)));
  return { title, rows: [{ text: `${effects.name} ${effect}` }] };
}

/**
 * Move the keyboard cursor by a number of cells. If the cursor leaves the window, the window
 * follows.
 */
function moveCursor(store: HeatMapStore, by: BySide<number>): void {
  const viewport = store.viewport.peek();
  if (!viewport) return;
  const before = store.cursor.peek();
  const cursor = bySide((side) => {
    const axis = viewport.axes[side];
    const { extent, level } = axis;
    // The first arrow key only shows the cursor, at the pins or in the upper left corner.
    if (!before) return pinsOf(viewport)[side] ?? tokenAt(axis, 0);
    const token = before[side];
    if (token === null) return tokenAt(axis, 0);
    const next = (Math.floor(token / 2 ** level) + by[side]) * 2 ** level;
    return Math.max(extent[0], Math.min(extent[1] - 1, next));
  });
  store.hovered.value = null;
  store.cursor.value = cursor;
  const follow = bySide((side) => distanceTo(viewport.axes[side], cursor[side]));
  if (follow.query !== 0 || follow.key !== 0) store.pan(follow);
}

/**
 * Return the keyboard shortcuts and gestures of the heat map.
 *
 * @param choose "head" if a digit key chooses the only shown head, "heads" if it adds a head to the
 *   chosen heads or removes it.
 */
export function heatMapShortcuts(
  context: ViewContext<HeatMapState>,
  store: HeatMapStore,
  choose: "head" | "heads" = "heads",
): readonly Shortcut[] {
  const move = (query: number, key: number) => (event: KeyboardEvent) => {
    const cells = event.shiftKey ? 10 : 1;
    moveCursor(store, { query: query * cells, key: key * cells });
  };
  const zoom = (nearer: boolean) => () => {
    const [viewport, cursor] = [store.viewport.peek(), store.cursor.peek()];
    const { query, key } = cursor ?? {};
    const anchor =
      viewport && query != null && key != null
        ? { query: pixelOf(viewport.axes.query, query), key: pixelOf(viewport.axes.key, key) }
        : undefined;
    store.zoom(nearer, anchor);
  };
  const pin = (): void => {
    const cursor = store.cursor.peek();
    if (cursor) store.pin(cursor);
  };
  const unpin = (): void => {
    store.cursor.value = null;
    assign(context.state, { token: null, key: null });
  };
  const arrows = {
    ...{ ArrowUp: move(-1, 0), ArrowDown: move(1, 0) },
    ...{ ArrowLeft: move(0, -1), ArrowRight: move(0, 1) },
  };
  const [zoomIn, zoomOut] = [zoom(true), zoom(false)];
  return [
    ["↑ ↓ ← →", "move the cursor, with Shift by ten cells", arrows],
    ["Enter", "pin or unpin the cell’s query and key", { Enter: pin, " ": pin }],
    ["Esc", "clear pins", { Escape: unpin }],
    ["+ −", "zoom in, zoom out", { "+": zoomIn, "=": zoomIn, "-": zoomOut, _: zoomOut }],
    ["Home", "show the whole matrix", { Home: () => store.fit() }],
    ["Ctrl-wheel", "zoom in or out at the pointer"],
    ["double-click", "zoom in, with Shift zoom out"],
    ["drag", "move the window"],
    ["two fingers", "zoom in or out between them"],
    ...recordShortcuts(context, choose),
    findShortcut(context),
  ];
}

export function HeatMapPlot({ context, store, choose }: PlotProps) {
  const plot = useRef<HTMLDivElement>(null);
  const pointer = useSignal<{ x: number; y: number } | null>(null);
  const wheel = useRef(0);
  const drawnId = useComputed(() => {
    const drawn = store.base.value?.layout.viewport;
    return store.current.value && drawn ? `matrix:${drawn.stack.name}:${drawn.layer}` : null;
  });

  useSignalEffect(() => {
    const interval = store.base.value?.grid.samplingInterval;
    if (interval === undefined) context.root.removeAttribute("data-attnviz-estimate");
    else context.root.setAttribute("data-attnviz-estimate", `1/${interval}`);
  });

  // Cell under the pointer. It also changes when another part of the matrix becomes visible.
  const under = useComputed(() => {
    const layout = store.base.value?.layout;
    return layout && pointer.value ? cellAt(layout, pointer.value.x, pointer.value.y) : null;
  });
  useSignalEffect(() => {
    if (!same(store.hovered.peek(), under.value)) store.hovered.value = under.value;
  });

  const zoomAt = ({ x, y }: { x: number; y: number }, nearer: boolean): void => {
    const layout = store.base.peek()?.layout;
    // The point is relative to the cells. A requested layout that is not drawn yet has its cells at
    // the same position as the drawn one.
    if (layout) store.zoom(nearer, { query: y - layout.top, key: x - layout.left });
  };
  useZoomWheel(plot, (by, event) => {
    wheel.current += by;
    if (Math.abs(wheel.current) < WHEEL_STEP) return;
    // Wheel events have positions in whole pixels. Pointer events are more precise.
    zoomAt(pointer.peek() ?? pointIn(plot.current, event), wheel.current < 0);
    wheel.current = 0;
  });

  const isMovable = (): boolean => {
    const viewport = store.viewport.peek();
    return viewport !== null && !isWhole(viewport);
  };
  const gestures = useGestures<{ windows: BySide<Range> }>(plot, {
    moves: isMovable,
    press: () => {
      const axes = store.viewport.peek()?.axes;
      return axes ? { windows: bySide((side) => axes[side].window) } : null;
    },
    drag: (to, from) => {
      const axes = store.viewport.peek()?.axes;
      const tokens = ({ cell, level }: CellAxis, by: number): number =>
        -Math.round(by / cell) * 2 ** level;
      if (!axes || !isMovable()) return;
      const by = { query: tokens(axes.query, to.y - from.y), key: tokens(axes.key, to.x - from.x) };
      store.pan(by, from.windows);
    },
    hover: (at) => {
      pointer.value = at;
    },
    click: ({ x, y }) => {
      const layout = store.base.peek()?.layout;
      const cell = layout && cellAt(layout, x, y);
      if (!cell) return;
      const { axes } = layout.viewport;
      const tokenOf = (side: Side, position: number | null): number | null =>
        position === null ? null : tokenAt(axes[side], position);
      store.pin(bySide((side) => tokenOf(side, cell[side])));
    },
    zoom: (factor, around) => zoomAt(around, factor > 1),
    pinch: PINCH_STEP,
  });

  const hint = useComputed<Hint | null>(() => {
    const [point, cell, heatMap] = [pointer.value, under.value, store.base.value];
    return point && cell && heatMap && { ...hintOf(heatMap, cell), ...point };
  });
  const label = useComputed(() => (store.pinned.value ? sentence(store.pinned.value) : "Loading"));

  return (
    <ScenePlot
      scene={store.scene}
      drawnId={drawnId}
      onDrawn={context.setDrawn}
      kind="attention matrix"
      label={label.value}
      plot={plot}
      hint={hint.value}
      width={context.width.value}
      events={{
        ...gestures,
        onDblClick: (event: MouseEvent) => zoomAt(pointIn(plot.current, event), !event.shiftKey),
        onKeyDown: (event: KeyboardEvent) =>
          runKey(event, actionsOf(heatMapShortcuts(context, store, choose))),
        onBlur: () => {
          store.cursor.value = null;
        },
      }}
    />
  );
}
