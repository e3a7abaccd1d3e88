/**
 * Overview of all heads as small plots with their trust figures, which measure how well distances
 * on a plot follow q·k. Layers are rows and heads are columns, unless the reader chooses another
 * order.
 */

import { untracked } from "@preact/signals";
import { Choice } from "../../../ui/controls/fields";
import { type HeadIndex, isSameHead } from "../../../ui/head-grid/grid";
import { headOfCell, VirtualHeadGrid } from "../../../ui/head-grid/head-grid";
import { BY_ROLE } from "../../../ui/head-grid/head-roles";
import { headOrderOf } from "../../../ui/head-grid/order";
import { useZoomWheel } from "../../../ui/plot/wheel";
import { headName } from "../../../ui/text/captions";
import { assign } from "../../../ui/view/state";
import { headKey } from "../state";
import type { EmbeddingProps } from "../store";
import { figureLines, keyInWords, TRUST_HELP } from "../trust";
import type { TileOrder } from "./layout";
import { tileMarks } from "./marks";
import type { OverviewStore } from "./store";

interface OverviewProps extends EmbeddingProps {
  overview: OverviewStore;
}

const ORDERS: readonly (readonly [TileOrder, string])[] = [
  ["number", "number"],
  ["correlation", "correlation, best first"],
  ["recall", "recall, best first"],
];

export function EmbeddingOverview(props: OverviewProps) {
  return (
    <div class="av-vertical av-embedding-overview">
      <div class="av-row av-embedding-order">
        {props.context.controls.value === "full" && <OverviewOrder {...props} />}
        <span class="av-muted av-embedding-key" title={TRUST_HELP}>
          {keyInWords(props.store.trust.value, props.overview.layout.value?.figures)}
        </span>
      </div>
      <Tiles {...props} />
    </div>
  );
}

/** Choice of the order of heads. */
export function OverviewOrder({ context, overview }: Pick<OverviewProps, "context" | "overview">) {
  const byRole = headOrderOf(context.record).roles.value ? [[BY_ROLE, "role"] as const] : [];
  return (
    <Choice
      label="Heads by"
      value={overview.order.value}
      options={[...ORDERS, ...byRole]}
      onChange={(order) => assign(context.state, { order })}
    />
  );
}

function Tiles({ context, store, overview }: OverviewProps) {
  const grid = overview.grid.value;
  const layout = overview.layout.value;
  const zoom = (by: number, event: WheelEvent): void => {
    const head = headOfCell(event, overview.heads.id);
    // The next events of the same gesture zoom into the plot of the head.
    if (head && by < 0) overview.open(head);
  };
  useZoomWheel(overview.heads.box, zoom, [grid === null]);
  if (!grid || !layout) return null;
  const [trust, plots, look] = [store.trust.value, overview.plots.value, overview.look.value];
  const opened = context.state.heads.value.length > 0 ? store.head.value : null;
  const problemOf = (head: HeadIndex): string | null => plots.get(headKey(head))?.problem ?? null;
  const figuresOf = (head: HeadIndex) => trust.get(headKey(head));
  const linesOf = (head: HeadIndex): string[] => {
    const problem = problemOf(head);
    return problem ? [problem] : figureLines(figuresOf(head));
  };
  const titleOf = (head: HeadIndex): string => {
    const role = headOrderOf(context.record).roleOf(head);
    return `${headName(head)}${role ? `, ${role.label}` : ""}`;
  };
  return (
    <VirtualHeadGrid
      store={overview.heads}
      label={
        grid.columns
          ? "Layers and their heads"
          : `Heads of all layers by ${grid.score}, ${
              grid.score === BY_ROLE ? "those of the same role together" : "best first"
            }`
      }
      look={(cell) => ({
        label: [titleOf(cell), ...linesOf(cell)].join(", "),
        selected: isSameHead(opened, cell),
      })}
      hint={(head) => ({
        title: titleOf(head),
        rows: linesOf(head).map((text) => ({ text })),
      })}
      painting={{
        follows: [store.settled],
        sources: (cells) => [
          ...cells.map((cell) => (cell && plots.get(headKey(cell))) ?? null),
          ...cells.map((cell) => cell && (figuresOf(cell) ?? null)),
          ...[look, context.palette.value, headOrderOf(context.record).roles.value],
        ],
        marks: tileMarks(context, layout, look, plots, trust),
        onPainted: () => {
          if (look) context.setDrawn(untracked(() => store.drawnId("overview")));
        },
      }}
      open={overview.open}
    />
  );
}
