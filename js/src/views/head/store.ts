/** Signals of the head view. They compute the drawn scene and its captions from the traits. */

import { batch, computed, signal, untracked } from "@preact/signals";
import { tokenFilter } from "../../client/requests/strongest";
import { measureText } from "../../draw/canvas";
import { isPrinted } from "../../draw/figure-request";
import { sceneOf } from "../../draw/marks";
import { type Scaling, scaleEnd } from "../../ui/colors/color-scales";
import { createImagePanel, type ImagePanel, imagesDrawn } from "../../ui/image/store";
import { pairOf } from "../../ui/pairs";
import { quantityOf } from "../../ui/text/captions";
import { findTokens, tokenMatcher } from "../../ui/text/token-search";
import type { ViewContext } from "../../ui/view/define-view";
import { assign } from "../../ui/view/state";
import { coverage, sentence, summaryOf } from "./captions";
import { type Layout, layOut } from "./layout";
import {
  focusOf,
  type LineAt,
  type LinePlot,
  NO_HIGHLIGHTS,
  type PlotOptions,
  seriesColor,
  seriesTextColor,
  type TokenAt,
} from "./line-plot";
import { computeLines, type LeaveOut, type Lines, shownMatrices } from "./lines";
import { backMarks, backOpacity, frontMarks } from "./marks";
import {
  type HeadState,
  isTogether,
  type Loaded,
  leftOutOf,
  load,
  type Plan,
  partOf,
  planOf,
  type Side,
  sameWeights,
  windowAround,
  windowOf,
  windowsShowing,
} from "./state";
import { createStrongest } from "./strongest";

function isInSight(plan: Plan, side: Side, index: number | null): boolean {
  const [start, stop] = windowOf(plan, side);
  return index !== null && index >= start && index < stop;
}

