/** Detail: the heat map of the open head, with its captions, beside or below the grid. */

import { computed, effect, type Signal, signal } from "@preact/signals";
import type { RefObject } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import type { ColorScale } from "../../ui/colors/color-scales";
import { Choice } from "../../ui/controls/fields";
import { type KeyActions, runKey } from "../../ui/controls/keys";
import { coverage, sentence } from "../../ui/heat-map/captions";
import { HeatMapLegend } from "../../ui/heat-map/legend";
import { HeatMapPlot } from "../../ui/heat-map/plot";
import type { HeatMapState } from "../../ui/heat-map/state";
import { createHeatMapImage, createHeatMapStore, type HeatMapStore } from "../../ui/heat-map/store";
import { WithImage } from "../../ui/image/panel";
import { sharingRoom } from "../../ui/image/store";
import type { ViewContext } from "../../ui/view/define-view";
import type { RecordState, Selection } from "../../ui/view/record";
import { assign, type Signals } from "../../ui/view/state";
import { cellName } from "./captions";
import type { ModelState } from "./state";
import type { ModelStore } from "./store";

/** Captions of the view while the detail is open. */
export interface DetailCaptions {
  /** Sentence below the grid. */
  sentence: string;
  /** Text for screen readers. */
  summary: string;
}

export interface DetailProps {
  context: ViewContext<ModelState>;
  store: ModelStore;
  /** Identity of the drawn detail, or null while no detail is drawn. The detail sets it. */
  drawn: Signal<object | null>;
  /** Root element of the detail. */
  section: RefObject<HTMLElement | null>;
  /** Captions about the open head. They are more exact than captions from its pooled map. */
  captions: Signal<DetailCaptions | null>;
  onClose: () => void;
}

/** Return the selection with only the first of its chosen heads. */
function onlyFirst(selection: Selection | null): Selection | null {
  return (
    selection && {
      ...selection,
      chosen: selection.chosen.slice(0, 1),
      heads: selection.chosen.slice(0, 1),
    }
  );
}

/** Return a view context for the heat map, in which only the open head is chosen. */
function detailContext(
  { context, store, drawn }: DetailProps,
  self: object,
): ViewContext<HeatMapState> {
  const { record } = context;
  const state: Signals<HeatMapState> = {
    ...context.state,
    heads: signal(context.state.heads.peek().slice(0, 1)),
  };
  return sharingRoom({
    ...context,
    state,
    common: state as unknown as Signals<RecordState>,
    // The copy has a different selection. The record of the model view must not change.
    record: { ...record, selection: computed(() => onlyFirst(record.selection.value)) },
    width: store.detailWidth,
    setDrawn: (id) => {
      drawn.value = id === null ? null : self;
    },
  });
}

/**
 * Return the captions of the heat map, or null until it is loaded.
 *
 * @param image caption of the image, or "" without one.
 */
function captionsOf(matrix: HeatMapStore, image: string): DetailCaptions | null {
  const heatMap = matrix.pinned.value;
  return (
    heatMap && { sentence: sentence(heatMap), summary: `${matrix.summary.value} ${image}`.trim() }
  );
}

export function Detail(props: DetailProps) {
  const { context, store, drawn } = props;
  const self = useMemo(() => ({}), []);
  const inner = useMemo(() => detailContext(props, self), []);
  const matrix = useMemo(() => createHeatMapStore(inner), []);
  const panel = useMemo(() => createHeatMapImage(inner, matrix), []);
  useEffect(() => {
    let own: DetailCaptions | null = null;
    const stop = effect(() => {
      inner.state.heads.value = context.state.heads.value.slice(0, 1);
      own = captionsOf(matrix, panel.caption.value);
      props.captions.value = own;
    });
    return () => {
      stop();
      // The next detail may already have set these signals. Clear only what this detail has set.
      if (props.captions.peek() === own) props.captions.value = null;
      if (drawn.peek() === self) drawn.value = null;
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
  const name = cellName(opened, null);
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
  const { state } = context;
  const heatMap = matrix.pinned.value;
  if (!heatMap) return null;
  return (
    <div class="av-model-captions">
      <p class="av-muted">{coverage(heatMap, true)}</p>
      <div class="av-model-colours">
        <Choice<ColorScale>
          label="Colours"
          value={state.color_scale.value}
          options={[
            ["linear", "linear"],
            ["log", "logarithmic"],
          ]}
          onChange={(color_scale) => assign(state, { color_scale })}
        />
        <HeatMapLegend store={matrix} heatMap={heatMap} />
      </div>
    </div>
  );
}
