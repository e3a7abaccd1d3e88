/** Strongest keys of the pinned query in the complete text, if the window shows only some keys. */

import { computed, type ReadonlySignal } from "@preact/signals";
import type { StrongestRequest } from "../../client/protocol";
import { requestStrongest, totalWeight } from "../../client/requests/strongest";
import { isComplete } from "../../ui/axis";
import type { ViewContext } from "../../ui/view/define-view";
import type { Line } from "./lines";
import type { HeadState, Plan } from "./state";

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
  const request = computed<StrongestRequest | null>(() => {
    if (!plan.value) return null;
    const { stack, layer, heads, chosen, token, axes } = plan.value;
    if (token === null || isComplete(axes.key)) return null;
    const how = state.combine.value;
    const combined = how === "separate" && chosen.length === 0 ? "mean" : how;
    const combine = heads.length === 1 ? "separate" : combined;
    return {
      ...{ stack: stack.name, layer, rows: [token, token + 1], k: KEYS_PER_MATRIX },
      heads: combine === "separate" ? heads.slice(0, MAX_LISTS) : heads,
      combine,
      leave_out: [...axes.key.leaveOut],
      pair: axes.key.pair,
    };
  });
  const { current: answer } = record.answer(request, (current, ended) => {
    const numKeys = plan.peek()?.keys.text.length ?? 0;
    return requestStrongest(source, current, numKeys, ended);
  });
  return computed(() => {
    if (!answer.value) return null;
    const { rows, matrices } = answer.value;
    const [query] = rows;
    const renormalize = state.renormalize.value && !plan.value?.stack.signed;
    const lists = matrices.map((matrix, series) => {
      const divisor = (renormalize && matrix.sums[0]) || 1;
      const keys = Array.from(matrix.keys, (key, i): Line => {
        return { series, query, key, weight: (matrix.weights[i] as number) / divisor };
      }).filter(({ key }) => key >= 0);
      return { keys, total: totalWeight(matrix, 0) / divisor };
    });
    return { query, lists };
  });
}
