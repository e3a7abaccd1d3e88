/** State of the model view. */

import type { MODEL_VIEW_TRAITS, StateOf } from "../../client/traits";
import type { RecordState } from "../../ui/view/record";

export type ModelState = RecordState & StateOf<typeof MODEL_VIEW_TRAITS>;
