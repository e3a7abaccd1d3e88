/** Heat map of the mean weights by query and key position over the corpus. */

import { useComputed, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { sceneOf } from "../../../draw/marks";
import { actionsOf, runKey } from "../../../ui/controls/keys";
import { type Hint, pointIn, ScenePlot } from "../../../ui/plot/plot";
import type { ViewContext } from "../../../ui/view/define-view";
import { assign, same } from "../../../ui/view/state";
import { sentenceOf } from "../captions";
import { headShortcuts } from "../plot/plot";
import type { EmbeddingState } from "../state";
import type { EmbeddingStore } from "../store";
import { type Bin, binAt, binCaption, hoverMarks, meanMarks } from "./marks";
import { meanStoreOf } from "./store";

interface MeanPlotProps {
  context: ViewContext<EmbeddingState>;
  store: EmbeddingStore;
  /** Available width in pixels. */
  width: number;
}

export function MeanPlot({ context, store, width }: MeanPlotProps) {
  const mean = meanStoreOf(context, store);
  const room = useSignal(width);
  if (room.peek() !== width) room.value = width;
  const plot = useRef<HTMLDivElement>(null);
  const where = useSignal<{ x: number; y: number } | null>(null);
  const ground = useComputed(() => mean.drawnAt(room.value));
  const back = useComputed(() => (ground.value ? meanMarks(ground.value) : []));
  const scene = useComputed(() => {
    const now = ground.value;
    if (!now) return null;
    return sceneOf(now.layout, back.value, hoverMarks({ ...now, hovered: mean.hovered.value }));
  });
  const drawnId = useComputed(() => {
    const at = context.record.selection.value;
    return mean.current.value && at ? `embedding:${at.stack.name}:${at.layer}` : null;
  });
  const hint = useComputed<Hint | null>(() => {
    const [now, bin, at] = [mean.aggregate.value, mean.hovered.value, where.value];
    if (!now || !bin || !at) return null;
    const [title, text] = binCaption(now, bin, mean.textsAt(bin));
    return { title, rows: [{ color: "", text, meant: false }], ...at };
  });
  const label = useComputed(() => {
    const [now, bin] = [mean.aggregate.value, mean.hovered.value];
    const spoken = now && bin ? ` ${binCaption(now, bin, mean.textsAt(bin)).join(": ")}.` : "";
    return `${sentenceOf(context, store)}${spoken}` || "Loading";
  });
  useEffect(
    () => () => {
      mean.hovered.value = null;
    },
    [],
  );

  const point = (bin: Bin | null, x: number, y: number): void => {
    if (!same(mean.hovered.peek(), bin)) mean.hovered.value = bin;
    where.value = bin && { x, y };
  };
  const onPointerMove = (event: PointerEvent): void => {
    const now = ground.peek();
    if (!now) return;
    const { x, y } = pointIn(plot.current, event);
    point(binAt(now.layout, now.aggregate, x, y), x, y);
  };
  const leave = (): void => point(null, 0, 0);
  const move = (down: number, across: number): void => {
    const now = ground.peek();
    if (!now) return;
    const { rows, columns } = now.aggregate;
    const from = mean.hovered.peek();
    const clip = (at: number, count: number): number => Math.max(0, Math.min(count - 1, at));
    // The first key press shows the cursor in the first bin, without moving it.
    const row = from ? clip(from.row + down, rows) : 0;
    const column = from ? clip(from.column + across, columns) : 0;
    const { left, top, cellsWidth, cellsHeight } = now.layout;
    const x = left + ((column + 0.5) * cellsWidth) / columns;
    point({ row, column }, x, top + ((row + 0.5) * cellsHeight) / rows);
  };
  const arrow =
    (down: number, across: number) =>
    ({ shiftKey }: KeyboardEvent) =>
      move(shiftKey ? 8 * down : down, shiftKey ? 8 * across : across);
  const actions = {
    ...actionsOf(headShortcuts(store)),
    ArrowUp: arrow(-1, 0),
    ArrowDown: arrow(1, 0),
    ArrowLeft: arrow(0, -1),
    ArrowRight: arrow(0, 1),
    o: () => assign(context.state, { enlarged: false }),
    // The first Escape hides the cursor. The next one shows the points.
    Escape: () => (mean.hovered.peek() ? leave() : assign(context.state, { content: "plot" })),
  };
  const onKeyDown = (event: KeyboardEvent): boolean => runKey(event, actions);

  return (
    <div class="av-aggregate" style={{ width: `${width}px`, maxWidth: "100%" }}>
      <ScenePlot
        scene={scene}
        drawnId={drawnId}
        onDrawn={(drawn) => {
          // A component can still draw while it is being removed. Do not report its drawing as the
          // new content.
          const { enlarged, content: shown } = context.state;
          if (enlarged.peek() && shown.peek() === "aggregate") context.setDrawn(drawn);
        }}
        kind="mean attention by position"
        label={label.value}
        plot={plot}
        hint={hint.value}
        width={width}
        events={{ onPointerMove, onPointerLeave: leave, onKeyDown, onBlur: leave }}
      />
    </div>
  );
}
