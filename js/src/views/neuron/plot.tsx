/** Plot of the neuron view, and its pointer and keyboard events. */

import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { tokenIn } from "../../ui/axis";
import { actionsOf, runKey, type Shortcut } from "../../ui/controls/keys";
import { recordShortcuts } from "../../ui/controls/shortcuts";
import { type Hint, pointIn, ScenePlot } from "../../ui/plot/plot";
import type { ViewContext } from "../../ui/view/define-view";
import { assign, same } from "../../ui/view/state";
import { hintInWords, sentenceOf } from "./captions";
import { partAt } from "./layout";
import { type NeuronState, tokenOf } from "./state";
import type { NeuronStore } from "./store";

export interface NeuronProps {
  context: ViewContext<NeuronState>;
  store: NeuronStore;
}

/** Return the keyboard shortcuts and gestures of the plot. */
export function neuronShortcuts({ context, store }: NeuronProps): readonly Shortcut[] {
  const { state, record } = context;
  const moveKey = (by: number) => () => {
    const table = store.table.peek();
    if (!table) return;
    const from = table.highlighted?.key ?? tokenIn(table.vectors.keys, 0);
    const last = table.selection.keys.text.length - 1;
    assign(state, { key: Math.max(0, Math.min(last, from + by)) });
  };
  const moveQuery = (by: number) => () => {
    const current = record.selection.peek();
    if (!current) return;
    const last = current.queries.text.length - 1;
    assign(state, { token: Math.max(0, Math.min(last, tokenOf(current, state.pair.peek()) + by)) });
  };
  const sort = () => assign(state, { sort_dimensions: !state.sort_dimensions.peek() });
  return [
    ["↑ ↓", "previous, next key", { ArrowUp: moveKey(-1), ArrowDown: moveKey(1) }],
    ["← →", "previous, next query", { ArrowLeft: moveQuery(-1), ArrowRight: moveQuery(1) }],
    ["Home End", "first, last key", { Home: moveKey(-1e9), End: moveKey(1e9) }],
    ["click", "on a row: pin or unpin its key"],
    ["s", "sort dimensions by share or by number", { s: sort }],
    [
      "Esc",
      "show the last query and its strongest key",
      { Escape: () => assign(state, { token: null, key: null }) },
    ],
    ...recordShortcuts(context, "head"),
  ];
}

export function NeuronPlot({ context, store }: NeuronProps) {
  const plot = useRef<HTMLDivElement>(null);
  const hint = useSignal<Hint | null>(null);
  const { state } = context;
  const under = (event: MouseEvent) => {
    const { x, y } = pointIn(plot.current, event);
    const drawn = store.drawn.peek();
    const hit = drawn && partAt(drawn.layout, x, y);
    const line = drawn?.layout.lines[hit?.line ?? -1]?.line ?? null;
    const words = drawn && hit && hintInWords(drawn.table, drawn.dimensions, line, hit.cell);
    return { x: x - (plot.current?.scrollLeft ?? 0), y, hit, line, words };
  };
  const onPointerMove = (event: PointerEvent): void => {
    const { x, y, hit, words } = under(event);
    if (!same(store.hovered.peek(), hit)) store.hovered.value = hit;
    hint.value = words && { ...words, x, y };
  };
  const leave = (): void => {
    store.hovered.value = null;
    hint.value = null;
  };
  const onClick = (event: MouseEvent): void => {
    const { line } = under(event);
    if (line && typeof line !== "string")
      assign(state, { key: state.key.peek() === line.key ? null : line.key });
  };
  const table = store.table.value;
  return (
    <ScenePlot
      scene={store.scene}
      drawnId={store.drawnId}
      onDrawn={context.setDrawn}
      kind="query and keys, dimension by dimension"
      label={table ? sentenceOf(table) : "Loading"}
      plot={plot}
      hint={hint.value}
      width={context.width.value}
      events={{
        onPointerMove,
        onPointerLeave: leave,
        onClick,
        onKeyDown: (event: KeyboardEvent) => {
          leave();
          runKey(event, actionsOf(neuronShortcuts({ context, store })));
        },
      }}
    />
  );
}
