/** Dashboard: the model, head and matrix views of one record, with the same layer, heads and pins. */

import { effect, useComputed } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { recordTransport } from "../../client/page";
import { DASHBOARD_TRAITS } from "../../client/traits";
import { isPrinted } from "../../draw/figure-request";
import type { Scene } from "../../draw/marks";
import { useExports } from "../../ui/exports/exports";
import { defineView } from "../../ui/frame/define-view";
import { OrderControl, PairControl, TokenScoreControl, ViewFrame } from "../../ui/frame/frame";
import { sentenceBesideLines } from "../../ui/heat-map/captions";
import { inColumns, Pane, paneRequest, usePanes } from "../../ui/plot/panes";
import panesCss from "../../ui/plot/panes.css";
import { stackName, tokensInWords } from "../../ui/text/captions";
import type { ViewContext } from "../../ui/view/define-view";
import { baseName, firstSiblings } from "../../ui/view/model-layers";
import { valuesOf } from "../../ui/view/state";
import { PinnedEdge } from "../../ui/what-if/pinned-edge";
import { WhatIf } from "../../ui/what-if/what-if";
import { changesWithStack, HEAD_CSS, type HeadState, HeadView } from "../head";
import { MATRIX_CSS, MatrixView } from "../matrix";
import { MODEL_CSS, type ModelState, ModelView } from "../model";
import dashboardCss from "./dashboard.css";

type DashboardState = HeadState & ModelState;

/** Minimum width in pixels of a dashboard with three columns. */
const THREE_COLUMNS = 820;
/** Minimum width in pixels of a dashboard with two columns below the model view. */
const TWO_COLUMNS = 620;
/**
 * Maximum width in pixels at which three columns have the narrow style, with more width for the
 * head view.
 */
const NARROW_COLUMNS = 1050;
/** Minimum width in pixels at which an exported figure with a given width has two columns. */
const PRINTED_COLUMNS = 1000;

const KEYS = [
  ["Tab", "go to the next pane or control"],
  ["?", "in a pane: show its keys"],
] as const;

const PANES = ["model", "head", "matrix"] as const;

/**
 * Arrangement of the panes: in three columns ("columns"), in two columns below the model view
 * ("two"), in two columns of an exported figure ("printed"), or one below the other ("stack").
 */
type Arrangement = "columns" | "two" | "printed" | "stack";

function arrangementAt(width: number, printed: boolean): Arrangement {
  if (printed) return width >= PRINTED_COLUMNS ? "printed" : "stack";
  return width >= THREE_COLUMNS ? "columns" : width >= TWO_COLUMNS ? "two" : "stack";
}

/** Compose the figures of the panes, arranged like the panes. */
function arrangeFigures(arrangement: Arrangement, model: Scene, head: Scene, matrix: Scene): Scene {
  if (arrangement === "columns") return inColumns([[model], [head], [matrix]]);
  if (arrangement === "printed") return inColumns([[model, head], [matrix]]);
  if (arrangement === "two") return inColumns([[model, inColumns([[head], [matrix]])]]);
  return inColumns([[model, head, matrix]]);
}

/** Matrix view with a caption that does not repeat the caption of the head view. */
function MatrixPane({ context }: { context: ViewContext<DashboardState> }) {
  return <MatrixView context={context} sentence={sentenceBesideLines} />;
}

/** Head view without the image, which the matrix view shows, because it has room below. */
function HeadPane({ context }: { context: ViewContext<DashboardState> }) {
  return <HeadView context={context} withImage={false} />;
}

const VIEWS = { model: ModelView, head: HeadPane, matrix: MatrixPane };

function Dashboard({ context: whole }: { context: ViewContext<DashboardState> }) {
  const { record } = whole;
  const panes = usePanes(whole);
  // The frame around the panes has full controls if the reader can choose a stack or a token of a
  // generated answer, because these choices apply to all panes. Otherwise it has the form of the
  // controls of the panes.
  const controls = useComputed(() => {
    const description = record.description.value;
    const several = description !== null && firstSiblings(description).length > 1;
    const answer = (record.selection.value?.queries.predictions?.length ?? 0) > 0;
    return (several || answer ? whole : panes).controls.value;
  });
  const context = useMemo(() => ({ ...whole, controls }), []);
  const inner = useMemo(() => ({ ...whole, controls: panes.controls }), []);
  const arrangement = useComputed(() =>
    arrangementAt(context.width.value, isPrinted(context.figure)),
  );
  // The width is compared here and not in a container query. When a page is printed, a query would
  // react to the width of the paper, but the panes are not drawn again.
  const narrow = useComputed(() => context.width.value <= NARROW_COLUMNS);
  const summary = useComputed(() => {
    const selection = record.selection.value;
    return selection ? `${stackName(selection.stack.name)}, layer ${selection.layer}` : "";
  });
  const entries = useExports(context, {
    name: "dashboard",
    figure: async () => {
      const figures = await panes.figures(PANES);
      const [model, head, matrix] = figures.map((figure) => figure.scene) as [Scene, Scene, Scene];
      return {
        scene: arrangeFigures(arrangement.peek(), model, head, matrix),
        title: figures.map((figure) => figure.title).join(" · "),
      };
    },
    csv: () => panes.exporter("head").csv(),
    csvLabel: "Lines drawn, CSV",
  });
  useEffect(
    () =>
      effect(() => {
        const allDrawn = panes.areDrawn(PANES);
        const current = record.selection.peek();
        context.setDrawn(
          allDrawn && current ? `dashboard:${current.stack.name}:${current.layer}` : null,
        );
      }),
    [],
  );

  const selection = record.selection.value;
  const figure = paneRequest(context.figure, arrangement.peek() === "printed" ? 2 : 1);
  return (
    <ViewFrame
      context={context}
      name="Dashboard"
      subtitle={
        selection ? `${stackName(baseName(selection.stack))} · ${tokensInWords(selection)}` : ""
      }
      summary={summary}
      exports={entries}
      keys={KEYS}
      onStack={(to) => changesWithStack(valuesOf(whole.state), selection?.stack, to)}
      options={
        <div class="av-row av-options">
          <PairControl context={context} />
          <OrderControl context={context} />
          <TokenScoreControl context={context} />
        </div>
      }
      footer={<PinnedEdge context={inner} />}
    >
      <div class={`av-panes av-${arrangement.value}${narrow.value ? " av-narrow" : ""}`}>
        {PANES.map((name) => (
          <Pane
            key={name}
            panes={panes}
            context={whole}
            name={name}
            figure={figure}
            view={VIEWS[name]}
          />
        ))}
      </div>
      <WhatIf context={inner} />
    </ViewFrame>
  );
}

const view = defineView<DashboardState>({
  name: "dashboard",
  traits: DASHBOARD_TRAITS,
  css: HEAD_CSS + MODEL_CSS + MATRIX_CSS + panesCss + dashboardCss,
  component: Dashboard,
  pageTransport: recordTransport,
});

export const openPage = view.openPage;
export default view.widget;
