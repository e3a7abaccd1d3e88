/** The model view's traits. */

import type { IncludeHeads } from "../../ui/head-grid/grid";
import { HEAT_MAP_DEFAULTS, type HeatMapState } from "../../ui/heat-map/state";

/** The traits of the model view; the names are Python's. The detail's are the matrix view's. */
export interface ModelState extends HeatMapState {
  thumbnails: "heat-map" | "lines";
  include_heads: IncludeHeads;
}

export const MODEL_DEFAULTS: ModelState = {
  ...HEAT_MAP_DEFAULTS,
  thumbnails: "heat-map",
  include_heads: null,
};
