/** The strongest keys of the pinned query, wherever they lie: a list that leads there. */

import { formatShare, formatSmall, quoted } from "../../ui/captions";
import type { ViewContext } from "../../ui/define-view";
import { assign } from "../../ui/state";
import { windowAround } from "./controls";
import { seriesTextColor } from "./picture";
import type { HeadState } from "./state";
import type { HeadModel } from "./store";
import { MOST_LISTS } from "./strongest";

/** Keys of each list where there are several. */
const OF_EACH = 5;
/** A smaller weight is worth no way. */
const LEAST = 1e-5;

export function StrongestList(props: { context: ViewContext<HeadState>; model: HeadModel }) {
  const { context, model } = props;
  const found = model.listed.value;
  const picture = model.ground.value;
  const plan = model.plan.value;
  if (!found || !picture || !plan) return null;
  const query = found.rows[0];
  const { series } = picture.lines;
  const { text } = plan.keys;
  const each = found.matrices.length > 1 ? OF_EACH : found.k;
  const show = (key: number): void => {
    model.leave();
    const { keyWindow, queryWindow } = plan;
    const key_window = windowAround(keyWindow, text.length, key);
    assign(context.state, { query_window: queryWindow, key_window, key });
  };
  return (
    <section class="av-strongest" aria-label="Strongest keys anywhere">
      <span class="av-muted">
        Strongest keys of {quoted(plan.queries.text[query] ?? "")} ({query}), anywhere:
      </span>
      {found.matrices.map((matrix, m) => {
        const keys = [...matrix.keys.slice(0, each)].filter(
          (key, i) => key >= 0 && (i === 0 || (matrix.weights[i] as number) >= LEAST),
        );
        const kept = (matrix.sums[0] ?? 1) || 1;
        const sum = keys.reduce((total, _, i) => total + (matrix.weights[i] as number), 0);
        return (
          <div class="av-row av-options" key={series[m]?.name}>
            <b style={{ color: seriesTextColor(picture, m) }}>{series[m]?.name}</b>
            {keys.map((key, i) => (
              <button
                type="button"
                class="av-chip"
                key={key}
                aria-pressed={plan.key === key}
                aria-label={`Key ${key}, ${quoted(text[key] ?? "")}, ${formatSmall(matrix.weights[i] as number)}: bring into sight`}
                onClick={() => show(key)}
              >
                {quoted(text[key] ?? "")} <span class="av-muted">{key}</span>{" "}
                {formatSmall(matrix.weights[i] as number)}
              </button>
            ))}
            <span class="av-muted">
              {keys.length === 0
                ? "no weight"
                : `together ${formatShare(sum / kept)} of its weight`}
            </span>
          </div>
        );
      })}
      {series.length > MOST_LISTS && (
        <span class="av-muted">and {series.length - MOST_LISTS} more heads</span>
      )}
    </section>
  );
}
