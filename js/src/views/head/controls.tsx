/**
 * Controls of the head view: drawn lines, tokens that are left out, windows of a long text, and the
 * list of the strongest keys.
 */

import { batch, useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import type { Range } from "../../client/protocol";
import { totalWeight } from "../../client/requests/strongest";
import { Choice, StepSlider, Switch } from "../../ui/controls/fields";
import { runKey } from "../../ui/controls/keys";
import { Panel } from "../../ui/controls/menu";
import { OrderControl, PairControl, TokenScoreControl } from "../../ui/frame/frame";
import { pairOf } from "../../ui/pairs";
import {
  capital,
  counted,
  formatShare,
  pluralOf,
  quantityOf,
  quoted,
  written,
  writtenSmall,
} from "../../ui/text/captions";
import { TokenSearch } from "../../ui/text/token-search";
import type { ViewContext } from "../../ui/view/define-view";
import { assign, same } from "../../ui/view/state";
import { seriesTextColor } from "./line-plot";
import {
  type HeadState,
  type Plan,
  resizeWindow,
  SIDES,
  type Side,
  tokensOf,
  windowOf,
  windowsShowing,
} from "./state";
import type { HeadStore } from "./store";
import { MAX_LISTS, strongestKeys } from "./strongest";

interface ControlProps {
  context: ViewContext<HeadState>;
  store: HeadStore;
  plan: Plan;
}

const TOP_K = [
  ["all", "all"],
  ["1", "top 1"],
  ["3", "top 3"],
  ["5", "top 5"],
  ["10", "top 10"],
] as const;

/** Return the options for the number of keys per query. They include the current number. */
function topKOptions(current: number | null): readonly (readonly [string, string])[] {
  const isListed = current === null || TOP_K.some(([value]) => value === String(current));
  return isListed ? TOP_K : [...TOP_K, [String(current), `top ${current}`]];
}

/** Return the threshold of a slider position from 0 to 1. It is a multiple of 0.001 * maximum. */
export function thresholdAt(position: number, maximum: number): number {
  return Number(((Math.round(position ** 2 * 1000) / 1000) * maximum).toPrecision(4));
}

/** Controls of the drawn lines. Rarely used controls are in the menu "More". */
export function LineControls({ context, store, plan }: ControlProps) {
  const { state } = context;
  const several = plan.heads.length > 1;
  const quantity = quantityOf(plan.stack);
  const rare = <RareControls context={context} store={store} plan={plan} />;
  return (
    <div class="av-row av-options">
      <Choice
        label="Lines"
        value={state.top_k.value === null ? "all" : String(state.top_k.value)}
        options={topKOptions(state.top_k.value)}
        onChange={(value) => assign(state, { top_k: value === "all" ? null : Number(value) })}
      />
      <PairControl context={context} />
      <OrderControl context={context} />
      <TokenSearch
        search={store.search}
        matches={store.matches.value}
        from={(side) => windowOf(plan, side)[0]}
        show={(side, index) => {
          assign(state, windowsShowing(plan, index, side));
          store.cursor.value = { side, index };
        }}
        onClear={() => {
          store.cursor.value = null;
        }}
      />
      {/* With one head, this control is invisible, but its room is reserved for a second head. */}
      <span class={several ? "av-reserved" : "av-reserved av-unused"}>
        <Choice
          label="Combine"
          value={
            plan.chosen.length === 0 && state.combine.value === "separate"
              ? "mean"
              : state.combine.value
          }
          options={[
            ...(plan.chosen.length > 0 ? ([["separate", "separate"]] as const) : []),
            ["mean", "mean"],
            ["max", quantity.signed ? "largest" : "maximum"],
          ]}
          onChange={(combine) => assign(state, { combine })}
        />
      </span>
      {/* In the compact form, all controls are in one menu, so a second menu is not needed. */}
      {context.controls.value === "full" ? <Panel label="More">{rare}</Panel> : rare}
    </div>
  );
}

/** Controls of the threshold, the left-out keys, the layout and the token scores. */
function RareControls({ context, store, plan }: ControlProps) {
  const { state } = context;
  const quantity = quantityOf(plan.stack);
  const maximum = plan.stack.maximum || 1;
  const leaveOut = state.leave_out.value;
  const tokens = leaveOut.filter((item): item is number => typeof item === "number");
  return (
    <div class="av-row av-options">
      <label class="av-field">
        <span>at least</span>
        <input
          type="range"
          aria-label={`Smallest ${quantity.name} that is drawn${quantity.signed ? ", by size" : ""}`}
          min={0}
          max={100}
          step={1}
          // Most weights are small. The square root spreads them over most of the slider.
          value={Math.round(Math.sqrt(state.threshold.value / maximum) * 100)}
          onInput={(event) =>
            assign(state, {
              threshold: thresholdAt(Number(event.currentTarget.value) / 100, maximum),
            })
          }
        />
        <output class="av-number">
          {written({ ...quantity, signed: false }, state.threshold.value)}
        </output>
      </label>
      {quantity.signed ? (
        <span class="av-muted">
          {capital(pluralOf(quantity))} are not shares of 1, so keys cannot be left out.
        </span>
      ) : (
        <fieldset class="av-field av-group" aria-label="Leave out">
          <span class="av-muted">Leave out</span>
          {plan.keys.special.length > 0 && (
            <Switch
              label="special"
              on={leaveOut.includes("special")}
              onChange={() => store.leaveOut("special")}
            />
          )}
          <Switch
            label="first"
            on={leaveOut.includes("first")}
            onChange={() => store.leaveOut("first")}
          />
          {tokens.map((index) => (
            <button
              type="button"
              class="av-chip"
              key={index}
              title={`Key ${index} is left out. Click to include it.`}
              onClick={() => store.leaveOut(index)}
            >
              {quoted(plan.keys.text[index] ?? `#${index}`)} ×
            </button>
          ))}
          {plan.key !== null && !tokens.includes(plan.key) && (
            <button
              type="button"
              class="av-chip"
              onClick={() => store.leaveOut(plan.key as number)}
            >
              + {quoted(plan.keys.text[plan.key] ?? "")}
            </button>
          )}
          {(leaveOut.length > 0 || pairOf(plan, state.pair.value) !== "all") && (
            <Switch
              label="renormalise"
              on={state.renormalize.value}
              onChange={(renormalize) => assign(state, { renormalize })}
            />
          )}
        </fieldset>
      )}
      <Choice
        label="Layout"
        value={state.orientation.value}
        options={[
          ["vertical", "columns"],
          ["horizontal", "rows"],
        ]}
        onChange={(orientation) => assign(state, { orientation })}
      />
      <TokenScoreControl context={context} />
    </div>
  );
}

const SIZES = [16, 32, 64, 100, 200, 400];

function WindowControl(props: {
  label: string;
  window: Range;
  count: number;
  onChange: (window: Range) => void;
}) {
  const { label, window, count, onChange } = props;
  const size = window[1] - window[0];
  const [first, last, total] = [window[0], window[1] - 1, count].map(counted);
  const range = `${first}–${last} of ${total}`;
  const sizes = [...new Set([...SIZES.filter((item) => item < count), size])].sort((a, b) => a - b);
  return (
    <fieldset class="av-field av-window" aria-label={label}>
      <span>{label}</span>
      <StepSlider
        label={`${label}: first in the window`}
        valueText={range}
        back={`${label}: back`}
        on={`${label}: forward`}
        max={count - size}
        value={window[0]}
        step={size}
        onChange={(first) => onChange([first, first + size])}
      />
      <output class="av-number">{range}</output>
      <select
        aria-label={`${label}: size of the window`}
        value={String(size)}
        onChange={(event) =>
          onChange(resizeWindow(window, count, Number(event.currentTarget.value)))
        }
      >
        {sizes.map((item) => (
          <option key={item} value={String(item)} selected={item === size}>
            {item}
          </option>
        ))}
      </select>
    </fieldset>
  );
}

/** Controls of the windows of queries and keys, for a text that does not fit into a window. */
export function WindowControls({ context, plan }: Omit<ControlProps, "store">) {
  const { state } = context;
  const together = useSignal(true);
  const { queryWindow, keyWindow } = plan;
  const isLong = (side: Side): boolean => {
    const [start, stop] = windowOf(plan, side);
    const count = tokensOf(plan, side).text.length;
    return count > 100 || stop - start < count;
  };
  if (!SIDES.some(isLong)) return null;
  const sameTokens = plan.stack.key_tokens === null;
  const joined = sameTokens && together.value && same(queryWindow, keyWindow);
  const control = (label: string, side: Side, onChange: (window: Range) => void) => (
    <WindowControl
      label={label}
      window={windowOf(plan, side)}
      count={tokensOf(plan, side).text.length}
      onChange={onChange}
    />
  );
  const moveBoth = (window: Range): void =>
    assign(state, { query_window: window, key_window: window });
  return (
    <div class="av-row av-options">
      {joined ? (
        control("Tokens", "query", moveBoth)
      ) : (
        <>
          {control("Queries", "query", (query_window) => assign(state, { query_window }))}
          {control("Keys", "key", (key_window) => assign(state, { key_window }))}
        </>
      )}
      {sameTokens && (
        <Switch
          label="move together"
          on={joined}
          onChange={(on) => {
            together.value = on;
            if (on) moveBoth(queryWindow);
          }}
        />
      )}
    </div>
  );
}

/** Number of keys per head in `StrongestList`, if it lists several heads. */
const KEYS_PER_LIST = 5;
/** Smallest weight in `StrongestList`. */
const MIN_LISTED = 1e-5;

/** List of the strongest keys of the pinned query. A click on a key moves the window to it. */
export function StrongestList(props: { context: ViewContext<HeadState>; store: HeadStore }) {
  const { context, store } = props;
  const list = useRef<HTMLElement>(null);
  const reply = store.strongest.value;
  const linePlot = store.basePlot.value;
  const plan = store.plan.value;
  /**
   * Clear the pins, which removes the list. Focus the plot, because the focused button vanishes.
   */
  const close = (): void => {
    const frame = list.current?.closest(".av-frame");
    assign(context.state, { token: null, key: null });
    frame?.querySelector<HTMLElement>(".av-plot")?.focus();
  };
  const show = (key: number): void =>
    batch(() => {
      store.jumpTo("key", key);
      assign(context.state, { key });
    });
  if (!reply || !linePlot || !plan) return null;
  const query = reply.rows[0];
  const { quantity, lines } = linePlot;
  const { signed } = quantity;
  // Signed numbers may have any magnitude, so their limit is relative to the maximum.
  const minWeight = MIN_LISTED * (signed ? quantity.maximum : 1);
  const numListed = reply.matrices.length > 1 ? KEYS_PER_LIST : reply.k;
  const all = strongestKeys(reply, query, false) ?? [];
  return (
    <section
      class="av-strongest"
      aria-label="Strongest keys in the whole text"
      ref={list}
      onKeyDown={(event) => runKey(event, { Escape: close })}
    >
      <span class="av-muted">
        {signed ? `Largest ${pluralOf(quantity)}` : "Strongest keys"} of{" "}
        {quoted(plan.queries.text[query] ?? "")} ({query}) in the whole text:
      </span>
      <button
        type="button"
        class="av-plain"
        aria-label="Close the strongest keys and unpin"
        title="Close and unpin (Esc)"
        onClick={close}
      >
        ×
      </button>
      {reply.matrices.map((matrix, index) => {
        const { name = "" } = lines.series[index] ?? {};
        const listed = all
          .filter(({ series }) => series === index)
          .slice(0, numListed)
          .filter(({ value }, i) => i === 0 || Math.abs(value) >= minWeight);
        const sum = listed.reduce((total, { value }) => total + value, 0);
        const share = formatShare(sum / (totalWeight(matrix, 0) || 1));
        const note = signed ? "" : `together ${share} of its weight`;
        return (
          <div class="av-row av-options" key={name}>
            <b style={{ color: seriesTextColor(linePlot, index) }}>{name}</b>
            {listed.map(({ key, value }) => {
              const text = quoted(plan.keys.text[key] ?? "");
              const weight = writtenSmall(quantity, value);
              return (
                <button
                  type="button"
                  class="av-chip"
                  key={key}
                  aria-pressed={plan.key === key}
                  aria-label={`Key ${key}, ${text}, ${weight}: show it`}
                  onClick={() => show(key)}
                >
                  {text} <span class="av-muted">{key}</span> {weight}
                </button>
              );
            })}
            <span class="av-muted">{listed.length === 0 ? `no ${quantity.name}` : note}</span>
          </div>
        );
      })}
      {lines.series.length > MAX_LISTS && (
        <span class="av-muted">and {lines.series.length - MAX_LISTS} more heads</span>
      )}
    </section>
  );
}
