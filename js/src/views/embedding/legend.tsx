/** Legend of the points' colours and shapes, or of the mean weights. */

import { ColorLegend } from "../../ui/colors/legend";
import { weightScale } from "../../ui/heat-map/legend";
import { counted } from "../../ui/text/captions";
import type { ViewContext } from "../../ui/view/define-view";
import { assign } from "../../ui/view/state";
import type { Coloring, LegendEntry } from "./colors";
import { endOf } from "./mean/marks";
import { meanStoreOf } from "./mean/store";
import type { EmbeddingState, PointsShown } from "./state";
import type { EmbeddingStore } from "./store";

interface LegendProps {
  context: ViewContext<EmbeddingState>;
  store: EmbeddingStore;
}

export function EmbeddingLegend({ context, store }: LegendProps) {
  const { state } = context;
  if (state.enlarged.value && state.content.value === "aggregate")
    return <MeanLegend context={context} store={store} />;
  const colors = store.colors.value;
  if (!colors) return null;
  const byType = colors.name === "type" && colors.legend.kind === "categories";
  return (
    <div class="av-embedding-legend">
      <Shapes context={context} colors={byType ? colors : null} />
      {!byType && <Colors colors={colors} />}
    </div>
  );
}

/** Return which kinds of points are drawn after a click on the button of `kind`. */
export function switched(points: PointsShown, kind: "queries" | "keys"): PointsShown {
  const other = kind === "queries" ? "keys" : "queries";
  // At least one kind stays visible. A click on the only visible kind shows the other one instead.
  if (points === "both") return other;
  return points === kind ? other : "both";
}

/** Buttons for queries (discs) and keys (squares). A click shows or hides the kind. */
function Shapes(props: { context: ViewContext<EmbeddingState>; colors: Coloring | null }) {
  const { state } = props.context;
  const points = state.points.value;
  const entries = props.colors?.legend.kind === "categories" ? props.colors.legend.entries : [];
  return (
    <fieldset class="av-legend-entries" aria-label="Kinds of points">
      {(["queries", "keys"] as const).map((kind) => {
        const entry = entries.find(({ label }) => label === kind);
        const shown = points === "both" || points === kind;
        return (
          <button
            type="button"
            class="av-legend-entry"
            key={kind}
            aria-pressed={shown}
            title={shown ? `Hide ${kind}` : `Show ${kind}`}
            onClick={() => assign(state, { points: switched(points, kind) })}
          >
            <span
              class={kind === "keys" ? "av-square" : "av-dot"}
              style={{ background: entry?.color ?? props.context.palette.value.neutral }}
            />
            {kind}
            {entry && <span class="av-muted">{counted(entry.count)}</span>}
          </button>
        );
      })}
    </fieldset>
  );
}

/** Legend of categories, or the colour scale of numbers. */
function Colors({ colors }: { colors: Coloring }) {
  const { legend } = colors;
  if (legend.kind === "categories") {
    return (
      <ul class="av-legend-entries" aria-label={`Colours: ${colors.name}`}>
        {legend.entries.map((entry) => (
          <Kind key={entry.label} {...entry} />
        ))}
      </ul>
    );
  }
  const { unknown } = legend;
  return (
    <>
      <ColorLegend scale={legend.scale} />
      {unknown && (
        <ul class="av-legend-entries" aria-label="Not on the scale">
          <Kind {...unknown} />
        </ul>
      )}
    </>
  );
}

function Kind({ label, color, count }: LegendEntry) {
  return (
    <li class="av-legend-entry">
      <span class="av-patch" style={{ background: color }} />
      <span class="av-legend-label" title={label}>
        {label}
      </span>
      <span class="av-muted">{counted(count)}</span>
    </li>
  );
}

/** Colour scale of mean weights, with a switch between linear and logarithmic. */
function MeanLegend({ context, store }: LegendProps) {
  const mean = meanStoreOf(context, store);
  const aggregate = mean.aggregate.value;
  if (!aggregate) return null;
  const scale = mean.scale.value;
  return (
    <ColorLegend
      scale={weightScale(
        { theme: context.theme.value, scale, end: endOf(aggregate) },
        `mean weight${scale === "log" ? ", logarithmic" : ""}`,
      )}
      toggle={{
        label: "logarithmic",
        title: "On: logarithmic scale, which shows small weights. Off: linear scale.",
        on: scale === "log",
        onChange: () => {
          mean.scale.value = scale === "linear" ? "log" : "linear";
        },
      }}
    />
  );
}
