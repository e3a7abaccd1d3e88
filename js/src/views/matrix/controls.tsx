/** Controls of the matrix view: colours, pooling, zoom, and windows of queries and keys. */

import type { Range } from "../../client/protocol";
import { MATRIX_VIEW_TRAITS } from "../../client/traits";
import { SIDES, sizeOf, tokenAt } from "../../ui/axis";
import { Control } from "../../ui/controls/declared";
import { OrderControl, PairControl, TokenScoreControl } from "../../ui/frame/frame";
import type { HeatMapState } from "../../ui/heat-map/state";
import type { HeatMapStore } from "../../ui/heat-map/store";
import { type CellAxis, isWhole, type Viewport } from "../../ui/heat-map/viewport";
import { capital, counted, PLURALS } from "../../ui/text/captions";
import { findTokens, TokenSearch } from "../../ui/text/token-search";
import type { ViewContext } from "../../ui/view/define-view";
import { assign } from "../../ui/view/state";

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
        <Control trait={MATRIX_VIEW_TRAITS.color_scale} field={state.color_scale} />
        {viewport.canPool && (
          <Control
            trait={MATRIX_VIEW_TRAITS.pooled}
            field={state.pooled}
            labels={viewport.stack.signed ? { max: "largest" } : undefined}
          />
        )}
        <PairControl context={context} />
        <OrderControl context={context} />
        <TokenScoreControl context={context} />
        <TokenSearch
          search={store.search}
          matches={findTokens(viewport.axes, store.search.value)}
          from={(side) => tokenAt(viewport.axes[side], 0)}
          show={store.show}
          onClear={() => {
            store.cursor.value = null;
          }}
        />
      </div>
      <div class="av-row av-options">
        <Zoom store={store} viewport={viewport} />
        {SIDES.map((side) => (
          <WindowField
            key={side}
            label={capital(PLURALS[side])}
            axis={viewport.axes[side]}
            onChange={(window) => assign(state, { [`${side}_window`]: window })}
          />
        ))}
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
        title="Show the whole matrix (Home)"
        disabled={isWhole(viewport)}
        onClick={() => store.fit()}
      >
        Fit
      </button>
    </fieldset>
  );
}

/**
 * Number fields for the first and the last token of a window, the range of queries or keys in view.
 */
function WindowField(props: {
  label: string;
  axis: CellAxis;
  onChange: (window: Range | null) => void;
}) {
  const { label, axis } = props;
  const { window, extent } = axis;
  const count = axis.tokens.text.length;
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
      aria-label={`${label}: ${name} in the window`}
      min={extent[0]}
      max={extent[1] - 1}
      value={value}
      onChange={(event) => change(event.currentTarget.valueAsNumber)}
    />
  );
  const [start, stop] = window;
  const size = sizeOf(window);
  return (
    <fieldset class="av-field av-range" aria-label={label}>
      <span>{label}</span>
      {/* The other end stays. If the new end passes it, the whole window moves instead. */}
      {field("first", start, (first) => set(first, first < stop ? stop : first + size))}
      <span>to</span>
      {field("last", stop - 1, (last) => set(last >= start ? start : last - size + 1, last + 1))}
      <span>of {counted(count)}</span>
    </fieldset>
  );
}
