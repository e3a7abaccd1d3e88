/** Plot of the head view, and its pointer and keyboard events. */

import { useComputed, useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { hitTest } from "../../draw/marks";
import { actionsOf, runKey, type Shortcut } from "../../ui/controls/keys";
import { findShortcut, recordShortcuts } from "../../ui/controls/shortcuts";
import { effectText } from "../../ui/effects/effects";
import { type Hint, pointIn, ScenePlot } from "../../ui/plot/plot";
import { quoted, written } from "../../ui/text/captions";
import type { ViewContext } from "../../ui/view/define-view";
import { assign, same } from "../../ui/view/state";
import { drawnValue, focusOf, type LinePlot, valueColor } from "./line-plot";
import { type HeadState, type Side, tokensOf, windowOf, windowsShowing } from "./state";
import type { HeadStore } from "./store";

/** Maximum number of heads in a tooltip. If there are more, it lists those with most weight. */
const MAX_HINT_ROWS = 8;

/** Token or line under the pointer. */
interface Pointed {
  token: LinePlot["hovered"];
  line: LinePlot["hoveredLine"];
}

/** Return the weights of a query on a key. The row of the line under the pointer is marked. */
function hintRows(linePlot: LinePlot, query: number, key: number, line: Pointed["line"]) {
  const rows = linePlot.lines.series.map(({ name }, series) => {
    const weight = drawnValue(linePlot, series, query, key);
    const text = `${name}  ${written(linePlot.quantity, weight, 3)}`;
    const color = valueColor(linePlot, series, weight);
    return { color, text, weight, meant: series === line?.series };
  });
  if (rows.length <= MAX_HINT_ROWS) return rows;
  rows.sort((a, b) => Math.abs(b.weight) - Math.abs(a.weight));
  return rows.filter(({ meant }, rank) => rank < MAX_HINT_ROWS || meant);
}

/** Return the tooltip for the token or the line under the pointer, or null without either. */
function hintOf(linePlot: LinePlot, { token, line }: Pointed): Omit<Hint, "x" | "y"> | null {
  if (!token && !line) return null;
  const { plan, effects } = linePlot;
  const focus = focusOf(linePlot);
  const query = line?.query ?? (token?.side === "query" ? token.index : focus.query);
  const key = line?.key ?? (token?.side === "key" ? token.index : focus.key);
  const name = (side: Side, index: number): string =>
    quoted(tokensOf(plan, side).text[index] ?? "");
  let title = token ? `${name(token.side, token.index)}, ${token.side} ${token.index}` : "";
  let rows: Hint["rows"] = [];
  if (query !== null && key !== null) {
    title = `${name("query", query)} (${query}) → ${name("key", key)} (${key})`;
    rows = hintRows(linePlot, query, key, line);
  }
  if (effects && !line && token?.side === "key") {
    const effect = effectText(effects, effects.values[token.index] ?? null);
    rows.push({ color: "", text: `${effects.name} ${effect}`, meant: false });
  }
  return { title, rows };
}

/** Move the keyboard cursor by a number of tokens. The window moves with it. */
function moveCursor(context: ViewContext<HeadState>, store: HeadStore, by: number): void {
  const plan = store.loaded.peek()?.plan;
  if (!plan) return;
  const { side, index: current } = store.cursor.peek() ?? { side: "query", index: null };
  const window = windowOf(plan, side);
  const from = current ?? (by > 0 ? window[0] - 1 : window[1]);
  // A step of one token may leave the window, which then moves. Home and End stay in the window.
  const [first, stop] = Math.abs(by) > 1 ? window : [0, tokensOf(plan, side).text.length];
  const index = Math.max(first, Math.min(stop - 1, from + by));
  store.cursor.value = { side, index };
  assign(context.state, windowsShowing(plan, index, side));
}

/** Return the keyboard shortcuts and gestures of the plot. */
export function headShortcuts(context: ViewContext<HeadState>, store: HeadStore): Shortcut[] {
  const { state } = context;
  const move = (by: number) => () => moveCursor(context, store, by);
  const toSide = (side: Side) => () => {
    const plan = store.loaded.peek()?.plan;
    if (!plan) return;
    const [first, stop] = windowOf(plan, side);
    const index = store.cursor.peek()?.index ?? first;
    store.cursor.value = { side, index: Math.max(first, Math.min(stop - 1, index)) };
  };
  const turnPage = (by: number) => () => {
    const plan = store.plan.peek();
    if (!plan) return;
    const side = store.cursor.peek()?.side ?? "query";
    const [first, stop] = windowOf(plan, side);
    const middle = Math.floor((first + stop) / 2) + by * (stop - first);
    const last = tokensOf(plan, side).text.length - 1;
    assign(state, windowsShowing(plan, Math.max(0, Math.min(last, middle)), side));
    store.cursor.value = null;
  };
  const pin = (): void => {
    const cursor = store.cursor.peek();
    if (cursor) store.togglePin(cursor);
  };
  const unpin = (): void => {
    store.cursor.value = null;
    assign(state, { token: null, key: null });
  };
  const leaveOut = (): boolean => {
    const cursor = store.cursor.peek();
    if (cursor?.side === "key") store.leaveOut(cursor.index);
    return cursor?.side === "key";
  };
  const [previous, next, toQueries, toKeys] = [move(-1), move(1), toSide("query"), toSide("key")];
  const vertical = state.orientation.value === "vertical";
  const tokens = vertical
    ? { ArrowUp: previous, ArrowDown: next }
    : { ArrowLeft: previous, ArrowRight: next };
  const sides = vertical
    ? { ArrowLeft: toQueries, ArrowRight: toKeys }
    : { ArrowUp: toQueries, ArrowDown: toKeys };
  const [alongKeys, acrossKeys] = vertical ? ["↑ ↓", "← →"] : ["← →", "↑ ↓"];
  const signed = store.plan.value?.stack.signed === true;
  return [
    [alongKeys, "previous, next token", tokens],
    [acrossKeys, "queries, keys", sides],
    ["Home End", "first, last token in sight", { Home: move(-1e9), End: move(1e9) }],
    ["Enter", "pin or unpin the token", { Enter: pin, " ": pin }],
    ["Esc", "clear pins", { Escape: unpin }],
    ...recordShortcuts(context),
    // If numbers are signed, keys cannot be left out.
    ...(signed
      ? []
      : ([["x", "leave out the key, or include it again", { x: leaveOut }]] as const)),
    findShortcut(context),
    ["< >", "previous, next tokens of a long text", { "<": turnPage(-1), ">": turnPage(1) }],
    ["double-click", "on a head: show it alone, or all again"],
    ...(signed ? [] : ([["Alt-click", "on a key: leave it out"]] as const)),
  ];
}

export function HeadPlot(props: { context: ViewContext<HeadState>; store: HeadStore }) {
  const { context, store } = props;
  const plot = useRef<HTMLDivElement>(null);
  const hint = useSignal<Hint | null>(null);
  const { state } = context;
  const drawnId = useComputed(() => {
    const loaded = store.loaded.value;
    return store.current.value && loaded
      ? `head:${loaded.plan.stack.name}:${loaded.plan.layer}`
      : null;
  });

  const underPointer = (event: MouseEvent): Pointed & { x: number; y: number } => {
    const { x, y } = pointIn(plot.current, event);
    const scene = store.scene.peek();
    // If some lines are highlighted, the pointer selects only these. The others are very faint.
    const standsOut =
      scene && scene.backOpacity < 0.3 && scene.front.some((mark) => mark.kind === "curves");
    const marks = scene ? [...(standsOut ? [] : scene.back), ...scene.front] : [];
    const meaning = hitTest(marks, x, y) as Partial<Pointed> | null;
    return { token: meaning?.token ?? null, line: meaning?.line ?? null, x, y };
  };

  const onPointerMove = (event: PointerEvent): void => {
    const { token, line, x, y } = underPointer(event);
    if (!same(store.hovered.peek(), token)) store.hovered.value = token;
    if (!same(store.hoveredLine.peek(), line)) store.hoveredLine.value = line;
    const linePlot = store.linePlot.peek();
    const text = linePlot && hintOf(linePlot, { token, line });
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
    if (token && event.altKey && token.side === "key") store.leaveOut(token.index);
    else if (token) store.togglePin(token);
    else if (line) assign(state, { token: line.query, key: line.key });
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
        onKeyDown: (event: KeyboardEvent) => {
          store.hovered.value = null;
          runKey(event, actionsOf(headShortcuts(context, store)));
        },
        onBlur: () => {
          store.cursor.value = null;
        },
      }}
    />
  );
}
