/** Detail: the heat map of the open head, with its captions, beside or below the grid. */

import { computed, effect, signal } from "@preact/signals";
import type { RefObject } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { bound, Choice } from "../../ui/controls/fields";
import { type KeyActions, runKey } from "../../ui/controls/keys";
import { coverage, sentence } from "../../ui/heat-map/captions";
import { HeatMapLegend } from "../../ui/heat-map/legend";
import { HeatMapPlot } from "../../ui/heat-map/plot";
import type { HeatMapState } from "../../ui/heat-map/state";
import { createHeatMapImage, createHeatMapStore, type HeatMapStore } from "../../ui/heat-map/store";
import { WithImage } from "../../ui/image/panel";
import { sharingRoom } from "../../ui/image/store";
import { capital, headName } from "../../ui/text/captions";
import type { ViewContext } from "../../ui/view/define-view";
import type { RecordState } from "../../ui/view/record";
import type { Signals } from "../../ui/view/state";
import type { ModelState } from "./state";
import type { ModelStore } from "./store";

interface DetailProps {
  context: ViewContext<ModelState>;
  store: ModelStore;
  /** Root element of the detail. */
  section: RefObject<HTMLElement | null>;
  onClose: () => void;
}

/** Return a view context for the heat map, in which only the open head is chosen. */
function detailContext({ context, store }: DetailProps): ViewContext<HeatMapState> {
  const { record } = context;
  const heads = signal(context.state.heads.peek().slice(0, 1));
  const state: Signals<HeatMapState> = { ...context.state, heads };
  const selection = computed(() => {
    const now = record.selection.value;
    const chosen = now?.chosen.slice(0, 1) ?? [];
    return now && { ...now, chosen, heads: chosen };
  });
  return sharingRoom({
    ...context,
    state,
    common: state as unknown as Signals<RecordState>,
    // The copy has a different selection. The record of the model view must not change.
    record: { ...record, selection },
    width: store.detailWidth,
    setDrawn: (id) => {
      store.detailDrawn.value = id !== null;
    },
  });
}

export function Detail(props: DetailProps) {
  const { context, store } = props;
  const inner = useMemo(() => detailContext(props), []);
  const matrix = useMemo(() => createHeatMapStore(inner), []);
  const panel = useMemo(() => createHeatMapImage(inner, matrix), []);
  useEffect(() => {
    const stop = effect(() => {
      inner.state.heads.value = context.state.heads.value.slice(0, 1);
      const heatMap = matrix.pinned.value;
      store.detailCaptions.value = heatMap && {
        sentence: sentence(heatMap),
        summary: `${matrix.summary.value} ${panel.caption.value}`.trim(),
      };
    });
    return () => {
      stop();
      store.detailCaptions.value = null;
      store.detailDrawn.value = false;
    };
  }, []);
  const opened = store.opened.value;
  if (!opened) return null;

  const openHead = (head: number) => () => {
    const selection = store.selection.peek();
    if (selection?.allHeads.includes(head)) store.moveTo({ layer: selection.layer, head });
  };
  // Handle these keyboard keys here. The plot would choose several heads or none.
  const actions: KeyActions = {
    Escape: () => {
      const { token, key } = context.state;
      if (token.peek() !== null || key.peek() !== null) return false;
      props.onClose();
      return true;
    },
    n: () => {},
    ...Object.fromEntries(Array.from({ length: 10 }, (_, head) => [head, openHead(head)])),
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (!(event.target as Element).matches("input, select")) runKey(event, actions);
  };
  const name = capital(headName(opened));
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
        <button
          type="button"
          class="av-plain"
          aria-label="Close the detail"
          title="Close (Esc)"
          onClick={props.onClose}
        >
          ✕
        </button>
      </header>
      <WithImage context={inner} panel={panel}>
        <HeatMapPlot context={inner} store={matrix} />
      </WithImage>
      <DetailWords context={inner} matrix={matrix} />
    </section>
  );
}

/** Second caption and colour scale below the heat map. */
function DetailWords(props: { context: ViewContext<HeatMapState>; matrix: HeatMapStore }) {
  const { context, matrix } = props;
  const heatMap = matrix.pinned.value;
  if (!heatMap) return null;
  return (
    <div class="av-model-captions">
      <p class="av-muted">{coverage(heatMap, true)}</p>
      <div class="av-model-colours">
        <Choice
          label="Colours"
          options={{ linear: "linear", log: "logarithmic" }}
          {...bound(context.state.color_scale)}
        />
        <HeatMapLegend store={matrix} heatMap={heatMap} />
      </div>
    </div>
  );
}
