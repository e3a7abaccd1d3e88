/** The neuron view's traits, and the query and the head that they choose. */

import { type Pair, pairOf, pairRange } from "../../ui/pairs";
import { RECORD_DEFAULTS, type RecordState, type Selection } from "../../ui/view/record";

/** The neuron view's traits; the names are Python's. */
export interface NeuronState extends RecordState {
  sort_dimensions: boolean;
}

export const NEURON_DEFAULTS: NeuronState = { ...RECORD_DEFAULTS, sort_dimensions: true };

/** The query that is shown: the pinned one, or the last of the pair that is not a special token. */
export function tokenOf(selection: Selection, pair: Pair = "all"): number {
  if (selection.token !== null) return selection.token;
  const [start, stop] = pairRange(selection.queries, pairOf(selection, pair), "query");
  const special = new Set(selection.queries.special);
  for (let token = stop - 1; token >= start; token--) if (!special.has(token)) return token;
  return Math.max(0, stop - 1);
}

/** The head that is shown. */
export function headOf(selection: Selection): number {
  return selection.chosen[0] ?? selection.allHeads[0] ?? 0;
}
