/** The head view's own controls: which lines, which tokens, which part of a long text. */

import { useSignal } from "@preact/signals";
import type { Range } from "../../client/source";
import { counted, formatWeight, quoted } from "../../ui/captions";
import type { ViewContext } from "../../ui/define-view";
import { Choice, Switch } from "../../ui/frame/frame";
import { OrderControl, PairControl } from "../../ui/frame/view-frame";
import { pairOf } from "../../ui/pairs";
import { assign } from "../../ui/state";
import type { Side } from "./layout";
import type { LeaveOut } from "./lines";
import type { HeadState, Plan } from "./state";
import type { HeadModel } from "./store";
import { nextMatch } from "./token-search";

interface ControlProps {
  context: ViewContext<HeadState>;
  model: HeadModel;
  plan: Plan;
}

const TOP_K = [
  ["all", "all"],
  ["1", "top 1"],
  ["3", "top 3"],
  ["5", "top 5"],
  ["10", "top 10"],
] as const;

/** "all" or a number of keys, also one that was set from Python. */
function topKOptions(current: number | null): [string, string][] {
  const options: [string, string][] = TOP_K.map(([value, text]) => [value, text]);
  const value = current === null ? "all" : String(current);
  if (!options.some(([each]) => each === value)) options.push([value, `top ${value}`]);
  return options;
}

/** Adds or removes what is left out. */
export function toggleLeaveOut(list: readonly LeaveOut[], item: LeaveOut): LeaveOut[] {
  return list.includes(item) ? list.filter((each) => each !== item) : [...list, item];
}

/** The threshold at a share of the slider's way, in steps of a thousandth of the maximum. */
export function thresholdAt(way: number, maximum: number): number {
  return Number(((Math.round(way ** 2 * 1000) / 1000) * maximum).toPrecision(4));
}

/** Which lines are drawn. */
export function LineControls({ context, model, plan }: ControlProps) {
  const { state } = context;
  const several = plan.heads.length > 1;
  const leaveOut = state.leave_out.value;
  const tokens = leaveOut.filter((each): each is number => typeof each === "number");
  return (
    <div class="av-row av-options">
      <Choice
        label="Lines"
        value={state.top_k.value === null ? "all" : String(state.top_k.value)}
        options={topKOptions(state.top_k.value)}
        onChange={(value) => assign(state, { top_k: value === "all" ? null : Number(value) })}
      />
      <label class="av-field">
        <span>from</span>
        <input
          type="range"
          aria-label="Smallest weight that is drawn"
          min={0}
          max={100}
          step={1}
          // The square gives small weights, where most are, most of the way.
          value={Math.round(Math.sqrt(state.threshold.value / plan.stack.maximum) * 100)}
          onInput={(event) =>
            assign(state, {
              threshold: thresholdAt(Number(event.currentTarget.value) / 100, plan.stack.maximum),
            })
          }
        />
        <output class="av-number">{formatWeight(state.threshold.value)}</output>
      </label>
      {several && (
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
            ["max", "maximum"],
          ]}
          onChange={(combine) => assign(state, { combine })}
        />
      )}
      <PairControl context={context} />
      <fieldset class="av-field av-group">
        <legend>Leave out</legend>
        {plan.keys.special.length > 0 && (
          <Switch
            label="special"
            on={leaveOut.includes("special")}
            onChange={() => assign(state, { leave_out: toggleLeaveOut(leaveOut, "special") })}
          />
        )}
        <Switch
          label="first"
          on={leaveOut.includes("first")}
          onChange={() => assign(state, { leave_out: toggleLeaveOut(leaveOut, "first") })}
        />
        {tokens.map((index) => (
          <button
            type="button"
            class="av-chip"
            key={index}
            title={`Key ${index} is left out; click to take it back`}
            onClick={() => assign(state, { leave_out: toggleLeaveOut(leaveOut, index) })}
          >
            {quoted(plan.keys.text[index] ?? `#${index}`)} ×
          </button>
        ))}
        {plan.key !== null && !tokens.includes(plan.key) && (
          <button
            type="button"
            class="av-chip"
            onClick={() =>
              assign(state, { leave_out: toggleLeaveOut(leaveOut, plan.key as number) })
            }
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
      <Choice
        label="Layout"
        value={state.orientation.value}
        options={[
          ["vertical", "columns"],
          ["horizontal", "rows"],
        ]}
        onChange={(orientation) => assign(state, { orientation })}
      />
      <OrderControl context={context} />
      <Search context={context} model={model} plan={plan} />
    </div>
  );
}

