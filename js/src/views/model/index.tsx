/**
 * Model view: a grid of thumbnails of all heads, and the detail, a larger heat map of one head. The
 * map of a head is its attention matrix, pooled to few cells for the thumbnail.
 */

import { useComputed, useSignalEffect } from "@preact/signals";
import type { RefObject } from "preact";
import { useMemo, useRef } from "preact/hooks";
import { recordTransport } from "../../client/page";
import { MODEL_VIEW_TRAITS } from "../../client/traits";
import { openingWindows } from "../../ui/axis";
import { ColorLegend } from "../../ui/colors/legend";
import { Controls } from "../../ui/controls/declared";
import { LinearMark } from "../../ui/controls/layers";
import { EffectLegend } from "../../ui/effects/bar";
import { drawnYet, useExports, viewFigure } from "../../ui/exports/exports";
import { defineView } from "../../ui/frame/define-view";
import {
  Footer,
  OrderControl,
  PairControl,
  TokenScoreControl,
  ViewFrame,
} from "../../ui/frame/frame";
import type { HeadGrid } from "../../ui/head-grid/grid";
import headGridCss from "../../ui/head-grid/head-grid.css";
import { RoleLegend } from "../../ui/head-grid/head-roles";
import { counted, quantityOf, stackName } from "../../ui/text/captions";
import type { ViewContext } from "../../ui/view/define-view";
import { baseName } from "../../ui/view/model-layers";
import { PinnedEdge } from "../../ui/what-if/pinned-edge";
import { WhatIf } from "../../ui/what-if/what-if";
import whatIfCss from "../../ui/what-if/what-if.css";
import { coverageOf, layersInWords, sentenceOf, subtitleOf } from "./captions";
import { Detail, detailShortcuts } from "./detail";
import { type Exported, figureParts, headsCsv, loadAll } from "./figure";
import { ModelGrid } from "./grid";
import type { Layout } from "./layout";
import { thumbnailScale } from "./marks";
import css from "./model.css";
import type { ModelState } from "./state";
import { createModelStore, type ModelStore } from "./store";

const KEYS = [
  ["↑ ↓", "previous, next layer"],
  ["← →", "previous, next head"],
  ["Home End", "first, last head of the layer"],
  ["Page ↑ ↓", "scroll up, down by a screen of layers"],
  ["Enter", "open the head in detail"],
  ["Esc", "close the detail"],
] as const;

export function ModelView({ context }: { context: ViewContext<ModelState> }) {
  const store = useMemo(() => createModelStore(context), []);
  const section = useRef<HTMLElement>(null);
  const entries = useExports(context, {
    name: "model-view",
    figure: async () => {
      const exported = await loadExported(context, store);
      const { grid, selection, map } = exported;
      const first = grid.rows.flat().find((head) => head !== null);
      return viewFigure(context, {
        captions: {
          subtitle: subtitleOf(store, selection, grid),
          sentence:
            store.detailCaptions.peek()?.sentence ?? sentenceOf(store, selection, grid, false),
          coverage: coverageOf(context, store, grid, (first && map(first)) ?? null),
        },
        ...figureParts(context, store, drawnYet(store.wholeLayout()), exported),
      });
    },
    csv: () => headsCsv(store, drawnYet(store.grid.peek())),
    csvLabel: "Heads, CSV",
  });

  // Report the view as drawn only after both the grid and the detail are drawn.
  useSignalEffect(() => {
    const drawnId = store.drawnId.value;
    const detail = !store.showsDetail.value || store.detailDrawn.value;
    const done = store.gridDrawn.value === drawnId && detail && !store.reordering.value;
    // Only the detail keeps an older picture. The grid never does, as its cells are empty until
    // their maps arrive.
    context.setDrawn(done ? drawnId : null, !detail && store.detailCaptions.value !== null);
  });

  const summary = useComputed(() => {
    const [selection, grid] = [store.selection.value, store.grid.value];
    store.arrivals.value;
    if (!selection || !grid) return "";
    const detail = store.detailCaptions.value;
    return detail
      ? `${layersInWords(selection.stack)}. ${detail.summary}`
      : `${grid.kinds ? "" : `${stackName(grid.stack)}. `}${sentenceOf(store, selection, grid, true)}`;
  });
  useDetailInSight(store, section);
  const selection = store.selection.value;
  const grid = store.grid.value;

  return (
    <ViewFrame
      context={context}
      name="Model view"
      subtitle={selection && grid ? subtitleOf(store, selection, grid) : ""}
      summary={summary}
      exports={entries}
      keys={[...KEYS, ...(store.detail.value ? detailShortcuts(store.detail.value) : [])]}
      choose="none"
      oneStack={grid?.columns === null}
      onStack={(to) => ({ heads: [], ...openingWindows(to) })}
      options={<Options context={context} />}
      footer={
        <>
          <ModelFooter context={context} store={store} />
          {!context.embedded && <PinnedEdge context={context} />}
        </>
      }
    >
      <div class={`av-wrapping av-model${store.beside.value ? " av-detail-beside" : ""}`}>
        <ModelGrid context={context} store={store} />
        {store.showsDetail.value && (
          // `key` replaces the detail when a stack with other tokens is chosen. Siblings and a run
          // with an intervention have the same tokens, so the detail stays while weights load.
          <Detail
            key={selection?.siblings[0] && baseName(selection.siblings[0])}
            context={context}
            store={store}
            section={section}
            onClose={() => {
              store.close();
              // Focusing must not scroll the page.
              store.heads.box.current?.focus({ preventScroll: true });
            }}
          />
        )}
      </div>
      {!context.embedded && <WhatIf context={context} />}
    </ViewFrame>
  );
}

