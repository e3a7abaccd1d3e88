/** Order of the heads: by number, by the weights at the pinned tokens, by a score, or by role. */

import { computed } from "@preact/signals";
import { effectsOf, rankOf } from "../effects/effects";
import { BY_PIN } from "../text/captions";
import { baseName } from "../view/model-layers";
import type { Feature, RecordStore } from "../view/record";
import { BY_ROLE, type HeadRole, roleOf } from "./head-roles";
import { type Pin, pinnedWeights } from "./pinned-weights";

/**
 * Heads in display order, with their scores in the same order. `scores` is null if the heads are
 * not ordered by a score.
 */
export type HeadOrder = ReturnType<typeof orderHeads>;

/**
 * Order heads by decreasing score or, if `bySize`, by decreasing absolute value of the score. Heads
 * without a score come last.
 *
 * @param scores scores by number of the head. If null, the heads keep their order.
 */
export function orderHeads(
  heads: readonly number[],
  scores: readonly (number | null)[] | null,
  bySize = false,
) {
  if (!scores) return { heads: [...heads], scores: null };
  const scoreOf = (head: number): number => rankOf(scores[head] ?? null, bySize);
  const ordered = [...heads].sort((a, b) => scoreOf(b) - scoreOf(a) || a - b);
  return { heads: ordered, scores: ordered.map((head) => scores[head] ?? null) };
}

/** Return the order of the heads of a view. */
export function headOrderOf(record: RecordStore): ReturnType<typeof createHeadOrder> {
  return record.part(createHeadOrder);
}

/** The order of heads as a feature of views. */
export const HEAD_ORDER: Feature = { start: headOrderOf };

function createHeadOrder(record: RecordStore) {
  const { source, state, selection, answer, pictured } = record;
  const shownStack = computed(() => selection.value?.stack ?? null);
  const roles = computed(() => {
    const stack = shownStack.value;
    return (stack && state.roles.value[baseName(stack)]) ?? null;
  });
  const byRole = computed(() => {
    const stack = shownStack.value;
    const roleScores = stack && state.scores.value[BY_ROLE]?.[baseName(stack)];
    return state.order.value === BY_ROLE && roles.value !== null && !roleScores;
  });
  const pin = computed<Pin | null>(() => {
    const current = selection.value;
    return current && current.token !== null ? { query: current.token, key: current.key } : null;
  });
  const ordered = computed(() => {
    const name = state.order.value;
    const stack = shownStack.value;
    if (!stack || name === "number") return null;
    if (name === BY_PIN) return pin.value && { stack, name, knownScores: null, pin: pin.value };
    const ranks = byRole.value ? roles.value?.ranks : null;
    const knownScores = state.scores.value[name]?.[baseName(stack)] ?? ranks ?? null;
    return knownScores || stack.patterns.includes(name)
      ? { stack, name, knownScores, pin: null }
      : null;
  });
  const { current: scores } = answer(ordered, async ({ stack, name, knownScores, pin }, signal) => {
    if (knownScores) return knownScores;
    return pin
      ? pinnedWeights(source, stack, pin, signal)
      : source.scores(stack.name, name, signal);
  });
  const pair = computed(() => {
    const [stack, pinned] = [shownStack.value, pin.value];
    return stack && pinned && pinned.key !== null ? { stack, pin: pinned } : null;
  });
  const { current: pinnedScores } = answer(pair, async ({ stack, pin }, signal) => {
    await pictured(signal);
    return pinnedWeights(source, stack, pin, signal);
  });
  const order = computed<HeadOrder>(() => {
    const current = selection.value;
    if (!current) return { heads: [], scores: null };
    const rows = scores.value;
    const ofLayer = rows ? (rows[current.stack.layers.indexOf(current.layer)] ?? null) : null;
    const bySize =
      effectsOf(record).heads.value?.name === state.order.value ||
      (state.order.value === BY_PIN && current.stack.signed === true);
    return orderHeads(current.allHeads, ofLayer, bySize);
  });

  return {
    /**
     * Scores by which the heads of the stack are ordered: one list for each layer, with one score
     * for each head. null until the scores are loaded.
     *
     * Also null if the heads are ordered by number. This is the case if the reader chose this
     * order, if the stack lacks the chosen score, or if the chosen order is "pinned tokens" and no
     * query is pinned.
     */
    scores,
    /** Whether the scores that the chosen order of the heads needs are missing. */
    loading: computed(() => ordered.value !== null && scores.value === null),
    /**
     * Weights of all heads of the stack from the pinned query to the pinned key. null if one of the
     * two is not pinned, or until the weights are loaded.
     */
    pinnedScores,
    /** Roles of the heads of the stack over a corpus, or null if they are unknown. */
    roles,
    roleOf: (head: { layer: number; head: number }): HeadRole | null => {
      const stack = shownStack.value;
      return stack && roleOf(roles.value, stack, head);
    },
    byRole,
    /** Heads of the layer in display order. */
    order,
  };
}
