/** The strongest keys of the pinned query, wherever they lie in a text of which a part is in sight. */

import { computed, type ReadonlySignal } from "@preact/signals";
import type { StrongestRequest } from "../../client/protocol";
import { askStrongest, type Strongest } from "../../client/requests/strongest";
import { pairOf } from "../../ui/pairs";
import type { ViewContext } from "../../ui/view/define-view";
import { same } from "../../ui/view/state";
import { type HeadState, isTogether, isWindowed, leftOutOf, type Plan } from "./state";

/** Keys that are listed. */
const LISTED = 12;
/** Matrices whose lists are read; of more there is no telling apart. */
export const MOST_LISTS = 4;

/** How the heads of a plan are put together. */
function combineOf(plan: Plan, combine: HeadState["combine"]): StrongestRequest["combine"] {
  if (plan.heads.length === 1) return "separate";
  return combine === "separate" && isTogether(plan) ? "mean" : combine;
}

/** One of a query's strongest keys. */
export interface StrongKey {
  series: number;
  key: number;
  value: number;
}

/**
 * The strongest keys of a query in all matrices together, the strongest first; null where they are
 * not known.
 */
export function strongestKeys(
  strongest: Strongest | null,
  query: number,
  renormalize: boolean,
): StrongKey[] | null {
  if (!strongest || query < strongest.rows[0] || query >= strongest.rows[1]) return null;
  const { k } = strongest;
  const at = query - strongest.rows[0];
  const all: StrongKey[] = [];
  for (const [series, { keys, weights, sums }] of strongest.matrices.entries()) {
    const whole = (renormalize && sums[3 * at]) || 1;
    for (let i = at * k; i < at * k + k; i++) {
      const key = keys[i] as number;
      if (key >= 0) all.push({ series, key, value: (weights[i] as number) / whole });
    }
  }
  return all.sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
}

/** The strongest keys of the pinned query; null where none is pinned, or all keys are in sight. */
export function createStrongest(
  { source, state, record }: ViewContext<HeadState>,
  plan: ReadonlySignal<Plan | null>,
): ReadonlySignal<Strongest | null> {
  const wanted = computed<StrongestRequest | null>(() => {
    const now = plan.value;
    if (!now || now.token === null || !isWindowed(now)) return null;
    const combine = combineOf(now, state.combine.value);
    return {
      stack: now.stack.name,
      layer: now.layer,
      heads: combine === "separate" ? now.heads.slice(0, MOST_LISTS) : now.heads,
      rows: [now.token, now.token + 1],
      k: LISTED,
      combine,
      leave_out: [...leftOutOf(now, state.leave_out.value)],
      pair: pairOf(now, state.pair.value),
    };
  });
  const found = record.answer(wanted, (request, ended) => {
    const numKeys = plan.peek()?.keys.text.length ?? 0;
    return askStrongest(source, request, numKeys, ended);
  });
  return computed(() => {
    const now = found.value;
    return now && same(now.question, wanted.value) ? now.answer : null;
  });
}
