/** Traits of a heat map, with their names in Python, and their defaults. */

import type { Pooled, Range } from "../../client/protocol";
import type { ColorScale } from "../colors/color-scales";
import { RECORD_DEFAULTS, type RecordState } from "../view/record";

export interface HeatMapState extends RecordState {
  color_scale: ColorScale;
  /**
   * Value of a cell that covers several weights: their mean or their maximum. For signed numbers,
   * the maximum is the number with the largest absolute value. Their mean is computed separately
   * for positive and negative numbers (see `cellValue`).
   */
  pooled: Pooled;
  /**
   * Ranges of the visible queries and keys. null shows all of them or, if the trait `pair` chooses
   * one of two texts, all of this text.
   */
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
