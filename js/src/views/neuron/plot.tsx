/** Plot of the neuron view, and its pointer and keyboard events. */

import { useComputed, useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { actionsOf, runKey, type Shortcut } from "../../ui/controls/keys";
import { recordShortcuts } from "../../ui/controls/shortcuts";
import { type Hint, pointIn, ScenePlot } from "../../ui/plot/plot";
import { formatWeight, quoted } from "../../ui/text/captions";
import type { ViewContext } from "../../ui/view/define-view";
import { assign, same } from "../../ui/view/state";
import {
  type CaptionInput,
  cellInWords,
  formatSigned,
  othersInWords,
  rowInWords,
  sentenceOf,
} from "./captions";
import { type Hit, partAt } from "./layout";
import { type NeuronState, tokenOf } from "./state";
import type { NeuronStore } from "./store";

/** Return the tooltip for the part under the pointer, or null if this part has none. */
export function hintOf(
  input: CaptionInput,
  at: Hit,
  line: number | "sink" | "elsewhere" | null,
): Omit<Hint, "x" | "y"> | null {
  const { selection, table, dimensions } = input;
  const token = tokenOf(selection);
  const query = `${quoted(selection.queries.text[token] ?? "")} (${token})`;
  const plain = (text: string, meant = false): Hint["rows"][number] => ({ color: "", text, meant });
  const dimension = at.column === null ? undefined : dimensions.shown[at.column];
  if (line === null) {
    if (dimension === undefined) return null;
    const q = formatSigned(table.query[dimension] as number);
    return { title: `${query}, query`, rows: [plain(`dimension ${dimension}: q ${q}`)] };
  }
  const { sink } = table.vectors.header;
  if (line === "sink") {
    return (
      sink && {
        title: `${query} → sink`,
        rows: [plain(`logit ${formatSigned(sink.logit)}, weight ${formatWeight(sink.weight, 3)}`)],
      }
    );
  }
  if (line === "elsewhere") {
    const { strongest } = table.vectors.header;
    const rows = strongest.map(([key, weight]) =>
      plain(`${quoted(selection.keys.text[key] ?? "")} (${key})  ${formatWeight(weight, 3)}`),
    );
    return { title: "Strongest of all keys", rows };
  }
  const row = table.rows[line];
  if (!row) return null;
  const title = `${query} → ${quoted(selection.keys.text[row.key] ?? "")} (${row.key})`;
  if (!row.allowed) return { title, rows: rowInWords(table, row).map((text) => plain(text)) };
  const steps = rowInWords(table, row).map((text) => plain(text));
  if (at.others)
    return { title, rows: [plain(othersInWords(row, dimensions.others), true), ...steps] };
  if (dimension !== undefined) {
    return { title, rows: [plain(cellInWords(table, row, dimension), true), ...steps] };
  }
  return { title, rows: steps };
}

interface PlotProps {
  context: ViewContext<NeuronState>;
  store: NeuronStore;
}

/** Return the keyboard shortcuts and gestures of the plot. */
export function neuronShortcuts(
  context: ViewContext<NeuronState>,
  store: NeuronStore,
): readonly Shortcut[] {
  const { state, record } = context;
  const moveKey = (by: number) => () => {
    const [selection, table] = [store.selection.peek(), store.table.peek()];
    if (!selection || !table) return;
    const row = table.highlighted === null ? undefined : table.rows[table.highlighted];
    const from = row?.key ?? table.vectors.keys[0];
    const last = selection.keys.text.length - 1;
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

export function NeuronPlot({ context, store }: PlotProps) {
  const plot = useRef<HTMLDivElement>(null);
  const hint = useSignal<Hint | null>(null);
  const { state } = context;
  const drawnId = useComputed(() => {
    const question = store.question.value;
    return store.current.value && question ? `neuron:${question.stack}:${question.layer}` : null;
  });

  const underPointer = (event: MouseEvent): { part: Hit | null; x: number; y: number } => {
    const { x, y } = pointIn(plot.current, event);
    const layout = store.layout.peek();
    return { part: layout && partAt(layout, x, y), x, y };
  };

  /**
   * Return the line of a part: the row index of a key, the kind of a line that is not a key, or
   * null for the query.
   */
  const lineOf = (part: Hit): number | "sink" | "elsewhere" | null => {
    const line = part.line === null ? null : store.layout.peek()?.lines[part.line]?.line;
    if (!line) return null;
    return line.kind === "key" ? line.index : line.kind;
  };

  const onPointerMove = (event: PointerEvent): void => {
    const { part, x, y } = underPointer(event);
    if (!same(store.hovered.peek(), part)) store.hovered.value = part;
    const input = store.captionInput.peek();
    const tooltip = part && input && hintOf(input, part, lineOf(part));
    hint.value = tooltip ? { ...tooltip, x: x - (plot.current?.scrollLeft ?? 0), y } : null;
  };

  const leave = (): void => {
    store.hovered.value = null;
    hint.value = null;
  };

  const onClick = (event: MouseEvent): void => {
    const { part } = underPointer(event);
    const line = part && lineOf(part);
    const row = typeof line === "number" ? store.table.peek()?.rows[line] : undefined;
    if (row) assign(state, { key: state.key.peek() === row.key ? null : row.key });
  };

  return (
    <ScenePlot
      scene={store.scene}
      drawnId={drawnId}
      onDrawn={context.setDrawn}
      kind="query and keys, dimension by dimension"
      label={store.captionInput.value ? sentenceOf(store.captionInput.value) : "Loading"}
      plot={plot}
      hint={hint.value}
      width={context.width.value}
      events={{
        onPointerMove,
        onPointerLeave: leave,
        onClick,
        onKeyDown: (event: KeyboardEvent) => {
          leave();
          runKey(event, actionsOf(neuronShortcuts(context, store)));
        },
      }}
    />
  );
}
