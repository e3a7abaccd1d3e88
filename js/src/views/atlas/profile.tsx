/** Bar chart of the chosen head's mean weights by offset. */

import { computed, useComputed, useSignal } from "@preact/signals";
import { useMemo, useRef } from "preact/hooks";
import { type Mark, sceneOf } from "../../draw/marks";
import { type KeyActions, runKey } from "../../ui/controls/keys";
import { type Hint, pointIn, ScenePlot } from "../../ui/plot/plot";
import { formatSmall } from "../../ui/text/captions";
import { offsetInWords } from "./captions";
import type { AtlasProps } from "./controls";
import { barAt, layOutProfile, type OffsetBar, type Profile, profileMarks } from "./marks";
import type { AtlasStore } from "./store";

/** Return the bar chart of the chosen head, or null until it is loaded. */
export function profileOf(store: AtlasStore, width: number): Profile | null {
  const chosen = store.chosen.value;
  const weights = chosen && store.offsets.value?.[chosen.head.head];
  return weights ? layOutProfile(chosen.stack.offsets, weights, width) : null;
}

/** Return the name of a bar: "offset −1", "the first token", "larger offsets". */
function barInWords({ label, offset }: OffsetBar): string {
  if (offset !== null) return `offset ${offsetInWords(offset)}`;
  return label === "first" ? "the first token" : "larger offsets";
}

function weightInWords({ weight }: OffsetBar): string {
  return `mean weight ${formatSmall(weight)}`;
}

export function OffsetProfile({ context, store, width }: AtlasProps & { width: number }) {
  const plot = useRef<HTMLDivElement>(null);
  const hint = useSignal<Hint | null>(null);
  /** Index of the bar at the keyboard cursor, or null without a cursor. */
  const cursor = useSignal<number | null>(null);
  const room = useSignal(width);
  room.value = width;
  const profile = useComputed(() => profileOf(store, room.value));
  const scene = useMemo(
    () =>
      computed(() => {
        const now = profile.value;
        if (!now) return null;
        const palette = context.palette.value;
        const bar = now.bars[cursor.value ?? -1];
        const frame = { y: 2, height: now.height - 34, stroke: palette.ink, strokeWidth: 1.5 };
        const front: Mark[] = bar
          ? [{ kind: "rect", ...frame, x: bar.x, width: Math.max(3, bar.width) }]
          : [];
        return sceneOf(now, profileMarks(now, palette), front);
      }),
    [],
  );
  const drawnId = useComputed(() => (profile.value ? "offsets" : null));
  const now = profile.value;
  const title = store.chosen.value?.title;
  if (!now) return null;

  const { bars } = now;
  const showHint = (at: number, x: number, y: number): void => {
    const bar = bars[at];
    hint.value = bar
      ? { x, y, title: barInWords(bar), rows: [{ text: weightInWords(bar) }] }
      : null;
  };
  const moveTo = (target: (from: number) => number) => () => {
    const at = Math.max(0, Math.min(bars.length - 1, target(cursor.peek() ?? -1)));
    cursor.value = at;
    showHint(at, bars[at]?.x ?? 0, now.height / 2);
  };
  const actions: KeyActions = {
    ArrowLeft: moveTo((from) => from - 1),
    ArrowRight: moveTo((from) => from + 1),
    Home: moveTo(() => 0),
    End: moveTo(() => bars.length - 1),
  };
  const announced = bars[cursor.value ?? -1];
  return (
    <section class="av-atlas-profile" aria-label="Weights by offset">
      <h3 class="av-part">Mean weight by offset</h3>
      <ScenePlot
        scene={scene}
        drawnId={drawnId}
        onDrawn={() => {}}
        kind="bars"
        label={`Mean weight of ${title} by offset of the key from the query. Arrows move.`}
        plot={plot}
        hint={hint.value}
        width={width}
        events={{
          onKeyDown: (event: KeyboardEvent) => runKey(event, actions),
          onBlur: () => {
            cursor.value = null;
            hint.value = null;
          },
          onPointerMove: (event) => {
            const { x, y } = pointIn(plot.current, event);
            showHint(barAt(now, x), x, y);
          },
          onPointerLeave: () => {
            hint.value = null;
          },
        }}
      />
      <p class="av-unseen" aria-live="polite">
        {announced ? `${barInWords(announced)}: ${weightInWords(announced)}` : ""}
      </p>
    </section>
  );
}