/** Moves a window by whole steps, inside the list. */
export function moveWindow(window: Range, count: number, by: number): Range {
  const size = window[1] - window[0];
  const start = Math.max(0, Math.min(count - size, window[0] + by));
  return [start, start + size];
}

/** A window of another size that keeps its start where it can. */
export function resizeWindow(window: Range, count: number, size: number): Range {
  return moveWindow([window[0], window[0] + Math.min(size, count)], count, 0);
}

/** A window of the same size with the token near its middle. */
export function windowAround(window: Range, count: number, index: number): Range {
  if (index >= window[0] && index < window[1]) return window;
  const size = window[1] - window[0];
  return moveWindow([0, size], count, index - Math.floor(size / 2));
}

/** Windows that have a token of a side in sight; of the same tokens both go to it. */
export function revealed(
  plan: Plan,
  index: number,
  side: "query" | "key" = "query",
): Partial<HeadState> {
  const { queryWindow, keyWindow, queries, keys } = plan;
  const window = side === "query" ? queryWindow : keyWindow;
  // Windows that nobody has to move stay the view's own.
  if (index >= window[0] && index < window[1]) return {};
  const query_window =
    side === "query" ? windowAround(queryWindow, queries.text.length, index) : queryWindow;
  const together =
    plan.stack.key_tokens === null && JSON.stringify(queryWindow) === JSON.stringify(keyWindow);
  const key_window = together
    ? query_window
    : side === "key"
      ? windowAround(keyWindow, keys.text.length, index)
      : keyWindow;
  return { query_window, key_window };
}

/** Moves windows so that a token comes into sight: on the keys' side the keys' alone. */
export function leap(context: ViewContext<HeadState>, plan: Plan, side: Side, index: number): void {
  const key = side === "key";
  const moved = key
    ? { key_window: windowAround(plan.keyWindow, plan.keys.text.length, index) }
    : revealed(plan, index, side);
  // Both are said, so that the other stays where it is.
  if (moved.key_window || moved.query_window)
    assign(context.state, { query_window: plan.queryWindow, ...moved });
}

/** To where the reader was before the last leap; another time, forth again. */
export function goBack(context: ViewContext<HeadState>, model: HeadModel): void {
  const before = model.before.peek();
  if (!before) return;
  model.leave();
  assign(context.state, before);
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
  const [first, last, of] = [window[0], window[1] - 1, count].map(counted);
  const range = `${first}–${last} of ${of}`;
  const sizes = [...new Set([...SIZES.filter((each) => each < count), size])].sort((a, b) => a - b);
  return (
    <fieldset class="av-field av-window" aria-label={label}>
      <span>{label}</span>
      <button
        type="button"
        class="av-step"
        aria-label={`${label}: back`}
        disabled={window[0] === 0}
        onClick={() => onChange(moveWindow(window, count, -size))}
      >
        ‹
      </button>
      <input
        type="range"
        aria-label={`${label}: first in sight`}
        aria-valuetext={range}
        min={0}
        max={Math.max(0, count - size)}
        value={window[0]}
        onInput={(event) =>
          onChange(moveWindow(window, count, Number(event.currentTarget.value) - window[0]))
        }
      />
      <button
        type="button"
        class="av-step"
        aria-label={`${label}: on`}
        disabled={window[1] >= count}
        onClick={() => onChange(moveWindow(window, count, size))}
      >
        ›
      </button>
      <output class="av-number">{range}</output>
      <select
        aria-label={`${label}: how many in sight`}
        value={String(size)}
        onChange={(event) =>
          onChange(resizeWindow(window, count, Number(event.currentTarget.value)))
        }
      >
        {sizes.map((each) => (
          <option key={each} value={String(each)} selected={each === size}>
            {each}
          </option>
        ))}
      </select>
    </fieldset>
  );
}

