/** The neuron view's traits, and the query and the head that they choose. */

import { type Place, RECORD_DEFAULTS, type RecordState } from "../../ui/view/record";

/** The neuron view's traits; the names are Python's. */
export interface NeuronState extends RecordState {
  sort_dimensions: boolean;
}

export const NEURON_DEFAULTS: NeuronState = { ...RECORD_DEFAULTS, sort_dimensions: true };

/** The query that is shown: the pinned one, or the last that is not a special token. */
export function tokenOf(place: Place): number {
  if (place.token !== null) return place.token;
  const { text, special } = place.queries;
  const left = new Set(special);
  for (let token = text.length - 1; token >= 0; token--) if (!left.has(token)) return token;
  return Math.max(0, text.length - 1);
}

/** The head that is shown. */
export function headOf(place: Place): number {
  return place.chosen[0] ?? place.allHeads[0] ?? 0;
}
