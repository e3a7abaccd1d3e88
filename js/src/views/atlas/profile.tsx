/**
 * Bar chart of the chosen head's mean weights by offset. The reader drags a brush over the bars to
 * select a range of offsets, and the list of edges then shows only edges with these offsets.
 */

import { computed, useComputed, useSignal } from "@preact/signals";
import { useMemo, useRef } from "preact/hooks";
import { type Mark, sceneOf } from "../../draw/marks";
import { Chip } from "../../ui/controls/fields";
import { type KeyActions, runKey } from "../../ui/controls/keys";
import { type Hint, pointIn, ScenePlot } from "../../ui/plot/plot";
import { formatSmall } from "../../ui/text/captions";
import { assign, same } from "../../ui/view/state";
import { offsetInWords, offsetsInWords } from "./captions";
import type { AtlasProps } from "./controls";
import {
  barAt,
  layOutProfile,
  nearestOffset,
  type OffsetBar,
  type Profile,
  profileMarks,
} from "./marks";
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
  const { state } = context;
  const plot = useRef<HTMLDivElement>(null);
  const hint = useSignal<Hint | null>(null);
  /** Index of the bar at the keyboard cursor, or null without a cursor. */
  const cursor = useSignal<number | null>(null);
  /** Index of the bar at which the brush started, or null if the reader is not brushing. */
  const anchor = useRef<number | null>(null);
  const room = useSignal(width);
  room.value = width;
  const profile = useComputed(() => profileOf(store, room.value));
  const scene = useMemo(
    () =>
      computed(() => {
        const now = profile.value;
        if (!now) return null;
        const palette = context.palette.value;
        const back = profileMarks(now, palette, state.offsets.value);
        const bar = now.bars[cursor.value ?? -1];
        const frame = { y: 2, height: now.height - 34, stroke: palette.ink, strokeWidth: 1.5 };
        const front: Mark[] = bar
          ? [{ kind: "rect", ...frame, x: bar.x, width: Math.max(3, bar.width) }]
          : [];
        return sceneOf(now, back, front);
      }),
    [],
  );
  const drawnId = useComputed(() => (profile.value ? "offsets" : null));
  const now = profile.value;
  const title = store.chosen.value?.title;
  if (!now) return null;

  const { bars } = now;
  const selected = state.offsets.value;
  const select = (offsets: [number, number] | null): void => assign(state, { offsets });
  const offsetAt = (at: number): number | null => bars[at]?.offset ?? null;
  const brush = (from: number, to: number): void => {
    const [one, other] = [offsetAt(from), offsetAt(to)];
    if (one !== null && other !== null) select([Math.min(one, other), Math.max(one, other)]);
  };
  /** Select the offset of a bar, or clear the selection if only this offset is selected. */
  const toggle = (at: number): void => {
    const offset = offsetAt(at);
    if (same(state.offsets.peek(), [offset, offset])) select(null);
    else brush(at, at);
  };
  const showHint = (at: number, x: number, y: number): void => {
    const bar = bars[at];
    hint.value = bar
      ? { x, y, title: barInWords(bar), rows: [{ text: weightInWords(bar) }] }
      : null;
  };
  /**
   * Return the index of the bar at the cursor. Without a cursor, return that of the first selected
   * bar, or 0 without a selection.
   */
  const current = (): number => {
    const begin = state.offsets.peek()?.[0] ?? -1;
    return (
      cursor.peek() ??
      Math.max(
        0,
        bars.findIndex(({ offset }) => offset === begin),
      )
    );
  };
  const moveTo = (target: (from: number) => number) => (event: KeyboardEvent) => {
    const from = current();
    // The first press of an arrow key only shows the cursor.
    const to = cursor.peek() === null ? from : target(from);
    const at = Math.max(0, Math.min(bars.length - 1, to));
    if (event.shiftKey && offsetAt(at) !== null) {
      anchor.current ??= from;
      brush(anchor.current, at);
    } else anchor.current = null;
    cursor.value = at;
    showHint(at, bars[at]?.x ?? 0, now.height / 2);
  };
  const toggleCurrent = (): void => toggle(current());
  const actions: KeyActions = {
    ArrowLeft: moveTo((from) => from - 1),
    ArrowRight: moveTo((from) => from + 1),
    Home: moveTo(() => 0),
    End: moveTo(() => bars.length - 1),
    Enter: toggleCurrent,
    " ": toggleCurrent,
    Escape: () => {
      if (!state.offsets.peek()) return false;
      select(null);
      return true;
    },
  };
  const announced = bars[cursor.value ?? -1];
  return (
    <section class="av-atlas-profile" aria-label="Weights by offset">
      <div class="av-row av-options">
        <h3 class="av-part">Mean weight by offset</h3>
        {selected && <Chip onClick={() => select(null)}>offset {offsetsInWords(selected)} ×</Chip>}
      </div>
      <ScenePlot
        scene={scene}
        drawnId={drawnId}
        onDrawn={() => {}}
        kind="bars"
        label={`Mean weight of ${title} by offset of the key from the query. Arrows move, Shift-arrows or Enter filter the edges, Escape clears.`}
        plot={plot}
        hint={hint.value}
        width={width}
        events={{
          onKeyDown: (event: KeyboardEvent) => runKey(event, actions),
          onBlur: () => {
            cursor.value = null;
            hint.value = null;
          },
          onPointerDown: (event) => {
            if (event.button !== 0) return;
            const at = nearestOffset(now, pointIn(plot.current, event).x);
            if (at < 0) return;
            plot.current?.setPointerCapture?.(event.pointerId);
            toggle(at);
            // A click that cleared the selection does not start a brush.
            anchor.current = state.offsets.peek() ? at : null;
          },
          onPointerMove: (event) => {
            const { x, y } = pointIn(plot.current, event);
            if (anchor.current !== null && event.buttons & 1) {
              brush(anchor.current, nearestOffset(now, x));
            }
            showHint(barAt(now, x), x, y);
          },
          onPointerUp: () => {
            anchor.current = null;
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
