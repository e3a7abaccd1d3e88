/** Strongest keys of the pinned query in the complete text, if the window shows only some keys. */

import { computed, type ReadonlySignal } from "@preact/signals";
import type { ReadRequest } from "../../client/protocol";
import { strongestIn } from "../../client/requests/strongest";
import { isComplete, uncountedRanges } from "../../ui/axis";
import type { ViewContext } from "../../ui/view/define-view";
import type { Line } from "./lines";
import { combineOf, type HeadState, type Plan } from "./state";

/** Number of strongest keys that are requested per head, or for the combination of all heads. */
const KEYS_PER_MATRIX = 12;
/** Maximum number of heads whose strongest keys are requested. */
export const MAX_LISTS = 4;

/** Strongest keys of a query, for the first heads or for their combination. */
export interface StrongestKeys {
  query: number;
  /** Strongest keys of each series, the strongest first, and the total weight of the query. */
  lists: { keys: Line[]; total: number }[];
}

/**
 * Create a signal of the strongest keys of the pinned query. Its value is null if no query is
 * pinned, if the window shows all keys, or if the reply has not arrived.
 */
export function createStrongest(
  { source, state, record }: ViewContext<HeadState>,
  plan: ReadonlySignal<Plan | null>,
): ReadonlySignal<StrongestKeys | null> {
  const request = computed<ReadRequest | null>(() => {
    if (!plan.value) return null;
    const { stack, layer, heads, token, keys, axes } = plan.value;
    if (token === null || isComplete(axes.key)) return null;
    const combine = combineOf(plan.value, state.combine.value);
    return {
      ...{ stack: stack.name, layer, rows: [token, token + 1], columns: [0, keys.text.length] },
      heads: combine === "separate" ? heads.slice(0, MAX_LISTS) : heads,
      combine,
      reduce: { kind: "strongest", k: KEYS_PER_MATRIX, exclude: uncountedRanges(axes.key) },
    };
  });
  const reply = record.answer(request, (asked, ended) => source.read(asked, ended));
  const answer = reply.current;
  return computed(() => {
    if (!answer.value) return null;
    const [query = 0] = request.value?.rows ?? [];
    const renormalize = state.renormalize.value && !plan.value?.stack.signed;
    const lists = answer.value.map((matrix, series) => {
      const { keys, included, total } = strongestIn(matrix, 0);
      const divisor = (renormalize && included) || 1;
      const lines = keys.map(({ key, weight }): Line => {
        return { series, query, key, weight: weight / divisor };
      });
      return { keys: lines, total: total / divisor };
    });
    return { query, lists };
  });
}
