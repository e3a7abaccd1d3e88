/** One head's points: pointer and keyboard on them, and what is told of the one in hand. */

import { useComputed, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { counted, quoted } from "../../../ui/captions";
import { type Hint, ScenePlot } from "../../../ui/plot";
import { assign } from "../../../ui/state";
import { problemOf, sentenceOf } from "../captions";
import type { Corpus } from "../client/requests";
import { saysLittle, TRUST_HELP } from "../trust";
import { drawnOn, type Lasso } from "./hit-test";
import { type PlotRoom, pressed, zoomBy } from "./keys";
import type { Camera } from "./scatter";
import { movedBy, turned } from "./scatter";

/** A drag begins after so many pixels; before, it is a click. */
const DRAG = 4;
/** Tokens on either side of the one in hand that are told. */
const AROUND = 6;
/** How much nearer a pixel of the wheel leads. */
const WHEEL = 0.008;

/** The words around a token, as far as they are points. */
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

/** What is told of the point under the pointer. */
export function hintOf(corpus: Corpus, point: number): Omit<Hint, "x" | "y"> {
  const text = corpus.textOf(point);
  const name = corpus.names[text] ?? "";
  const own = name === "" || name === `text ${text}` ? "" : `: ${quoted(name)}`;
  const rows = [
    { color: "", text: `position ${corpus.positionOf(point)} of text ${text}${own}`, meant: false },
  ];
  if (corpus.images === 0) rows.push({ color: "", text: snippet(corpus, point), meant: false });
  return { title: `${corpus.kindOf(point)} ${quoted(corpus.tokenOf(point))}`, rows };
}

interface Drag {
  x: number;
  y: number;
  camera: Camera;
  lasso: boolean;
  /** Move, even where dragging turns. */
  sliding: boolean;
  moved: boolean;
}

export function EmbeddingPlot(props: PlotRoom) {
  const { context, model, plot } = props;
  const { state } = context;
  const element = useRef<HTMLDivElement>(null);
  const pointer = useSignal<{ x: number; y: number } | null>(null);
  const drag = useRef<Drag | null>(null);
  const frame = useRef<{ id: number; run: () => void } | null>(null);
  const problem = problemOf(context, model);

  // The pointer moves more often than the screen is drawn.
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
      model.hovered.value = null;
    },
    [],
  );

  const positionOf = (event: MouseEvent): { x: number; y: number } => {
    const box = element.current?.getBoundingClientRect();
    return { x: event.clientX - (box?.left ?? 0), y: event.clientY - (box?.top ?? 0) };
  };

  // Not passive: a pinch would otherwise zoom the whole page. A plain wheel scrolls the notebook.
  useEffect(() => {
    const target = element.current;
    if (!target) return;
    const onWheel = (event: WheelEvent): void => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      event.stopPropagation();
      const by = event.deltaMode === 1 ? event.deltaY * 16 : event.deltaY;
      pointer.value = null;
      zoomBy(props, Math.exp(-Math.max(-90, Math.min(90, by)) * WHEEL), positionOf(event));
    };
    target.addEventListener("wheel", onWheel, { passive: false });
    return () => target.removeEventListener("wheel", onWheel);
  }, [problem === null]);

  const onPointerDown = (event: PointerEvent): void => {
    if (event.button !== 0 || event.pointerType === "touch") return;
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
        model.hovered.value = null;
        pointer.value = null;
        dragTo(from, x, y);
        return;
      }
    }
    soon(() => {
      const point = plot.pointAt(x, y);
      model.hovered.value = point;
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

  const onClick = (event: MouseEvent): void => {
    const moved = drag.current?.moved ?? false;
    drag.current = null;
    if (moved || event.detail > 1) return;
    const { x, y } = positionOf(event);
    const point = plot.pointAt(x, y);
    if (point !== null) model.choose(model.chosen.peek() === point ? null : point);
  };

  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.metaKey || event.ctrlKey || event.altKey) return;
    if (!pressed(props, event.key, event.shiftKey)) return;
    pointer.value = null;
    event.preventDefault();
    event.stopPropagation();
  };

  const hint = useComputed<Hint | null>(() => {
    const [point, at, corpus] = [model.hovered.value, pointer.value, model.corpus.value];
    // The chosen one has its word on the plot, and is told of beside it.
    if (point === null || !at || !corpus || point === model.chosen.value) return null;
    return { ...hintOf(corpus, point), ...at };
  });
  const label = useComputed(() => sentenceOf(context, model) || "Loading");
  const place = useComputed(() => {
    const now = plot.shown.value;
    const head = model.head.value;
    const said = model.current.value && state.enlarged.value && now && head;
    return said ? `embedding:${now.corpus.stack}:${head.layer}` : null;
  });

  if (problem !== null) {
    return <Problem {...props} words={problem} />;
  }
  return (
    <div class="av-embedding-plot" data-tool={plot.tool.value}>
      <ScenePlot
        scene={plot.scene}
        place={place}
        onDrawn={(drawn) => {
          // While it goes away it is still told what changes, and must not speak for what comes.
          if (state.enlarged.peek() && state.shown.peek() === "plot") context.setDrawn(drawn);
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
          onPointerLeave: () => {
            if (drag.current?.moved) return;
            model.hovered.value = null;
            pointer.value = null;
          },
          onClick,
          onDblClick: (event: MouseEvent) =>
            zoomBy(props, event.shiftKey ? 0.5 : 2, positionOf(event)),
          onKeyDown,
        }}
      />
      {saysLittle(model.headTrust.value) && (
        <p class="av-embedding-warning av-muted" title={TRUST_HELP}>
          Distance says little of q·k here.
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

/** Where a head has no plot: the word why, at which the keyboard still leads elsewhere. */
function Problem(props: PlotRoom & { words: string }) {
  const { context, model, plot, words } = props;
  const head = model.head.value;
  const stack = model.corpus.value?.stack;
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
      onKeyDown={(event) => {
        if (event.metaKey || event.ctrlKey || event.altKey) return;
        if (!pressed(props, event.key, event.shiftKey)) return;
        event.preventDefault();
        event.stopPropagation();
      }}
    >
      No plot: {words}.
    </div>
  );
}
