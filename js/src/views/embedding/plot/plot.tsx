/** The plot of one head, and its reactions to pointer and keyboard. */

import { useComputed, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { actionsOf, runKey, type Shortcut } from "../../../ui/controls/keys";
import { useGestures } from "../../../ui/plot/gestures";
import { type Hint, pointIn, ScenePlot } from "../../../ui/plot/plot";
import { useZoomWheel } from "../../../ui/plot/wheel";
import { quoted } from "../../../ui/text/captions";
import { assign } from "../../../ui/view/state";
import { sentenceOf, textInWords } from "../captions";
import type { Corpus } from "../client/requests";
import type { EmbeddingProps, EmbeddingStore } from "../store";
import type { Camera } from "./cloud";
import type { PlotStore } from "./store";

export interface PlotProps extends EmbeddingProps {
  plot: PlotStore;
}

/** Maximum number of tokens that a tooltip quotes before and after the token of a point. */
const AROUND = 6;
/** Exponent of the zoom factor per pixel of wheel movement. */
const WHEEL = 0.008;

/**
 * Return the tokens before and after a point, with its own token in brackets. The text contains
 * only tokens that are points, and "…" for others.
 */
function snippet(corpus: Corpus, point: number): string {
  const [start, stop] = corpus.pointsOf(corpus.kindOf(point), corpus.textOf(point));
  const first = Math.max(start, point - AROUND);
  const last = Math.min(stop, point + AROUND + 1);
  const words: string[] = first > start ? ["…"] : [];
  for (let other = first; other < last; other++) {
    const token = corpus.tokenOf(other).trim();
    words.push(other === point ? `[${token}]` : token);
    const gap = other + 1 < last && corpus.positionOf(other + 1) > corpus.positionOf(other) + 1;
    if (gap) words.push("…");
  }
  return [...words, ...(last < stop ? ["…"] : [])].join(" ");
}

/** Return the tooltip of a point. */
function hintOf(corpus: Corpus, point: number): Omit<Hint, "x" | "y"> {
  const lines = [
    `position ${corpus.positionOf(point)} of ${textInWords(corpus, corpus.textOf(point))}`,
    ...(corpus.facts.images === 0 ? [snippet(corpus, point)] : []),
  ];
  return {
    title: `${corpus.kindOf(point)} ${quoted(corpus.tokenOf(point))}`,
    rows: lines.map((text) => ({ text })),
  };
}

/** State of the view at the start of a drag, and the effect of the drag. */
interface DragStart {
  camera: Camera;
  lasso: boolean;
}

export function EmbeddingPlot(props: PlotProps) {
  const { context, store, plot } = props;
  const { state } = context;
  const element = useRef<HTMLDivElement>(null);
  const pointer = useSignal<{ x: number; y: number } | null>(null);
  const hover = (point: number | null, at: { x: number; y: number } | null = null): void => {
    store.hovered.value = point;
    pointer.value = point === null ? null : at;
  };
  useEffect(() => () => hover(null), []);

  useZoomWheel(element, (by, event) => {
    pointer.value = null;
    const factor = Math.exp(-Math.max(-90, Math.min(90, by)) * WHEEL);
    plot.zoomBy(factor, pointIn(element.current, event));
  });

  const gestures = useGestures<DragStart>(element, {
    // Dragging does not move a two-dimensional plot while it shows all points. A finger then
    // scrolls the page instead.
    moves: () =>
      plot.cloud.peek()?.dimensions === 3 ||
      plot.camera.peek().zoom > 1 ||
      plot.tool.peek() === "lasso",
    press: ({ shiftKey }) => ({
      camera: plot.camera.peek(),
      lasso: shiftKey || plot.tool.peek() === "lasso",
    }),
    drag: ({ x, y }, from) => {
      element.current?.toggleAttribute("data-dragging", !from.lasso);
      const line = plot.lasso.peek();
      if (!from.lasso) plot.push(x - from.x, y - from.y, from.camera);
      else plot.lasso.value = [...(line.length > 0 ? line : [[from.x, from.y] as const]), [x, y]];
    },
    hover: (at) => hover(at && plot.pointAt(at.x, at.y), at),
    click: ({ x, y }) => {
      const point = plot.pointAt(x, y);
      if (point !== null) store.choose(store.chosen.peek() === point ? null : point);
    },
    zoom: plot.zoomBy,
  });

  const onKeyDown = (event: KeyboardEvent): void => {
    if (runKey(event, actionsOf(plotShortcuts(props)))) pointer.value = null;
  };

  const hint = useComputed<Hint | null>(() => {
    const [point, at, corpus] = [store.hovered.value, pointer.value, store.corpus.value];
    // The chosen point needs no tooltip, because the plot labels it and the pane shows its text.
    if (point === null || !at || !corpus || point === store.chosen.value) return null;
    return { ...hintOf(corpus, point), ...at };
  });
  const label = useComputed(() => sentenceOf(context, store) || "Loading");
  // Null as soon as other content is chosen, although this component may draw again.
  const drawnId = useComputed(() => store.drawnId(true));

  return (
    <div class="av-embedding-plot">
      <ScenePlot
        scene={plot.scene}
        drawnId={drawnId}
        onDrawn={context.setDrawn}
        kind="scatter plot of queries and keys"
        label={label.value}
        plot={element}
        hint={hint.value}
        width={plot.room.value.width}
        events={{
          ...gestures,
          onPointerDown: (event) => {
            plot.lasso.value = [];
            gestures.onPointerDown(event);
          },
          onPointerUp: () => {
            element.current?.removeAttribute("data-dragging");
            if (plot.lasso.peek().length === 0) return;
            assign(state, { selected: plot.inside() });
            plot.lasso.value = [];
          },
          onKeyDown,
        }}
      />
    </div>
  );
}

/** Movement in pixels of an arrow key with Shift. */
const STEP = 40;
/** Zoom factor of the keys + and −, and of the zoom buttons. */
export const ZOOM = 1.5;

/**
 * Choose the point that is `by` points after the chosen one in its text. If `otherSide` is true,
 * choose the other point of its token instead: the key of a query, or the query of a key. Without a
 * chosen point, choose the point at the centre of the picture, or else the first point.
 */
function moveAlongText({ store, plot }: PlotProps, by: number, otherSide: boolean): void {
  const corpus = store.corpus.peek();
  if (!corpus) return;
  const chosen = store.chosen.peek();
  if (chosen === null) {
    const { width, height } = plot.room.peek();
    const middle = plot.pointAt(width / 2, height / 2);
    const first = middle ?? plot.cloud.peek()?.points.reduce((a, b) => Math.min(a, b));
    if (first !== undefined) store.choose(first);
    return;
  }
  const kind = corpus.kindOf(chosen);
  const text = corpus.textOf(chosen);
  if (otherSide) {
    const other = kind === "query" ? "key" : "query";
    const point = corpus.pointOf(other, text, corpus.positionOf(chosen));
    if (point >= 0 && store.shown(point)) store.choose(point);
    return;
  }
  const [start, stop] = corpus.pointsOf(kind, text);
  store.choose(Math.max(start, Math.min(stop - 1, chosen + by)));
}

/** Return the keyboard shortcuts that show another head. */
export function headShortcuts(store: EmbeddingStore): Shortcut[] {
  const to = (layers: number, heads: number) => () => store.neighbour(layers, heads);
  const [up, down] = [to(-1, 0), to(1, 0)];
  return [
    ["[ ]", "previous, next layer", { "[": up, PageUp: up, "]": down, PageDown: down }],
    [", .", "previous, next head", { ",": to(0, -1), ".": to(0, 1) }],
  ];
}

/** Return the keyboard shortcuts of the plot of one head. */
export function plotShortcuts(props: PlotProps): Shortcut[] {
  const { context, store, plot } = props;
  const { state } = context;
  const arrow =
    (dx: number, dy: number) =>
    ({ shiftKey }: KeyboardEvent) => {
      if (!shiftKey) return moveAlongText(props, dx, dy !== 0);
      // Like a scroll key, an arrow moves a two-dimensional plot in the opposite direction.
      const step = plot.cloud.peek()?.dimensions === 3 ? STEP : -STEP;
      return plot.push(dx * step, dy * step);
    };
  const zoomIn = () => plot.zoomBy(ZOOM);
  const zoomOut = () => plot.zoomBy(1 / ZOOM);
  const lasso = () => {
    plot.tool.value = plot.tool.peek() === "lasso" ? "move" : "lasso";
  };
  const find = () => context.root.querySelector<HTMLInputElement>(".av-find input")?.focus();
  const leave = () => assign(state, { enlarged: false });
  const back = () => {
    if (plot.lasso.peek().length > 0) plot.lasso.value = [];
    else if (state.selected.peek().length > 0) assign(state, { selected: [] });
    else if (store.chosen.peek() !== null) store.choose(null);
    else leave();
  };
  return [
    [
      "← →",
      "previous, next token of the text",
      { ArrowLeft: arrow(-1, 0), ArrowRight: arrow(1, 0) },
    ],
    ["↑ ↓", "the token’s query, its key", { ArrowUp: arrow(0, -1), ArrowDown: arrow(0, 1) }],
    ...headShortcuts(store),
    ["+ −", "zoom in, zoom out", { "+": zoomIn, "=": zoomIn, "-": zoomOut, _: zoomOut }],
    ["Shift-arrows", "move the plot, or rotate it"],
    ["Home", "show all points", { Home: plot.fit }],
    ["l", "drag draws a lasso, on or off", { l: lasso }],
    ["Shift-drag", "draw a lasso"],
    ["Ctrl-wheel", "zoom at the pointer"],
    ["two fingers", "zoom"],
    ["f", "find tokens", { f: find }],
    ["Esc", "clear the lasso, then the point, then show all heads", { Escape: back }],
    ["o", "all heads", { o: leave }],
  ];
}
