/** Signals of the head view. They compute the drawn scene and its captions from the traits. */

import { batch, computed, type Signal, signal, untracked } from "@preact/signals";
import { measureText } from "../../draw/canvas";
import { isPrinted } from "../../draw/figure-request";
import { sceneOf } from "../../draw/marks";
import { bySide, isVisible, pinsOf, type Side } from "../../ui/axis";
import { scaleEnd } from "../../ui/colors/color-scales";
import { effectsOf } from "../../ui/effects/effects";
import type { WithImages } from "../../ui/image/state";
import { createImagePanel, type ImagePanel } from "../../ui/image/store";
import { quantityOf } from "../../ui/text/captions";
import { findTokens, tokenMatcher } from "../../ui/text/token-search";
import type { ViewContext } from "../../ui/view/define-view";
import { createQueryNumbers } from "../../ui/view/query-numbers";
import { assign, follow } from "../../ui/view/state";
import { coverage, sentence, summaryOf } from "./captions";
import { layOut } from "./layout";
import {
  focusAmong,
  isRenormalized,
  type LinePlot,
  NO_HIGHLIGHTS,
  pointedAt,
  seriesTextColor,
  type TokenAt,
} from "./line-plot";
import { computeLines, type LineOptions } from "./lines";
import { backMarks, backOpacity, frontMarks } from "./marks";
import {
  type HeadState,
  type LeaveOut,
  type Plan,
  planOf,
  requestOf,
  windowsShowing,
} from "./state";
import { createStrongest } from "./strongest";

export function createHeadStore(context: WithImages<ViewContext<HeadState>>) {
  const { source, state, record } = context;
  const effects = effectsOf(record).tokens;
  /** Token, line and heads under the pointer, and token at the keyboard cursor. */
  const hovered = signal<TokenAt | null>(null);
  const hoveredLine: Signal<LinePlot["hoveredLine"]> = signal(null);
  const hoveredHeads = signal<readonly number[]>([]);
  const cursor = signal<TokenAt | null>(null);
  const search = signal("");

  const plan = computed<Plan | null>(
    () => record.selection.value && planOf(record.selection.value, follow(state)),
  );

  // The question has no pins, because a change of a pin must not request weights again. The windows
  // are those of the drawn plan, which changes with them even if the weights are the same.
  const question = computed(() => {
    const now = plan.value;
    const windows = now && bySide((side) => now.axes[side].window);
    return now && { request: requestOf(now, state.combine.value), windows };
  });
  const reply = record.answer(question, async ({ request }, signal) => ({
    plan: untracked(() => plan.value) as Plan,
    combine: request.combine,
    weights: await source.block(request, signal),
  }));
  const loaded = computed(() => {
    const answer = reply.latest.value?.answer;
    if (!answer) return null;
    // The windows are those of the loaded weights. Other choices of the reader apply at once.
    return { ...answer, plan: planOf(answer.plan, follow(state), answer.plan.axes) };
  });
  // The pins have separate signals. If the plot depended on the requested plan, a change of the
  // layer would redraw the old lines before the new weights are loaded.
  const token = computed(() => plan.value?.token ?? null);
  const key = computed(() => plan.value?.key ?? null);
  const asQuery = computed(() => plan.value?.asQuery ?? false);
  const strongest = createStrongest(context, plan);
  const queryNumbers = createQueryNumbers(context);

  const options = computed<LineOptions | null>(() => {
    if (!loaded.value) return null;
    const { plan: drawn, combine } = loaded.value;
    const { top_k, threshold, renormalize } = follow(state);
    return { combine, top_k, threshold, renormalize: renormalize && !drawn.stack.signed };
  });

  const lines = computed(() => {
    if (!loaded.value || !options.value) return null;
    return computeLines(loaded.value.plan, loaded.value.weights, options.value);
  });

  const ownLargest = computed(() => lines.value?.largest ?? 0);
  const largest = context.scale?.largest(ownLargest) ?? ownLargest;
  const ownMaximum = computed(() => loaded.value?.weights.maximum ?? 0);
  const maximum = context.scale?.maximum(ownMaximum) ?? ownMaximum;

  /**
   * Sides with room for bars. In the view these are both sides, because bars that appear must not
   * move the tokens under the pointer. Beside an image there is little room, so bars of queries have
   * room only while a key is pinned. A figure of a given width has room only for the bars of its pins.
   */
  const barSides = computed<Side[]>(() => {
    const printed = isPrinted(context.figure);
    const hasRoom = !context.image?.beside.value;
    const drawn = loaded.value?.plan;
    const isPinned = (side: Side, index: number | null): boolean =>
      drawn !== undefined && isVisible(drawn.axes[side], index);
    const sides: Side[] = [];
    if (!printed || isPinned("query", token.value)) sides.push("key");
    if ((!printed && hasRoom) || isPinned("key", key.value)) sides.push("query");
    return sides;
  });

  /** Plot without pins, pointer, cursor and search. */
  const basePlot = computed<LinePlot | null>(() => {
    if (!loaded.value || !lines.value || !options.value) return null;
    const { plan: drawn, weights } = loaded.value;
    // By default, a scale of signed numbers ends at the largest drawn number.
    const follows = drawn.stack.signed === true;
    return {
      ...{ plan: drawn, weights, ...NO_HIGHLIGHTS },
      options: options.value,
      lines: lines.value,
      layout: layOut({
        ...{ plan: drawn, barSides: barSides.value, measure: measureText },
        description: record.description.value,
        width: context.width.value,
        effects: effects.value !== null,
        printed: isPrinted(context.figure),
      }),
      palette: context.palette.value,
      images: context.image?.images.value ?? [],
      quantity: quantityOf(drawn.stack),
      scale: scaleEnd(largest.value, maximum.value, follows) || 1,
      strongest: strongest.value,
      effects: effects.value,
    };
  });

  /** Plot with pins, as exports show it. */
  const pinned = computed<LinePlot | null>(() => {
    const plot = basePlot.value;
    if (!plot) return null;
    const pins = { token: token.value, key: key.value, asQuery: asQuery.value };
    return { ...plot, plan: { ...plot.plan, ...pins }, queryNumbers: queryNumbers.value ?? "" };
  });

  /** Plot with pins and the keyboard cursor. It does not depend on the pointer. */
  const spoken = computed<LinePlot | null>(() => {
    const at = cursor.value;
    if (!pinned.value || !at || !isVisible(pinned.value.plan.axes[at.side], at.index))
      return pinned.value;
    return { ...pinned.value, cursor: at };
  });

  const linePlot = computed<LinePlot | null>(
    () =>
      spoken.value && {
        ...spoken.value,
        isFound: tokenMatcher(search.value),
        hovered: hovered.value,
        hoveredLine: hoveredLine.value,
        hoveredHeads: hoveredHeads.value,
      },
  );

  // `basePlot` does not depend on the pointer, so a movement of the pointer does not compute all
  // lines again.
  const back = computed(() => (basePlot.value ? backMarks(basePlot.value) : []));

  return {
    plan,
    loaded,
    lines,
    strongest,
    basePlot,
    pinned,
    linePlot,
    scene: computed(() => {
      const plot = linePlot.value;
      return plot && sceneOf(plot.layout, back.value, frontMarks(plot), backOpacity(plot));
    }),
    caption: computed(() => {
      const plot = linePlot.value;
      return plot && { sentence: sentence(plot), coverage: coverage(plot, true) };
    }),
    /** Text for screen readers. It does not depend on the pointer. */
    summary: computed(() => (spoken.value ? summaryOf(spoken.value) : "")),
    /** Whether the drawn plot and its images belong to the current traits. */
    current: computed(
      () =>
        (context.image?.complete.value ?? true) &&
        reply.current.value !== null &&
        queryNumbers.value !== null,
    ),
    hovered,
    hoveredLine,
    hoveredHeads,
    cursor,
    search,
    matches: computed(() => plan.value && findTokens(plan.value.axes, search.value)),
    /** Pin a token, or unpin it if it is pinned already. */
    togglePin: ({ side, index }: TokenAt): void => {
      const field = side === "query" ? "token" : "key";
      assign(state, { [field]: state[field].peek() === index ? null : index });
    },
    /** Leave out keys or include them again. If numbers are signed, keys cannot be left out. */
    leaveOut: (item: LeaveOut): void => {
      if (plan.peek()?.stack.signed) return;
      const list = state.leave_out.peek();
      const without = list.filter((other) => other !== item);
      assign(state, { leave_out: list.includes(item) ? without : [...list, item] });
    },
  };
}

