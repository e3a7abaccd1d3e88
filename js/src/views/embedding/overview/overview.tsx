/**
 * Overview of all heads as small plots with their trust figures. Layers are rows and heads are
 * columns, unless the reader chooses another order.
 */

import type { RefObject } from "preact";
import { useRef } from "preact/hooks";
import { paintMarks } from "../../../draw/canvas";
import { Choice } from "../../../ui/controls/fields";
import type { HeadIndex, ScoredHead } from "../../../ui/head-grid/grid";
import { headOfCell, VirtualHeadGrid } from "../../../ui/head-grid/head-grid";
import { BY_ROLE } from "../../../ui/head-grid/head-roles";
import type { Hint } from "../../../ui/plot/plot";
import { useZoomWheel } from "../../../ui/plot/wheel";
import { headName } from "../../../ui/text/captions";
import type { ViewContext } from "../../../ui/view/define-view";
import { assign } from "../../../ui/view/state";
import { type EmbeddingState, headKey } from "../state";
import type { EmbeddingStore } from "../store";
import {
  figuresInShort,
  figuresSpoken,
  formatCorrelation,
  keyInWords,
  strengthOf,
  TRUST_HELP,
} from "../trust";
import type { TileLayout, TileOrder } from "./layout";
import { problemInShort, tileDots } from "./marks";
import type { OverviewStore } from "./store";

export interface OverviewProps {
  context: ViewContext<EmbeddingState>;
  store: EmbeddingStore;
  overview: OverviewStore;
}

const ORDERS: readonly (readonly [TileOrder, string])[] = [
  ["number", "number"],
  ["correlation", "correlation, best first"],
  ["recall", "recall, best first"],
];

export function EmbeddingOverview(props: OverviewProps) {
  const { store, overview } = props;
  const progress = store.overviewProgress.value;
  return (
    <div class="av-embedding-overview">
      <div class="av-row av-embedding-order">
        {props.context.controls.value === "full" && <OverviewOrder {...props} />}
        <span class="av-muted av-embedding-key" title={TRUST_HELP}>
          {keyInWords(store.trust.value, overview.layout.value?.figures)}
        </span>
      </div>
      {progress && (
        <p class="av-muted" role="status">
          {progress[0]} of {progress[1]} heads …
        </p>
      )}
      <Tiles {...props} />
    </div>
  );
}

/** Choice of the order of heads. */
export function OverviewOrder({ context, overview }: Pick<OverviewProps, "context" | "overview">) {
  const byRole = context.record.roles.value ? [[BY_ROLE, "role"] as const] : [];
  return (
    <Choice
      label="Heads by"
      value={overview.order.value}
      options={[...ORDERS, ...byRole]}
      onChange={(order) => assign(context.state, { order })}
    />
  );
}

function Tiles(props: OverviewProps) {
  const { context, store, overview } = props;
  const box = useRef<HTMLDivElement>(null);
  const grid = overview.grid.value;
  const layout = overview.layout.value;
  useZoomIn(box, overview, grid === null);
  if (!grid || !layout) return null;
  const trust = store.trust.value;
  const plots = overview.plots.value;
  const look = overview.look.value;
  const opened = context.state.heads.value.length > 0 ? store.head.value : null;
  const problemOf = (head: HeadIndex): string | null => plots.get(headKey(head))?.problem ?? null;
  return (
    <VirtualHeadGrid
      store={overview.heads}
      box={box}
      label={
        grid.columns
          ? "Layers and their heads"
          : `Heads of all layers by ${grid.score}, ${
              grid.score === BY_ROLE ? "those of the same role together" : "best first"
            }`
      }
      look={(cell) => {
        const problem = problemOf(cell);
        const role = context.record.roleOf(cell);
        const name = `${headName(cell)}${role ? `, ${role.label}` : ""}`;
        return {
          label: `${name}, ${problem ?? figuresSpoken(trust.get(headKey(cell)))}`,
          selected: opened?.layer === cell.layer && opened.head === cell.head,
          content: problem && (
            <span aria-hidden="true">{problemInShort(problem, layout.cell)}</span>
          ),
        };
      }}
      below={(cell, x) => (
        <Figures
          cell={cell}
          x={x}
          layout={layout}
          role={context.record.roleOf(cell)?.name ?? ""}
          text={problemOf(cell) ? "" : figuresInShort(trust.get(headKey(cell)), layout.figures)}
        />
      )}
      hint={(head) => hintOf(props, head)}
      painting={{
        follows: [store.current],
        sources: (cells) => [
          ...cells.map((cell) => (cell && plots.get(headKey(cell))) ?? null),
          ...cells.map((cell) => (cell ? strengthOf(trust.get(headKey(cell))) : 0)),
          look,
        ],
        paint: (canvas, cells) => {
          cells.forEach((cell, column) => {
            const plot = cell && plots.get(headKey(cell));
            if (!plot || !look || plot.problem) return;
            const square = { x: column * layout.across, y: 0, side: layout.cell };
            paintMarks(canvas, tileDots(plot, look, square, strengthOf(trust.get(headKey(cell)))));
          });
        },
        onPainted: () => {
          if (!look) return;
          const drawn = store.current.peek() && !context.state.enlarged.peek();
          context.setDrawn(drawn ? `embedding:${grid.stack}:all` : null);
        },
      }}
      open={overview.open}
    />
  );
}

