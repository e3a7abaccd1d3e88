/**
 * Atlas view: a grid of all heads, with statistics over a corpus. For the chosen head, the view
 * also shows roles, mean weights by offset, and edges.
 */

import { effect, useComputed, useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { recordedTransport } from "../../client/page/recorded";
import { ATLAS_VIEW_TRAITS } from "../../client/traits";
import { useExports } from "../../ui/exports/exports";
import { defineView } from "../../ui/frame/define-view";
import { Footer, ViewFrame } from "../../ui/frame/frame";
import headGridCss from "../../ui/head-grid/head-grid.css";
import type { ViewContext } from "../../ui/view/define-view";
import css from "./atlas.css";
import { AtlasControls } from "./controls";
import { EdgeList } from "./edges";
import { atlasFigure, headsCsv } from "./figure";
import { AtlasGrid } from "./grid";
import { ChosenHead, Figures } from "./head";
import { AtlasLegend } from "./legend";
import { OffsetProfile } from "./profile";
import { type AtlasState, describedAtlas } from "./state";
import { createAtlasStore } from "./store";

const KEYS = [
  ["↑ ↓ ← →", "in the grid: choose a head"],
  ["Home End", "first, last head of the row"],
  ["Page ↑ ↓", "a screen of rows up, down"],
  ["← →", "in the offsets: move over the bars"],
] as const;

/** Minimum width in pixels of a view that has the chosen head beside the grid, not below it. */
const BESIDE_FROM = 860;
/** Pixels between the grid's column and the chosen head's column. */
const GAP = 32;
/** Minimum width in pixels of the chosen head's column beside the grid. */
const MIN_HEAD = 420;
/** Minimum width in pixels of the grid's column, which also has the legend. */
const MIN_MAIN = 340;
/**
 * Height in pixels. If a grid beside the chosen head is lower, the statistics of the head are below
 * the grid.
 */
const LOW_GRID = 320;
/** Minimum number of grid columns for which the chosen head is always below the grid. */
const WIDE_GRID = 40;

export function AtlasView({ context }: { context: ViewContext<AtlasState> }) {
  const { record } = context;
  const gridDrawn = useSignal<string | null>(null);
  const beside = useComputed(() => {
    const siblings = record.selection.value?.siblings ?? [];
    const columns = Math.max(...siblings.flatMap(({ heads_per_layer }) => heads_per_layer));
    return context.width.value >= BESIDE_FROM && columns < WIDE_GRID;
  });
  const gridWidth = useComputed(() => {
    const all = context.width.value;
    return beside.value ? Math.min(all - MIN_HEAD - GAP, Math.floor(all * 0.54)) : all;
  });
  const store = useMemo(() => createAtlasStore(context, gridWidth), []);
  const entries = useExports(context, {
    name: "atlas",
    figure: () => atlasFigure(context, store),
    csv: () => headsCsv(store),
    csvLabel: "Heads and their statistics, CSV",
  });
  const summary = useComputed(() => store.captions.value?.sentence ?? "");
  useEffect(
    () =>
      effect(() => {
        const [selection, settled] = [record.selection.value, store.settled.value];
        const at = selection && `${selection.stack.name}:${selection.layer}`;
        const done = settled && at !== null && gridDrawn.value === at;
        // The numbers of another head or stack disappear until the new ones arrive.
        context.setDrawn(done ? `atlas:${at}` : null, false);
      }),
    [],
  );
  const captions = store.captions.value;
  const all = context.width.value;
  // The column of the grid is as wide as the grid, or wider if the legend needs it. The column of
  // the chosen head has the remaining width.
  const mainWidth = beside.value
    ? Math.max(MIN_MAIN, store.layout.value?.boxWidth ?? gridWidth.value)
    : all;
  const headWidth = beside.value ? all - mainWidth - GAP : all;
  // Below the grid of a wide view, the head's statistics and its edges are in two columns.
  const halves = !beside.value && all >= BESIDE_FROM;
  // Show the head's statistics below the grid if there is room.
  const below = beside.value && (store.layout.value?.boxHeight ?? 0) < LOW_GRID;
  const props = { context, store };
  return (
    <ViewFrame
      context={context}
      name="Atlas"
      subtitle={captions?.subtitle ?? ""}
      summary={summary}
      exports={entries}
      keys={KEYS}
      choose="none"
      oneStack={store.grid.value?.columns === null}
      onStack={() => ({ heads: [] })}
      options={<AtlasControls {...props} />}
      footer={captions?.sentence && <Footer {...captions} />}
    >
      <div
        class={`av-vertical av-atlas${beside.value ? " av-atlas-beside" : ""}${halves ? " av-atlas-halves" : ""}`}
      >
        <div class="av-vertical av-atlas-main" style={{ width: `${mainWidth}px` }}>
          <AtlasGrid {...props} drawn={gridDrawn} />
          <AtlasLegend {...props} />
          {below && <Figures {...props} />}
        </div>
        <div class="av-vertical av-atlas-side" style={{ width: `${headWidth}px` }}>
          <div class="av-vertical av-atlas-column">
            <ChosenHead {...props} />
            {!below && <Figures {...props} />}
          </div>
          <div class="av-vertical av-atlas-column">
            <OffsetProfile
              {...props}
              width={halves ? Math.floor((headWidth - GAP) / 2) : headWidth}
            />
            <EdgeList {...props} />
          </div>
        </div>
      </div>
    </ViewFrame>
  );
}

const view = defineView<AtlasState>({
  name: "atlas",
  traits: ATLAS_VIEW_TRAITS,
  css: headGridCss + css,
  component: AtlasView,
  pageTransport: recordedTransport,
  described: describedAtlas,
});

export const openPage = view.openPage;
export default view.widget;
