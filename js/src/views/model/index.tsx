/**
 * Model view: a grid of thumbnails of all heads, and the detail, a larger heat map of one head. The
 * map of a head is its attention matrix, pooled to few cells for the thumbnail.
 */

import { effect, type ReadonlySignal, type Signal, useComputed, useSignal } from "@preact/signals";
import type { RefObject } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { recordTransport } from "../../client/page";
import type { HeadMap } from "../../client/source";
import { ColorLegend } from "../../ui/colors/legend";
import { Choice } from "../../ui/controls/fields";
import { EffectLegend } from "../../ui/effects/bar";
import { effectsInWords } from "../../ui/effects/effects";
import { drawnYet, useExports, viewFigure } from "../../ui/exports/exports";
import {
  Footer,
  OrderControl,
  PairControl,
  TokenScoreControl,
  ViewFrame,
} from "../../ui/frame/frame";
import { type HeadGrid, type HeadIndex, isSameHead } from "../../ui/head-grid/grid";
import headGridCss from "../../ui/head-grid/head-grid.css";
import { RoleLegend, rolesInWords } from "../../ui/head-grid/head-roles";
import { BY_PIN } from "../../ui/head-grid/pinned-weights";
import { pairInWords, pairOf } from "../../ui/pairs";
import { quantityOf, stackName } from "../../ui/text/captions";
import { defineView, type ViewContext } from "../../ui/view/define-view";
import { RECORD_HASH } from "../../ui/view/record";
import { assign } from "../../ui/view/state";
import { baseName, changedInWords } from "../../ui/what-if/changed-run";
import { PinnedEdge } from "../../ui/what-if/pinned-edge";
import { WhatIf } from "../../ui/what-if/what-if";
import whatIfCss from "../../ui/what-if/what-if.css";
import {
  inSightInWords,
  layersInWords,
  orderInWords,
  sentenceOf,
  subtitleOf,
  thumbnailsInWords,
} from "./captions";
import { Detail, type DetailCaptions } from "./detail";
import { figureParts, headsCsv, loadAll, thumbnailScale } from "./figure";
import { ModelGrid } from "./grid";
import type { CellSize } from "./layout";
import css from "./model.css";
import { MODEL_DEFAULTS, type ModelState } from "./state";
import { createModelStore, type ModelStore } from "./store";

const KEYS = [
  ["↑ ↓", "previous, next layer"],
  ["← →", "previous, next head"],
  ["Home End", "first, last head of the layer"],
  ["Page ↑ ↓", "scroll up, down by a screen of layers"],
  ["Enter", "open the head in detail"],
  ["Esc", "close the detail"],
] as const;

const SIZES: readonly (readonly [CellSize, string])[] = [
  ["fit", "fit the width"],
  ["small", "small"],
  ["medium", "medium"],
  ["large", "large"],
];

/** Maximum number of values in all maps of a figure. If more are needed, a map has 32² cells. */
const MAX_VALUES = 4_000_000;