/**
 * Labels below a tile: the trust figures, the role, and the head's name if columns do not stand for
 * head numbers.
 */
function Figures(props: {
  cell: ScoredHead;
  x: number;
  layout: TileLayout;
  text: string;
  role: string;
}) {
  const { cell, x, layout, text, role } = props;
  return (
    <div
      class={`av-embedding-figures av-embedding-${layout.figures}`}
      aria-hidden="true"
      style={{ left: `${x}px`, top: `${layout.cell + 2}px`, width: `${layout.cell}px` }}
    >
      {layout.named && <b>{`${cell.layer}.${cell.head}`}</b>}
      {text}
      {role !== "" && <span class="av-role av-embedding-role">{role}</span>}
    </div>
  );
}

/** A head opens when wheel or pinch events over it add up to this many pixels. */
const ZOOM_IN = 60;

function useZoomIn(
  box: RefObject<HTMLElement | null>,
  overview: OverviewStore,
  empty: boolean,
): void {
  const wheel = useRef<{ by: number; at: string }>({ by: 0, at: "" });
  const zoom = (by: number, event: WheelEvent): void => {
    const head = headOfCell(event, overview.heads.id);
    const at = head ? headKey(head) : "";
    wheel.current = { at, by: at === wheel.current.at ? wheel.current.by + by : by };
    if (head && wheel.current.by < -ZOOM_IN) {
      wheel.current = { by: 0, at: "" };
      overview.open(head);
    }
  };
  useZoomWheel(box, zoom, [empty]);
}

/**
 * Return the tooltip of a head: its trust figures, or the reason why it has no plot or no figures.
 */
function hintOf(props: OverviewProps, head: HeadIndex): Omit<Hint, "x" | "y"> {
  const { context, store, overview } = props;
  const role = context.record.roleOf(head);
  const title = `${headName(head)}${role ? `, ${role.label}` : ""}`;
  const problem = overview.plots.peek().get(headKey(head))?.problem;
  if (problem) return { title, rows: [{ color: "", text: problem, meant: true }] };
  const trust = store.trust.peek().get(headKey(head));
  if (!trust) {
    const text = trust === null ? "no trust figure" : "not measured yet";
    return { title, rows: [{ color: "", text, meant: false }] };
  }
  const { plot, recall, recall_baseline: baseline } = trust;
  const rows: Hint["rows"] = [];
  if (plot !== null) {
    const text = `distance with q·k: r ${formatCorrelation(plot)}`;
    rows.push({ color: "", text, meant: false });
  }
  if (recall !== null) {
    const by = baseline === null ? "" : ` (chance ${Math.round(100 * baseline)}%)`;
    const text = `recall at 10: ${Math.round(100 * recall)}%${by}`;
    rows.push({ color: "", text, meant: false });
  }
  return { title, rows };
}
