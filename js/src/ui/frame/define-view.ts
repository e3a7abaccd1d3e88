/** Definition of a view in a frame, with the features and the style sheets that all frames have. */

import controlsCss from "../controls/controls.css";
import generatedTokenCss from "../generated-token/cursor.css";
import { GENERATED_TOKEN } from "../generated-token/state";
import { HEAD_ORDER } from "../head-grid/order";
import imageCss from "../image/image.css";
import { defineView as define, type ViewDefinition } from "../view/define-view";
import type { Feature, RecordState } from "../view/record";
import { CHANGED_RUN } from "../what-if/changed-run";
import frameCss from "./frame.css";

/** Features of all views. A view that lacks their traits in Python has the defaults. */
export const FEATURES: readonly Feature[] = [CHANGED_RUN, GENERATED_TOKEN, HEAD_ORDER];

export function defineView<S extends RecordState>(definition: Omit<ViewDefinition<S>, "features">) {
  const css = frameCss + controlsCss + imageCss + generatedTokenCss + definition.css;
  return define<S>({ ...definition, css, features: FEATURES });
}
