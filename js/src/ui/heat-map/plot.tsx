/** Heat map on two canvases, with pointer and keyboard control and a tooltip. */

import { useComputed, useSignal, useSignalEffect } from "@preact/signals";
import { useRef } from "preact/hooks";
import { actionsOf, runKey, type Shortcut } from "../controls/keys";
import { findShortcut, recordShortcuts } from "../controls/shortcuts";
import { effectText, tokenEffect } from "../effects/effects";
import { roundedTo, writtenError } from "../exports/csv";
import { type Hint, pointIn, ScenePlot } from "../plot/plot";
import { useFingers } from "../plot/touch";
import { useZoomWheel } from "../plot/wheel";
import {
  plainNumber,
  type Quantity,
  quantityOf,
  quoted,
  written,
  writtenSmall,
} from "../text/captions";
import type { ViewContext } from "../view/define-view";
import { assign, same } from "../view/state";
import { nothingInWords, pooledInWords, sentence } from "./captions";
import { cellAt } from "./layout";
import type { CellAt, HeatMap } from "./marks";
import type { HeatMapState } from "./state";
import type { HeatMapStore } from "./store";
import { cellOf, isWhole, movedBy, pixelOf, tokensOf, type Viewport } from "./viewport";

interface PlotProps {
  context: ViewContext<HeatMapState>;
  store: HeatMapStore;
}

/**
 * Distance, in pixels, that a pressed pointer must move to drag the heat map. With a smaller
 * distance, releasing the pointer is a click.
 */
const MIN_DRAG_DISTANCE = 4;
/** Sum of the deltas of a wheel or trackpad that makes one zoom step. */
const WHEEL_STEP = 40;
/** Ratio of the distances between two fingers that makes one zoom step. */
const PINCH_STEP = 1.2;

function tokensInWords(viewport: Viewport, side: "query" | "key", cell: number): string {
  const axis = side === "query" ? viewport.rows : viewport.columns;
  const { text } = side === "query" ? viewport.queries : viewport.keys;
  const [start, stop] = tokensOf(axis, cell);
  if (stop - start === 1) return `${quoted(text[start] ?? "")} (${start})`;
  return `${side === "query" ? "queries" : "keys"} ${start}–${stop - 1}`;
}

/** Format a weight without an error, with more digits than elsewhere. */
function formatExact(weight: number, quantity: Quantity): string {
  return Math.abs(weight) < 5e-4 ? writtenSmall(quantity, weight) : written(quantity, weight, 5);
}

/**
 * Format the error of a weight as " ± 0.002", or "" for an exact weight. The error comes from the
 * encoding or from sampling.
 */
function within(error: number): string {
  return error > 0 ? ` ± ${plainNumber(writtenError(error))}` : "";
}

/** Return the tooltip of a cell or label. */
export function hintOf(heatMap: HeatMap, at: CellAt): Omit<Hint, "x" | "y"> {
  const { viewport } = heatMap.layout;
  if (at.row === null || at.column === null) {
    const side = at.row !== null ? "query" : "key";
    const cell = (at.row ?? at.column) as number;
    const axis = side === "query" ? viewport.rows : viewport.columns;
    const { text } = side === "query" ? viewport.queries : viewport.keys;
    const [start, stop] = tokensOf(axis, cell);
    const title =
      stop - start === 1
        ? `${quoted(text[start] ?? "")}, ${side} ${start}`
        : tokensInWords(viewport, side, cell);
    const { effects } = heatMap;
    if (side === "query" || !effects) return { title, rows: [] };
    const words = `${effects.name} ${effectText(effects, tokenEffect(effects, [start, stop]))}`;
    return { title, rows: [{ color: "", text: words, meant: false }] };
  }
  const title = `${tokensInWords(viewport, "query", at.row)} → ${tokensInWords(viewport, "key", at.column)}`;
  const value = heatMap.grid.values[at.row * heatMap.grid.columns + at.column] as number;
  const pooling = pooledInWords(viewport, at.row, at.column);
  const { error, every } = heatMap.grid;
  const quantity = quantityOf(viewport.stack);
  const { name } = quantity;
  const number = (decimals: number): string =>
    Math.abs(value) < 5e-5 ? writtenSmall(quantity, value) : written(quantity, value, decimals);
  const rounded = quantity.signed || value < 5e-5 ? number(4) : roundedTo(value, error);
  const weight = Number.isNaN(value)
    ? "loading"
    : error === 0 && every === undefined
      ? `${name}  ${formatExact(value, quantity)}, exact`
      : value === 0
        ? `${name}  ${nothingInWords(heatMap.grid, viewport.stack)}`
        : every !== undefined
          ? `${name}  ${number(value < 0.00995 ? 4 : 3)}${within(error)}, estimate`
          : `${name}  ${rounded}${within(error)}`;
  const rows = [{ color: "", text: weight, meant: true }];
  if (pooling !== "") rows.push({ color: "", text: pooling, meant: false });
  return { title, rows };
}

