/** States of views with the default of each trait. */

import {
  ATLAS_VIEW_TRAITS,
  EMBEDDING_VIEW_TRAITS,
  HEAD_VIEW_TRAITS,
  MATRIX_VIEW_TRAITS,
  MODEL_VIEW_TRAITS,
} from "../src/client/traits";
import { FEATURES } from "../src/ui/frame/define-view";
import type { HeatMapState } from "../src/ui/heat-map/state";
import { type RecordState, viewTraits } from "../src/ui/view/record";
import { defaultsOf } from "../src/ui/view/state";
import type { AtlasState } from "../src/views/atlas/state";
import type { EmbeddingState } from "../src/views/embedding/state";
import type { HeadState } from "../src/views/head/state";
import type { ModelState } from "../src/views/model/state";

export const RECORD_DEFAULTS = defaultsOf<RecordState>(viewTraits({}, FEATURES));
export const HEAT_MAP_DEFAULTS = defaultsOf<HeatMapState>(viewTraits(MATRIX_VIEW_TRAITS, FEATURES));
export const HEAD_DEFAULTS = defaultsOf<HeadState>(viewTraits(HEAD_VIEW_TRAITS, FEATURES));
export const MODEL_DEFAULTS = defaultsOf<ModelState>(viewTraits(MODEL_VIEW_TRAITS, FEATURES));
export const EMBEDDING_DEFAULTS = defaultsOf<EmbeddingState>(
  viewTraits(EMBEDDING_VIEW_TRAITS, FEATURES),
);
export const ATLAS_DEFAULTS = defaultsOf<AtlasState>(viewTraits(ATLAS_VIEW_TRAITS, FEATURES));
