import { signal } from "@preact/signals";
import { onTestFinished } from "vitest";
import type { Source } from "../src/client/source";
import { PALETTES, type ThemeName } from "../src/ui/colors/palette";
import { FEATURES } from "../src/ui/frame/define-view";
import type { ViewContext } from "../src/ui/view/define-view";
import { createOldPicture } from "../src/ui/view/old-picture";
import { createRecordStore, type RecordState } from "../src/ui/view/record";
import { makeSignals, type Signals } from "../src/ui/view/state";

export interface ViewSetup<State extends RecordState> {
  state: Signals<State>;
  context: ViewContext<State>;
  controller: AbortController;
}

/**
 * Return the state and the context of a view of `source` in the light theme, and the controller
 * that ends the view. At the latest, the view ends with the test.
 */
export function setUpView<State extends RecordState>(
  fields: State,
  source: Source,
): ViewSetup<State> {
  const controller = new AbortController();
  onTestFinished(() => controller.abort());
  const state = makeSignals<State>(fields);
  const common = state as unknown as Signals<RecordState>;
  const record = createRecordStore(
    source,
    common,
    controller.signal,
    signal(""),
    undefined,
    FEATURES,
  );
  const context: ViewContext<State> = {
    root: document.createElement("div"),
    source,
    state,
    common,
    record,
    palette: signal(PALETTES.light),
    theme: signal<ThemeName>("light"),
    width: signal(900),
    offered: signal(null),
    controls: signal("full"),
    embedded: false,
    setDrawn: () => undefined,
    oldPicture: createOldPicture(record, common, signal({}), signal(true), signal(true)),
    ended: controller.signal,
  };
  return { state, context, controller };
}
