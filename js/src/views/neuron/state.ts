/** Traits of the neuron view, and the query that they select. */

import type { NEURON_VIEW_TRAITS, StateOf } from "../../client/traits";
import { type Pair, pairOf, pairRange } from "../../ui/pairs";
import type { RecordState, Selection } from "../../ui/view/record";

export type NeuronState = RecordState & StateOf<typeof NEURON_VIEW_TRAITS>;

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
