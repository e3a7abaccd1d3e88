/** What is asked of keys outside the window: the strongest of all, and where the weight lies. */

import { computed, type ReadonlySignal, signal } from "@preact/signals";
import type { StrongestRequest } from "../../client/protocol";
import {
  askStrongest,
  type Meant,
  type Strongest,
  strongestOf,
} from "../../client/requests/strongest";
import { pairOf } from "../../ui/pairs";
import type { ViewContext } from "../../ui/view/define-view";
import { type HeadState, isTogether, leftOutOf, type Plan } from "./state";
import { binSizeOf } from "./strips";

/** Asked for each query, so that fewer lines are not asked for anew; and of all together no more. */
const LEAST_KEYS = 10;
const MOST_KEYS = 100_000;
/** Keys of a pinned query that are listed, for all matrices together. */
const LISTED = 12;
/** Questions that follow so soon after another wait so long for the next. */
const HASTE_MS = 400;
const REST_MS = 150;
/** Matrices whose lists are read; of more there is no telling apart. */
export const MOST_LISTS = 4;

/** How the heads of a plan are put together. */
function combineOf(plan: Plan, combine: HeadState["combine"]): StrongestRequest["combine"] {
  if (plan.heads.length === 1) return "separate";
  return combine === "separate" && isTogether(plan) ? "mean" : combine;
}

function requestOf(
  plan: Plan,
  state: Pick<HeadState, "combine" | "leave_out" | "pair">,
  rows: Plan["rows"],
  k: number,
): StrongestRequest {
  return {
    stack: plan.stack.name,
    layer: plan.layer,
    heads: plan.heads,
    rows,
    k,
    bin_size: binSizeOf(plan.keys.text.length, plan.keyWindow),
    combine: combineOf(plan, state.combine),
    leave_out: [...leftOutOf(plan, state.leave_out)],
    pair: pairOf(plan, state.pair),
  };
}

/** The strongest keys of the queries in sight, whose rows are at hand. */
export function strongestHere(
  plan: Plan,
  matrices: readonly Float32Array[],
  k: number,
  meant: Meant,
): Strongest {
  const numKeys = plan.keys.text.length;
  const [rows, bin_size] = [plan.queryWindow, binSizeOf(numKeys, plan.keyWindow)];
  const found = matrices.map((matrix) => {
    const start = (row: number): number => (row - plan.rows[0]) * numKeys;
    const rowAt = (row: number) => matrix.subarray(start(row), start(row + 1));
    return strongestOf(rowAt, { rows, k, bin_size }, numKeys, meant);
  });
  return { rows, k: Math.min(k, numKeys), binSize: bin_size, matrices: found, done: 1 };
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
    const kept = sums[3 * at] ?? Number.NaN;
    if (Number.isNaN(kept)) return null;
    const whole = (renormalize && kept) || 1;
    for (let i = at * k; i < at * k + k; i++) {
      const key = keys[i] as number;
      if (key >= 0) all.push({ series, key, value: (weights[i] as number) / whole });
    }
  }
  return all.sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
}

/**
 * The strongest keys of all queries of a long plan, as far as they have come, and those of the
 * pinned query of any plan that shows a part of the keys.
 */
export function createStrongest(
  context: ViewContext<HeadState>,
  plan: ReadonlySignal<Plan | null>,
  pinned: ReadonlySignal<number | null>,
): Record<"ofAll" | "ofPinned", ReadonlySignal<Strongest | null>> {
  const { source, state, record } = context;
  const traits = computed(() => ({
    combine: state.combine.value,
    leave_out: state.leave_out.value,
    pair: state.pair.value,
  }));

  const asked = (wanted: ReadonlySignal<StrongestRequest | null>) => {
    const known = signal<{ text: string; found: Strongest } | null>(null);
    const text = computed(() => JSON.stringify(wanted.value));
    let asked = 0;
    record.answer(wanted, async (request, ended) => {
      const since = performance.now() - asked;
      asked = performance.now();
      // A kernel answers in turn, also what is not awaited any more: while a window is dragged
      // nothing is asked.
      if (since < HASTE_MS) await new Promise((resolve) => setTimeout(resolve, REST_MS));
      if (ended.aborted) return;
      const numKeys = plan.peek()?.keys.text.length ?? 0;
      const onPart = (found: Strongest): void => {
        known.value = { text: JSON.stringify(request), found };
      };
      await askStrongest(source, request, numKeys, onPart, ended);
    });
    return computed(() => (known.value?.text === text.value ? (known.value?.found ?? null) : null));
  };

  return {
    ofAll: asked(
      computed(() => {
        const now = plan.value;
        if (!now?.long) return null;
        const [first, stop] = now.queryWindow;
        const wanted = Math.max(LEAST_KEYS, state.top_k.value ?? 0);
        const k = Math.min(wanted, Math.floor(MOST_KEYS / (stop - first)));
        return requestOf(now, traits.value, now.queryWindow, k);
      }),
    ),
    ofPinned: asked(
      computed(() => {
        const [now, token] = [plan.value, pinned.value];
        if (!now?.windowed || token === null) return null;
        const request = requestOf(now, traits.value, [token, token + 1], LISTED);
        // Of one layer the pinned query's lists are short, and what is asked for soon answered.
        return request.combine === "separate"
          ? { ...request, heads: request.heads.slice(0, MOST_LISTS) }
          : request;
      }),
    ),
  };
}