export function ModelView({ context }: { context: ViewContext<ModelState> }) {
  const { state, source } = context;
  const store = useMemo(() => createModelStore(context), []);
  const box = useRef<HTMLDivElement>(null);
  const section = useRef<HTMLElement>(null);
  const gridDrawn = useSignal<string | null>(null);
  const detailDrawn = useSignal<object | null>(null);
  const detailCaptions = useSignal<DetailCaptions | null>(null);
  const busy = useSignal<string | null>(null);
  const entries = useExports(context, {
    name: "model-view",
    figure: async () => {
      const { grid, layout, selection } = drawnGrid(store);
      const map = await loadAllMaps(context, store, busy);
      const captions = {
        subtitle: subtitleOf(selection, grid, store.anyMap.value?.error ?? null),
        sentence: detailCaptions.peek()?.sentence ?? sentenceOf(store, selection, grid, false),
        coverage: coverageOf(context, store, grid, firstMap(grid, map)),
      };
      const palette = context.palette.peek();
      return viewFigure(context, {
        captions,
        ...figureParts({
          grid,
          layout,
          selection,
          palette,
          thumbnails: state.thumbnails.peek(),
          map,
          ground: context.figure?.background === "transparent" ? undefined : palette.background,
          outlinedRow: store.outlinedRow.peek(),
          effects: store.effects.peek(),
          roleOf: store.roleOf,
          roleSigns: store.roleSigns.peek(),
          byRole: store.byRole.peek(),
        }),
      });
    },
    csv: async () => {
      const { grid, selection } = drawnGrid(store);
      const map = await loadAllMaps(context, store, busy);
      return headsCsv(source, grid, selection, store.part.peek(), map, store.effects.peek());
    },
    csvLabel: "Heads, CSV",
  });

  // Report the view as drawn only after both the grid and the detail are drawn.
  useEffect(
    () =>
      effect(() => {
        const drawnId = store.drawnId.value;
        const detail = !store.showsDetail.value || detailDrawn.value !== null;
        const done = gridDrawn.value === drawnId && detail && !store.reordering.value;
        context.setDrawn(done ? drawnId : null);
      }),
    [],
  );

  const summary = useComputed(() => {
    const [selection, grid] = [store.selection.value, store.grid.value];
    store.arrivals.value;
    if (!selection || !grid) return "";
    const layers = layersInWords(selection.stack);
    const opened = detailCaptions.value
      ? detailCaptions.value.summary
      : sentenceOf(store, selection, grid, true);
    return detailCaptions.value
      ? `${layers}. ${opened}`
      : `${stackName(selection.stack.name)}. ${opened}`;
  });
  useDetailInSight(store, section, detailDrawn);
  const selection = store.selection.value;
  const grid = store.grid.value;

  return (
    <ViewFrame
      context={context}
      name="Model view"
      subtitle={
        selection && grid ? subtitleOf(selection, grid, store.anyMap.value?.error ?? null) : ""
      }
      summary={summary}
      exports={entries}
      keys={KEYS}
      choose="none"
      onStack={() => ({ heads: [], query_window: null, key_window: null })}
      options={<Options context={context} store={store} />}
      footer={
        <>
          <ModelFooter
            context={context}
            store={store}
            detailCaptions={detailCaptions}
            busy={busy.value}
          />
          {!context.embedded && <PinnedEdge context={context} />}
        </>
      }
    >
      <div class={`av-model${store.beside.value ? " av-detail-beside" : ""}`}>
        <ModelGrid context={context} store={store} drawn={gridDrawn} box={box} />
        {store.showsDetail.value && (
          // `key` replaces the detail when another stack is chosen, because its tokens differ. A
          // run with an intervention has the same tokens, so the detail stays while weights load.
          <Detail
            key={selection && baseName(selection.stack)}
            context={context}
            store={store}
            drawn={detailDrawn}
            section={section}
            captions={detailCaptions}
            onClose={() => {
              store.close();
              // Focusing must not scroll the page.
              box.current?.focus({ preventScroll: true });
            }}
          />
        )}
      </div>
      {!context.embedded && <WhatIf context={context} />}
    </ViewFrame>
  );
}

/** Scroll to the detail of a head when it is drawn after a click on the head. */
function useDetailInSight(
  store: ModelStore,
  section: RefObject<HTMLElement | null>,
  drawn: Signal<object | null>,
): void {
  useEffect(
    () =>
      effect(() => {
        const [target, opened] = [store.toShow.value, store.opened.value];
        if (!target || !opened || !drawn.value || !section.current) return;
        store.toShow.value = null;
        // Scrolling would move the clicked cell away from the pointer. Therefore a detail beside
        // the grid need not be completely visible.
        if (isSameHead(target, opened))
          ensureVisible(section.current, store.beside.peek() ? 0.6 : 1);
      }),
    [],
  );
}

/** Scroll to an element if less than a share of `minShare` of its height is visible. */
function ensureVisible(element: HTMLElement, minShare: number): void {
  // An observer accounts for everything that clips the element, such as a notebook panel or iframe.
  const observer = new IntersectionObserver(([entry]) => {
    observer.disconnect();
    const visibleHeight = Math.min(element.offsetHeight, globalThis.innerHeight);
    if ((entry?.intersectionRect.height ?? 0) >= minShare * visibleHeight - 1) return;
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    element.scrollIntoView({ block: "nearest", behavior: calm ? "auto" : "smooth" });
  });
  observer.observe(element);
}

/**
 * Return the displayed grid, with the layout of a figure.
 *
 * @throws Error if nothing is drawn yet.
 */
function drawnGrid(store: ModelStore) {
  return {
    grid: drawnYet(store.grid.peek()),
    layout: drawnYet(store.wholeLayout()),
    selection: drawnYet(store.selection.peek()),
  };
}

/**
 * Load the maps of all heads in the grid for an export.
 *
 * @param busy text about the progress, which is shown below the view until all maps are loaded.
 */
async function loadAllMaps(
  context: ViewContext<ModelState>,
  store: ModelStore,
  busy: Signal<string | null>,
) {
  const { grid, selection } = drawnGrid(store);
  const set = store.mapSet.peek();
  const size = grid.shown * set.size ** 2 > MAX_VALUES ? 32 : set.size;
  try {
    return await loadAll(context.source, grid, { ...set, size }, selection.stack, (done) => {
      busy.value = `Loading ${done} of ${grid.shown} heads …`;
    });
  } finally {
    busy.value = null;
  }
}

