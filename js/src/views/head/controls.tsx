/**
 * Controls of the head view: drawn lines, tokens that are left out, windows of a long text, and the
 * list of the strongest keys.
 */

import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import type { Range } from "../../client/protocol";
import { HEAD_VIEW_TRAITS, MAX_WHOLE_TEXT } from "../../client/traits";
import { isComplete, SIDES, type Side, sizeOf, tokenAt, windowAt } from "../../ui/axis";
import { Control, Controls } from "../../ui/controls/declared";
import { Chip, Choice, CloseButton, StepSlider, Switch } from "../../ui/controls/fields";
import { runKey } from "../../ui/controls/keys";
import { Panel } from "../../ui/controls/menu";
import { OrderControl, PairControl, TokenScoreControl } from "../../ui/frame/frame";
import {
  capital,
  counted,
  formatShare,
  pluralOf,
  quantityOf,
  quoted,
  shortened,
  written,
  writtenSmall,
} from "../../ui/text/captions";
import { spanOf } from "../../ui/text/places";
import { TokenSearch } from "../../ui/text/token-search";
import type { ViewContext } from "../../ui/view/define-view";
import { assign } from "../../ui/view/state";
import { seriesTextColor } from "./line-plot";
import { type HeadState, hasOneWindow, type Plan, windowShowing, windowsShowing } from "./state";
import type { HeadStore } from "./store";
import { MAX_LISTS } from "./strongest";

interface ControlProps {
  context: ViewContext<HeadState>;
  store: HeadStore;
  plan: Plan;
}

/** Return the options for the number of keys per query. They include the current number. */
function topKOptions(current: number | null): [string, string][] {
  const numbers = [...new Set([1, 3, 5, 10, ...(current === null ? [] : [current])])];
  return [["all", "all"], ...numbers.map((k): [string, string] => [String(k), `top ${k}`])];
}

/** Controls of the drawn lines. Rarely used controls are in the menu "More". */
export function LineControls({ context, store, plan }: ControlProps) {
  const { state } = context;
  const noneChosen = plan.chosen.length === 0;
  const rare = <RareControls context={context} store={store} plan={plan} />;
  return (
    <div class="av-row av-options">
      <Choice
        label="Lines"
        value={String(state.top_k.value ?? "all")}
        options={topKOptions(state.top_k.value)}
        onChange={(value) => assign(state, { top_k: value === "all" ? null : Number(value) })}
      />
      <PairControl context={context} />
      <OrderControl context={context} />
      <TokenSearch
        search={store.search}
        matches={store.matches.value}
        from={(side) => tokenAt(plan.axes[side], 0)}
        show={(side, index) => {
          assign(state, windowsShowing(plan, index, side));
          store.cursor.value = { side, index };
        }}
        onClear={() => {
          store.cursor.value = null;
        }}
      />
      {/* With one head, this control is invisible, but its room is reserved for a second head. */}
      <span class={`av-row${plan.heads.length > 1 ? "" : " av-unused"}`}>
        <Control
          trait={HEAD_VIEW_TRAITS.combine}
          field={state.combine}
          words={noneChosen ? ["mean", "max"] : undefined}
          labels={plan.stack.signed ? { max: "largest" } : undefined}
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
  // Most weights are small. The square root spreads them over most of the slider.
  const position = Math.round(Math.sqrt(state.threshold.value / maximum) * 100);
  const moveTo = (position: number): void => {
    const share = Math.round((position / 100) ** 2 * 1000) / 1000;
    assign(state, { threshold: Number((share * maximum).toPrecision(4)) });
  };
  return (
    <div class="av-row av-options">
      <label class="av-field">
        <span>at least</span>
        <input
          type="range"
          aria-label={`Smallest ${quantity.name} that is drawn${quantity.signed ? ", by size" : ""}`}
          min={0}
          max={100}
          value={position}
          onInput={(event) => moveTo(Number(event.currentTarget.value))}
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
        <LeaveOutControl context={context} store={store} plan={plan} />
      )}
      <Controls traits={HEAD_VIEW_TRAITS} state={state} group="rare" />
      <TokenScoreControl context={context} />
    </div>
  );
}

/** Controls of the keys that are left out: special tokens, the first token, and single keys. */
function LeaveOutControl({ context, store, plan }: ControlProps) {
  const { state } = context;
  const leaveOut = state.leave_out.value;
  const leftOut = leaveOut.filter((item): item is number => typeof item === "number");
  const chip = (key: number, text: string, title?: string) => (
    <Chip key={key} title={title} onClick={() => store.leaveOut(key)}>
      {text}
    </Chip>
  );
  const nameOf = (key: number): string => quoted(plan.keys.text[key] ?? `#${key}`);
  const groups =
    plan.keys.special.length > 0 ? (["special", "first"] as const) : (["first"] as const);
  return (
    <fieldset class="av-field av-group" aria-label="Leave out">
      <span class="av-muted">Leave out</span>
      {groups.map((group) => (
        <Switch
          key={group}
          label={group}
          value={leaveOut.includes(group)}
          onChange={() => store.leaveOut(group)}
        />
      ))}
      {leftOut.map((key) =>
        chip(key, `${nameOf(key)} ×`, `Key ${key} is left out. Click to include it.`),
      )}
      {plan.key !== null && !leftOut.includes(plan.key) && chip(plan.key, `+ ${nameOf(plan.key)}`)}
      <Controls traits={HEAD_VIEW_TRAITS} state={state} group="left out" />
    </fieldset>
  );
}

