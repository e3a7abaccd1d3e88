/** Detail: the heat map of the open head, with its captions, beside or below the grid. */

import type { RefObject } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { ColorLegend } from "../../ui/colors/legend";
import { bound, Choice, CloseButton } from "../../ui/controls/fields";
import { runKey, type Shortcut } from "../../ui/controls/keys";
import { coverage } from "../../ui/heat-map/captions";
import { heatMapScale } from "../../ui/heat-map/legend";
import { HeatMapPlot, heatMapShortcuts } from "../../ui/heat-map/plot";
import { imageShortcuts, WithImage } from "../../ui/image/panel";
import type { ViewContext } from "../../ui/view/define-view";
import { nameInWords } from "./captions";
import type { ModelState } from "./state";
import { createDetail, type DetailStore, type ModelStore } from "./store";

/**
 * Return the keyboard shortcuts of the heat map for the help of the model view. "f" is omitted,
 * because the model view has no search field.
 */
export function detailShortcuts({ context, matrix }: DetailStore): Shortcut[] {
  return [...heatMapShortcuts(context, matrix, "head"), ...imageShortcuts(context)]
    .filter(([keys]) => keys !== "f")
    .map(([keys, meaning]) => [keys, `in the detail: ${meaning}`]);
}

export function Detail(props: {
  context: ViewContext<ModelState>;
  store: ModelStore;
  /** Root element of the detail. */
  section: RefObject<HTMLElement | null>;
  onClose: () => void;
}) {
  const { context, store, onClose } = props;
  const setDrawn = (drawnId: string | null): void => {
    store.detailDrawn.value = drawnId !== null;
  };
  const detail = useMemo(() => createDetail(context, store.detailWidth, setDrawn), []);
  useEffect(() => {
    store.detail.value = detail;
    return () => {
      store.detail.value = null;
      setDrawn(null);
    };
  }, []);
  const [opened, grid] = [store.opened.value, store.grid.value];
  if (!opened || !grid) return null;

  const close = (): boolean => {
    const { token, key } = context.state;
    // If tokens are pinned, Esc does not close the detail, because the heat map clears the pins.
    if (token.peek() !== null || key.peek() !== null) return false;
    onClose();
    return true;
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (!(event.target as Element).matches("input, select")) runKey(event, { Escape: close });
  };
  const name = nameInWords(opened, grid);
  return (
    <section
      class="av-model-detail"
      ref={props.section}
      aria-label={name}
      style={{ width: `${store.detailWidth.value}px` }}
      onKeyDownCapture={onKeyDown}
    >
      <header>
        <h3 class="av-pane-title">{name}</h3>
        <CloseButton label="Close the detail" title="Close (Esc)" onClick={onClose} />
      </header>
      <WithImage context={detail.context} panel={detail.panel}>
        <HeatMapPlot context={detail.context} store={detail.matrix} choose="head" />
      </WithImage>
      <DetailWords {...detail} />
    </section>
  );
}

/** Second caption and colour scale below the heat map. */
function DetailWords({ context, matrix }: DetailStore) {
  const heatMap = matrix.pinned.value;
  if (!heatMap) return null;
  return (
    <div class="av-vertical av-model-captions">
      <p class="av-muted">{coverage(heatMap, true)}</p>
      <div class="av-wrapping av-model-colours">
        <Choice
          label="Colours"
          options={{ linear: "linear", log: "logarithmic" }}
          {...bound(context.state.color_scale)}
        />
        <ColorLegend scale={heatMapScale(heatMap)} />
      </div>
    </div>
  );
}