export function createHeadStore(context: ViewContext<HeadState>) {
  const { source, state, record } = context;
  const hovered = signal<TokenAt | null>(null);
  const hoveredLine = signal<LineAt | null>(null);
  const hoveredHeads = signal<readonly number[]>([]);
  const cursor = signal<TokenAt | null>(null);
  const search = signal("");
  const scaling = context.scale?.scaling ?? signal<Scaling>("auto");

  const plan = computed<Plan | null>(() => {
    const selection = record.selection.value;
    if (!selection) return null;
    const { query_window, key_window } = state;
    const windows = { query_window: query_window.value, key_window: key_window.value };
    return planOf(selection, windows);
  });

  // `partOf` leaves out the pins, because a change of a pin must not request weights again.
  const requestedPart = computed(() => plan.value && partOf(plan.value));
  const reply = record.answer(requestedPart, async (_, signal) => {
    const requestedPlan = untracked(() => plan.value) as Plan;
    return load(source, requestedPlan, signal);
  });
  const loaded = computed(() => reply.value?.answer ?? null);
  // The pins have separate signals. If the plot depended on the requested plan, a change of the
  // layer would redraw the old lines before the new weights are loaded.
  const token = computed(() => plan.value?.token ?? null);
  const key = computed(() => plan.value?.key ?? null);
  const asQuery = computed(() => plan.value?.asQuery ?? false);
  const strongest = createStrongest(context, plan);

  const options = computed<PlotOptions | null>(() => {
    const drawn = loaded.value?.plan;
    if (!drawn) return null;
    const leaveOut = leftOutOf(drawn, state.leave_out.value);
    const pair = pairOf(drawn, state.pair.value);
    return {
      ...{ leaveOut, pair, ...tokenFilter(drawn, leaveOut, pair) },
      combine: state.combine.value,
      topK: state.top_k.value,
      threshold: state.threshold.value,
      renormalize: state.renormalize.value && !drawn.stack.signed,
      queryWindow: drawn.queryWindow,
      keyWindow: drawn.keyWindow,
    };
  });

  const matrices = computed(() => {
    const now = loaded.value;
    return now && shownMatrices(now.weights, state.combine.value, isTogether(now.plan));
  });

  const lines = computed<Lines | null>(() => {
    const now = loaded.value;
    if (!now || !options.value || !matrices.value) return null;
    return computeLines(now.weights, options.value, matrices.value);
  });

  const ownLargest = computed(() => lines.value?.largest ?? 0);
  const largest = context.scale?.largest(ownLargest) ?? ownLargest;
  const fullOpacity = ({ plan: { stack }, weights }: Loaded): number => {
    // The scale of signed numbers follows the drawn numbers, unless several pictures share it.
    const follows = stack.signed === true && !context.scale;
    return scaleEnd(largest.value, weights.maximum, scaling.value, follows) || 1;
  };

  const layoutOf = (drawn: Plan, barSides: readonly Side[]): Layout =>
    layOut({
      ...{ plan: drawn, barSides, printed: isPrinted(context.figure), measure: measureText },
      description: record.description.value,
      orientation: state.orientation.value,
      width: context.width.value,
      effects: record.tokenEffects.value !== null,
    });
  const layout = computed(() => loaded.value && layoutOf(loaded.value.plan, ["query", "key"]));

  /** Plot without pins, pointer, cursor and search. */
  const basePlot = computed<LinePlot | null>(() => {
    const now = loaded.value;
    if (!now || !lines.value || !layout.value || !options.value) return null;
    return {
      ...now,
      ...NO_HIGHLIGHTS,
      options: options.value,
      lines: lines.value,
      layout: layout.value,
      palette: context.palette.value,
      images: context.image?.images.value ?? [],
      quantity: quantityOf(now.plan.stack),
      scale: fullOpacity(now),
      strongest: strongest.value,
      effects: record.tokenEffects.value,
    };
  });

  const matches = computed(() => {
    const selection = record.selection.value;
    return selection && findTokens(selection, search.value);
  });

  /** Plot with pins and search matches. */
  const pinned = computed<LinePlot | null>(() => {
    const plot = basePlot.value;
    if (!plot) return null;
    const pins = { token: token.value, key: key.value };
    return {
      ...plot,
      plan: { ...plot.plan, ...pins, asQuery: asQuery.value },
      token: isInSight(plot.plan, "query", pins.token) ? pins.token : null,
      key: isInSight(plot.plan, "key", pins.key) ? pins.key : null,
      isFound: tokenMatcher(search.value),
    };
  });

  /**
   * Return the plot for an export. It has pins and search matches, but no highlights of pointer and
   * cursor. A figure of a given width reserves room only for the bars of its pins.
   */
  const exportPlot = (): LinePlot | null => {
    const plot = pinned.peek();
    if (!plot || !isPrinted(context.figure)) return plot;
    const barSides: Side[] = [];
    if (plot.token !== null) barSides.push("key");
    if (plot.key !== null) barSides.push("query");
    return { ...plot, layout: layoutOf(plot.plan, barSides) };
  };

  /** Plot with pins, search matches and the keyboard cursor, if the window contains it. */
  const withCursor = computed<LinePlot | null>(() => {
    const plot = pinned.value;
    const at = cursor.value;
    return plot && { ...plot, cursor: at && isInSight(plot.plan, at.side, at.index) ? at : null };
  });

  const linePlot = computed<LinePlot | null>(
    () =>
      withCursor.value && {
        ...withCursor.value,
        hovered: hovered.value,
        hoveredLine: hoveredLine.value,
        hoveredHeads: hoveredHeads.value,
      },
  );

  // `basePlot` does not depend on the pointer, so a movement of the pointer does not compute all
  // lines again.
  const back = computed(() => (basePlot.value ? backMarks(basePlot.value) : []));

  const scene = computed(() => {
    const plot = linePlot.value;
    return plot && sceneOf(plot.layout, back.value, frontMarks(plot), backOpacity(plot));
  });

  return {
    plan,
    loaded,
    lines,
    strongest,
    exportPlot,
    basePlot,
    linePlot,
    scene,
    caption: computed(
      () =>
        linePlot.value && {
          sentence: sentence(linePlot.value),
          coverage: coverage(linePlot.value, true),
        },
    ),
    /** Text for screen readers. It does not depend on the pointer. */
    summary: computed(() => (withCursor.value ? summaryOf(withCursor.value) : "")),
    /** Whether the drawn plot and its images belong to the current traits. */
    current: computed(() => {
      const drawn = loaded.value?.plan;
      const isComplete = imagesDrawn(context) && plan.value !== null;
      return drawn !== undefined && isComplete && sameWeights(drawn, plan.value as Plan);
    }),
    hovered,
    hoveredLine,
    hoveredHeads,
    cursor,
    search,
    matches,
    scaling,
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
    /**
     * Move the windows so that they show a token. For a key, only the window of the keys moves. For
     * a query, both windows move if they are equal.
     */
    jumpTo: (side: Side, index: number): void => {
      const current = plan.peek();
      if (!current) return;
      const { queryWindow: query_window, keyWindow, keys } = current;
      const moved =
        side === "key"
          ? { key_window: windowAround(keyWindow, keys.text.length, index) }
          : windowsShowing(current, index, side);
      // Set the traits of both windows, not only the trait of the window that moves. The other
      // window must stay where it is.
      if (Object.keys(moved).length > 0) assign(state, { query_window, ...moved });
    },
  };
}