/** Pin a query and a key, or remove the pins if exactly these are pinned. */
function pinTokens(
  state: ViewContext<HeatMapState>["state"],
  query: number | null,
  key: number | null,
  viewport: Viewport,
): void {
  const same = (axis: Viewport["rows"], one: number | null, other: number | null): boolean =>
    one === null || (other !== null && cellOf(axis, one) === cellOf(axis, other));
  const isPinned =
    same(viewport.rows, query, state.token.peek()) && same(viewport.columns, key, state.key.peek());
  assign(state, {
    ...(query === null ? {} : { token: isPinned ? null : query }),
    ...(key === null ? {} : { key: isPinned ? null : key }),
  });
}

/** Move the keyboard cursor by a number of cells. If it leaves the window, the window moves. */
function moveCursor(store: HeatMapStore, down: number, across: number): void {
  const viewport = store.viewport.peek();
  if (!viewport) return;
  const keyboard = store.cursor.peek();
  const step = (axis: Viewport["rows"], from: number | null | undefined, by: number): number => {
    const tokensPerCell = 2 ** axis.level;
    if (from === null || from === undefined) return axis.window[0];
    const cell = Math.floor(from / tokensPerCell) * tokensPerCell + by * tokensPerCell;
    return Math.max(axis.extent[0], Math.min(axis.extent[1] - 1, cell));
  };
  // The first arrow key only shows the cursor, at the pins or in the upper left corner.
  const query = keyboard
    ? step(viewport.rows, keyboard.query, down)
    : (viewport.token ?? viewport.rows.window[0]);
  const key = keyboard
    ? step(viewport.columns, keyboard.key, across)
    : (viewport.key ?? viewport.columns.window[0]);
  store.hovered.value = null;
  store.cursor.value = { query, key };
  const follow = (axis: Viewport["rows"], token: number): number => {
    if (token < axis.window[0]) return token - axis.window[0];
    return token >= axis.window[1] ? token - axis.window[1] + 2 ** axis.level : 0;
  };
  const [byRows, byColumns] = [follow(viewport.rows, query), follow(viewport.columns, key)];
  if (byRows !== 0 || byColumns !== 0) store.pan(byRows, byColumns);
}

