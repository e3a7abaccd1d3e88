/** Strongest keys of the pinned query in the complete text, if the window shows only some keys. */

import { computed, type ReadonlySignal } from "@preact/signals";
import type { StrongestRequest } from "../../client/protocol";
import { requestStrongest, type StrongestAnswer } from "../../client/requests/strongest";
import { pairOf } from "../../ui/pairs";
import type { ViewContext } from "../../ui/view/define-view";
import { same } from "../../ui/view/state";
import { type HeadState, isTogether, isWindowed, leftOutOf, type Plan } from "./state";

/** Number of requested keys per head, or per combination of heads. */
const KEYS_PER_MATRIX = 12;
/** Maximum number of heads whose strongest keys are requested. */
export const MAX_LISTS = 4;

/** Return how the request combines the heads of a plan. */
function combineOf(plan: Plan, combine: HeadState["combine"]): StrongestRequest["combine"] {
  if (plan.heads.length === 1) return "separate";
  return combine === "separate" && isTogether(plan) ? "mean" : combine;
}

/** Key with a large weight. */
export interface StrongKey {
  /** Index of the head or combination of heads in which the key has this weight. */
  series: number;
  key: number;
  /** Weight, renormalised if requested. */
  value: number;
}

/**
 * Return the strongest keys of a query in all series, by decreasing absolute weight. A key may
 * appear once per series. Return null if the keys of this query are not loaded.
 */
export function strongestKeys(
  strongest: StrongestAnswer | null,
  query: number,
  renormalize: boolean,
): StrongKey[] | null {
  if (!strongest || query < strongest.rows[0] || query >= strongest.rows[1]) return null;
  const { k } = strongest;
  const row = query - strongest.rows[0];
  const all: StrongKey[] = [];
  for (const [series, { keys, weights, sums }] of strongest.matrices.entries()) {
    const rowSum = (renormalize && sums[3 * row]) || 1;
    for (let i = row * k; i < row * k + k; i++) {
      const key = keys[i] as number;
      if (key >= 0) all.push({ series, key, value: (weights[i] as number) / rowSum });
    }
  }
  return all.sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
}

/**
 * Create a signal of the strongest keys of the pinned query. Its value is null if no query is
 * pinned, if the window shows all keys, or if the reply has not arrived.
 */
export function createStrongest(
  { source, state, record }: ViewContext<HeadState>,
  plan: ReadonlySignal<Plan | null>,
): ReadonlySignal<StrongestAnswer | null> {
  const listRequest = computed<StrongestRequest | null>(() => {
    const currentPlan = plan.value;
    if (!currentPlan || currentPlan.token === null || !isWindowed(currentPlan)) return null;
    const combine = combineOf(currentPlan, state.combine.value);
    return {
      stack: currentPlan.stack.name,
      layer: currentPlan.layer,
      heads: combine === "separate" ? currentPlan.heads.slice(0, MAX_LISTS) : currentPlan.heads,
      rows: [currentPlan.token, currentPlan.token + 1],
      k: KEYS_PER_MATRIX,
      combine,
      leave_out: [...leftOutOf(currentPlan, state.leave_out.value)],
      pair: pairOf(currentPlan, state.pair.value),
    };
  });
  const reply = record.answer(listRequest, (request, ended) => {
    const numKeys = plan.peek()?.keys.text.length ?? 0;
    return requestStrongest(source, request, numKeys, ended);
  });
  return computed(() => {
    const current = reply.value;
    return current && same(current.question, listRequest.value) ? current.answer : null;
  });
}
