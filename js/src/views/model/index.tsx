/**
 * The model view: every head of every layer as a thumbnail, and beside the grid one head in
 * detail.
 */

import { effect, type ReadonlySignal, type Signal, useComputed, useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { stackName } from "../../ui/captions";
import { defineView, type ViewContext } from "../../ui/define-view";
import { useExports } from "../../ui/exports";
import { Choice } from "../../ui/frame/frame";
import { Footer, OrderControl, PairControl, ViewFrame } from "../../ui/frame/view-frame";
import { pairInWords, pairOf } from "../../ui/pairs";
import { type Place, RECORD_HASH } from "../../ui/record";
import { assign } from "../../ui/state";
import {
  layersInWords,
  orderInWords,
  sentenceOf,
  stripsInWords,
  subtitleOf,
  thumbnailsInWords,
} from "./captions";
import { Detail, type Said } from "./detail";
import { figure, headsCsv, loadAll } from "./figure";
import { ModelGrid } from "./grid";
import { isStrip, type Thumb } from "./maps";
import { inkOf } from "./marks";
import css from "./model.css";
import {
  type Cell,
  type CellSize,
  type Grid,
  type Layout,
  MODEL_DEFAULTS,
  type ModelState,
} from "./state";
import { type ModelModel, makeModelModel } from "./store";
import { stripColors } from "./strips";

const KEYS = [
  ["↑ ↓", "previous, next layer"],
  ["← →", "previous, next head"],
  ["Home End", "first, last head of the layer"],
  ["Page ↑ ↓", "a screen of layers up, down"],
  ["Enter", "open the head in detail"],
  ["Esc", "close it"],
  ["?", "show or hide these keys"],
] as const;

const SIZES: readonly (readonly [CellSize, string])[] = [
  ["fit", "fit the width"],
  ["small", "small"],
  ["medium", "medium"],
  ["large", "large"],
];

/** Values of maps that a figure holds at most; from there on its maps are smaller. */
const MOST_VALUES = 4_000_000;

export function ModelView({ context }: { context: ViewContext<ModelState> }) {
  const { state, record, source } = context;
  const model = useMemo(() => makeModelModel(context), []);
  const box = useRef<HTMLDivElement>(null);
  const gridDrawn = useSignal<string | null>(null);
  const detailDrawn = useSignal(false);
  const said = useSignal<Said | null>(null);
  const { entries, busy } = useExports(context, {
    name: "model-view",
    figure: async () => {
      const { grid, layout, place } = shown(model);
      const thumb = await loadWhole(context, model, busy);
      const words = {
        title: record.description.peek()?.model || "attention",
        subtitle: subtitleOf(place, grid, model.sample.value?.error ?? null),
        sentence: said.peek()?.sentence ?? sentenceOf(model, place, grid, false),
        coverage: coverageOf(context, model, grid, firstThumb(grid, thumb)),
      };
      const scene = figure({
        grid,
        layout,
        place,
        palette: context.palette.peek(),
        thumbnails: state.thumbnails.peek(),
        words,
        thumb,
        walked: model.walked.peek(),
      });
      return { scene, title: `${words.title}, ${layersInWords(place.stack)}. ${words.sentence}` };
    },
    csv: async () => {
      const { grid, place } = shown(model);
      const thumb = await loadWhole(context, model, busy);
      return headsCsv(source, grid, place, model.part.peek(), thumb);
    },
    csvLabel: "Heads, CSV",
  });

  // One sign for grid and detail, set after the last of them has drawn.
  useEffect(
    () =>
      effect(() => {
        const sign = model.sign.value;
        const detail = !model.showsDetail.value || detailDrawn.value;
        const done = gridDrawn.value === sign && detail && !model.reordering.value;
        context.setDrawn(done ? sign : null);
      }),
    [],
  );

  const summary = useComputed(() => {
    const [place, grid] = [model.place.value, model.grid.value];
    model.maps.arrivals.value;
    if (!place || !grid) return "";
    const layers = layersInWords(place.stack);
    const opened = said.value ? said.value.summary : sentenceOf(model, place, grid, true);
    return said.value ? `${layers}. ${opened}` : `${stackName(place.stack.name)}. ${opened}`;
  });
  const place = model.place.value;
  const grid = model.grid.value;

  return (
    <ViewFrame
      context={context}
      name="Model view"
      subtitle={place && grid ? subtitleOf(place, grid, model.sample.value?.error ?? null) : ""}
      summary={summary}
      exports={entries}
      keys={KEYS}
      choose="none"
      onStack={() => ({ heads: [], query_window: null, key_window: null })}
      options={<Options context={context} model={model} />}
      footer={<ModelFooter context={context} model={model} said={said} busy={busy.value} />}
    >
      <div class="av-model">
        <ModelGrid context={context} model={model} drawn={gridDrawn} box={box} />
        {model.showsDetail.value && (
          // Anew for another stack: what is set for its tokens says nothing of others'.
          <Detail
            key={place?.stack.name}
            context={context}
            model={model}
            drawn={detailDrawn}
            said={said}
            onClose={() => {
              model.close();
              box.current?.focus();
            }}
          />
        )}
      </div>
    </ViewFrame>
  );
}

/** What is drawn now; an error before anything is. */
function shown(model: ModelModel): { grid: Grid; layout: Layout; place: Place } {
  const [grid, layout, place] = [model.grid.peek(), model.wholeLayout(), model.place.peek()];
  if (!grid || !layout || !place) throw new Error("Nothing is drawn yet: there is no picture.");
  return { grid, layout, place };
}

/** All maps of the grid, as large as those in sight unless there are too many. */
async function loadWhole(
  context: ViewContext<ModelState>,
  model: ModelModel,
  busy: Signal<string | null>,
) {
  const { grid, place } = shown(model);
  const set = model.mapSet.peek();
  const size = grid.shown * set.size ** 2 > MOST_VALUES ? 32 : set.size;
  try {
    return await loadAll(context.source, grid, { ...set, size }, place.stack, (done) => {
      busy.value = `${done} of ${grid.shown} heads …`;
    });
  } finally {
    busy.value = null;
  }
}

/** Thumbnails, their size and their order. */
function Options({ context, model }: { context: ViewContext<ModelState>; model: ModelModel }) {
  const { state } = context;
  return (
    <div class="av-row av-options">
      {!model.strips.value && (
        <Choice
          label="Thumbnails"
          value={state.thumbnails.value}
          options={[
            ["heat-map", "heat maps"],
            ["lines", "lines"],
          ]}
          onChange={(thumbnails) => assign(state, { thumbnails })}
        />
      )}
      <Choice
        label="Size"
        value={model.size.value}
        options={SIZES}
        onChange={(size) => {
          model.size.value = size;
        }}
      />
      {!context.embedded && (
        <>
          <OrderControl context={context} />
          {!model.strips.value && <PairControl context={context} />}
        </>
      )}
    </div>
  );
}

/** A map of a figure: what it says of pooling holds for all. */
function firstThumb(grid: Grid, thumb: (cell: Cell) => Thumb | undefined): Thumb | null {
  const cell = grid.rows.flat().find((each) => each !== null);
  return (cell && thumb(cell)) ?? null;
}

/**
 * What is pooled or left out, and by what heads are ordered.
 *
 * @param drawn a map of a figure, which may be finer than what is on the screen.
 */
function coverageOf(
  context: ViewContext<ModelState>,
  model: ModelModel,
  grid: Grid,
  drawn?: Thumb | null,
): string {
  const { thumbnails, least_score, scores } = context.state;
  const cell = model.layout.value?.cell ?? 0;
  const place = context.record.place.value;
  const pair = place ? pairInWords(pairOf(place, context.state.pair.value), place.queries) : "";
  const scoring = context.record.scoring.value;
  if (model.strips.value && place) {
    return [
      scoring ? `${scoring[0]} of ${scoring[1]} heads have their score.` : "",
      orderInWords(grid, least_score.value, !(String(grid.score) in scores.value)),
      pair === "" ? "" : "Strips are of the whole text, whatever pair of sentences is chosen.",
      stripsInWords(model, place, drawn === undefined),
    ]
      .filter(Boolean)
      .join(" ");
  }
  return [
    orderInWords(grid, least_score.value),
    pair === "" ? "" : `Only ${pair}.`,
    thumbnailsInWords(
      model.part.value,
      drawn && !isStrip(drawn) ? drawn : model.sample.value,
      cell,
      thumbnails.value,
      drawn === undefined,
    ),
  ]
    .filter((part) => part !== "")
    .join(" ");
}

function ModelFooter(props: {
  context: ViewContext<ModelState>;
  model: ModelModel;
  said: ReadonlySignal<Said | null>;
  busy: string | null;
}) {
  const { context, model } = props;
  const [place, grid] = [model.place.value, model.grid.value];
  model.maps.arrivals.value;
  if (!place || !grid) return null;
  return (
    <Footer
      sentence={props.said.value?.sentence ?? sentenceOf(model, place, grid, true)}
      coverage={props.busy ?? coverageOf(context, model, grid)}
    >
      {model.strips.value ? (
        <StripLegend context={context} model={model} />
      ) : (
        <InkLegend
          straight={context.state.thumbnails.value === "lines"}
          maximum={model.sample.value?.maximum ?? place.stack.maximum}
          color={context.palette.value.neutral}
        />
      )}
    </Footer>
  );
}

/** What the bands of strips are, in the order of the pile. */
function StripLegend({ context, model }: { context: ViewContext<ModelState>; model: ModelModel }) {
  const colors = stripColors(model.stripSample.value?.parts ?? [], context.palette.value);
  return (
    <div class="av-strip-legend">
      {colors.map(({ name, color }) => (
        <span key={name}>
          <i style={{ background: color }} />
          {name}
        </span>
      ))}
    </div>
  );
}

/** How ink follows weight. */
function InkLegend(props: { straight: boolean; maximum: number; color: string }) {
  const stops = Array.from({ length: 9 }, (_, i) => {
    const share = i / 8;
    const ink = Math.round(255 * (props.straight ? share : inkOf(share, 1)));
    return `${props.color}${ink.toString(16).padStart(2, "0")} ${100 * share}%`;
  });
  return (
    <div class="av-ink-legend">
      <span
        class="av-ramp"
        style={{ background: `linear-gradient(to right, ${stops.join(", ")})` }}
      />
      <span class="av-ramp-words">
        <span>0</span>
        <span>thumbnails: {props.straight ? "opacity = weight" : "ink = √weight"}</span>
        <span>{Number(props.maximum.toPrecision(2))}</span>
      </span>
    </div>
  );
}

const view = defineView<ModelState>({
  name: "model",
  defaults: MODEL_DEFAULTS,
  hash: RECORD_HASH,
  css,
  component: ModelView,
});

export const openPage = view.openPage;
export default view.widget;
