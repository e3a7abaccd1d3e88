/**
 * The compare view: a grid of all heads, coloured by their distance between two members, which are
 * two of the compared records. Panes below the grid show the chosen head of both members and their
 * difference.
 */

import { effect, type ReadonlySignal, useComputed, useSignal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { recordTransport } from "../../client/page";
import { type FigureRequest, isPrinted } from "../../draw/figure-request";
import type { Scene } from "../../draw/marks";
import { drawnYet, useExports, viewFigure } from "../../ui/exports/exports";
import { ViewFrame } from "../../ui/frame/frame";
import headGridCss from "../../ui/head-grid/head-grid.css";
import { inColumns, PANE_GAP, Pane, type PaneProps } from "../../ui/plot/panes";
import panesCss from "../../ui/plot/panes.css";
import { type AttnvizElement, defineView, type ViewContext } from "../../ui/view/define-view";
import { type ControlsForm, RECORD_HASH } from "../../ui/view/record";
import { readIndex } from "../../ui/view/state";
import { HeadView } from "../head";
import { MATRIX_CSS, MatrixView } from "../matrix";
import { coverageOf, openingInWords, sentenceOf, subtitleOf } from "./captions";
import css from "./compare.css";
import { CompareControls, MemberSlider } from "./controls";
import { gridFigure, pairsCsv } from "./figure";
import { ChosenHead, CompareGrid } from "./grid";
import { type Arrangement, arrangementAt } from "./layout";
import { COMPARE_DEFAULTS, type CompareOpening, type CompareState } from "./state";
import { type CompareStore, createCompareStore, type PaneName } from "./store";

const KEYS = [
  ["↑ ↓ ← →", "in the grid: choose a head"],
  ["Home End", "first, last head of the layer"],
  ["Tab", "to the next picture or control"],
  ["?", "in a picture: its own keys"],
] as const;

const FORMS: Record<CompareState["form"], ComponentType<{ context: ViewContext<CompareState> }>> = {
  head: HeadView,
  matrix: MatrixView,
};

/** Return the figure request of a pane. Panes in columns divide the requested width equally. */
function paneRequest(
  request: FigureRequest | undefined,
  arrangement: Arrangement,
  count: number,
): FigureRequest | undefined {
  if (!request?.width || arrangement === "stack") return request;
  return { ...request, width: (request.width - (count - 1) * PANE_GAP) / count };
}

/**
 * Return the form of the controls of a pane. By default a button opens the controls, so that the
 * pictures of all panes are aligned.
 */
function paneControls(context: ViewContext<CompareState>): ReadonlySignal<ControlsForm> {
  const { state, controls } = context;
  return useComputed(() => (state.controls.value === "auto" ? "compact" : controls.value));
}

export function CompareView({ context }: { context: ViewContext<CompareState> }) {
  const { state, source } = context;
  const store = useMemo(() => createCompareStore(context), []);
  const panesDrawn = useSignal<Partial<Record<string, string | null>>>({});
  const roots = useRef<Partial<Record<string, AttnvizElement>>>({});
  const arrangement = useComputed(() =>
    arrangementAt(context.width.value, isPrinted(context.figure)),
  );
  const { frame } = store;
  const entries = useExports(frame, {
    name: "compare-view",
    figure: async () => {
      const selection = drawnYet(store.selection.peek());
      const grid = drawnYet(store.grid.peek());
      const captions = {
        subtitle: subtitleOf(selection),
        sentence: sentenceOf(selection, store.moved.peek()),
        coverage: coverageOf(selection, grid, frame.record.description.peek()?.notes ?? []),
      };
      const panes = await paneScenes(store, roots.current);
      const row: Scene[] =
        arrangement.peek() === "columns" ? [inColumns(panes.map((pane) => [pane]))] : panes;
      const width = Math.max(...row.map((scene) => scene.width));
      const parts = gridFigure(context, store, width);
      const upper = viewFigure(frame, { captions, ...parts });
      return { ...upper, scene: inColumns([[upper.scene, ...row]]) };
    },
    csv: () =>
      pairsCsv(source, drawnYet(store.selection.peek()), {
        queries: state.query_window.peek(),
        keys: state.key_window.peek(),
      }),
    csvLabel: "Head’s weights, CSV",
  });

  useEffect(
    () =>
      effect(() => {
        const selection = store.selection.value;
        const panes = store.panes.value.every((name) => panesDrawn.value[name]);
        const at = selection && `${selection.stack.name}:${selection.layer}`;
        const done = at !== null && store.gridDrawn.value === at && panes && store.settled.value;
        context.setDrawn(done ? `compare:${at}` : null);
      }),
    [],
  );

  const selection = store.selection.value;
  const grid = store.grid.value;
  const form = state.form.value;
  const summary = useComputed(() =>
    store.selection.value ? sentenceOf(store.selection.value, store.moved.value) : "",
  );
  const controls = paneControls(context);
  const opening = selection
    ? openingInWords(state.opening.value as unknown as CompareOpening | null, selection)
    : "";
  return (
    <ViewFrame
      context={frame}
      name="Compare view"
      subtitle={selection ? subtitleOf(selection) : ""}
      summary={summary}
      exports={entries}
      keys={KEYS}
      choose="none"
      onStack={() => ({ heads: [], query_window: null, key_window: null })}
      options={<CompareControls context={context} store={store} />}
      footer={
        selection &&
        grid && (
          <footer class="av-footer">
            <div class="av-words">
              <p class="av-muted">{coverageOf(selection, grid, [])}</p>
              {opening !== "" && <p class="av-muted av-opening">{opening}</p>}
            </div>
          </footer>
        )
      }
    >
      <MemberSlider context={context} store={store} />
      <div class="av-compare">
        <CompareGrid context={context} store={store} />
        <ChosenHead context={context} store={store} />
      </div>
      <div class={`av-compare-panes av-${arrangement.value}`}>
        {store.panes.value.map((name) => (
          <OnePane
            // Another form (lines or matrix) needs another view and another colour scale, so create
            // a new pane.
            key={`${name} ${form}`}
            store={store}
            name={name}
            controls={controls}
            figure={paneRequest(context.figure, arrangement.value, store.panes.value.length)}
            onDrawn={(pane, drawn) => {
              panesDrawn.value = { ...panesDrawn.peek(), [pane]: drawn };
            }}
            onRoot={(pane, root) => {
              roots.current[pane] = root;
            }}
          />
        ))}
      </div>
    </ViewFrame>
  );
}

/**
 * Pane of one member or of the difference. It reads its props only once. Later changes reach it as
 * changes of signals.
 */
function OnePane(
  props: Pick<PaneProps<CompareState>, "figure" | "onDrawn" | "onRoot"> & {
    store: CompareStore;
    name: PaneName;
    controls: ReadonlySignal<ControlsForm>;
  },
) {
  const { store, name, controls, ...pane } = props;
  const view = FORMS[store.frame.state.form.value];
  const context = useMemo(() => ({ ...store.pane(name), controls }), []);
  return <Pane context={context} name={name} view={view} {...pane} />;
}

/**
 * Return the figures of the panes. Their titles omit the model's name, which the complete figure
 * shows.
 */
function paneScenes(
  store: CompareStore,
  roots: Partial<Record<string, AttnvizElement>>,
): Promise<Scene[]> {
  store.inOneFigure.value = true;
  const figures = store.panes.peek().map(async (name) => {
    return (await drawnYet(roots[name]?.attnviz).figure()).scene;
  });
  return Promise.all(figures).finally(() => {
    store.inOneFigure.value = false;
  });
}

const view = defineView<CompareState>({
  name: "compare",
  defaults: COMPARE_DEFAULTS,
  hash: {
    ...RECORD_HASH,
    member: readIndex,
    form: (text) => (text === "head" || text === "matrix" ? text : undefined),
    order: (text) => (text === "number" || text === "distance" ? text : undefined),
  },
  css: headGridCss + MATRIX_CSS + panesCss + css,
  component: CompareView,
  pageTransport: recordTransport,
});

export const openPage = view.openPage;
export default view.widget;
