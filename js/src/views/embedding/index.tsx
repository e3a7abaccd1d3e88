/**
 * The embedding view: queries and keys of a corpus as points, placed so that near means attending;
 * all heads as small plots, and one of them with its points, its text and its lines.
 */

import { effect, useComputed } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { defineView, type ViewContext } from "../../ui/define-view";
import { useExports } from "../../ui/exports";
import { Footer, ViewFrame } from "../../ui/frame/view-frame";
import headGridCss from "../../ui/head-grid/head-grid.css";
import { coverageOf, problemOf, sentenceOf, subtitleOf, summaryOf } from "./captions";
import { embeddingPageCarrier } from "./client/page";
import { EmbeddingControls } from "./controls";
import controlsCss from "./controls.css";
import css from "./embedding.css";
import { embeddingExports } from "./figure";
import { EmbeddingLegend } from "./legend";
import { MeanPlot } from "./mean/panel";
import { overviewScene } from "./overview/marks";
import { EmbeddingOverview } from "./overview/overview";
import { createOverviewStore } from "./overview/store";
import type { Pictures } from "./pictures";
import type { PlotRoom } from "./plot/keys";
import { EmbeddingPlot } from "./plot/plot";
import { makePlotModel } from "./plot/store";
import { PlotTools } from "./plot/tools";
import { EMBEDDING_DEFAULTS, EMBEDDING_HASH, type EmbeddingState } from "./state";
import { type EmbeddingModel, makeEmbeddingModel } from "./store";
import { TextPane } from "./text/panel";

type Context = ViewContext<EmbeddingState>;

const WORDS = [
  [
    "a point",
    "a query or a key of one token, as this head has it: near, by rights, means attending",
  ],
  ["● ■", "discs are queries, squares are keys, in every colouring"],
  [
    "r, %",
    "r: how distance follows q·k, −1 is best and 0 says nothing; %: of a query’s ten strongest keys, how many are among its ten nearest",
  ],
] as const;

const ALL_KEYS = [
  ...WORDS,
  ["↑ ↓ ← →", "move over the heads"],
  ["Home End", "first, last head of the layer"],
  ["Page ↑ ↓", "a screen of layers up, down"],
  ["Enter", "go into the head"],
  ["Ctrl-wheel", "on a head: go into it"],
  ["?", "show or hide these keys"],
] as const;

const ONE_KEYS = [
  ...WORDS,
  ["← →", "previous, next token of the text"],
  ["↑ ↓", "the token's query, its key"],
  ["[ ]", "previous, next layer"],
  [", .", "previous, next head"],
  ["+ −", "nearer, farther; far enough: all heads"],
  ["Shift-arrows", "move the plot, or turn it"],
  ["Home", "everything in sight"],
  ["l", "drag draws a lasso, or not"],
  ["Shift-drag", "draw a lasso"],
  ["Alt-drag", "move a plot that drags turn"],
  ["Ctrl-wheel", "nearer, farther, at the pointer"],
  ["f", "find tokens"],
  ["Esc", "clear the lasso, the point; then all heads"],
  ["o", "all heads"],
  ["?", "show or hide these keys"],
] as const;

/** From this width on the text stands beside the plot. */
const BESIDE_FROM = 940;
const TEXT_SHARE = 0.36;
const TEXT_GAP = 24;

const NOTHING = "Nothing is drawn yet, so there is no picture to take.";

