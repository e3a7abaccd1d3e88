/** Traits of the model view. */

import type { IncludeHeads } from "../../ui/head-grid/grid";
import { HEAT_MAP_DEFAULTS, type HeatMapState } from "../../ui/heat-map/state";

/** Traits of the model view, under their Python names. The detail uses those of the matrix view. */
export interface ModelState extends HeatMapState {
  thumbnails: "heat-map" | "lines";
  include_heads: IncludeHeads;
}

export const MODEL_DEFAULTS: ModelState = {
  ...HEAT_MAP_DEFAULTS,
  thumbnails: "heat-map",
  include_heads: null,
};
