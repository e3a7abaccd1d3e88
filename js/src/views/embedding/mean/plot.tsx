/** Heat map of the mean weights by query and key position over the corpus. */

import { type ReadonlySignal, useComputed, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { sceneOf } from "../../../draw/marks";
import { actionsOf, runKey, type Shortcut } from "../../../ui/controls/keys";
import { type Hint, pointIn, ScenePlot } from "../../../ui/plot/plot";
import { assign, same } from "../../../ui/view/state";
import { sentenceOf } from "../captions";
import { headShortcuts } from "../plot/plot";
import { clip, type EmbeddingProps } from "../store";
import {
  type Bin,
  binAt,
  binCaption,
  boundsOf,
  hoverMarks,
  type MeanMap,
  meanMarks,
} from "./marks";

interface MeanPlotProps extends EmbeddingProps {
  /** Available width in pixels. */
  width: ReadonlySignal<number>;
}

/** Return the keyboard shortcuts of the heat map. */
export function meanShortcuts({ context, store }: EmbeddingProps): Shortcut[] {
  const { mean } = store;
  const move =
    (down: number, across: number) =>
    ({ shiftKey }: KeyboardEvent) => {
      const aggregate = mean.latest.peek();
      const from = mean.hovered.peek();
      if (!aggregate) return;
      const step = shiftKey ? 8 : 1;
      // The first key press shows the cursor in the first bin, without moving it.
      mean.hovered.value = {
        row: from ? clip(from.row + step * down, aggregate.rows) : 0,
        column: from ? clip(from.column + step * across, aggregate.columns) : 0,
      };
    };
  const vertical = { ArrowUp: move(-1, 0), ArrowDown: move(1, 0) };
  const arrows = { ...vertical, ArrowLeft: move(0, -1), ArrowRight: move(0, 1) };
  const leave = (): void => {
    if (mean.hovered.peek()) mean.hovered.value = null;
    else assign(context.state, { content: "plot" });
  };
  return [
    ["↑ ↓ ← →", "move over the bins, with Shift by eight", arrows],
    ...headShortcuts(store),
    ["Esc", "leave the bin, then show the points", { Escape: leave }],
    ["o", "all heads", { o: () => assign(context.state, { enlarged: false }) }],
  ];
}

export function MeanPlot({ context, store, width }: MeanPlotProps) {
  const { mean } = store;
  const plot = useRef<HTMLDivElement>(null);
  const map = useComputed(() => mean.mapAt(width.value));
  const back = useComputed(() => (map.value ? meanMarks(map.value) : []));
  const scene = useComputed(
    () => map.value && sceneOf(map.value, back.value, hoverMarks(map.value, mean.hovered.value)),
  );
  // Null as soon as other content is chosen, although this component may draw again.
  const drawnId = useComputed(() => store.drawnId("mean"));
  const caption = useComputed(() => {
    const [aggregate, bin] = [mean.latest.value, mean.hovered.value];
    return aggregate && bin && binCaption(aggregate, bin, mean.textsAt(bin));
  });
  // Position of the tooltip. For the keyboard, it is the centre of the bin.
  const pointer = useSignal<{ x: number; y: number } | null>(null);
  const hint = useComputed<Hint | null>(() => {
    const [now, bin] = [map.value, mean.hovered.value];
    if (!now || !bin || !caption.value) return null;
    const { x, y, width, height } = boundsOf(now, bin);
    const at = pointer.value ?? { x: x + width / 2, y: y + height / 2 };
    const [title, text] = caption.value;
    return { title, rows: [{ text }], ...at };
  });
  const label = useComputed(() => {
    const spoken = caption.value ? ` ${caption.value.join(": ")}.` : "";
    return `${sentenceOf(context, store)}${spoken}` || "Loading";
  });

  const hover = (bin: Bin | null, at: { x: number; y: number } | null): void => {
    if (!same(mean.hovered.peek(), bin)) mean.hovered.value = bin;
    pointer.value = at;
  };
  const leave = (): void => hover(null, null);
  useEffect(() => leave, []);
  return (
    <div style={{ width: `${width.value}px`, maxWidth: "100%" }}>
      <ScenePlot
        scene={scene}
        drawnId={drawnId}
        onDrawn={context.setDrawn}
        kind="mean attention by position"
        label={label.value}
        plot={plot}
        hint={hint.value}
        width={width.value}
        events={{
          onPointerMove: (event: PointerEvent) => {
            const at = pointIn(plot.current, event);
            if (map.peek()) hover(binAt(map.peek() as MeanMap, at.x, at.y), at);
          },
          onPointerLeave: leave,
          onBlur: leave,
          onKeyDown: (event: KeyboardEvent) => {
            if (runKey(event, actionsOf(meanShortcuts({ context, store })))) pointer.value = null;
          },
        }}
      />
    </div>
  );
}