export function EmbeddingView({ context }: { context: Context }) {
  const { state } = context;
  const model = useMemo(() => makeEmbeddingModel(context), []);
  const overview = useMemo(() => createOverviewStore(context, model), []);
  const beside = useComputed(() => context.width.value >= BESIDE_FROM);
  const plotWidth = useComputed(() => {
    const all = context.width.value;
    return beside.value ? Math.floor(all * (1 - TEXT_SHARE) - TEXT_GAP) : all;
  });
  const plot = useMemo(() => makePlotModel(context, model, plotWidth), []);
  const pictures = useMemo<Pictures>(
    () => ({
      overview: () => {
        const [grid, layout, look] = [
          overview.grid.peek(),
          overview.layout.peek(),
          overview.look.peek(),
        ];
        if (!grid || !layout || !look) throw new Error(NOTHING);
        const [heads, trust] = [overview.plots.peek(), model.trust.peek()];
        return overviewScene({ grid, layout, look, heads, trust, palette: context.palette.peek() });
      },
      figures: () => overview.layout.peek()?.figures ?? "words",
      plot: () => {
        const scene = plot.still();
        if (!scene) throw new Error(NOTHING);
        return scene;
      },
    }),
    [],
  );
  const { entries, busy } = useExports(context, embeddingExports(context, model, pictures));
  const summary = useComputed(() => summaryOf(context, model));
  const enlarged = state.enlarged.value;
  const words = problemOf(context, model) === null ? "" : "no plot";
  useFocusFollowing(context, enlarged, `${enlarged} ${state.shown.value} ${words}`);
  useSignOfChange(context);
  return (
    <ViewFrame
      context={context}
      name="Embedding view"
      subtitle={subtitleOf(context, model)}
      summary={summary}
      exports={entries}
      keys={enlarged ? ONE_KEYS : ALL_KEYS}
      choose="none"
      // Points of other tokens.
      onStack={() => ({ heads: [], text: null, selected: [] })}
      options={<EmbeddingControls context={context} model={model} />}
      footer={<EmbeddingFooter context={context} model={model} busy={busy.value} />}
    >
      {enlarged ? (
        <OneHead room={{ context, model, plot }} beside={beside.value} width={plotWidth.value} />
      ) : (
        <EmbeddingOverview context={context} model={model} overview={overview} />
      )}
    </ViewFrame>
  );
}

/** What was drawn is not what is shown from the moment on at which another picture is asked for. */
function useSignOfChange({ state, setDrawn }: Context): void {
  useEffect(() => {
    let before = `${state.enlarged.peek()} ${state.shown.peek()}`;
    return effect(() => {
      const now = `${state.enlarged.value} ${state.shown.value}`;
      if (now !== before) setDrawn(null);
      before = now;
    });
  }, []);
}

/** Where what had the keyboard goes away, what takes the picture's place has it. */
function useFocusFollowing({ root }: Context, enlarged: boolean, picture: string): void {
  // Before what has it goes away.
  const had = root.matches(":focus-within");
  useEffect(() => {
    if (!had || root.matches(":focus-within")) return;
    const next = enlarged ? ".av-plot, .av-embedding-problem" : ".av-grid-box";
    root.querySelector<HTMLElement>(next)?.focus({ preventScroll: true });
  }, [picture]);
}

/** One head: its points, or the mean by position, and beside or below them the text. */
function OneHead(props: { room: PlotRoom; beside: boolean; width: number }) {
  const { room, beside, width } = props;
  const { context, model } = room;
  // The mean is of all texts.
  const aggregated = context.state.shown.value === "aggregate";
  return (
    <div class={`av-embedding-one${beside ? " av-embedding-beside" : ""}`}>
      <div class="av-embedding-main" style={{ width: `${width}px` }}>
        <PlotTools {...room} />
        {aggregated ? (
          <MeanPlot context={context} model={model} width={width} />
        ) : (
          <EmbeddingPlot {...room} />
        )}
      </div>
      {!aggregated && (
        <div class="av-embedding-side">
          <TextPane context={context} model={model} />
        </div>
      )}
    </div>
  );
}

/** What is said of the picture, and what its colours mean. Apart, because it follows the state. */
function EmbeddingFooter(props: { context: Context; model: EmbeddingModel; busy: string | null }) {
  const { context, model, busy } = props;
  if (!model.corpus.value) return null;
  return (
    <Footer sentence={sentenceOf(context, model)} coverage={busy ?? coverageOf(context, model)}>
      <EmbeddingLegend context={context} model={model} />
    </Footer>
  );
}

const view = defineView<EmbeddingState>({
  name: "embedding",
  defaults: EMBEDDING_DEFAULTS,
  hash: EMBEDDING_HASH,
  css: headGridCss + css + controlsCss,
  component: EmbeddingView,
  pageCarrier: embeddingPageCarrier,
});

export const openPage = view.openPage;
export default view.widget;