/** Controls of the kind, size and order of the thumbnails, and of the text of a pair. */
function Options({ context, store }: { context: ViewContext<ModelState>; store: ModelStore }) {
  const { state } = context;
  return (
    <div class="av-row av-options">
      <Choice
        label="Thumbnails"
        value={state.thumbnails.value}
        options={[
          ["heat-map", "heat maps"],
          ["lines", "lines"],
        ]}
        onChange={(thumbnails) => assign(state, { thumbnails })}
      />
      <Choice
        label="Size"
        value={store.size.value}
        options={SIZES}
        onChange={(size) => {
          store.size.value = size;
        }}
      />
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

/** Return the first map of a figure. It has the same resolution as all other maps. */
function firstMap(grid: HeadGrid, map: (cell: HeadIndex) => HeadMap | undefined): HeadMap | null {
  const cell = grid.rows.flat().find((item) => item !== null);
  return (cell && map(cell)) ?? null;
}

/**
 * Return the second caption: the order of the heads, what is drawn below them, and how the
 * thumbnails are pooled.
 *
 * @param drawn any map of the figure, whose resolution may differ from the view's. Omitted for the
 * caption of the view itself.
 */
function coverageOf(
  context: ViewContext<ModelState>,
  store: ModelStore,
  grid: HeadGrid,
  drawn?: HeadMap | null,
): string {
  const { thumbnails, min_score, order, scores } = context.state;
  const cell = store.layout.value?.cell ?? 0;
  const selection = context.record.selection.value;
  const pair = selection
    ? pairInWords(pairOf(selection, context.state.pair.value), selection.queries)
    : "";
  const effects = store.effects.value;
  const bars = effects ? effectsInWords(effects, "below heads") : "";
  // Only a figure needs the sentence about an intervention. The view has it in a separate line.
  const changed = selection && drawn !== undefined ? changedInWords(selection.stack) : "";
  const roles = selection ? rolesInWords(context.record.roles.value, selection.stack) : "";
  const hasOwnScores = order.value === BY_PIN || String(grid.score) in scores.value;
  const estimatedFrom = hasOwnScores ? null : (selection?.stack.sampled ?? null);
  return [
    orderInWords(grid, min_score.value, effects, estimatedFrom, store.byRole.value),
    bars,
    roles,
    pair === "" ? "" : `Only ${pair}.`,
    thumbnailsInWords(
      store.part.value,
      drawn ?? store.anyMap.value,
      cell,
      thumbnails.value,
      drawn === undefined,
      quantityOf(selection?.stack ?? { maximum: 1 }),
    ),
    changed,
  ]
    .filter((part) => part !== "")
    .join(" ");
}

function ModelFooter(props: {
  context: ViewContext<ModelState>;
  store: ModelStore;
  detailCaptions: ReadonlySignal<DetailCaptions | null>;
  busy: string | null;
}) {
  const { context, store } = props;
  const [selection, grid] = [store.selection.value, store.grid.value];
  store.arrivals.value;
  if (!selection || !grid) return null;
  const effects = store.effects.value;
  return (
    <Footer
      sentence={props.detailCaptions.value?.sentence ?? sentenceOf(store, selection, grid, true)}
      coverage={props.busy ?? coverageOf(context, store, grid)}
      more={<InSight store={store} />}
    >
      {effects && (
        <EffectLegend scale={effects} palette={context.palette.value} where="below heads" />
      )}
      {store.roleSigns.value.length > 0 && <RoleLegend signs={store.roleSigns.value} />}
      <ColorLegend
        scale={thumbnailScale(
          context.state.thumbnails.value === "lines",
          store.anyMap.value?.maximum ?? selection.stack.maximum,
          quantityOf(selection.stack),
          context.palette.value,
        )}
      />
    </Footer>
  );
}

/** Sentence that says which heads are visible in the scroll box, and how to reach the others. */
function InSight({ store }: { store: ModelStore }) {
  // The component is rendered only if the text changes, not for every scroll position.
  const text = useComputed(() => {
    const [grid, layout] = [store.grid.value, store.layout.value];
    return grid && layout ? inSightInWords(grid, layout, store.heads.scroll.value) : "";
  });
  if (text.value === "") return null;
  return (
    <p class="av-muted av-in-sight">
      {text.value} <span class="av-on-screen">Scroll for the rest.</span>
      <span class="av-on-paper">
        The rest is left out here. SVG, PNG and PDF files have all heads.
      </span>
    </p>
  );
}

/** Styles for views that embed the model view. */
export const MODEL_CSS = headGridCss + css;
export { MODEL_DEFAULTS, type ModelState };

const view = defineView<ModelState>({
  name: "model",
  defaults: MODEL_DEFAULTS,
  hash: RECORD_HASH,
  css: MODEL_CSS + whatIfCss,
  component: ModelView,
  pageTransport: recordTransport,
});

export const { openPage } = view;
export default view.widget;
