/** The dashboard: model view, head view and matrix view at the same place of one record. */

import { computed, effect, type ReadonlySignal, signal, useComputed } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Figure, pictureWidth } from "../../draw/figure";
import { type FigureRequest, isPrinted } from "../../draw/figure-request";
import { type Scene, translate } from "../../draw/marks";
import { stackName, tokensInWords } from "../../ui/captions";
import { type AttnvizElement, defineView, markDrawn, type ViewContext } from "../../ui/define-view";
import { useExports } from "../../ui/exports";
import { OrderControl, PairControl, ViewFrame } from "../../ui/frame/frame";
import { HEAT_MAP_DEFAULTS, type HeatMapState } from "../../ui/heat-map/state";
import { type ControlsForm, RECORD_HASH } from "../../ui/record";
import { HEAD_DEFAULTS, type HeadState, HeadView } from "../head";
import { MATRIX_CSS, MatrixView } from "../matrix";
import { MODEL_CSS, MODEL_DEFAULTS, type ModelState, ModelView } from "../model";
import dashboardCss from "./dashboard.css";

type DashboardState = HeadState & ModelState & HeatMapState;

/** From these widths on the panes stand beside each other, or two of them below the model view. */
const THREE_COLUMNS = 820;
const TWO_COLUMNS = 620;
/** From this width on a figure of a stated width has two columns. */
const PRINTED_COLUMNS = 1000;
const PANE_GAP = 20;

const KEYS = [
  ["Tab", "to the next pane or control"],
  ["?", "in a pane: its own keys"],
] as const;

const PANES = ["model", "head", "matrix"] as const;
type PaneName = (typeof PANES)[number];

/** How panes stand: as columns, two below one, in two columns of a printed figure, or as a stack. */
type Arrangement = "columns" | "two" | "printed" | "stack";

function arrangementAt(width: number, printed: boolean): Arrangement {
  if (printed) return width >= PRINTED_COLUMNS ? "printed" : "stack";
  return width >= THREE_COLUMNS ? "columns" : width >= TWO_COLUMNS ? "two" : "stack";
}

interface PaneProps {
  context: ViewContext<DashboardState>;
  name: PaneName;
  arrangement: Arrangement;
  view: ComponentType<{ context: ViewContext<DashboardState> }>;
  onDrawn: (name: PaneName, place: string | null) => void;
  onRoot: (name: PaneName, root: AttnvizElement) => void;
}

/** One view in the frame of all, with a root, a width and exports of its own. */
function Pane({ context, name, arrangement, view: View, onDrawn, onRoot }: PaneProps) {
  const root = useRef<HTMLDivElement>(null);
  const [pane, setPane] = useState<ViewContext<DashboardState> | null>(null);
  useEffect(() => {
    const element = root.current as AttnvizElement | null;
    if (!element) return;
    const figure = paneRequest(context.figure, arrangement);
    const stated = pictureWidth(figure);
    const width = signal(stated ?? (element.clientWidth || 600));
    const observer = new ResizeObserver((entries) => {
      const inner = entries[0]?.contentRect.width ?? 0;
      if (inner > 0 && stated === null) width.value = Math.floor(inner);
    });
    observer.observe(element);
    onRoot(name, element);
    setPane({
      ...context,
      root: element,
      width,
      copying: signal(null),
      notice: signal(null),
      figure,
      embedded: true,
      setDrawn: (place) => {
        markDrawn(element, place);
        onDrawn(name, place);
      },
    });
    return () => observer.disconnect();
  }, []);
  return (
    <div class={`av-pane av-pane-${name}`} ref={root}>
      {pane && <View context={pane} />}
    </div>
  );
}

/** What is asked of a pane's figure: its share of the width. */
function paneRequest(
  request: FigureRequest | undefined,
  arrangement: Arrangement,
): FigureRequest | undefined {
  if (!request?.width || arrangement !== "printed") return request;
  return { ...request, width: (request.width - PANE_GAP) / 2 };
}

/** Figures in columns, as the panes stand. */
export function inColumns(columns: readonly (readonly Scene[])[]): Scene {
  let left = 0;
  let height = 0;
  const front: Scene["front"] = [];
  for (const column of columns) {
    let top = 0;
    for (const scene of column) {
      // What lies behind may be dimmed as one in its own figure only.
      const back = scene.back.map((mark) => dimmed(mark, scene.backOpacity));
      front.push(...translate([...back, ...scene.front], left, top));
      top += scene.height + PANE_GAP;
    }
    left += Math.max(...column.map((scene) => scene.width)) + PANE_GAP;
    height = Math.max(height, top - PANE_GAP);
  }
  const background = columns[0]?.[0]?.background ?? null;
  const description = columns
    .flat()
    .map((scene) => scene.description ?? "")
    .join(" ")
    .trim();
  return {
    width: left - PANE_GAP,
    height,
    background,
    back: [],
    backOpacity: 1,
    front,
    ...(description && { description }),
  };
}

