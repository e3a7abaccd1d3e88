/** Controls of the neuron view: query, displayed keys of a long text, and dimensions. */

import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { printable } from "../../draw/marks";
import { Switch } from "../../ui/controls/fields";
import { type KeyActions, runKey } from "../../ui/controls/keys";
import { OrderControl, PairControl } from "../../ui/frame/frame";
import { answerStart } from "../../ui/generated-token/state";
import { pairOf, pairRange } from "../../ui/pairs";
import { counted } from "../../ui/text/captions";
import type { ViewContext } from "../../ui/view/define-view";
import type { Selection } from "../../ui/view/record";
import { assign } from "../../ui/view/state";
import type { NeuronProps } from "./plot";
import { type NeuronState, tokenOf } from "./state";
import { MAX_KEYS } from "./store";

/** Maximum number of query buttons. Two more buttons page to earlier and later queries. */
const MAX_TOKENS = 64;
/** Maximum number of query buttons in a narrow view. */
const MAX_TOKENS_NARROW = 32;

/** Buttons of the queries. The button of the displayed query is pressed. */
function Queries({
  context,
  selection,
}: {
  context: ViewContext<NeuronState>;
  selection: Selection;
}) {
  const { text, special } = selection.queries;
  const pair = pairOf(selection, context.state.pair.value);
  const token = tokenOf(selection, pair);
  const [first, end] = pairRange(selection.queries, pair, "query");
  const strip = useRef<HTMLDivElement>(null);
  // `start` is the first query button after paging. It applies only while query `token` is chosen,
  // because the button of a newly chosen query must be visible.
  const paged = useSignal<{ token: number; start: number } | null>(null);
  const numShown = context.width.value < 640 ? MAX_TOKENS_NARROW : MAX_TOKENS;
  const requestedStart = paged.value?.token === token ? paged.value.start : token - numShown / 2;
  const start = Math.max(first, Math.min(requestedStart, end - numShown));
  const stop = Math.min(end, start + numShown);
  const choose = (next: number, focus: boolean): void => {
    assign(context.state, { token: Math.max(first, Math.min(end - 1, next)) });
    if (!focus) return;
    requestAnimationFrame(() =>
      strip.current?.querySelector<HTMLButtonElement>("[aria-pressed='true']")?.focus(),
    );
  };
  const actions: KeyActions = {
    ArrowRight: () => choose(token + 1, true),
    ArrowLeft: () => choose(token - 1, true),
  };
  const page = (by: number): void => {
    paged.value = { token, start: Math.max(first, Math.min(end - numShown, start + by)) };
  };
  const specials = new Set(special);
  return (
    <fieldset class="av-row av-queries" aria-label="Query">
      <span class="av-label">Query</span>
      {/* biome-ignore lint/a11y/noStaticElementInteractions: handles arrow keys of the buttons inside. */}
      <div class="av-tokens" ref={strip} onKeyDown={(event) => runKey(event, actions)}>
        {start > first && (
          <button
            type="button"
            class="av-plain"
            aria-label={`${start - first} earlier queries`}
            onClick={() => page(-numShown)}
          >
            ‹ {start - first}
          </button>
        )}
        {text.slice(start, stop).map((tokenText, i) => {
          const index = start + i;
          const chosen = index === token;
          return [
            index === answerStart(selection.queries) && <span class="av-muted">answer</span>,
            <button
              type="button"
              class={`av-token${specials.has(index) ? " av-special" : ""}`}
              key={index}
              tabIndex={chosen || (i === 0 && (token < start || token >= stop)) ? 0 : -1}
              aria-pressed={chosen}
              aria-label={`${printable(tokenText)}, query ${index}`}
              title={`${printable(tokenText)}, query ${index}`}
              onClick={() => choose(index, false)}
            >
              {printable(tokenText) || "\u00a0"}
            </button>,
          ];
        })}
        {stop < end && (
          <button
            type="button"
            class="av-plain"
            aria-label={`${end - stop} later queries`}
            onClick={() => page(numShown)}
          >
            {end - stop} ›
          </button>
        )}
      </div>
    </fieldset>
  );
}

/** Buttons that move the window of displayed keys, if the text has more than `MAX_KEYS` keys. */
function KeyWindow({ context, store, selection }: NeuronProps & { selection: Selection }) {
  const table = store.table.value;
  const within = pairRange(selection.keys, pairOf(selection, context.state.pair.value), "key");
  if (!table || within[1] - within[0] <= MAX_KEYS) return null;
  const [start, stop] = table.vectors.keys;
  const move = (by: number): void => {
    store.moved.value = {
      stack: selection.stack.name,
      key: selection.key,
      start: Math.max(within[0], Math.min(within[1] - MAX_KEYS, start + by)),
    };
  };
  return (
    <fieldset class="av-field av-group" aria-label="Keys shown">
      <button
        type="button"
        class="av-step"
        aria-label="Earlier keys"
        disabled={start === within[0]}
        onClick={() => move(-MAX_KEYS)}
      >
        ‹
      </button>
      <output class="av-number">
        keys {start} to {stop - 1} of {counted(selection.keys.text.length)}
      </output>
      <button
        type="button"
        class="av-step"
        aria-label="Later keys"
        disabled={stop === within[1]}
        onClick={() => move(MAX_KEYS)}
      >
        ›
      </button>
      <button
        type="button"
        class="av-chip"
        disabled={selection.key === null && store.moved.value === null}
        onClick={() => {
          store.moved.value = null;
          assign(context.state, { key: null });
        }}
      >
        around the strongest
      </button>
    </fieldset>
  );
}

/** All controls between the heads and the picture. */
export function NeuronControls({ context, store }: NeuronProps) {
  const selection = context.record.selection.value;
  if (!selection?.stack.vectors) return null;
  const { state } = context;
  const others = store.drawn.value?.dimensions.others.length ?? 0;
  return (
    <>
      <Queries key={selection.stack.name} context={context} selection={selection} />
      <div class="av-row av-options">
        <Switch
          label="Sort dimensions by share"
          on={state.sort_dimensions.value}
          onChange={(on) => assign(state, { sort_dimensions: on })}
        />
        {(others > 0 || store.everyDimension.value) && (
          <Switch
            label="Every dimension"
            on={store.everyDimension.value}
            onChange={(on) => {
              store.everyDimension.value = on;
            }}
          />
        )}
        <KeyWindow context={context} store={store} selection={selection} />
        <PairControl context={context} />
        <OrderControl context={context} />
      </div>
    </>
  );
}
