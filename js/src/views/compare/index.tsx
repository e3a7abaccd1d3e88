/**
 * Compare view. Members are the compared records, of which the view shows two at a time. A grid of
 * all heads is coloured by the distance between these two members. Panes below the grid show the
 * chosen head of both members and, if the record contains it, their difference.
 */

import { useComputed, useSignalEffect } from "@preact/signals";
import type { ComponentType } from "preact";
import { useMemo } from "preact/hooks";
import { recordTransport } from "../../client/page";
import { COMPARE_VIEW_TRAITS, HEAD_VIEW_TRAITS } from "../../client/traits";
import { type Figure, pictureWidth } from "../../draw/figure";
import { type FigureRequest, isPrinted } from "../../draw/figure-request";
import { openingWindows } from "../../ui/axis";
import { drawnYet, useExports, viewFigure } from "../../ui/exports/exports";
import { defineView } from "../../ui/frame/define-view";
import { ViewFrame } from "../../ui/frame/frame";
import headGridCss from "../../ui/head-grid/head-grid.css";
import { inColumns, Pane, type Panes, paneRequest, usePanes } from "../../ui/plot/panes";
import panesCss from "../../ui/plot/panes.css";
import { capital, headName } from "../../ui/text/captions";
import type { ViewContext } from "../../ui/view/define-view";
import { valuesOf } from "../../ui/view/state";
import { changesWithStack, HeadView } from "../head";
import { MATRIX_CSS, MatrixView } from "../matrix";
import { coverageOf, openingInWords, sentenceOf, subtitleOf } from "./captions";
import css from "./compare.css";
import { CompareControls, MemberSlider } from "./controls";
import { gridFigure } from "./figure";
import { ChosenHead, CompareGrid } from "./grid";
import { type Arrangement, arrangementAt } from "./layout";
import type { CompareOpening, CompareState } from "./state";
import { type CompareStore, createCompareStore, type PaneName, titleOf } from "./store";

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

