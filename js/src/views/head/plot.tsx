/** Plot of the head view, and its pointer and keyboard events. */

import { useComputed, useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { zeroInWords } from "../../client/zeros";
import { hitTest } from "../../draw/marks";
import { nearestVisible, neighbourOf, type Side, type TokenAxis } from "../../ui/axis";
import { actionsOf, runKey, type Shortcut } from "../../ui/controls/keys";
import { findShortcut, recordShortcuts } from "../../ui/controls/shortcuts";
import { effectText } from "../../ui/effects/effects";
import { type Hint, pointIn, ScenePlot } from "../../ui/plot/plot";
import { quoted, written } from "../../ui/text/captions";
import type { ViewContext } from "../../ui/view/define-view";
import { assign, same } from "../../ui/view/state";
import { drawnValue, focusOf, type LinePlot, type TokenAt, valueColor } from "./line-plot";
import { type HeadState, type Plan, windowsShowing } from "./state";
import type { HeadStore } from "./store";

/**
 * Maximum number of heads in a tooltip. If there are more, it lists the heads with the largest
 * weights, and the head of the line under the pointer.
 */
const MAX_HINT_ROWS = 8;

/** Token or line under the pointer. */
interface Pointed {
  token: LinePlot["hovered"];
  line: LinePlot["hoveredLine"];
}

/**
 * Return one row per series with the weight of a query on a key. `meant` marks the series of the
 * line under the pointer.
 */
function hintRows(linePlot: LinePlot, query: number, key: number, line: Pointed["line"]) {
  const rows = linePlot.lines.series.map(({ name }, series) => {
    const weight = drawnValue(linePlot, series, query, key);
    const reason = zeroInWords(linePlot.plan.stack, weight);
    const text = `${name}  ${reason ?? written(linePlot.quantity, weight, 3)}`;
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
    quoted(plan.axes[side].tokens.text[index] ?? "");
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

/** Return the keyboard shortcuts and gestures of the plot. */
export function headShortcuts(context: ViewContext<HeadState>, store: HeadStore): Shortcut[] {
  const { state } = context;
  const { cursor, plan } = store;
  /**
   * Return an action that calls `act` with the plan and the axis of the cursor. Without a cursor, it
   * is the axis of the queries.
   */
  const onSide = (act: (plan: Plan, axis: TokenAxis) => void) => () => {
    const current = plan.peek();
    if (current) act(current, current.axes[cursor.peek()?.side ?? "query"]);
  };
  const moveTo = (current: Plan, { side }: TokenAxis, index: number): void => {
    cursor.value = { side, index };
    assign(state, windowsShowing(current, index, side));
  };
  // A step of one token may leave the window, which then moves.
  const move = (by: 1 | -1) =>
    onSide((current, axis) =>
      moveTo(current, axis, neighbourOf(axis, cursor.peek()?.index ?? null, by)),
    );
  const toEnd = (end: 1 | -1) =>
    onSide((current, axis) => moveTo(current, axis, neighbourOf(axis, null, end)));
  const toSide = (side: Side) =>
    onSide(({ axes }) => {
      cursor.value = { side, index: nearestVisible(axes[side], cursor.peek()?.index ?? 0) };
    });
  const turnPage = (by: number) =>
    onSide((current, { side, window, tokens }) => {
      const [first, stop] = window;
      const middle = Math.floor((first + stop) / 2) + by * (stop - first);
      const index = Math.max(0, Math.min(tokens.text.length - 1, middle));
      assign(state, windowsShowing(current, index, side));
      cursor.value = null;
    });
  const pin = (): void => {
    if (cursor.peek()) store.togglePin(cursor.peek() as TokenAt);
  };
  const unpin = (): void => {
    cursor.value = null;
    assign(state, { token: null, key: null });
  };
  const leaveOut = (): boolean => {
    const at = cursor.peek();
    if (at?.side === "key") store.leaveOut(at.index);
    return at?.side === "key";
  };
  const [previous, next, toQueries, toKeys] = [move(-1), move(1), toSide("query"), toSide("key")];
  const arrows: Shortcut[] = [
    ["↑ ↓", "previous, next token", { ArrowUp: previous, ArrowDown: next }],
    ["← →", "queries, keys", { ArrowLeft: toQueries, ArrowRight: toKeys }],
  ];
  // If numbers are signed, keys cannot be left out.
  const leavingOut: Shortcut[] = plan.value?.stack.signed
    ? []
    : [
        ["x", "leave out the key, or include it again", { x: leaveOut }],
        ["Alt-click", "on a key: leave it out"],
      ];
  return [
    ...arrows,
    ["Home End", "first, last token in sight", { Home: toEnd(1), End: toEnd(-1) }],
    ["Enter", "pin or unpin the token", { Enter: pin, " ": pin }],
    ["Esc", "clear pins", { Escape: unpin }],
    ...recordShortcuts(context),
    ...leavingOut,
    findShortcut(context),
    ["< >", "previous, next tokens of a long text", { "<": turnPage(-1), ">": turnPage(1) }],
    ["double-click", "on a head: show it alone, or all again"],
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
