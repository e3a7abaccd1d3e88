/** Traits of a heat map, and their defaults. */

import type { Pooled, Range } from "../../client/protocol";
import type { ColorScale } from "../colors/color-scales";
import { RECORD_DEFAULTS, type RecordState } from "../view/record";

/** Traits of a heat map, with their names in Python. */
export interface HeatMapState extends RecordState {
  color_scale: ColorScale;
  /**
   * Value of a cell that covers several weights: their mean or their maximum. For signed numbers,
   * the maximum is the number with the largest absolute value.
   */
  pooled: Pooled;
  /** Visible queries, and visible keys. null shows all queries (or keys) that `pair` allows. */
  query_window: Range | null;
  key_window: Range | null;
}

export const HEAT_MAP_DEFAULTS: HeatMapState = {
  ...RECORD_DEFAULTS,
  color_scale: "linear",
  pooled: "mean",
  query_window: null,
  key_window: null,
};