export function CompareView({ context }: { context: ViewContext<CompareState> }) {
  const { state } = context;
  const store = useMemo(() => createCompareStore(context), []);
  const panes = usePanes(context);
  const arrangement = useComputed(() =>
    arrangementAt(context.width.value, store.panes.value.length, isPrinted(context.figure)),
  );
  const { frame } = store;
  // The captions of the members are below the grid of heads, beside the pane of the difference, where
  // the figure would otherwise be blank.
  const isPart = (name: PaneName): boolean =>
    isPrinted(context.figure) && arrangement.peek() === "two" && name !== "difference";
  const lastPane = (): PaneName => store.panes.value.at(-1) as PaneName;
  const entries = useExports(frame, {
    name: "compare-view",
    figure: async () => {
      const selection = drawnYet(store.selection.peek());
      const grid = drawnYet(store.grid.peek());
      const figures = await paneFigures(store, panes);
      const names = store.panes.peek();
      // Captions of the panes that do not have them, and the scale, which both members share.
      const parts = figures.flatMap(({ parts: own }, i) => {
        const name = names[i] as PaneName;
        return own && isPart(name) ? [{ ...own, name: titleOf(selection, name) }] : [];
      });
      const where = `${capital(headName(selection))}. `;
      const withParts = (own: string, of: "sentence" | "coverage"): string => {
        const others = parts.map(({ name, captions }) => {
          return `${name}: ${captions[of].replace(where, "")}`;
        });
        return [own, ...others].join(" ");
      };
      const notes = frame.record.description.peek()?.notes ?? [];
      const captions = {
        subtitle: subtitleOf(selection),
        sentence: withParts(sentenceOf(selection, store.moved.peek()), "sentence"),
        coverage: withParts(coverageOf(selection, grid, notes), "coverage"),
      };
      const scenes = figures.map(({ scene }) => scene);
      const perRow = columnsOf(arrangement.peek(), scenes.length);
      const row = inColumns(scenes.slice(0, perRow).map((scene) => [scene]));
      const below = scenes.slice(perRow);
      const width = Math.max(...[row, ...below].map((scene) => scene.width));
      // The third pane is beside the grid of heads if the grid is not wider than a pane. The figure
      // is then about as high as it is wide.
      const figure = paneRequest(context.figure, perRow);
      const room = pictureWidth(figure);
      const column =
        perRow === 2 && below.length === 1 && room !== null ? store.layoutIn(room) : null;
      const isBeside = column !== null && column.width <= (room ?? 0);
      const upperFrame = isBeside ? { ...frame, figure } : frame;
      const layout = isBeside ? column : store.layout.peek();
      const upperParts = gridFigure(
        { ...context, figure: upperFrame.figure },
        store,
        drawnYet(layout),
        width,
      );
      const scales = [...(upperParts.scales ?? []), ...(parts[0]?.scales ?? [])];
      const upper = viewFigure(upperFrame, { ...upperParts, captions, scales });
      const rows = isBeside
        ? [inColumns([upper.scene, ...below].map((scene) => [scene])), row]
        : [upper.scene, row, ...below];
      return { ...upper, scene: inColumns([rows]) };
    },
    csv: () => panes.exporter(lastPane()).csv(),
    csvLabel: `${titleOf(store.selection.value, lastPane())}, CSV`,
  });

  useSignalEffect(() => {
    const selection = store.selection.value;
    const allDrawn = panes.areDrawn(store.panes.value);
    const at = selection && `${selection.stack.name}:${selection.layer}`;
    const done = at !== null && store.gridDrawn.value === at && allDrawn && store.settled.value;
    context.setDrawn(done ? `compare:${at}` : null);
  });

  const selection = store.selection.value;
  const grid = store.grid.value;
  const form = state.form.value;
  const summary = useComputed(() =>
    store.selection.value ? sentenceOf(store.selection.value, store.moved.value) : "",
  );
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
      onStack={(to) => ({
        ...changesWithStack(valuesOf(state), selection?.stack, to),
        ...openingWindows(to),
        heads: [],
      })}
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
      <div class="av-wrapping av-compare">
        <CompareGrid context={context} store={store} />
        <ChosenHead context={context} store={store} />
      </div>
      <div class={`av-compare-panes av-${arrangement.value}`}>
        {store.panes.value.map((name) => (
          <OnePane
            // The key contains the form (lines or matrix), because another form needs a new pane
            // with another view and another colour scale.
            key={`${name} ${form}`}
            panes={panes}
            store={store}
            name={name}
            figure={partRequest(
              paneRequest(context.figure, columnsOf(arrangement.value, store.panes.value.length)),
              () => isPart(name),
            )}
          />
        ))}
      </div>
    </ViewFrame>
  );
}

/**
 * Return a request whose figure has its own title, here the name of a member.
 *
 * @param isPart called for each figure, because a pane keeps its first request, and the number of
 *   panes is not known then.
 */
function partRequest(
  request: FigureRequest | undefined,
  isPart: () => boolean,
): FigureRequest | undefined {
  if (!request) return undefined;
  return {
    ...request,
    title: undefined,
    get isPart() {
      return isPart();
    },
  };
}

/** Return how many panes the first row has. */
function columnsOf(arrangement: Arrangement, numPanes: number): number {
  return { columns: numPanes, two: 2, stack: 1 }[arrangement];
}

/**
 * Pane of one member or of the difference. Its context is created only once. Later changes reach
 * the pane through the signals of the context.
 */
function OnePane(props: {
  panes: Panes;
  store: CompareStore;
  name: PaneName;
  figure: FigureRequest | undefined;
}) {
  const { store, ...pane } = props;
  const view = FORMS[store.frame.state.form.value];
  const context = useMemo(() => store.pane(pane.name), []);
  return <Pane context={context} view={view} {...pane} />;
}

/**
 * Return the figures of the panes. Their titles omit the model's name, which the complete figure
 * shows.
 */
async function paneFigures(store: CompareStore, panes: Panes): Promise<Figure[]> {
  store.inOneFigure.value = true;
  try {
    return await panes.figures(store.panes.peek());
  } finally {
    store.inOneFigure.value = false;
  }
}

const view = defineView<CompareState>({
  name: "compare",
  // The panes have the state of a head view, also without a trait in Python.
  traits: { ...HEAD_VIEW_TRAITS, ...COMPARE_VIEW_TRAITS },
  css: headGridCss + MATRIX_CSS + panesCss + css,
  component: CompareView,
  pageTransport: recordTransport,
});

export const openPage = view.openPage;
export default view.widget;