export type HeadStore = ReturnType<typeof createHeadStore>;

/** Create the image panel, with one heat map over the image for each series. */
export function createHeadImage(context: ViewContext<HeadState>, store: HeadStore): ImagePanel {
  const series = computed(() => {
    const [ground, plan] = [store.basePlot.value, store.plan.value];
    const all = ground?.lines.series ?? [];
    if (!ground || !plan) return [];
    const { palette } = ground;
    return all.map(
      (item, index) =>
        ({
          name: item.name,
          // If `head` is null, the series combines all heads. Its lines are grey, which would be
          // invisible on a grey image, so another colour is used here.
          color: item.head === null ? palette.positive : seriesColor(ground, index),
          textColor: item.head === null ? palette.ink : seriesTextColor(ground, index),
          heads: item.head === null ? plan.heads : [item.head],
          how: item.head === null && context.state.combine.value === "max" ? "max" : "mean",
        }) as const,
    );
  });
  const note = computed(() => {
    const { renormalize, leave_out, pair } = context.state;
    const plan = store.plan.value;
    if (plan?.stack.signed) return "";
    const excludesKeys = leave_out.value.length > 0 || (plan && pairOf(plan, pair.value) !== "all");
    return renormalize.value && excludesKeys
      ? "Over the image are the model’s own weights, not renormalised."
      : "";
  });
  return createImagePanel(context, {
    series,
    note,
    reveal: (side, token) => {
      const plan = store.plan.peek();
      if (plan) assign(context.state, windowsShowing(plan, token, side));
    },
    focus: computed(() => {
      const linePlot = store.linePlot.value;
      const selection = context.record.selection.value;
      // Use the selection's pins, because the plot does not contain pins outside the windows.
      const pins = { query: selection?.token ?? null, key: selection?.key ?? null };
      if (!linePlot || (!linePlot.hovered && !linePlot.cursor)) return pins;
      return focusOf({ ...linePlot, token: pins.query, key: pins.key });
    }),
    point: (to) =>
      batch(() => {
        const line = to && to.query !== null && to.key !== null;
        const drawn = (store.lines.peek()?.series.length ?? 0) > (to?.tile ?? 0);
        store.hoveredLine.value =
          line && drawn
            ? { series: to.tile, query: to.query as number, key: to.key as number }
            : null;
        const selection = context.record.selection.peek();
        const side = selection?.key !== null && selection?.token === null ? "query" : "key";
        const index = side === "query" ? to?.query : to?.key;
        store.hovered.value = typeof index === "number" ? { side, index } : null;
      }),
  });
}