/** Which part of a long text is in sight. */
export function WindowControls({ context, model, plan }: ControlProps) {
  const { state } = context;
  const numQueries = plan.queries.text.length;
  const numKeys = plan.keys.text.length;
  const sameTokens = plan.stack.key_tokens === null;
  const together = useSignal(true);
  const windowed = (window: Range, count: number): boolean =>
    count > 100 || window[1] - window[0] < count;
  const long = windowed(plan.queryWindow, numQueries) || windowed(plan.keyWindow, numKeys);
  if (!long) return null;
  const joined =
    sameTokens &&
    together.value &&
    JSON.stringify(plan.queryWindow) === JSON.stringify(plan.keyWindow);
  return (
    <div class="av-row av-options">
      {joined && (
        <WindowControl
          label="Tokens"
          window={plan.queryWindow}
          count={numQueries}
          onChange={(window) => assign(state, { query_window: window, key_window: window })}
        />
      )}
      {!joined && (
        <>
          <WindowControl
            label="Queries"
            window={plan.queryWindow}
            count={numQueries}
            onChange={(window) => assign(state, { query_window: window })}
          />
          <WindowControl
            label="Keys"
            window={plan.keyWindow}
            count={numKeys}
            onChange={(window) => assign(state, { key_window: window })}
          />
        </>
      )}
      {model.before.value && (
        <button
          type="button"
          class="av-chip av-back"
          title="To where you were before the last leap (b)"
          onClick={() => goBack(context, model)}
        >
          ↩ back
        </button>
      )}
      {sameTokens && (
        <Switch
          label="move together"
          on={joined}
          onChange={(on) => {
            together.value = on;
            if (on) assign(state, { query_window: plan.queryWindow, key_window: plan.queryWindow });
          }}
        />
      )}
    </div>
  );
}

/** Finds tokens by their text or number; Enter goes to the next. */
function Search({ context, model, plan }: ControlProps) {
  const { state } = context;
  const at = useSignal(-1);
  const { side, indices } = model.matches.value ?? { side: "query", indices: [] };
  const jump = (by: number): void => {
    const from = side === "query" ? plan.queryWindow[0] : plan.keyWindow[0];
    const { length } = indices;
    // The first time to the nearest of those that follow.
    at.value =
      at.value < 0 ? nextMatch(indices, from, by) : (at.value + by + length) % Math.max(1, length);
    const index = indices[at.value];
    if (index === undefined) return;
    model.leave();
    assign(state, revealed(plan, index, side));
    model.cursor.value = { side, index };
  };
  const count = counted(indices.length);
  return (
    <search class="av-field av-find">
      <input
        type="search"
        placeholder="Find token"
        aria-label="Find token"
        title="A token's text, or # and its number; Enter and Shift-Enter: next, previous"
        value={model.search.value}
        onInput={(event) => {
          at.value = -1;
          model.search.value = event.currentTarget.value;
        }}
        onKeyDown={(event) => {
          if (event.key === "Enter") {
            jump(event.shiftKey ? -1 : 1);
            event.preventDefault();
          } else if (event.key === "Escape") {
            model.search.value = "";
            model.cursor.value = null;
          }
        }}
      />
      {indices.length > 0 &&
        ([-1, 1] as const).map((by) => (
          <button
            type="button"
            class="av-step"
            key={by}
            aria-label={by < 0 ? "Previous match" : "Next match"}
            onClick={() => jump(by)}
          >
            {by < 0 ? "‹" : "›"}
          </button>
        ))}
      <output class="av-number" aria-live="polite">
        {model.search.value === ""
          ? ""
          : indices.length === 0
            ? "none"
            : at.value >= 0
              ? `${counted(at.value + 1)} of ${count}`
              : `${count} found`}
      </output>
    </search>
  );
}
