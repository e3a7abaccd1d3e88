/** Controls of the neuron view: query, displayed keys of a long text, and dimensions. */

import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { NEURON_VIEW_TRAITS } from "../../client/traits";
import { isolated, tokenText } from "../../draw/marks";
import { isWithin, tokenIn, windowAt } from "../../ui/axis";
import { Controls } from "../../ui/controls/declared";
import { bound, Chip, Switch } from "../../ui/controls/fields";
import { type KeyActions, runKey } from "../../ui/controls/keys";
import { OrderControl, PairControl } from "../../ui/frame/frame";
import { answerStart } from "../../ui/generated-token/state";
import { pairOf, pairRange } from "../../ui/pairs";
import { counted } from "../../ui/text/captions";
import type { Selection } from "../../ui/view/record";
import { assign } from "../../ui/view/state";
import type { NeuronProps } from "./plot";
import { tokenOf } from "./state";
import { MAX_KEYS } from "./store";

/**
 * Maximum number of query buttons. If there are more queries, a button at each end shows earlier or
 * later ones.
 */
const MAX_TOKENS = 64;
/** Maximum number of query buttons in a narrow view. */
const MAX_TOKENS_NARROW = 32;

/** Buttons of the queries. The button of the displayed query is pressed. */
function Queries({ context, selection }: Omit<NeuronProps, "store"> & { selection: Selection }) {
  const { queries } = selection;
  const pair = pairOf(selection, context.state.pair.value);
  const token = tokenOf(selection, pair);
  const within = pairRange(queries, pair, "query");
  const [first, end] = within;
  const box = useRef<HTMLDivElement>(null);
  // Set when the reader pages through the buttons. `start` is the query of the first button. It is
  // used only while the displayed query is `token`, because the button of a newly chosen query must
  // be visible.
  const paged = useSignal<{ token: number; start: number } | null>(null);
  const numShown = context.width.value < 640 ? MAX_TOKENS_NARROW : MAX_TOKENS;
  const requestedStart = paged.value?.token === token ? paged.value.start : token - numShown / 2;
  const shown = windowAt(requestedStart, numShown, within);
  const [start, stop] = shown;
  const step = (by: number) => () => {
    assign(context.state, { token: Math.max(first, Math.min(end - 1, token + by)) });
    requestAnimationFrame(() =>
      box.current?.querySelector<HTMLButtonElement>("[aria-pressed='true']")?.focus(),
    );
  };
  const actions: KeyActions = { ArrowRight: step(1), ArrowLeft: step(-1) };
  const pageButton = (count: number, side: "earlier" | "later") =>
    count > 0 && (
      <button
        type="button"
        class="av-plain"
        aria-label={`${count} ${side} queries`}
        onClick={() => {
          paged.value = { token, start: start + (side === "later" ? numShown : -numShown) };
        }}
      >
        {side === "later" ? `${count} ›` : `‹ ${count}`}
      </button>
    );
  const focusable = isWithin(shown, token) ? token : start;
  return (
    <fieldset class="av-row av-queries" aria-label="Query">
      <span class="av-label">Query</span>
      {/* biome-ignore lint/a11y/noStaticElementInteractions: handles arrow keys of the buttons inside. */}
      <div class="av-wrapping av-tokens" ref={box} onKeyDown={(event) => runKey(event, actions)}>
        {pageButton(start - first, "earlier")}
        {queries.text.slice(...shown).map((name, i) => {
          const index = tokenIn(shown, i);
          const text = tokenText(name);
          const label = `${isolated(text)}, query ${index}`;
          return [
            index === answerStart(queries) && <span class="av-muted">answer</span>,
            <button
              type="button"
              class={`av-token${queries.special.includes(index) ? " av-special" : ""}`}
              key={index}
              tabIndex={index === focusable ? 0 : -1}
              aria-pressed={index === token}
              aria-label={label}
              title={label}
              onClick={() => assign(context.state, { token: index })}
            >
              {text || "\u00a0"}
            </button>,
          ];
        })}
        {pageButton(end - stop, "later")}
      </div>
    </fieldset>
  );
}

/** Buttons that move the window of displayed keys, if there are more than `MAX_KEYS` keys. */
function KeyWindow({ context, store, selection }: NeuronProps & { selection: Selection }) {
  const table = store.table.value;
  const pair = pairOf(selection, context.state.pair.value);
  const [first, end] = pairRange(selection.keys, pair, "key");
  if (!table || end - first <= MAX_KEYS) return null;
  const [start, stop] = table.vectors.keys;
  const { key, stack } = selection;
  const moveButton = (label: string, sign: string, by: number, disabled: boolean) => (
    <button
      type="button"
      class="av-step"
      aria-label={label}
      disabled={disabled}
      onClick={() => {
        store.moved.value = { stack: stack.name, key, start: start + by };
      }}
    >
      {sign}
    </button>
  );
  return (
    <fieldset class="av-field av-group" aria-label="Keys shown">
      {moveButton("Earlier keys", "‹", -MAX_KEYS, start === first)}
      <output class="av-number">
        keys {start} to {stop - 1} of {counted(selection.keys.text.length)}
      </output>
      {moveButton("Later keys", "›", MAX_KEYS, stop === end)}
      <Chip
        disabled={key === null && store.moved.value === null}
        onClick={() => {
          store.moved.value = null;
          assign(context.state, { key: null });
        }}
      >
        around the strongest
      </Chip>
    </fieldset>
  );
}

/**
 * Controls between the choice of heads and the picture. Nothing is shown if the stack has no
 * recorded queries and keys.
 */
export function NeuronControls({ context, store }: NeuronProps) {
  const selection = context.record.selection.value;
  if (!selection?.stack.vectors) return null;
  const others = store.drawn.value?.dimensions.others.length ?? 0;
  return (
    <>
      <Queries key={selection.stack.name} context={context} selection={selection} />
      <div class="av-row av-options">
        <Controls traits={NEURON_VIEW_TRAITS} state={context.state} group="dimensions" />
        {(others > 0 || store.everyDimension.value) && (
          <Switch label="Every dimension" {...bound(store.everyDimension)} />
        )}
        <KeyWindow context={context} store={store} selection={selection} />
        <PairControl context={context} />
        <OrderControl context={context} />
      </div>
    </>
  );
}
