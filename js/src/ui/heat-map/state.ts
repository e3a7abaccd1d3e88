/** State of the views with a heat map. */

import type { MATRIX_VIEW_TRAITS, StateOf } from "../../client/traits";
import type { RecordState } from "../view/record";

export type HeatMapState = RecordState & StateOf<typeof MATRIX_VIEW_TRAITS>;