/** Scroll to the detail of a head when it is drawn below the grid after a click on the head. */
function useDetailInSight(store: ModelStore, section: RefObject<HTMLElement | null>): void {
  useSignalEffect(() => {
    if (!store.mustShowDetail.value || !store.detailDrawn.value) return;
    store.mustShowDetail.value = false;
    // A detail beside the grid is visible. Scrolling would move the clicked cell away from the
    // pointer.
    if (store.beside.peek()) return;
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const behavior = calm ? "auto" : "smooth";
    // The captions below the heat map appear in the next frame.
    requestAnimationFrame(() => section.current?.scrollIntoView({ block: "nearest", behavior }));
  });
}

/** Load the maps of all heads for an export. @throws Error if nothing is drawn yet. */
async function loadExported(
  { source }: ViewContext<ModelState>,
  store: ModelStore,
): Promise<Exported> {
  const shown = {
    grid: drawnYet(store.grid.peek()),
    selection: drawnYet(store.selection.peek()),
  };
  try {
    return await loadAll(source, store, shown, (done) => {
      store.exporting.value = `Loading ${done} of ${shown.grid.shown} heads …`;
    });
  } finally {
    store.exporting.value = null;
  }
}

/** Controls of the kind and order of the thumbnails, and of the text of a pair. */
function Options({ context }: { context: ViewContext<ModelState> }) {
  return (
    <div class="av-row av-options">
      <Controls traits={MODEL_VIEW_TRAITS} state={context.state} group="grid" />
      {!context.embedded && (
        <>
          <OrderControl context={context} />
          <TokenScoreControl context={context} />
          <PairControl context={context} />
        </>
      )}
    </div>
  );
}

function ModelFooter(props: { context: ViewContext<ModelState>; store: ModelStore }) {
  const { context, store } = props;
  const [selection, grid] = [store.selection.value, store.grid.value];
  store.arrivals.value;
  if (!selection || !grid) return null;
  const effects = store.effects.value;
  return (
    <Footer
      sentence={store.detailCaptions.value?.sentence ?? sentenceOf(store, selection, grid, true)}
      coverage={store.exporting.value ?? coverageOf(context, store, grid)}
      more={<InSight grid={grid} layout={store.layout.value} />}
    >
      {effects && (
        <EffectLegend scale={effects} palette={context.palette.value} where="below heads" />
      )}
      {store.roleSigns.value.length > 0 && <RoleLegend signs={store.roleSigns.value} />}
      {store.stacks.value.map((stack, _, { length }) => (
        <ColorLegend
          key={baseName(stack)}
          title={length > 1 && <KindTitle grid={grid} name={baseName(stack)} />}
          scale={thumbnailScale(
            context.state.thumbnails.value,
            store.anyMap(stack)?.maximum ?? stack.maximum,
            quantityOf(stack),
            context.palette.value,
          )}
        />
      ))}
    </Footer>
  );
}

/** Title of the colour scale of a stack, if the grid has several stacks. */
function KindTitle({ grid, name }: { grid: HeadGrid; name: string }) {
  return (
    <span class="av-color-title">
      {grid.kinds?.[name] && <LinearMark />} {stackName(name)}
    </span>
  );
}

/** Sentence that says that the scroll box hides heads, and how to reach them. */
function InSight({ grid, layout }: { grid: HeadGrid; layout: Layout | null }) {
  const isWhole = layout && layout.width <= layout.boxWidth && layout.height <= layout.boxHeight;
  if (!layout || isWhole) return null;
  return (
    <p class="av-muted av-in-sight">
      Not all {counted(grid.shown)} heads are in sight. Scroll for the rest.
    </p>
  );
}

/** Styles for views that embed the model view. */
export const MODEL_CSS = headGridCss + css;
export type { ModelState };

const view = defineView<ModelState>({
  name: "model",
  traits: MODEL_VIEW_TRAITS,
  css: MODEL_CSS + whatIfCss,
  component: ModelView,
  pageTransport: recordTransport,
});

export const { openPage } = view;
export default view.widget;