const SIZES = [16, 32, 64, 100, 200, 400];
/** Maximum number of characters of the first and of the last token of a window. */
const MAX_NAME = 12;

/** Controls of the window of the queries or of the keys, or of their common window. */
function WindowControl(props: {
  label: string;
  plan: Plan;
  side: Side;
  onChange: (window: Range) => void;
}) {
  const { label, plan, side, onChange } = props;
  const { window, tokens } = plan.axes[side];
  const [start, stop] = window;
  const count = tokens.text.length;
  const size = sizeOf(window);
  const range = `${counted(start)}–${counted(stop - 1)} of ${counted(count)}`;
  const names = spanOf(tokens, window, (text) => shortened(text, MAX_NAME));
  const sizes = [...new Set([...SIZES.filter((item) => item < count), size])].sort((a, b) => a - b);
  return (
    <fieldset class="av-field av-window" aria-label={label}>
      <span>{label}</span>
      <StepSlider
        label={`${label}: first in the window`}
        valueText={`${range}: ${names}`}
        back={`${label}: back`}
        on={`${label}: forward`}
        max={count - size}
        value={start}
        step={size}
        onChange={(first) => onChange([first, first + size])}
      />
      <output class="av-number">{range}</output>
      <bdi class="av-muted">{names}</bdi>
      <select
        aria-label={`${label}: size of the window`}
        value={String(size)}
        onChange={(event) =>
          onChange(windowAt(start, Number(event.currentTarget.value), [0, count]))
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
  const isLong = (side: Side): boolean =>
    plan.axes[side].tokens.text.length > MAX_WHOLE_TEXT || !isComplete(plan.axes[side]);
  if (!SIDES.some(isLong)) return null;
  const joined = together.value && hasOneWindow(plan);
  const moveBoth = (window: Range): void =>
    assign(state, { query_window: window, key_window: window });
  return (
    <div class="av-row av-options">
      {joined ? (
        <WindowControl label="Tokens" plan={plan} side="query" onChange={moveBoth} />
      ) : (
        SIDES.map((side) => (
          <WindowControl
            key={side}
            label={side === "query" ? "Queries" : "Keys"}
            plan={plan}
            side={side}
            onChange={(window) => assign(state, { [`${side}_window`]: window })}
          />
        ))
      )}
      {plan.stack.key_tokens === null && (
        <Switch
          label="move together"
          value={joined}
          onChange={(on) => {
            together.value = on;
            if (on) moveBoth(plan.axes.query.window);
          }}
        />
      )}
    </div>
  );
}

/** Maximum number of keys per head in `StrongestList`, if it has several heads. */
const KEYS_PER_LIST = 5;
/**
 * Smallest weight in `StrongestList`, as a share of the largest possible weight. The strongest key
 * of a head is always listed.
 */
const MIN_LISTED = 1e-5;

/**
 * The strongest keys of the pinned query in the complete text, one list per head. A click on a key
 * pins the key and moves the window to it if necessary.
 */
export function StrongestList({ context, store }: Omit<ControlProps, "plan">) {
  const list = useRef<HTMLElement>(null);
  const strongest = store.strongest.value;
  const linePlot = store.basePlot.value;
  const plan = store.plan.value;
  if (!strongest || !linePlot || !plan) return null;
  const { state } = context;
  const { quantity, lines } = linePlot;
  const { signed, maximum } = quantity;
  /** Clear the pins, which removes the list. Focus the plot, because the focused button vanishes. */
  const close = (): void => {
    const frame = list.current?.closest(".av-frame");
    assign(state, { token: null, key: null });
    frame?.querySelector<HTMLElement>(".av-plot")?.focus();
  };
  const show = (key: number): void => {
    const key_window = windowShowing(plan, "key", key);
    assign(state, { key, query_window: plan.axes.query.window, key_window });
  };
  return (
    <section
      class="av-strongest"
      aria-label="Strongest keys in the whole text"
      ref={list}
      onKeyDown={(event) => runKey(event, { Escape: close })}
    >
      <span class="av-muted">
        {signed ? `Largest ${pluralOf(quantity)}` : "Strongest keys"} of{" "}
        {quoted(plan.queries.text[strongest.query] ?? "")} ({strongest.query}) in the whole text:
      </span>
      <CloseButton
        label="Close the strongest keys and unpin"
        title="Close and unpin (Esc)"
        onClick={close}
      />
      {strongest.lists.map(({ keys, total }, series) => {
        const listed = keys
          .slice(0, strongest.lists.length > 1 ? KEYS_PER_LIST : undefined)
          .filter(({ weight }, i) => i === 0 || Math.abs(weight) >= MIN_LISTED * maximum);
        const sum = listed.reduce((all, { weight }) => all + weight, 0);
        const note = signed ? "" : `together ${formatShare(sum / (total || 1))} of its weight`;
        const name = lines.series[series]?.name ?? "";
        return (
          <div class="av-row av-options" key={name}>
            <b style={{ color: seriesTextColor(linePlot, series) }}>{name}</b>
            {listed.map(({ key, weight }) => {
              const text = quoted(plan.keys.text[key] ?? "");
              const number = writtenSmall(quantity, weight);
              return (
                <Chip
                  key={key}
                  aria-pressed={plan.key === key}
                  aria-label={`Key ${key}, ${text}, ${number}: show it`}
                  onClick={() => show(key)}
                >
                  {text} <span class="av-muted">{key}</span> {number}
                </Chip>
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
