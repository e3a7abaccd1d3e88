/**
 * Bar chart of the chosen head's mean weights by offset. The reader drags a brush over the bars to
 * select a range of offsets, and the list of edges then shows only edges with these offsets.
 */

import { computed, useComputed, useSignal } from "@preact/signals";
import { useMemo, useRef } from "preact/hooks";
import { sceneOf } from "../../draw/marks";
import { niceMaximum } from "../../ui/colors/color-scales";
import { type KeyActions, runKey } from "../../ui/controls/keys";
import { type Hint, pointIn, ScenePlot } from "../../ui/plot/plot";
import { formatSmall } from "../../ui/text/captions";
import { assign, same } from "../../ui/view/state";
import { headTitle, offsetsInWords } from "./captions";
import type { AtlasProps } from "./controls";
import {
  barAt,
  barPositions,
  drawnBins,
  nearestOffset,
  offsetOf,
  type Profile,
  profileMarks,
} from "./marks";
import type { AtlasStore } from "./store";

const HEIGHT = 170;

/** Return the data of the bar chart, or null until it is loaded. */
export function profileOf(
  store: Pick<AtlasStore, "offsets" | "head" | "stack">,
  width: number,
): Profile | null {
  const [offsets, now, stack] = [store.offsets.value, store.head.value, store.stack.value];
  if (!offsets || !stack || !now) return null;
  const { bins } = offsets;
  const weights = offsets.weights.subarray(now.head * bins, (now.head + 1) * bins);
  const largest = weights.reduce((most, weight) => (weight > most ? weight : most), 0);
  const end = niceMaximum(largest);
  const drawn = drawnBins(stack.offsets, weights, end);
  return { labels: stack.offsets, weights, width, height: HEIGHT, end, ...drawn };
}

/** Return the name of a bar: "offset −1", "the first token", "larger offsets". */
export function binInWords(label: string | undefined): string {
  const offset = offsetOf(label);
  if (offset !== null) return `offset ${offsetsInWords([offset, offset])}`;
  return label === "first"
    ? "the first token"
    : label === "rest"
      ? "larger offsets"
      : (label ?? "");
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
        const brush = state.offsets.value;
        const back = profileMarks(now, { palette, color: palette.positive, brush });
        const at = cursor.value;
        const { x, bar } = barPositions(now);
        const front =
          at === null || x[at] === undefined
            ? []
            : [
                {
                  kind: "rect" as const,
                  x: x[at],
                  y: 2,
                  width: Math.max(3, bar),
                  height: HEIGHT - 34,
                  stroke: palette.ink,
                  strokeWidth: 1.5,
                },
              ];
        return sceneOf({ width: now.width, height: now.height }, back, front);
      }),
    [],
  );
  const drawnId = useComputed(() => (profile.value ? "offsets" : null));
  const now = profile.value;
  const head = store.head.value;
  if (!now || !head) return null;

  const offsetAt = (at: number): number | null => offsetOf(now.labels[now.bins[at] ?? -1]);
  const brush = (from: number, to: number): void => {
    const ends = [offsetAt(from), offsetAt(to)];
    if (ends[0] === null || ends[1] === null) return;
    const offsets: [number, number] = [
      Math.min(ends[0] as number, ends[1] as number),
      Math.max(ends[0] as number, ends[1] as number),
    ];
    if (!same(offsets, state.offsets.peek())) assign(state, { offsets });
  };
  const say = (at: number, x: number, y: number): void => {
    const bin = now.bins[at] ?? -1;
    hint.value =
      bin < 0
        ? null
        : {
            x,
            y,
            title: binInWords(now.labels[bin]),
            rows: [
              {
                color: "",
                text: `mean weight ${formatSmall(now.weights[bin] as number)}`,
                meant: false,
              },
            ],
          };
  };
  const last = now.bins.length - 1;
  const selected = (): readonly [number, number] | null => state.offsets.peek();
  /** Return the bar at the cursor or, without a cursor, the first selected bar. */
  const current = (): number => {
    const begin = now.bins.findIndex((_, i) => offsetAt(i) === (selected()?.[0] ?? -1));
    return cursor.peek() ?? Math.max(0, begin);
  };
  const moveTo = (target: (from: number) => number) => (event: KeyboardEvent) => {
    const from = current();
    // The first press of an arrow key only shows the cursor.
    const at = Math.max(0, Math.min(last, cursor.peek() === null ? from : target(from)));
    if (event.shiftKey && offsetAt(at) !== null) {
      anchor.current ??= from;
      brush(anchor.current, at);
    } else anchor.current = null;
    cursor.value = at;
    const { x } = barPositions(now);
    say(at, x[at] ?? 0, HEIGHT / 2);
  };
  const select = (): void => {
    const at = current();
    // If only this offset is selected, clear the selection.
    if (same(selected(), [offsetAt(at), offsetAt(at)])) assign(state, { offsets: null });
    else brush(at, at);
  };
  const actions: KeyActions = {
    ArrowLeft: moveTo((from) => from - 1),
    ArrowRight: moveTo((from) => from + 1),
    Home: moveTo(() => 0),
    End: moveTo(() => last),
    Enter: select,
    " ": select,
    Escape: () => {
      if (!selected()) return false;
      assign(state, { offsets: null });
      return true;
    },
  };
  const brushed = state.offsets.value;
  const announcedBin = cursor.value === null ? null : (now.bins[cursor.value] ?? null);
  return (
    <section class="av-atlas-profile" aria-label="Weights by offset">
      <div class="av-row av-options">
        <h3 class="av-atlas-part">Mean weight by offset</h3>
        {brushed && (
          <button type="button" class="av-chip" onClick={() => assign(state, { offsets: null })}>
            offset {offsetsInWords(brushed)} ×
          </button>
        )}
      </div>
      <ScenePlot
        scene={scene}
        drawnId={drawnId}
        onDrawn={() => {}}
        kind="bars"
        label={`Mean weight of ${headTitle(head)} by offset of the key from the query. Arrows move, Shift-arrows or Enter filter the edges, Escape clears.`}
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
            const { x } = pointIn(plot.current, event);
            const at = nearestOffset(now, x);
            if (at < 0) return;
            anchor.current = at;
            plot.current?.setPointerCapture?.(event.pointerId);
            // A click on the only selected bar clears the selection.
            const clicked = offsetAt(at);
            if (same(state.offsets.peek(), [clicked, clicked])) {
              assign(state, { offsets: null });
              anchor.current = null;
            } else brush(at, at);
          },
          onPointerMove: (event) => {
            const { x, y } = pointIn(plot.current, event);
            if (anchor.current !== null && event.buttons & 1) {
              brush(anchor.current, nearestOffset(now, x));
            }
            say(barAt(now, x), x, y);
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
        {announcedBin === null
          ? ""
          : `${binInWords(now.labels[announcedBin])}: mean weight ${formatSmall(now.weights[announcedBin] as number)}`}
      </p>
    </section>
  );
}
