/** A heat map's traits and their defaults. */

import type { Pooled, Range } from "../../client/protocol";
import type { ColorScale } from "../colors/color-scales";
import { RECORD_DEFAULTS, type RecordState } from "../view/record";

/** The traits of a heat map; the names are Python's. */
export interface HeatMapState extends RecordState {
  color_scale: ColorScale;
  /** What a cell shows of its weights, where it stands for several. */
  pooled: Pooled;
  /** Queries and keys in sight; null for all. */
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
