/**
 * Overview of all heads as small plots with their trust figures, which measure how well distances
 * on a plot follow q·k. Layers are rows and heads are columns.
 */

import { untracked } from "@preact/signals";
import { type HeadIndex, isSameHead } from "../../../ui/head-grid/grid";
import { VirtualHeadGrid } from "../../../ui/head-grid/head-grid";
import { headName } from "../../../ui/text/captions";
import { headKey } from "../state";
import type { EmbeddingProps } from "../store";
import { figureLines, keyInWords, TRUST_HELP } from "../trust";
import { tileMarks } from "./marks";
import type { OverviewStore } from "./store";

interface OverviewProps extends EmbeddingProps {
  overview: OverviewStore;
}

export function EmbeddingOverview(props: OverviewProps) {
  return (
    <div class="av-vertical av-embedding-overview">
      <p class="av-muted" title={TRUST_HELP}>
        {keyInWords(props.store.trust.value, props.overview.layout.value?.figures)}
      </p>
      <Tiles {...props} />
    </div>
  );
}

function Tiles({ context, store, overview }: OverviewProps) {
  const grid = overview.grid.value;
  const layout = overview.layout.value;
  if (!grid || !layout) return null;
  const [trust, plots, look] = [store.trust.value, overview.plots.value, overview.look.value];
  const opened = context.state.heads.value.length > 0 ? store.head.value : null;
  const problemOf = (head: HeadIndex): string | null => plots.get(headKey(head))?.problem ?? null;
  const figuresOf = (head: HeadIndex) => trust.get(headKey(head));
  const linesOf = (head: HeadIndex): string[] => {
    const problem = problemOf(head);
    return problem ? [problem] : figureLines(figuresOf(head));
  };
  return (
    <VirtualHeadGrid
      store={overview.heads}
      label="Layers and their heads"
      look={(cell) => ({
        label: [headName(cell), ...linesOf(cell)].join(", "),
        selected: isSameHead(opened, cell),
      })}
      hint={(head) => ({
        title: headName(head),
        rows: linesOf(head).map((text) => ({ text })),
      })}
      painting={{
        follows: [store.settled],
        sources: (cells) => [
          ...cells.map((cell) => (cell && plots.get(headKey(cell))) ?? null),
          ...cells.map((cell) => cell && (figuresOf(cell) ?? null)),
          ...[look, context.palette.value],
        ],
        marks: tileMarks(context.palette.value, layout, look, plots, trust),
        onPainted: () => {
          if (look) context.setDrawn(untracked(() => store.drawnId(false)));
        },
      }}
      open={overview.open}
    />
  );
}
