/**
 * The matrix view: a heat-map of one head, or of the mean of several, queries down and keys
 * across, from the whole matrix to single weights.
 */

import { useComputed } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { colorAt } from "../../ui/color-scales";
import { defineView, type ViewContext } from "../../ui/define-view";
import { useExports } from "../../ui/exports";
import { Footer, ViewFrame } from "../../ui/frame/view-frame";
import { coverage, sentence, subtitleOf } from "../../ui/heat-map/captions";
import type { Picture } from "../../ui/heat-map/marks";
import { HeatMapPlot } from "../../ui/heat-map/plot";
import { HEAT_MAP_DEFAULTS, type HeatMapState } from "../../ui/heat-map/state";
import { createHeatMapImage, createHeatMapStore, type HeatMapStore } from "../../ui/heat-map/store";
import type { Grid } from "../../ui/heat-map/tiles";
import { WithImage, withImageKeys } from "../../ui/image/panel";
import { sharingRoom, withPanel } from "../../ui/image/store";
import { RECORD_HASH } from "../../ui/record";
import { MatrixControls } from "./controls";
import { cellsCsv, figure, scaleNumbers } from "./figure";
import css from "./matrix.css";

const KEYS = [
  ["↑ ↓ ← →", "move over the cells, with Shift by ten"],
  ["Enter", "pin the cell's query and key, or take the pins away"],
  ["Esc", "clear pins"],
  ["+ −", "nearer, farther"],
  ["Home", "everything in sight"],
  ["Ctrl-wheel", "nearer, farther, at the pointer"],
  ["double-click", "nearer, with Shift farther"],
  ["drag", "move what is in sight"],
  ["[ ]", "previous, next layer"],
  ["0 … 9", "choose a head, or not"],
  ["n", "no head chosen: the mean of all"],
  ["f", "find a token"],
  ["?", "show or hide these keys"],
] as const;

/** How exact cells are; null where that is not known, as of an estimate. */
function exactness(grid: Grid | undefined): number | null {
  return !grid || grid.estimate ? null : grid.error;
}

/** What is drawn now; an error before anything is. */
function drawn(model: HeatMapStore): Picture {
  const picture = model.still();
  if (!picture) throw new Error("Nothing is drawn yet, so there is no picture to take.");
  return picture;
}

export function MatrixView({ context }: { context: ViewContext<HeatMapState> }) {
  const { record } = context;
  const inner = useMemo(() => sharingRoom(context), []);
  const model = useMemo(() => createHeatMapStore(inner), []);
  const panel = useMemo(() => createHeatMapImage(inner, model), []);
  const spoken = useComputed(() => `${model.summary.value} ${panel.words.value}`.trim());
  const { entries, busy } = useExports(context, {
    name: "matrix-view",
    figure: () => {
      const picture = drawn(model);
      const { viewport } = picture.layout;
      const said = model.said.peek();
      if (!said) throw new Error("Nothing is drawn yet, so there is no picture to take.");
      const words = {
        title: record.description.peek()?.model || "attention",
        subtitle: subtitleOf(viewport, exactness(picture.grid)),
        sentence: sentence(said),
        coverage: coverage(said, { scale: picture.scale, end: picture.end, live: false }),
      };
      const beside = inner.image?.beside.peek() ?? false;
      return {
        scene: figure(picture, words, (drawn) => withPanel(drawn, panel.still(), beside)),
        title: `${words.title}, ${words.sentence} ${panel.words.peek()}`.trim(),
      };
    },
    csv: () => cellsCsv(drawn(model)),
    csvLabel: "Cells in sight, CSV",
  });
  const viewport = model.viewport.value;
  return (
    <ViewFrame
      context={context}
      name="Matrix view"
      subtitle={viewport ? subtitleOf(viewport, exactness(model.said.value?.grid)) : ""}
      summary={spoken}
      exports={entries}
      keys={withImageKeys(KEYS, inner)}
      // Windows would show other tokens.
      onStack={() => ({ query_window: null, key_window: null })}
      onReveal={(query) => model.windowsAt("query", query)}
      options={viewport && <MatrixControls context={context} model={model} viewport={viewport} />}
      footer={<MatrixFooter context={context} model={model} busy={busy.value} />}
    >
      <WithImage context={inner} panel={panel}>
        <HeatMapPlot context={inner} model={model} />
      </WithImage>
    </ViewFrame>
  );
}

/** What is said of the picture, and its scale. */
function MatrixFooter(props: {
  context: ViewContext<HeatMapState>;
  model: HeatMapStore;
  busy: string | null;
}) {
  const { model } = props;
  const said = model.said.value;
  const picture = model.ground.value;
  if (!said || !picture) return null;
  const words = coverage(said, { scale: picture.scale, end: picture.end, live: true });
  return (
    <Footer sentence={sentence(said)} coverage={props.busy ?? words}>
      {said.grid.estimate && <Progress model={model} done={said.grid.estimate.progress} />}
      <ColorLegend model={model} picture={picture} />
    </Footer>
  );
}

/** How much of what is in sight is exact, and the way to stop or to go on. */
function Progress({ model, done }: { model: HeatMapStore; done: number }) {
  const going = model.going.value;
  // Of a whole that takes minutes the first tenth is watched most closely.
  const percent = (Math.floor(1000 * done) / 10).toFixed(done > 0 && done < 0.1 ? 1 : 0);
  return (
    <div class="av-progress">
      <progress aria-label="Exact" max={1} value={done} />
      <span>exact {percent}%</span>
      <button
        type="button"
        class="av-chip"
        title={going ? "Leave it at the estimate" : "Go through all queries"}
        onClick={() => model.go(!going)}
      >
        {going ? "Stop" : "Go on"}
      </button>
    </div>
  );
}

/** What colours mean. A click sets its end. */
export function ColorLegend({ model, picture }: { model: HeatMapStore; picture: Picture }) {
  const stops = Array.from({ length: 13 }, (_, i) => {
    const [red, green, blue] = colorAt(picture.theme, i / 12);
    return `rgb(${red} ${green} ${blue}) ${(100 * i) / 12}%`;
  });
  return (
    <button
      type="button"
      class="av-color-legend"
      title="End of the scale: click for the largest weight in sight, or for the largest there can be"
      onClick={() => {
        const fitted = picture.end < picture.grid.maximum;
        model.scaling.value = fitted ? "whole" : "largest";
      }}
    >
      <span
        class="av-ramp"
        style={{ background: `linear-gradient(to right, ${stops.join(", ")})` }}
      />
      <span class="av-color-numbers">
        {scaleNumbers(picture).map(([share, text]) => (
          <span key={share} style={{ left: `${100 * share}%` }}>
            {text}
          </span>
        ))}
      </span>
      <span class="av-color-title">weight</span>
    </button>
  );
}

const view = defineView<HeatMapState>({
  name: "matrix",
  defaults: HEAT_MAP_DEFAULTS,
  hash: RECORD_HASH,
  css,
  component: MatrixView,
});

export const openPage = view.openPage;
export default view.widget;
