/**
 * Head view: queries and keys are two columns of tokens. Lines between them show the weights of the
 * chosen heads of a layer.
 */

import { useComputed } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { recordTransport } from "../../client/page";
import { HEAD_VIEW_TRAITS } from "../../client/traits";
import { ColorLegend } from "../../ui/colors/legend";
import { EffectLegend } from "../../ui/effects/bar";
import { drawnYet, useExports } from "../../ui/exports/exports";
import { defineView } from "../../ui/frame/define-view";
import { Footer, ViewFrame } from "../../ui/frame/frame";
import { imageShortcuts, WithImage } from "../../ui/image/panel";
import { figureWithPanel, imageExport, sharingRoom } from "../../ui/image/store";
import type { ViewContext } from "../../ui/view/define-view";
import { valuesOf } from "../../ui/view/state";
import { PinnedEdge } from "../../ui/what-if/pinned-edge";
import { WhatIf } from "../../ui/what-if/what-if";
import whatIfCss from "../../ui/what-if/what-if.css";
import { subtitleOf } from "./captions";
import { LineControls, StrongestList, WindowControls } from "./controls";
import { figureParts, linesCsv, opacityScale } from "./figure";
import { type LinePlot, legendOf } from "./line-plot";
import { HeadPlot, headShortcuts } from "./plot";
import { changesWithStack, type HeadState, windowsShowing } from "./state";
import { createHeadImage, createHeadStore, type HeadStore } from "./store";

/**
 * Head view. As a part of a dashboard or of a comparison, it has no controls of interventions,
 * because the dashboard or the comparison has them.
 *
 * @param withImage whether the view may show the image of the record.
 */
export function HeadView(props: { context: ViewContext<HeadState>; withImage?: boolean }) {
  const { context, withImage = true } = props;
  const { state } = context;
  const inner = useMemo(() => sharingRoom(context, withImage), []);
  const store = useMemo(() => createHeadStore(inner), []);
  const panel = useMemo(() => createHeadImage(inner, store), []);
  const summary = useComputed(() => `${store.summary.value} ${panel.caption.value}`.trim());
  const image = useMemo(() => {
    const subtitle = (plot: LinePlot): string => subtitleOf(plot.plan, plot);
    return imageExport(context, panel, () => subtitle(drawnYet(store.pinned.peek())));
  }, []);
  const entries = useExports(context, {
    name: "head-view",
    image,
    figure: () => figureWithPanel(inner, panel, figureParts(drawnYet(store.pinned.peek()))),
    csv: () => linesCsv(drawnYet(store.pinned.peek())),
    csvLabel: "Lines drawn, CSV",
  });
  const plan = store.plan.value;

  return (
    <ViewFrame
      context={context}
      name="Head view"
      subtitle={plan ? subtitleOf(plan, store.basePlot.value) : ""}
      summary={summary}
      exports={entries}
      keys={[...headShortcuts(inner, store), ...imageShortcuts(inner)]}
      onStack={(to) => changesWithStack(valuesOf(state), plan?.stack, to)}
      onReveal={(query) => (plan ? windowsShowing(plan, query) : {})}
      onHover={(head) => {
        store.hoveredHeads.value = head === null ? [] : [head];
      }}
      options={
        plan && (
          <>
            <LineControls context={context} store={store} plan={plan} />
            <WindowControls context={context} plan={plan} />
          </>
        )
      }
      footer={
        <>
          <HeadFooter store={store} />
          {!context.embedded && <PinnedEdge context={context} />}
        </>
      }
    >
      <WithImage context={inner} panel={panel}>
        <HeadPlot context={inner} store={store} />
      </WithImage>
      <StrongestList context={context} store={store} />
      {!context.embedded && <WhatIf context={context} />}
    </ViewFrame>
  );
}

/**
 * Captions and legends below the plot. When the pointer moves, only this component is rendered
 * again, not the complete view.
 */
function HeadFooter({ store }: { store: HeadStore }) {
  const caption = store.caption.value;
  const linePlot = store.linePlot.value;
  if (!caption || !linePlot) return null;
  const { palette } = linePlot;
  return (
    <Footer sentence={caption.sentence} coverage={caption.coverage}>
      <HeadLegend store={store} linePlot={linePlot} />
      {linePlot.effects && (
        <EffectLegend scale={linePlot.effects} palette={palette} where="beside keys" />
      )}
      <ColorLegend scale={opacityScale(linePlot)} />
    </Footer>
  );
}

/**
 * Legend of the colours of lines. While the pointer is on an entry, the lines of its heads are
 * highlighted.
 */
function HeadLegend({ store, linePlot }: { store: HeadStore; linePlot: LinePlot }) {
  const hover = (heads: readonly number[]): void => {
    store.hoveredHeads.value = heads;
  };
  return (
    <span class="av-head-legend" onPointerLeave={() => hover([])}>
      {legendOf(linePlot).map(({ name, color, heads, dashed }) => (
        <span key={name} onPointerEnter={() => hover(heads)}>
          <span
            class={`av-dash${dashed ? " av-dashed" : ""}`}
            style={dashed ? { color } : { background: color }}
          />
          {name}
        </span>
      ))}
    </span>
  );
}

/** Styles for views that embed the head view. */
export const HEAD_CSS = whatIfCss;

export { changesWithStack, type HeadState };

const view = defineView<HeadState>({
  name: "head",
  traits: HEAD_VIEW_TRAITS,
  css: whatIfCss,
  component: HeadView,
  pageTransport: recordTransport,
});

export const { openPage } = view;
export default view.widget;