/** Return the keyboard shortcuts and gestures of the heat map. */
export function heatMapShortcuts(
  context: ViewContext<HeatMapState>,
  store: HeatMapStore,
): readonly Shortcut[] {
  const { state } = context;
  const move = (down: number, across: number) => (event: KeyboardEvent) => {
    const cells = event.shiftKey ? 10 : 1;
    moveCursor(store, down * cells, across * cells);
  };
  const zoom = (nearer: boolean) => () => {
    const [viewport, cursor] = [store.viewport.peek(), store.cursor.peek()];
    const anchor =
      viewport && cursor?.query != null && cursor.key != null
        ? {
            right: pixelOf(viewport.columns, cursor.key + 0.5),
            down: pixelOf(viewport.rows, cursor.query + 0.5),
          }
        : undefined;
    store.zoom(nearer, anchor);
  };
  const pin = (): void => {
    const [viewport, cursor] = [store.viewport.peek(), store.cursor.peek()];
    if (viewport && cursor) pinTokens(state, cursor.query, cursor.key, viewport);
  };
  const unpin = (): void => {
    store.cursor.value = null;
    assign(state, { token: null, key: null });
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
    ...recordShortcuts(context),
    findShortcut(context),
  ];
}

export function HeatMapPlot({ context, store }: PlotProps) {
  const plot = useRef<HTMLDivElement>(null);
  const pointer = useSignal<{ x: number; y: number } | null>(null);
  const { state } = context;
  const drag = useRef<{
    x: number;
    y: number;
    rows: [number, number];
    columns: [number, number];
    moved: boolean;
  } | null>(null);
  const wheel = useRef(0);
  const pinch = useRef(1);
  const drawnId = useComputed(() => {
    const drawn = store.heatMap.value?.layout.viewport;
    return store.current.value && drawn ? `matrix:${drawn.stack.name}:${drawn.layer}` : null;
  });

  useSignalEffect(() => {
    const every = store.heatMap.value?.grid.every;
    if (every === undefined) context.root.removeAttribute("data-attnviz-estimate");
    else context.root.setAttribute("data-attnviz-estimate", `1/${every}`);
  });

  const at = (event: MouseEvent): CellAt | null => {
    const now = store.heatMap.peek();
    const { x, y } = pointIn(plot.current, event);
    return now && cellAt(now.layout, x, y);
  };

  const zoomAt = (event: Pick<MouseEvent, "clientX" | "clientY">, nearer: boolean): void => {
    const layout = store.heatMap.peek()?.layout;
    if (!layout) return;
    // Wheel events have positions in whole pixels. If the pointer is at this position, use the more
    // precise position of the pointer event.
    const point = pointIn(plot.current, event);
    const resting = pointer.peek();
    const scrolled = plot.current?.scrollLeft ?? 0;
    const near = resting && Math.hypot(resting.x + scrolled - point.x, resting.y - point.y) < 1.5;
    const { x, y } = near ? { x: resting.x + scrolled, y: resting.y } : point;
    // A layout that is requested but not drawn yet has its cells at the same position, so the drawn
    // layout gives the correct point.
    store.zoom(nearer, { right: x - layout.left, down: y - layout.top });
  };

  // Update the cell under a pointer that does not move. This cell changes when the visible part of
  // the matrix changes.
  useSignalEffect(() => {
    const layout = store.base.value?.layout;
    const where = pointer.peek();
    if (!layout || !where || drag.current?.moved) return;
    const cell = cellAt(layout, where.x + (plot.current?.scrollLeft ?? 0), where.y);
    if (same(store.hovered.peek(), cell)) return;
    store.hovered.value = cell;
    if (!cell) pointer.value = null;
  });

  useZoomWheel(plot, (by, event) => {
    wheel.current += by;
    if (Math.abs(wheel.current) < WHEEL_STEP) return;
    zoomAt(event, wheel.current < 0);
    wheel.current = 0;
  });

  const isMovable = (): boolean => {
    const viewport = store.viewport.peek();
    return viewport !== null && !isWhole(viewport);
  };
  const { several, ...fingers } = useFingers({
    moves: isMovable,
    zoom: (factor, around) => {
      pinch.current *= factor;
      const nearer = pinch.current > 1;
      if ((nearer ? pinch.current : 1 / pinch.current) < PINCH_STEP) return;
      pinch.current = 1;
      zoomAt(around, nearer);
    },
  });

  const onPointerDown = (event: PointerEvent): void => {
    pinch.current = 1;
    drag.current = null;
    const viewport = store.viewport.peek();
    if (!viewport || event.button !== 0) return;
    // If all tokens are visible, a finger cannot pan the heat map and scrolls the page instead.
    if (event.pointerType === "touch" && !(event.isPrimary && isMovable())) return;
    const { x, y } = pointIn(plot.current, event);
    drag.current = {
      x,
      y,
      rows: viewport.rows.window,
      columns: viewport.columns.window,
      moved: false,
    };
  };

  const onPointerMove = (event: PointerEvent): void => {
    if (several.current && event.pointerType === "touch") return;
    const from = drag.current;
    const position = pointIn(plot.current, event);
    const viewport = store.viewport.peek();
    if (from && viewport && event.buttons === 0) drag.current = null;
    else if (from && viewport) {
      const [dx, dy] = [position.x - from.x, position.y - from.y];
      if (!from.moved && Math.hypot(dx, dy) >= MIN_DRAG_DISTANCE) {
        from.moved = true;
        plot.current?.setPointerCapture(event.pointerId);
      }
      if (from.moved) {
        const tokens = (by: number, axis: Viewport["rows"]): number =>
          -Math.round(by / axis.cell) * 2 ** axis.level;
        store.hovered.value = null;
        pointer.value = null;
        if (!isMovable()) return;
        assign(state, {
          query_window: movedBy(viewport.rows, from.rows, tokens(dy, viewport.rows)),
          key_window: movedBy(viewport.columns, from.columns, tokens(dx, viewport.columns)),
        });
        return;
      }
    }
    const cell = at(event);
    if (!same(store.hovered.peek(), cell)) store.hovered.value = cell;
    pointer.value = cell && { x: position.x - (plot.current?.scrollLeft ?? 0), y: position.y };
  };

  // After a drag with a mouse, `onClick` ends the drag. After a drag with a finger, no click
  // follows.
  const onTouchEnd = (): void => {
    if (drag.current?.moved) drag.current = null;
  };

  const leave = (): void => {
    store.hovered.value = null;
    pointer.value = null;
  };

  /** Pin the tokens of a cell, or remove the pins if exactly these tokens are pinned. */
  const pin = (cell: CellAt): void => {
    const viewport = store.heatMap.peek()?.layout.viewport;
    if (!viewport) return;
    const first = (axis: Viewport["rows"], index: number | null): number | null =>
      index === null ? null : tokensOf(axis, index)[0];
    const query = first(viewport.rows, cell.row);
    const key = first(viewport.columns, cell.column);
    pinTokens(state, query, key, viewport);
  };
  const onClick = (event: MouseEvent): void => {
    const moved = drag.current?.moved ?? false;
    drag.current = null;
    if (moved || event.detail > 1) return;
    const cell = at(event);
    if (cell) pin(cell);
  };

  const hint = useComputed<Hint | null>(() => {
    const [where, heatMap] = [pointer.value, store.heatMap.value];
    // Compute the cell under the pointer from the current layout. `store.hovered` may be older than
    // the layout.
    const across = (where?.x ?? 0) + (plot.current?.scrollLeft ?? 0);
    const cell = where && heatMap && cellAt(heatMap.layout, across, where.y);
    if (!cell) return null;
    return { ...hintOf(heatMap, cell), ...where };
  });
  const label = useComputed(() =>
    store.captionInput.value ? sentence(store.captionInput.value) : "Loading",
  );

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
        onPointerDown,
        onPointerMove,
        onPointerLeave: leave,
        ...fingers,
        onTouchEnd,
        onTouchCancel: onTouchEnd,
        onClick,
        onDblClick: (event: MouseEvent) => zoomAt(event, !event.shiftKey),
        onKeyDown: (event: KeyboardEvent) =>
          runKey(event, actionsOf(heatMapShortcuts(context, store))),
        onBlur: () => {
          store.cursor.value = null;
        },
      }}
    />
  );
}
