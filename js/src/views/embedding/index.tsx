/**
 * The embedding view: queries and keys of a corpus as points, placed so that a query is near the
 * keys that it attends to. It shows all heads as small plots, or one enlarged head with its text
 * and attention lines.
 */

import { type ReadonlySignal, useComputed } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { recordedTransport } from "../../client/page/recorded";
import { EMBEDDING_VIEW_TRAITS } from "../../client/traits";
import { useExports } from "../../ui/exports/exports";
import { defineView } from "../../ui/frame/define-view";
import { Footer, ViewFrame } from "../../ui/frame/frame";
import headGridCss from "../../ui/head-grid/head-grid.css";
import { coverageOf, sentenceOf, subtitleOf, summaryOf } from "./captions";
import { EmbeddingControls, Progress } from "./controls";
import css from "./embedding.css";
import { embeddingExports } from "./figure";
import { EmbeddingLegend } from "./legend";
import { EmbeddingOverview } from "./overview/overview";
import { createOverviewStore } from "./overview/store";
import { EmbeddingPlot, type PlotProps, plotShortcuts } from "./plot/plot";
import { createPlotStore } from "./plot/store";
import { PlotTools } from "./plot/tools";
import type { Context, EmbeddingState } from "./state";
import { createEmbeddingStore, type EmbeddingProps } from "./store";
import { TextPane } from "./text";

const WORDS = [
  [
    "a point",
    "the query or key of one token in this head. A short distance should mean a large q·k",
  ],
  ["● ■", "discs are queries, squares are keys, in every colouring"],
  [
    "r, %",
    "r: correlation of distance with q·k, −1 is best and 0 means no relation. %: share of a query’s ten strongest keys that are among its ten nearest",
  ],
] as const;

const ALL_KEYS = [
  ...WORDS,
  ["↑ ↓ ← →", "move over the heads"],
  ["Home End", "first, last head of the layer"],
  ["Page ↑ ↓", "a screen of layers up, down"],
  ["Enter", "open the head"],
] as const;

/**
 * Minimum width of the view, in pixels, for text beside the plot. In a narrower view the text is
 * below.
 */
const BESIDE_FROM = 940;
const TEXT_SHARE = 0.36;
const TEXT_GAP = 24;

export function EmbeddingView({ context }: { context: Context }) {
  const { state } = context;
  const store = useMemo(() => createEmbeddingStore(context), []);
  const overview = useMemo(() => createOverviewStore(context, store), []);
  const plotWidth = useComputed(() => {
    const all = context.width.value;
    return all < BESIDE_FROM ? all : Math.floor(all * (1 - TEXT_SHARE) - TEXT_GAP);
  });
  const plot = useMemo(() => createPlotStore(context, store, plotWidth), []);
  const entries = useExports(context, embeddingExports(context, store, overview, plot));
  const summary = useComputed(() => summaryOf(context, store));
  const enlarged = state.enlarged.value;
  useFocusFollowing(context, enlarged);
  return (
    <ViewFrame
      context={context}
      name="Embedding view"
      subtitle={subtitleOf(context, store)}
      summary={summary}
      exports={entries}
      keys={enlarged ? [...WORDS, ...plotShortcuts({ context, store, plot })] : ALL_KEYS}
      choose="none"
      // Heads, text and lasso refer to the old stack, so clear them.
      onStack={() => ({ heads: [], text: null, selected: [] })}
      options={<EmbeddingControls context={context} store={store} />}
      work={<Progress context={context} store={store} />}
      footer={<EmbeddingFooter context={context} store={store} />}
    >
      {enlarged ? (
        <OneHead context={context} store={store} plot={plot} width={plotWidth} />
      ) : (
        <EmbeddingOverview context={context} store={store} overview={overview} />
      )}
    </ViewFrame>
  );
}

/** If the keyboard focus was in the removed content, move it to the new content. */
function useFocusFollowing({ root }: Context, enlarged: boolean): void {
  // Check the focus while rendering, before the focused element is removed.
  const had = root.matches(":focus-within");
  useEffect(() => {
    if (!had || root.matches(":focus-within")) return;
    root.querySelector<HTMLElement>(".av-plot, .av-grid-box")?.focus({ preventScroll: true });
  }, [enlarged]);
}

/** The points of one head, with the text beside or below them. */
function OneHead({ width, ...props }: PlotProps & { width: ReadonlySignal<number> }) {
  const { context, store } = props;
  const isBeside = width.value < context.width.value;
  return (
    <div class={`av-embedding-one${isBeside ? " av-embedding-beside" : ""}`}>
      <div class="av-embedding-main" style={{ width: `${width.value}px` }}>
        {context.controls.value !== "none" && <PlotTools {...props} />}
        <EmbeddingPlot {...props} />
      </div>
      <div class="av-embedding-side">
        <TextPane context={context} store={store} />
      </div>
    </div>
  );
}

/**
 * Captions and legend. A separate component, so that state changes do not render the whole view.
 */
function EmbeddingFooter({ context, store }: EmbeddingProps) {
  if (!store.corpus.value) return null;
  return (
    <Footer sentence={sentenceOf(context, store)} coverage={coverageOf(context, store)}>
      <EmbeddingLegend context={context} store={store} />
    </Footer>
  );
}

const view = defineView<EmbeddingState>({
  name: "embedding",
  traits: EMBEDDING_VIEW_TRAITS,
  css: headGridCss + css,
  component: EmbeddingView,
  pageTransport: recordedTransport,
});

export const openPage = view.openPage;
export default view.widget;
