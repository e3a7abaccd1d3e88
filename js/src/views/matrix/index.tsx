/**
 * Matrix view: a heat map of one head or of the mean of several heads, with queries as rows and
 * keys as columns. Its zoom reaches from the complete matrix to single weights.
 */

import { useComputed } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { recordTransport } from "../../client/page";
import { MATRIX_VIEW_TRAITS } from "../../client/traits";
import { openingWindows } from "../../ui/axis";
import { ColorLegend } from "../../ui/colors/legend";
import { EffectLegend } from "../../ui/effects/bar";
import { drawnYet, useExports } from "../../ui/exports/exports";
import { defineView } from "../../ui/frame/define-view";
import { Footer, ViewFrame } from "../../ui/frame/frame";
import { coverage, sentence, subtitleOf } from "../../ui/heat-map/captions";
import { heatMapScale } from "../../ui/heat-map/legend";
import type { HeatMap } from "../../ui/heat-map/marks";
import { HeatMapPlot, heatMapShortcuts } from "../../ui/heat-map/plot";
import type { HeatMapState } from "../../ui/heat-map/state";
import { createHeatMapImage, createHeatMapStore, type HeatMapStore } from "../../ui/heat-map/store";
import { imageShortcuts, WithImage } from "../../ui/image/panel";
import { figureWithPanel, imageExport, sharingRoom } from "../../ui/image/store";
import type { ViewContext } from "../../ui/view/define-view";
import { PinnedEdge } from "../../ui/what-if/pinned-edge";
import { WhatIf } from "../../ui/what-if/what-if";
import whatIfCss from "../../ui/what-if/what-if.css";
import { MatrixControls } from "./controls";
import { cellsCsv, figureParts } from "./figure";
import css from "./matrix.css";

interface MatrixProps {
  context: ViewContext<HeatMapState>;
  /** Return the sentence below the heat map. Views that embed the matrix view may replace it. */
  sentence?: typeof sentence;
}

export function MatrixView({ context, sentence: sentenceOf = sentence }: MatrixProps) {
  const inner = useMemo(() => sharingRoom(context), []);
  const store = useMemo(() => createHeatMapStore(inner), []);
  const panel = useMemo(() => createHeatMapImage(inner, store), []);
  const spoken = useComputed(() => `${store.summary.value} ${panel.caption.value}`.trim());
  const subtitle = ({ layout, grid }: HeatMap): string => subtitleOf(layout.viewport, grid);
  const image = useMemo(
    () => imageExport(context, panel, () => subtitle(drawnYet(store.pinned.peek()))),
    [],
  );
  const entries = useExports(context, {
    name: "matrix-view",
    image,
    figure: () => {
      const heatMap = drawnYet(store.pinned.peek());
      return figureWithPanel(inner, panel, {
        ...figureParts(heatMap),
        captions: {
          subtitle: subtitle(heatMap),
          sentence: sentenceOf(heatMap),
          coverage: coverage(heatMap, false),
        },
      });
    },
    csv: () => cellsCsv(drawnYet(store.pinned.peek())),
    csvLabel: "Cells in sight, CSV",
  });
  const viewport = store.viewport.value;
  return (
    <ViewFrame
      context={context}
      name="Matrix view"
      subtitle={viewport ? subtitleOf(viewport, store.base.value?.grid) : ""}
      summary={spoken}
      exports={entries}
      keys={[...heatMapShortcuts(context, store), ...imageShortcuts(inner)]}
      // Windows are ranges of token indices. In another stack, the indices may mean other tokens,
      // so the windows are reset.
      onStack={openingWindows}
      onReveal={(query) => store.windowsAt("query", query)}
      options={viewport && <MatrixControls context={context} store={store} viewport={viewport} />}
      footer={
        <>
          <MatrixFooter store={store} sentenceOf={sentenceOf} />
          {!context.embedded && <PinnedEdge context={context} />}
        </>
      }
    >
      <WithImage context={inner} panel={panel}>
        <HeatMapPlot context={inner} store={store} />
      </WithImage>
      {!context.embedded && <WhatIf context={context} />}
    </ViewFrame>
  );
}

/** Captions, legend and colour scale below the heat map. */
function MatrixFooter({ store, sentenceOf }: { store: HeatMapStore; sentenceOf: typeof sentence }) {
  const heatMap = store.pinned.value;
  if (!heatMap) return null;
  const text = coverage(heatMap, true);
  return (
    <Footer class="av-matrix-footer" sentence={sentenceOf(heatMap)} coverage={text}>
      {heatMap.effects && (
        <EffectLegend scale={heatMap.effects} palette={heatMap.palette} where="beside keys" />
      )}
      <ColorLegend scale={heatMapScale(heatMap)} />
    </Footer>
  );
}

/** Styles for views that embed the matrix view. */
export const MATRIX_CSS = css;

const view = defineView<HeatMapState>({
  name: "matrix",
  traits: MATRIX_VIEW_TRAITS,
  css: css + whatIfCss,
  component: MatrixView,
  pageTransport: recordTransport,
});

export const { openPage } = view;
export default view.widget;
