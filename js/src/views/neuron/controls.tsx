/** The neuron view's own controls: which query, which keys of a long text, which dimensions. */

import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { printable } from "../../draw/marks";
import { Switch } from "../../ui/controls/fields";
import { OrderControl } from "../../ui/frame/frame";
import { answerStart } from "../../ui/generated-token/state";
import { counted } from "../../ui/text/captions";
import type { ViewContext } from "../../ui/view/define-view";
import type { Place } from "../../ui/view/record";
import { assign } from "../../ui/view/state";
import { type NeuronState, tokenOf } from "./state";
import { MOST_KEYS, type NeuronStore } from "./store";

interface ControlProps {
  context: ViewContext<NeuronState>;
  store: NeuronStore;
}

/** Queries that are offered at once; the others are a step away. */
const MOST_TOKENS = 64;
const MOST_TOKENS_NARROW = 32;

/** The queries, one of them chosen. */
function Queries({ context, place }: { context: ViewContext<NeuronState>; place: Place }) {
  const { text, special } = place.queries;
  const token = tokenOf(place);
  const strip = useRef<HTMLDivElement>(null);
  // Where the reader looked around: for this query only, so that a chosen one is in sight.
  const looked = useSignal<{ token: number; start: number } | null>(null);
  const most = context.width.value < 640 ? MOST_TOKENS_NARROW : MOST_TOKENS;
  const wanted = looked.value?.token === token ? looked.value.start : token - most / 2;
  const start = Math.max(0, Math.min(wanted, text.length - most));
  const stop = Math.min(text.length, start + most);
  const choose = (next: number, focus: boolean): void => {
    assign(context.state, { token: Math.max(0, Math.min(text.length - 1, next)) });
    if (!focus) return;
    requestAnimationFrame(() =>
      strip.current?.querySelector<HTMLButtonElement>("[aria-pressed='true']")?.focus(),
    );
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    choose(token + step, true);
    event.preventDefault();
    event.stopPropagation();
  };
  const look = (by: number): void => {
    looked.value = { token, start: Math.max(0, Math.min(text.length - most, start + by)) };
  };
  const left = new Set(special);
  return (
    <fieldset class="av-row av-queries" aria-label="Query">
      <span class="av-label">Query</span>
      {/* biome-ignore lint/a11y/noStaticElementInteractions: hears the keys of the buttons inside. */}
      <div class="av-tokens" ref={strip} onKeyDown={onKeyDown}>
        {start > 0 && (
          <button
            type="button"
            class="av-plain"
            aria-label={`${start} earlier queries`}
            onClick={() => look(-most)}
          >
            ‹ {start}
          </button>
        )}
        {text.slice(start, stop).map((each, i) => {
          const index = start + i;
          const chosen = index === token;
          return [
            index === answerStart(place.queries) && <span class="av-muted">answer</span>,
            <button
              type="button"
              class={`av-token${left.has(index) ? " av-special" : ""}`}
              key={index}
              tabIndex={chosen || (i === 0 && (token < start || token >= stop)) ? 0 : -1}
              aria-pressed={chosen}
              aria-label={`${printable(each)}, query ${index}`}
              title={`${printable(each)}, query ${index}`}
              onClick={() => choose(index, false)}
            >
              {printable(each) || "\u00a0"}
            </button>,
          ];
        })}
        {stop < text.length && (
          <button
            type="button"
            class="av-plain"
            aria-label={`${text.length - stop} later queries`}
            onClick={() => look(most)}
          >
            {text.length - stop} ›
          </button>
        )}
      </div>
    </fieldset>
  );
}

/** Which keys of a long text are shown. */
function KeyWindow({ context, store, place }: ControlProps & { place: Place }) {
  const table = store.table.value;
  const numKeys = place.keys.text.length;
  if (!table || numKeys <= MOST_KEYS) return null;
  const [start, stop] = table.vectors.keys;
  const move = (by: number): void => {
    store.moved.value = {
      stack: place.stack.name,
      key: place.key,
      start: Math.max(0, Math.min(numKeys - MOST_KEYS, start + by)),
    };
  };
  return (
    <fieldset class="av-field av-group" aria-label="Keys shown">
      <button
        type="button"
        class="av-step"
        aria-label="Earlier keys"
        disabled={start === 0}
        onClick={() => move(-MOST_KEYS)}
      >
        ‹
      </button>
      <output class="av-number">
        keys {start} to {stop - 1} of {counted(numKeys)}
      </output>
      <button
        type="button"
        class="av-step"
        aria-label="Later keys"
        disabled={stop === numKeys}
        onClick={() => move(MOST_KEYS)}
      >
        ›
      </button>
      <button
        type="button"
        class="av-chip"
        disabled={place.key === null && store.moved.value === null}
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

/** Everything between the heads and the picture. */
export function NeuronControls({ context, store }: ControlProps) {
  const place = context.record.place.value;
  if (!place?.stack.vectors) return null;
  const { state } = context;
  const others = store.drawnTable.value?.dimensions.others.length ?? 0;
  return (
    <>
      <Queries key={place.stack.name} context={context} place={place} />
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
        <KeyWindow context={context} store={store} place={place} />
        <OrderControl context={context} />
      </div>
    </>
  );
}