export type HeadStore = ReturnType<typeof createHeadStore>;

/** Create the image panel, with one heat map over the image for each series. */
export function createHeadImage(context: ViewContext<HeadState>, store: HeadStore): ImagePanel {
  const series = computed(() => {
    const plot = store.basePlot.value;
    if (!plot) return [];
    return plot.lines.series.map(({ name, head }, index) => {
      if (head !== null) {
        // The colours of lines have less contrast with a grey image than those of text.
        const color = seriesTextColor(plot, index);
        return { name, color, textColor: color, heads: [head], how: "mean" as const };
      }
      // The lines of combined heads are grey, which would be invisible on a grey image.
      const how = plot.options.combine === "max" ? ("max" as const) : ("mean" as const);
      const { positive: color, ink: textColor } = plot.palette;
      return { name, color, textColor, heads: plot.plan.heads, how };
    });
  });
  const note = computed(() =>
    store.basePlot.value && isRenormalized(store.basePlot.value)
      ? "Over the image are the model’s own weights, not renormalised."
      : "",
  );
  return createImagePanel(context, {
    series,
    note,
    axes: computed(() => store.plan.value?.axes ?? null),
    reveal: (side, token) => {
      const plan = store.plan.peek();
      if (plan) assign(context.state, windowsShowing(plan, token, side));
    },
    focus: computed(() => {
      const { hovered = null, cursor = null } = store.linePlot.value ?? {};
      // The image shows the weights of pins that are outside the windows, too.
      const pins = pinsOf(context.record.selection.value);
      return focusAmong(pins, pointedAt({ hovered, cursor }));
    }),
    point: (to) =>
      batch(() => {
        const { query = null, key = null, tile: series = 0 } = to ?? {};
        const drawn = query !== null && key !== null && store.lines.peek()?.series[series];
        store.hoveredLine.value = drawn ? { series, query, key } : null;
        const pins = context.record.selection.peek();
        const isOfKey = pins?.key !== null && pins?.token === null;
        const side = key === null || isOfKey ? "query" : "key";
        const index = side === "query" ? query : key;
        store.hovered.value = index === null ? null : { side, index };
      }),
  });
}
