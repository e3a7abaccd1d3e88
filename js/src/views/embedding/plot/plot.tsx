/** The plot of one head, its reactions to pointer and keyboard, and its tools. */

import { useComputed, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { actionsOf, runKey, type Shortcut } from "../../../ui/controls/keys";
import { type Hint, ScenePlot } from "../../../ui/plot/plot";
import { useFingers } from "../../../ui/plot/touch";
import { useZoomWheel } from "../../../ui/plot/wheel";
import { counted, quoted } from "../../../ui/text/captions";
import type { ViewContext } from "../../../ui/view/define-view";
import { assign } from "../../../ui/view/state";
import { problemOf, sentenceOf } from "../captions";
import type { Corpus } from "../client/requests";
import { type EmbeddingState, headKey, neighbourOf } from "../state";
import type { EmbeddingStore } from "../store";
import { figuresInShort, saysLittle, TRUST_HELP } from "../trust";
import type { Camera } from "./cloud";
import { drawnOn, type Lasso, movedBy, turned, zoomedAt } from "./cloud";
import type { PlotStore } from "./store";

/** Minimum movement of a drag, in pixels. A shorter movement is a click. */
const DRAG = 4;
/** Maximum number of tokens that a tooltip quotes before and after the token of a point. */
const AROUND = 6;
/** Exponent of the zoom factor per pixel of wheel movement. */
const WHEEL = 0.008;

/**
 * Return the tokens before and after a point, with its own token in brackets. The text contains
 * only tokens that are points, and "…" for others.
 */
export function snippet(corpus: Corpus, point: number): string {
  const [start, stop] = corpus.pointsOf(corpus.kindOf(point), corpus.textOf(point));
  const first = Math.max(start, point - AROUND);
  const last = Math.min(stop, point + AROUND + 1);
  const words: string[] = [];
  for (let other = first; other < last; other++) {
    const token = corpus.tokenOf(other).trim();
    words.push(other === point ? `[${token}]` : token);
    const gap = other + 1 < last && corpus.positionOf(other + 1) > corpus.positionOf(other) + 1;
    if (gap) words.push("…");
  }
  return `${first > start ? "… " : ""}${words.join(" ")}${last < stop ? " …" : ""}`;
}

/** Return the tooltip of a point. */
export function hintOf(corpus: Corpus, point: number): Omit<Hint, "x" | "y"> {
  const text = corpus.textOf(point);
  const name = corpus.facts.names[text] ?? "";
  const own = name === "" || name === `text ${text}` ? "" : `: ${quoted(name)}`;
  const rows = [
    { color: "", text: `position ${corpus.positionOf(point)} of text ${text}${own}`, meant: false },
  ];
  if (corpus.facts.images === 0)
    rows.push({ color: "", text: snippet(corpus, point), meant: false });
  return { title: `${corpus.kindOf(point)} ${quoted(corpus.tokenOf(point))}`, rows };
}

interface Drag {
  x: number;
  y: number;
  camera: Camera;
  lasso: boolean;
  /**
   * Whether the drag moves the plot even in three dimensions, where it would otherwise rotate the
   * plot.
   */
  sliding: boolean;
  moved: boolean;
}

export function EmbeddingPlot(props: PlotProps) {
  const { context, store, plot } = props;
  const { state } = context;
  const element = useRef<HTMLDivElement>(null);
  const pointer = useSignal<{ x: number; y: number } | null>(null);
  const drag = useRef<Drag | null>(null);
  const frame = useRef<{ id: number; run: () => void } | null>(null);
  const problem = problemOf(context, store);

  // There may be several pointer events per frame. Only the last action before a frame runs.
  const soon = (run: () => void): void => {
    if (frame.current) {
      frame.current.run = run;
      return;
    }
    const next = {
      run,
      id: requestAnimationFrame(() => {
        frame.current = null;
        next.run();
      }),
    };
    frame.current = next;
  };
  useEffect(
    () => () => {
      if (frame.current) cancelAnimationFrame(frame.current.id);
      store.hovered.value = null;
    },
    [],
  );

  const positionOf = (event: Pick<MouseEvent, "clientX" | "clientY">): { x: number; y: number } => {
    const box = element.current?.getBoundingClientRect();
    return { x: event.clientX - (box?.left ?? 0), y: event.clientY - (box?.top ?? 0) };
  };

  const onWheel = (by: number, event: WheelEvent): void => {
    pointer.value = null;
    zoomBy(props, Math.exp(-Math.max(-90, Math.min(90, by)) * WHEEL), positionOf(event));
  };
  useZoomWheel(element, onWheel, [problem === null]);

  // Dragging does not move a two-dimensional plot while it shows all points. A finger then scrolls
  // the page instead.
  const moves = (): boolean =>
    plot.cloud.peek()?.dimensions === 3 ||
    plot.camera.peek().zoom > 1 ||
    plot.tool.peek() === "lasso";
  const { several, ...fingers } = useFingers({
    moves,
    zoom: (factor, around) => zoomBy(props, factor, positionOf(around)),
  });

  const onPointerDown = (event: PointerEvent): void => {
    // A second finger cancels the drag of the first.
    drag.current = null;
    plot.lasso.value = null;
    if (event.button !== 0) return;
    if (event.pointerType === "touch" && !(event.isPrimary && moves())) return;
    const lasso = event.shiftKey || plot.tool.peek() === "lasso";
    drag.current = {
      ...positionOf(event),
      camera: plot.camera.peek(),
      lasso,
      sliding: event.altKey,
      moved: false,
    };
  };

  const dragTo = (from: Drag, x: number, y: number): void => {
    const cloud = plot.cloud.peek();
    if (!cloud) return;
    if (from.lasso) {
      const before: Lasso = plot.lasso.peek() ?? [from.x, from.y];
      plot.lasso.value = drawnOn(before, x, y);
      return;
    }
    const [dx, dy] = [x - from.x, y - from.y];
    soon(() => {
      plot.camera.value =
        cloud.dimensions === 3 && !from.sliding
          ? { ...from.camera, turn: turned(from.camera.turn, dx, dy) }
          : movedBy(from.camera, cloud, plot.room.peek(), dx, dy);
    });
  };

  const onPointerMove = (event: PointerEvent): void => {
    if (several.current && event.pointerType === "touch") return;
    const { x, y } = positionOf(event);
    const from = drag.current;
    if (from && event.buttons === 0) drag.current = null;
    else if (from) {
      if (!from.moved && Math.hypot(x - from.x, y - from.y) >= DRAG) {
        from.moved = true;
        element.current?.setPointerCapture(event.pointerId);
        element.current?.toggleAttribute("data-dragging", !from.lasso);
      }
      if (from.moved) {
        store.hovered.value = null;
        pointer.value = null;
        dragTo(from, x, y);
        return;
      }
    }
    soon(() => {
      const point = plot.pointAt(x, y);
      store.hovered.value = point;
      pointer.value = point === null ? null : { x, y };
    });
  };

  const onPointerUp = (): void => {
    element.current?.removeAttribute("data-dragging");
    const from = drag.current;
    if (!from?.moved || !from.lasso) return;
    const inside = plot.inside();
    plot.lasso.value = null;
    assign(state, { selected: inside });
  };

  // The drag of a mouse ends with a click event. A finger sends no click event after a drag, so end
  // its drag here.
  const onTouchEnd = (): void => {
    if (drag.current?.moved) drag.current = null;
  };

  const onClick = (event: MouseEvent): void => {
    const moved = drag.current?.moved ?? false;
    drag.current = null;
    if (moved || event.detail > 1) return;
    const { x, y } = positionOf(event);
    const point = plot.pointAt(x, y);
    if (point !== null) store.choose(store.chosen.peek() === point ? null : point);
  };

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
  const drawnId = useComputed(() => {
    const now = plot.shown.value;
    const head = store.head.value;
    const ready = store.current.value && state.enlarged.value && now && head;
    return ready ? `embedding:${now.corpus.stack}:${head.layer}` : null;
  });

  if (problem !== null) {
    return <Problem {...props} words={problem} />;
  }
  return (
    <div class="av-embedding-plot" data-tool={plot.tool.value}>
      <ScenePlot
        scene={plot.scene}
        drawnId={drawnId}
        onDrawn={(drawn) => {
          // A component can still draw while it is being removed. Do not report its drawing as the
          // new content.
          if (state.enlarged.peek() && state.content.peek() === "plot") context.setDrawn(drawn);
        }}
        kind="scatter plot of queries and keys"
        label={label.value}
        plot={element}
        hint={hint.value}
        width={plot.room.value.width}
        events={{
          onPointerDown,
          onPointerMove,
          onPointerUp,
          ...fingers,
          onTouchEnd,
          onTouchCancel: onTouchEnd,
          onPointerLeave: () => {
            if (drag.current?.moved) return;
            store.hovered.value = null;
            pointer.value = null;
          },
          onClick,
          onDblClick: (event: MouseEvent) =>
            zoomBy(props, event.shiftKey ? 0.5 : 2, positionOf(event)),
          onKeyDown,
        }}
      />
      {saysLittle(store.headTrust.value) && (
        <p class="av-embedding-warning av-muted" title={TRUST_HELP}>
          Distance says little about q·k here.
        </p>
      )}
      {state.selected.value.length > 0 && (
        <button
          type="button"
          class="av-chip av-embedding-selected"
          title="Clear the lasso (Esc)"
          onClick={() => assign(state, { selected: [] })}
        >
          {counted(state.selected.value.length)} in the lasso ×
        </button>
      )}
    </div>
  );
}

/** Message in place of the plot of a head that has none. The keyboard shortcuts still work. */
function Problem(props: PlotProps & { words: string }) {
  const { context, store, plot, words } = props;
  const head = store.head.value;
  const stack = store.corpus.value?.stack;
  useEffect(() => {
    if (head && stack) context.setDrawn(`embedding:${stack}:${head.layer}`);
  }, [head?.layer, head?.head, stack]);
  return (
    <div
      class="av-embedding-problem"
      role="application"
      aria-label={`No plot: ${words}`}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: keys lead on to other heads.
      tabIndex={0}
      style={{ height: `${Math.min(320, plot.room.value.height)}px` }}
      onKeyDown={(event) => runKey(event, actionsOf(plotShortcuts(props)))}
    >
      No plot: {words}.
    </div>
  );
}

export interface PlotProps {
  context: ViewContext<EmbeddingState>;
  store: EmbeddingStore;
  plot: PlotStore;
}

/** Movement in pixels of an arrow key with Shift. */
const STEP = 40;
/** Zoom factor of the keys + and −. */
const ZOOM = 1.5;
/** A zoom below this shows all heads instead. */
export const LEAVE_AT = 0.62;

/** Return to all heads. */
export function leave({ context }: Pick<PlotProps, "context">): void {
  assign(context.state, { enlarged: false });
}

/**
 * Zoom by a factor at a position of the picture, or at its centre without `at`. A zoom below
 * `LEAVE_AT` shows all heads instead.
 */
export function zoomBy(room: PlotProps, factor: number, at?: { x: number; y: number }): void {
  const { plot } = room;
  const cloud = plot.cloud.peek();
  if (!cloud) return;
  const { width, height } = plot.room.peek();
  const { x, y } = at ?? { x: width / 2, y: height / 2 };
  const next = zoomedAt(plot.camera.peek(), cloud, plot.room.peek(), x, y, factor);
  if (next.zoom < LEAVE_AT) leave(room);
  else plot.camera.value = next;
}

/** Move a two-dimensional plot, or rotate a three-dimensional plot, by (dx, dy) pixels. */
function push({ plot }: PlotProps, dx: number, dy: number): void {
  const cloud = plot.cloud.peek();
  if (!cloud) return;
  const camera = plot.camera.peek();
  plot.camera.value =
    cloud.dimensions === 3
      ? { ...camera, turn: turned(camera.turn, dx, dy) }
      : movedBy(camera, cloud, plot.room.peek(), -dx, -dy);
}

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

/**
 * Clear the lasso. Without a lasso, clear the chosen point. Without a chosen point, show all heads.
 */
function stepBack(room: PlotProps): void {
  const { context, store, plot } = room;
  if (plot.lasso.peek()) plot.lasso.value = null;
  else if (context.state.selected.peek().length > 0) assign(context.state, { selected: [] });
  else if (store.chosen.peek() !== null) store.choose(null);
  else leave(room);
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
export function plotShortcuts(room: PlotProps): Shortcut[] {
  const { context, store, plot } = room;
  const arrow =
    (dx: number, dy: number) =>
    ({ shiftKey }: KeyboardEvent) =>
      shiftKey ? push(room, dx * STEP, dy * STEP) : moveAlongText(room, dx, dy !== 0);
  const zoomIn = () => zoomBy(room, ZOOM);
  const zoomOut = () => zoomBy(room, 1 / ZOOM);
  const lasso = () => {
    plot.tool.value = plot.tool.peek() === "lasso" ? "move" : "lasso";
  };
  const find = () => context.root.querySelector<HTMLInputElement>(".av-find input")?.focus();
  return [
    [
      "← →",
      "previous, next token of the text",
      { ArrowLeft: arrow(-1, 0), ArrowRight: arrow(1, 0) },
    ],
    ["↑ ↓", "the token’s query, its key", { ArrowUp: arrow(0, -1), ArrowDown: arrow(0, 1) }],
    ...headShortcuts(store),
    [
      "+ −",
      "zoom in, zoom out; all the way out: all heads",
      { "+": zoomIn, "=": zoomIn, "-": zoomOut, _: zoomOut },
    ],
    ["Shift-arrows", "move the plot, or rotate it"],
    ["Home", "show all points", { Home: plot.fit }],
    ["l", "drag draws a lasso, on or off", { l: lasso }],
    ["Shift-drag", "draw a lasso"],
    ["Alt-drag", "move a 3D plot"],
    ["Ctrl-wheel", "zoom at the pointer"],
    ["two fingers", "zoom"],
    ["f", "find tokens", { f: find }],
    [
      "Esc",
      "clear the lasso, then the point, then show all heads",
      { Escape: () => stepBack(room) },
    ],
    ["o", "all heads", { o: () => leave(room) }],
  ];
}

export function PlotTools(props: PlotProps) {
  const { context, store, plot } = props;
  const { state } = context;
  const head = store.head.value;
  const selection = context.record.selection.value;
  if (!head || !selection) return null;
  const trust = store.headTrust.value;
  const plotted = state.content.value === "plot";
  const to = (layers: number, heads: number, sign: string) => {
    const neighbour = neighbourOf(selection.stack, head, layers, heads);
    const name = `layer ${neighbour.layer}, head ${neighbour.head}`;
    const none = headKey(neighbour) === headKey(head);
    return (
      <Tool
        label={none ? "no head" : name}
        disabled={none}
        onClick={() => store.neighbour(layers, heads)}
      >
        {sign}
      </Tool>
    );
  };
  const many = selection.stack.heads_per_layer.some((count) => count > 1);
  return (
    <div class="av-embedding-tools">
      <button
        type="button"
        class="av-chip"
        title="Back to all heads (Esc)"
        onClick={() => leave(props)}
      >
        ‹ All heads
      </button>
      <h3 class="av-pane-title av-embedding-name">
        Layer {head.layer}, head {head.head}
        {plotted && (
          <span class="av-muted" title={TRUST_HELP}>
            {trust ? figuresInShort(trust, "words") : ""}
          </span>
        )}
      </h3>
      <fieldset class="av-segments" aria-label="Neighbouring heads">
        {many && to(0, -1, "←")}
        {many && to(0, 1, "→")}
        {to(-1, 0, "↑")}
        {to(1, 0, "↓")}
      </fieldset>
      {plotted && (
        <fieldset class="av-segments" aria-label="Effect of dragging">
          <Tool
            label={
              state.dimensions.value === 3
                ? "Turn: dragging turns the plot"
                : "Move: dragging moves the plot"
            }
            pressed={plot.tool.value === "move"}
            onClick={() => {
              plot.tool.value = "move";
            }}
          >
            {state.dimensions.value === 3 ? "Turn" : "Move"}
          </Tool>
          <Tool
            label="Lasso: dragging selects points, as Shift-drag does"
            pressed={plot.tool.value === "lasso"}
            onClick={() => {
              plot.tool.value = "lasso";
            }}
          >
            Lasso
          </Tool>
        </fieldset>
      )}
      {plotted && <ZoomTools {...props} />}
    </div>
  );
}

/** Zoom buttons. They are outside of the plot, because they would hide points. */
function ZoomTools(props: PlotProps) {
  return (
    <fieldset class="av-segments" aria-label="Zoom">
      <Tool label="Zoom in" onClick={() => zoomBy(props, ZOOM)}>
        +
      </Tool>
      <Tool label="Zoom out" onClick={() => zoomBy(props, 1 / ZOOM)}>
        −
      </Tool>
      <Tool label="Fit: show all points" onClick={props.plot.fit}>
        Fit
      </Tool>
    </fieldset>
  );
}

function Tool(props: {
  label: string;
  pressed?: boolean;
  disabled?: boolean;
  onClick: () => void;
  children: ComponentChildren;
}) {
  return (
    <button
      type="button"
      aria-label={props.label}
      title={props.label}
      aria-pressed={props.pressed}
      disabled={props.disabled ?? false}
      onClick={props.onClick}
    >
      {props.children}
    </button>
  );
}
