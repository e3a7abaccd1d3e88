/** Traits of the neuron view, and the query that they select. */

import { type Pair, pairOf, pairRange } from "../../ui/pairs";
import { RECORD_DEFAULTS, type RecordState, type Selection } from "../../ui/view/record";

/** Traits of the neuron view, named as in Python. */
export interface NeuronState extends RecordState {
  /**
   * Whether dimensions are ordered by their share in the products of the highlighted key.
   * Otherwise, they are ordered by index. The highlighted key is the pinned key or, if no displayed
   * key is pinned, the displayed key with the largest weight.
   */
  sort_dimensions: boolean;
}

export const NEURON_DEFAULTS: NeuronState = { ...RECORD_DEFAULTS, sort_dimensions: true };

/**
 * Return the displayed query: the pinned query or, without one, the last query that is not a
 * special token. If all queries are special tokens, it is the last query. Without a pinned query,
 * only queries of the text that `pair` selects are considered.
 */
export function tokenOf(selection: Selection, pair: Pair = "all"): number {
  if (selection.token !== null) return selection.token;
  const [start, stop] = pairRange(selection.queries, pairOf(selection, pair), "query");
  const special = new Set(selection.queries.special);
  for (let token = stop - 1; token >= start; token--) if (!special.has(token)) return token;
  return Math.max(0, stop - 1);
}
