/** Plot of the head view, and its pointer and keyboard events. */

import { useComputed, useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { hitTest } from "../../draw/marks";
import { toggleHead } from "../../ui/controls/heads";
import { layerForKey } from "../../ui/controls/layers";
import { effectText } from "../../ui/effects/effects";
import { type Hint, pointIn, ScenePlot } from "../../ui/plot/plot";
import { quoted, written } from "../../ui/text/captions";
import type { ViewContext } from "../../ui/view/define-view";
import { assign, same } from "../../ui/view/state";
import {
  drawnValue,
  focusOf,
  type LineAt,
  type LinePlot,
  type TokenAt,
  valueColor,
} from "./line-plot";
import { type HeadState, windowsShowing } from "./state";
import { goBack, type HeadStore, jumpTo, togglePin } from "./store";

interface PlotProps {
  context: ViewContext<HeadState>;
  store: HeadStore;
  onLeaveOut: (key: number) => void;
}

/** Token or line under the pointer, and the position of the pointer in the plot. */
interface PointerTarget {
  token: TokenAt | null;
  line: LineAt | null;
  x: number;
  y: number;
}

/** Maximum number of heads in a tooltip. If there are more, it lists those with most weight. */
const MAX_HINT_ROWS = 8;

function hintRows(
  linePlot: LinePlot,
  query: number,
  key: number,
  pointedSeries: number | null,
): Hint["rows"] {
  const rows = linePlot.lines.series.map((series, index) => {
    const weight = drawnValue(linePlot, index, query, key);
    const text = `${series.name}  ${written(linePlot.quantity, weight, 3)}`;
    return {
      color: valueColor(linePlot, index, weight),
      text,
      weight,
      meant: index === pointedSeries,
    };
  });
  if (rows.length <= MAX_HINT_ROWS) return rows;
  rows.sort((a, b) => Math.abs(b.weight) - Math.abs(a.weight));
  const shown = rows.slice(0, MAX_HINT_ROWS);
  const pointedAt = rows.find((row) => row.meant);
  if (pointedAt && !shown.includes(pointedAt)) shown.push(pointedAt);
  return shown;
}

/** Return the tooltip for the token or the line under the pointer, or null without either. */
function hintOf(
  linePlot: LinePlot,
  token: TokenAt | null,
  line: LineAt | null,
): Omit<Hint, "x" | "y"> | null {
  const hint = weightHintOf(linePlot, token, line);
  const { effects } = linePlot;
  if (!hint || !effects || line || token?.side !== "key") return hint;
  const text = `${effects.name} ${effectText(effects, effects.values[token.index] ?? null)}`;
  return { ...hint, rows: [...hint.rows, { color: "", text, meant: false }] };
}

function weightHintOf(
  linePlot: LinePlot,
  token: TokenAt | null,
  line: LineAt | null,
): Omit<Hint, "x" | "y"> | null {
  const { queries, keys } = linePlot;
  const between = (query: number, key: number): string =>
    `${quoted(queries.text[query] ?? "")} (${query}) → ${quoted(keys.text[key] ?? "")} (${key})`;
  if (line)
    return {
      title: between(line.query, line.key),
      rows: hintRows(linePlot, line.query, line.key, line.series),
    };
  if (!token) return null;
  const focus = focusOf(linePlot);
  if (token.side === "key" && focus.query !== null) {
    return {
      title: between(focus.query, token.index),
      rows: hintRows(linePlot, focus.query, token.index, null),
    };
  }
  if (token.side === "query" && focus.key !== null) {
    return {
      title: between(token.index, focus.key),
      rows: hintRows(linePlot, token.index, focus.key, null),
    };
  }
  const texts = token.side === "query" ? queries.text : keys.text;
  return { title: `${quoted(texts[token.index] ?? "")}, ${token.side} ${token.index}`, rows: [] };
}

export function HeadPlot({ context, store, onLeaveOut }: PlotProps) {
  const plot = useRef<HTMLDivElement>(null);
  const hint = useSignal<Hint | null>(null);
  const { state, root } = context;
  const drawnId = useComputed(() => {
    const loaded = store.loaded.value;
    return store.current.value && loaded
      ? `head:${loaded.plan.stack.name}:${loaded.plan.layer}`
      : null;
  });

  const underPointer = (event: PointerEvent | MouseEvent): PointerTarget => {
    const { x, y } = pointIn(plot.current, event);
    const scene = store.scene.peek();
    if (!scene) return { token: null, line: null, x, y };
    // If some lines are highlighted, the pointer selects only these. The others are very faint.
    const standsOut = scene.backOpacity < 0.3 && scene.front.some((mark) => mark.kind === "curves");
    const meaning = hitTest(standsOut ? scene.front : [...scene.back, ...scene.front], x, y);
    return {
      token: (meaning?.token as TokenAt | undefined) ?? null,
      line: (meaning?.line as LineAt | undefined) ?? null,
      x,
      y,
    };
  };

  const onPointerMove = (event: PointerEvent): void => {
    const { token, line, x, y } = underPointer(event);
    if (!same(store.hovered.peek(), token)) store.hovered.value = token;
    if (!same(store.hoveredLine.peek(), line)) store.hoveredLine.value = line;
    const linePlot = store.linePlot.peek();
    const text = linePlot && hintOf(linePlot, token, line);
    // `x` is a position in the scrolling element. The tooltip lies outside of it, or it would be
    // clipped, so subtract the scroll position.
    hint.value = text ? { ...text, x: x - (plot.current?.scrollLeft ?? 0), y } : null;
  };

  const leave = (): void => {
    store.hovered.value = null;
    store.hoveredLine.value = null;
    hint.value = null;
  };

  const onClick = (event: MouseEvent): void => {
    const { token, line } = underPointer(event);
    if (token && event.altKey && token.side === "key") onLeaveOut(token.index);
    else if (token) togglePin(state, token);
    else if (line) assign(state, { token: line.query, key: line.key });
  };

  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.metaKey || event.ctrlKey || event.altKey) return;
    if (!handleKey(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
  };

  const moveCursor = (by: number): void => {
    const plan = store.loaded.peek()?.plan;
    if (!plan) return;
    const current = store.cursor.peek();
    const side = current?.side ?? "query";
    const window = side === "query" ? plan.queryWindow : plan.keyWindow;
    const from = current?.index ?? (by > 0 ? window[0] - 1 : window[1]);
    const { length } = (side === "query" ? plan.queries : plan.keys).text;
    // A step of one token may leave the window, which then moves. Home and End stay in the window.
    const [first, stop] = Math.abs(by) > 1 ? window : [0, length];
    const index = Math.max(first, Math.min(stop - 1, from + by));
    store.cursor.value = { side, index };
    assign(state, windowsShowing(plan, index, side));
  };

  const moveToSide = (side: "query" | "key"): void => {
    const plan = store.loaded.peek()?.plan;
    if (!plan) return;
    const window = side === "query" ? plan.queryWindow : plan.keyWindow;
    const index = store.cursor.peek()?.index ?? window[0];
    store.cursor.value = { side, index: Math.max(window[0], Math.min(window[1] - 1, index)) };
  };

  const handleKey = (key: string): boolean => {
    const plan = store.plan.peek();
    if (!plan) return false;
    const isHorizontal = state.orientation.peek() === "horizontal";
    // In a horizontal layout, left and right move along the tokens, and up and down change the
    // side.
    const arrowKeys: Record<string, string> = isHorizontal
      ? {
          ArrowRight: "ArrowDown",
          ArrowLeft: "ArrowUp",
          ArrowDown: "ArrowRight",
          ArrowUp: "ArrowLeft",
        }
      : {};
    const cursor = store.cursor.peek();
    store.hovered.value = null;
    const layer = layerForKey(key, plan);
    if (layer !== null) {
      assign(state, { layer });
      return true;
    }
    switch (arrowKeys[key] ?? key) {
      case "ArrowDown":
        moveCursor(1);
        return true;
      case "ArrowUp":
        moveCursor(-1);
        return true;
      case "Home":
        moveCursor(-1e9);
        return true;
      case "End":
        moveCursor(1e9);
        return true;
      case "ArrowLeft":
        moveToSide("query");
        return true;
      case "ArrowRight":
        moveToSide("key");
        return true;
      case "Enter":
      case " ":
        if (cursor) togglePin(state, cursor);
        return true;
      case "Escape":
        store.cursor.value = null;
        assign(state, { token: null, key: null });
        return true;
      case "x":
        if (cursor?.side === "key") onLeaveOut(cursor.index);
        return cursor?.side === "key";
      case "n":
        assign(state, { heads: [] });
        return true;
      case "b":
        goBack(context, store);
        return store.before.peek() !== null;
      case "<":
      case ">": {
        const side = cursor?.side ?? "query";
        const keys = side === "key";
        const window = keys ? plan.keyWindow : plan.queryWindow;
        const { length } = (keys ? plan.keys : plan.queries).text;
        const size = window[1] - window[0];
        const middle = Math.floor((window[0] + window[1]) / 2) + (key === "<" ? -size : size);
        jumpTo(context, plan, side, Math.max(0, Math.min(length - 1, middle)));
        store.cursor.value = null;
        return true;
      }
      case "f":
        root.querySelector<HTMLInputElement>(".av-find input")?.focus();
        return true;
      default: {
        const head = /^\d$/.test(key) ? Number(key) : -1;
        if (!plan.allHeads.includes(head)) return false;
        assign(state, { heads: toggleHead(state.heads.peek(), head) });
        return true;
      }
    }
  };

  return (
    <ScenePlot
      scene={store.scene}
      drawnId={drawnId}
      onDrawn={context.setDrawn}
      kind="attention lines"
      label={store.caption.value?.sentence ?? "Loading"}
      plot={plot}
      hint={hint.value}
      width={context.width.value}
      events={{
        onPointerMove,
        onPointerLeave: leave,
        onClick,
        onKeyDown,
        onBlur: () => {
          store.cursor.value = null;
        },
      }}
    />
  );
}