/** The panes' figures, as the panes stand. */
function arranged(arrangement: Arrangement, model: Scene, head: Scene, matrix: Scene): Scene {
  if (arrangement === "columns") return inColumns([[model], [head], [matrix]]);
  if (arrangement === "printed") return inColumns([[model, head], [matrix]]);
  if (arrangement === "two") return inColumns([[model, inColumns([[head], [matrix]])]]);
  return inColumns([[model, head, matrix]]);
}

function dimmed(mark: Scene["back"][number], opacity: number): Scene["back"][number] {
  if (opacity === 1 || mark.kind === "image") return mark;
  if (mark.kind === "curves") {
    return { ...mark, opacity: mark.opacity.map((value) => value * opacity) };
  }
  return { ...mark, opacity: (mark.opacity ?? 1) * opacity };
}

/**
 * Which controls are in sight. By itself those of places alone, so that all panes are in sight; in
 * the frame of all, the choice of a stack and the answer's tokens too, which all panes follow.
 */
function useControls(
  context: ViewContext<DashboardState>,
): Record<"frame" | "panes", ReadonlySignal<ControlsForm>> {
  const { state, record, controls } = context;
  return useMemo(() => {
    const panes = computed(() => (state.controls.value === "auto" ? "compact" : controls.value));
    const frame = computed(() => {
      const several = (record.description.value?.stacks.length ?? 1) > 1;
      const answer = (record.place.value?.queries.predictions?.length ?? 0) > 0;
      return several || answer ? controls.value : panes.value;
    });
    return { frame, panes };
  }, []);
}

function Dashboard({ context: whole }: { context: ViewContext<DashboardState> }) {
  const controls = useControls(whole);
  const context = useMemo(() => ({ ...whole, controls: controls.frame }), []);
  const inner = useMemo(() => ({ ...whole, controls: controls.panes }), []);
  const { record } = context;
  const roots = useRef<Partial<Record<PaneName, AttnvizElement>>>({});
  const drawn = useRef<Partial<Record<PaneName, string | null>>>({});
  const summary = useMemo(() => signal(""), []);
  const arrangement = useComputed(() =>
    arrangementAt(context.width.value, isPrinted(context.figure)),
  );

  const onDrawn = (name: PaneName, place: string | null): void => {
    drawn.current[name] = place;
    const at = record.place.peek();
    const all = PANES.every((each) => drawn.current[each]);
    context.setDrawn(all && at ? `dashboard:${at.stack.name}:${at.layer}` : null);
  };
  const exporter = (name: PaneName) => {
    const each = roots.current[name]?.attnviz;
    if (!each) throw new Error("Nothing is drawn yet, so there is nothing to export.");
    return each;
  };
  const { entries, busy } = useExports(context, {
    name: "dashboard",
    figure: async (): Promise<Figure> => {
      const figures = await Promise.all(PANES.map((name) => exporter(name).figure()));
      const [model, head, matrix] = figures.map((figure) => figure.scene) as [Scene, Scene, Scene];
      return {
        scene: arranged(arrangement.peek(), model, head, matrix),
        title: figures.map((figure) => figure.title).join(" · "),
      };
    },
    csv: () => exporter("head").csv(),
    csvLabel: "Lines drawn, CSV",
  });
  useEffect(
    () =>
      effect(() => {
        const place = record.place.value;
        summary.value = place ? `${stackName(place.stack.name)}, layer ${place.layer}` : "";
      }),
    [],
  );

  const place = record.place.value;
  const pane = (name: PaneName, view: PaneProps["view"]) => (
    <Pane
      context={inner}
      name={name}
      arrangement={arrangement.peek()}
      view={view}
      onDrawn={onDrawn}
      onRoot={setRoot}
    />
  );
  const setRoot = (name: PaneName, root: AttnvizElement): void => {
    roots.current[name] = root;
  };
  return (
    <ViewFrame
      context={context}
      name="Dashboard"
      subtitle={
        place
          ? [
              stackName(place.stack.name),
              tokensInWords(
                place.queries.text.length,
                place.keys.text.length,
                place.stack.key_tokens === null,
              ),
            ].join(" · ")
          : ""
      }
      summary={summary}
      exports={entries}
      keys={KEYS}
      onStack={() => ({ query_window: null, key_window: null, leave_out: [] })}
      options={
        <div class="av-row av-options">
          <PairControl context={context} />
          <OrderControl context={context} />
        </div>
      }
      footer={busy.value && <p class="av-muted">{busy.value}</p>}
    >
      <div class={`av-panes av-${arrangement.value}`}>
        {pane("model", ModelView)}
        {pane("head", HeadView)}
        {pane("matrix", MatrixView)}
      </div>
    </ViewFrame>
  );
}

const view = defineView<DashboardState>({
  name: "dashboard",
  defaults: { ...HEAT_MAP_DEFAULTS, ...MODEL_DEFAULTS, ...HEAD_DEFAULTS },
  hash: RECORD_HASH,
  css: MODEL_CSS + MATRIX_CSS + dashboardCss,
  component: Dashboard,
});

export const openPage = view.openPage;
export default view.widget;
