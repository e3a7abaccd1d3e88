/** The matrix view's own controls: colour, pooling, and what is in sight. */

import { useSignal } from "@preact/signals";
import type { Range } from "../../client/source";
import { counted } from "../../ui/captions";
import type { ViewContext } from "../../ui/define-view";
import { Choice } from "../../ui/frame/frame";
import { OrderControl, PairControl } from "../../ui/frame/view-frame";
import type { HeatMapState } from "../../ui/heat-map/state";
import type { HeatMapStore } from "../../ui/heat-map/store";
import { type Axis, isPooled, isWhole, movedBy, type Viewport } from "../../ui/heat-map/viewport";
import { assign } from "../../ui/state";

interface ControlProps {
  context: ViewContext<HeatMapState>;
  store: HeatMapStore;
  viewport: Viewport;
}

export function MatrixControls({ context, store, viewport }: ControlProps) {
  const { state } = context;
  return (
    <>
      <div class="av-row av-options">
        <Choice
          label="Colour"
          value={state.color_scale.value}
          options={[
            ["linear", "linear"],
            ["log", "logarithm"],
          ]}
          onChange={(color_scale) => assign(state, { color_scale })}
        />
        {isPooled(viewport) && (
          <Choice
            label="Cells show"
            value={state.pooled.value}
            options={[
              ["mean", "mean"],
              ["max", "maximum"],
            ]}
            onChange={(pooled) => assign(state, { pooled })}
          />
        )}
        <PairControl context={context} />
        <OrderControl context={context} />
        <Search store={store} viewport={viewport} />
      </div>
      <div class="av-row av-options">
        <Zoom store={store} viewport={viewport} />
        <WindowField
          label="Queries"
          axis={viewport.rows}
          count={viewport.queries.text.length}
          onChange={(query_window) => assign(state, { query_window })}
        />
        <WindowField
          label="Keys"
          axis={viewport.columns}
          count={viewport.keys.text.length}
          onChange={(key_window) => assign(state, { key_window })}
        />
      </div>
    </>
  );
}

function Zoom({ store, viewport }: { store: HeatMapStore; viewport: Viewport }) {
  return (
    <fieldset class="av-field av-zoom" aria-label="Zoom">
      <button
        type="button"
        class="av-step"
        aria-label="Zoom out"
        title="Zoom out (-)"
        disabled={isWhole(viewport)}
        onClick={() => store.zoom(false)}
      >
        −
      </button>
      <button
        type="button"
        class="av-step"
        aria-label="Zoom in"
        title="Zoom in (+, or Ctrl and the wheel)"
        disabled={store.nearest.value}
        onClick={() => store.zoom(true)}
      >
        +
      </button>
      <button
        type="button"
        class="av-step av-fit"
        title="Everything in sight (Home)"
        disabled={isWhole(viewport)}
        onClick={() => store.fit()}
      >
        Fit
      </button>
    </fieldset>
  );
}

/** The first and the last token of a side in sight, as numbers. */
function WindowField(props: {
  label: string;
  axis: Axis;
  count: number;
  onChange: (window: Range | null) => void;
}) {
  const { label, axis, count } = props;
  const { window, extent } = axis;
  if (count < 2) return null;
  const set = (start: number, stop: number): void => {
    if (!Number.isFinite(start) || !Number.isFinite(stop)) return;
    const first = Math.max(extent[0], Math.min(extent[1] - 1, Math.floor(start)));
    const next: Range = [first, Math.max(first + 1, Math.min(extent[1], Math.floor(stop)))];
    props.onChange(next[0] === extent[0] && next[1] === extent[1] ? null : next);
  };
  const field = (name: string, value: number, change: (value: number) => void) => (
    <input
      style={{ width: `${34 + 8 * Math.max(4, String(count).length)}px` }}
      type="number"
      aria-label={`${label}: ${name} in sight`}
      min={extent[0]}
      max={extent[1] - 1}
      value={value}
      onChange={(event) => change(event.currentTarget.valueAsNumber)}
    />
  );
  const size = window[1] - window[0];
  return (
    <fieldset class="av-field av-range" aria-label={label}>
      <span>{label}</span>
      {field("first", window[0], (first) => {
        // The first moves what is in sight, unless it comes to lie behind the last.
        const moved = movedBy(axis, window, first - window[0]);
        set(first, first < window[1] ? window[1] : moved[0] + size);
      })}
      <span>to</span>
      {field("last", window[1] - 1, (last) =>
        set(last >= window[0] ? window[0] : last - size + 1, last + 1),
      )}
      <span>of {counted(count)}</span>
    </fieldset>
  );
}

/** Finds tokens by their text; Enter goes to the next. */
function Search({ store, viewport }: { store: HeatMapStore; viewport: Viewport }) {
  const at = useSignal(-1);
  const wanted = store.search.value.toLowerCase();
  const find = (texts: readonly string[], { extent }: Axis): number[] =>
    wanted === ""
      ? []
      : texts.flatMap((text, index) =>
          index >= extent[0] && index < extent[1] && text.toLowerCase().includes(wanted)
            ? [index]
            : [],
        );
  const inQueries = find(viewport.queries.text, viewport.rows);
  const side = inQueries.length > 0 ? "query" : "key";
  const matches = side === "query" ? inQueries : find(viewport.keys.text, viewport.columns);
  const jump = (by: number): void => {
    if (matches.length === 0) return;
    at.value = (at.value + by + matches.length) % matches.length;
    store.show(side, matches[at.value] as number);
  };
  return (
    <search class="av-field av-find">
      <input
        type="search"
        placeholder="Find token"
        aria-label="Find token"
        value={store.search.value}
        onInput={(event) => {
          at.value = -1;
          store.search.value = event.currentTarget.value;
        }}
        onKeyDown={(event) => {
          if (event.key === "Enter") {
            jump(event.shiftKey ? -1 : 1);
            event.preventDefault();
          } else if (event.key === "Escape") {
            store.search.value = "";
            store.cursor.value = null;
          }
        }}
      />
      <output class="av-number" aria-live="polite">
        {wanted === ""
          ? ""
          : matches.length === 0
            ? "none"
            : at.value >= 0
              ? `${counted(at.value + 1)} of ${counted(matches.length)}`
              : `${matches.length} found`}
      </output>
    </search>
  );
}
