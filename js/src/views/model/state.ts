/** Traits of the model view. */

import type { IncludeHeads } from "../../ui/head-grid/grid";
import { HEAT_MAP_DEFAULTS, type HeatMapState } from "../../ui/heat-map/state";

/**
 * Traits of the model view, named as in Python. The inherited traits of the matrix view apply to
 * the heat map of the open head.
 */
export interface ModelState extends HeatMapState {
  thumbnails: "heat-map" | "lines";
  /** Heads in the grid, or null for all heads. */
  include_heads: IncludeHeads;
}

export const MODEL_DEFAULTS: ModelState = {
  ...HEAT_MAP_DEFAULTS,
  thumbnails: "heat-map",
  include_heads: null,
};
