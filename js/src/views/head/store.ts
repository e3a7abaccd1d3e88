/** Signals of the head view. They compute the drawn scene and its captions from the traits. */

import { batch, computed, signal, untracked } from "@preact/signals";
import { tokenFilter } from "../../client/requests/strongest";
import { measureText } from "../../draw/canvas";
import { isPrinted } from "../../draw/figure-request";
import { sceneOf } from "../../draw/marks";
import { aspectRatios } from "../../draw/patches";
import { type Scaling, scaleEnd } from "../../ui/colors/color-scales";
import { answerStart } from "../../ui/generated-token/state";
import { createImagePanel, type ImagePanel, imagesDrawn } from "../../ui/image/store";
import { pairOf } from "../../ui/pairs";
import { quantityOf } from "../../ui/text/captions";
import { findTokens, tokenMatcher } from "../../ui/text/token-search";
import type { ViewContext } from "../../ui/view/define-view";
import { assign, follow } from "../../ui/view/state";
import { type Caption, captionOf, summaryOf } from "./captions";
import { type Layout, layOut, type Side } from "./layout";
import {
  focusOf,
  type LineAt,
  type LinePlot,
  seriesColor,
  seriesTextColor,
  type TokenAt,
} from "./line-plot";
import { computeLines, type LeaveOut, type Lines, shownMatrices } from "./lines";
import { backMarks, backOpacity, frontMarks } from "./marks";
import {
  type HeadState,
  isTogether,
  leftOutOf,
  load,
  type Plan,
  partOf,
  planOf,
  sameWeights,
  windowAround,
  windowsShowing,
} from "./state";
import { createStrongest } from "./strongest";

/** Return the pins of a plan. They do not affect which weights are loaded. */
export function pinsOf({ token, key, asQuery }: Plan): Pick<Plan, "token" | "key" | "asQuery"> {
  return { token, key, ...(asQuery !== undefined && { asQuery }) };
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
  const includedTokens = computed(() => {
    const drawn = loaded.value?.plan;
    if (!drawn) return null;
    const leaveOut = leftOutOf(drawn, state.leave_out.value);
    return tokenFilter(drawn, leaveOut, pairOf(drawn, state.pair.value));
  });
  // The pins have separate signals. If the plot depended on the plan, a change of the layer would
  // redraw the old lines before the new weights are loaded.
  const pinnedToken = computed(() => plan.value?.token ?? null);
  const pinnedKey = computed(() => plan.value?.key ?? null);
  /** Strongest keys of the pinned query in the complete text, or null (see `createStrongest`). */
  const strongest = createStrongest(context, plan);

  const options = computed(() => {
    const drawn = loaded.value?.plan;
    if (!drawn || !includedTokens.value) return null;
    return {
      combine: state.combine.value,
      topK: state.top_k.value,
      threshold: state.threshold.value,
      ...includedTokens.value,
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
  /**
   * Return whether the end of the scale follows the drawn numbers. This is the case for signed
   * numbers, unless several pictures share one scale.
   */
  const ownScale = ({ stack }: Plan): boolean => stack.signed === true && !context.scale;

  const isInSight = (side: Side, index: number | null): index is number => {
    const drawn = loaded.value?.plan;
    const window = side === "query" ? drawn?.queryWindow : drawn?.keyWindow;
    return index !== null && window !== undefined && index >= window[0] && index < window[1];
  };
  const pinsInSight = computed(() => ({
    token: isInSight("query", pinnedToken.value) ? pinnedToken.value : null,
    key: isInSight("key", pinnedKey.value) ? pinnedKey.value : null,
  }));
  // The window may have moved, so that the cursor is no longer visible.
  const cursorInSight = computed(() => {
    const token = cursor.value;
    return token && isInSight(token.side, token.index) ? token : null;
  });

  const layoutOf = (barSides: readonly Side[]): Layout | null => {
    const drawn = loaded.value?.plan;
    if (!drawn) return null;
    const description = record.description.value;
    return layOut({
      starts: { query: answerStart(drawn.queries), key: answerStart(drawn.keys) },
      shapes: {
        query: aspectRatios(drawn.queries, description),
        key: aspectRatios(drawn.keys, description),
      },
      orientation: state.orientation.value,
      width: context.width.value,
      queryTexts: drawn.queries.text,
      keyTexts: drawn.keys.text,
      queryWindow: drawn.queryWindow,
      keyWindow: drawn.keyWindow,
      barSides,
      printed: isPrinted(context.figure),
      signed: drawn.stack.signed,
      effects: record.tokenEffects.value !== null,
      measure: measureText,
    });
  };
  const layout = computed(() => layoutOf(["query", "key"]));

  /** Plot without pins, pointer, cursor and search. */
  const basePlot = computed<LinePlot | null>(() => {
    const now = loaded.value;
    if (!now || !lines.value || !layout.value || !options.value) return null;
    return {
      layout: layout.value,
      palette: context.palette.value,
      queries: now.plan.queries,
      keys: now.plan.keys,
      images: context.image?.images.value ?? [],
      weights: now.weights,
      quantity: quantityOf(now.plan.stack),
      effects: record.tokenEffects.value,
      lines: lines.value,
      scale: scaleEnd(largest.value, now.weights.maximum, scaling.value, ownScale(now.plan)) || 1,
      token: null,
      key: null,
      hovered: null,
      hoveredLine: null,
      hoveredHeads: [],
      cursor: null,
      renormalized: options.value.renormalize,
      leftOut: options.value.leftOut,
      pairQueries: options.value.pairQueries,
      pairKeys: options.value.pairKeys,
      strongest: strongest.value,
      isFound: null,
    };
  });

  const matches = computed(() => {
    const selection = record.selection.value;
    return selection && findTokens(selection, search.value);
  });

  const pinned = computed<LinePlot | null>(() => {
    return (
      basePlot.value && {
        ...basePlot.value,
        ...pinsInSight.value,
        isFound: tokenMatcher(search.value),
      }
    );
  });

  /**
   * Return the plot for an export. It has pins and search matches, but no highlights of pointer and
   * cursor. A figure of a given width reserves room only for the bars of its pins.
   */
  const exportPlot = (): LinePlot | null => {
    const plot = pinned.peek();
    if (!plot) return null;
    const barSides: Side[] = [];
    if (plot.token !== null) barSides.push("key");
    if (plot.key !== null) barSides.push("query");
    const layout = isPrinted(context.figure) ? layoutOf(barSides) : null;
    return { ...plot, layout: layout ?? plot.layout };
  };

  const linePlot = computed<LinePlot | null>(
    () =>
      pinned.value && {
        ...pinned.value,
        hovered: hovered.value,
        hoveredLine: hoveredLine.value,
        hoveredHeads: hoveredHeads.value,
        cursor: cursorInSight.value,
      },
  );

  // `basePlot` does not depend on the pointer, so a movement of the pointer does not compute all
  // lines again.
  const back = computed(() => (basePlot.value ? backMarks(basePlot.value) : []));

  const scene = computed(() => {
    const drawnPlot = linePlot.value;
    return (
      drawnPlot &&
      sceneOf(drawnPlot.layout, back.value, frontMarks(drawnPlot), backOpacity(drawnPlot))
    );
  });

  const caption = computed<Caption | null>(() => {
    const [drawnPlot, requested, drawn] = [linePlot.value, plan.value, loaded.value?.plan];
    if (!drawnPlot || !requested || !drawn) return null;
    // While new weights load, the caption already names the new pins.
    return captionOf({ ...drawn, ...pinsOf(requested) }, drawnPlot, follow(state), true);
  });

  /** Text for screen readers. It does not depend on the pointer. */
  const summary = computed(() => {
    const [pinnedPlot, drawn] = [pinned.value, loaded.value?.plan];
    const requested = plan.value;
    return pinnedPlot && drawn && requested
      ? summaryOf(
          { ...drawn, ...pinsOf(requested) },
          { ...pinnedPlot, cursor: cursorInSight.value },
          options.value?.renormalize ?? false,
        )
      : "";
  });

  /** Whether the drawn plot and its images belong to the current traits. */
  const current = computed(() => {
    const drawn = loaded.value?.plan;
    const isComplete = imagesDrawn(context) && loaded.value !== null;
    return (
      drawn !== undefined && plan.value !== null && sameWeights(drawn, plan.value) && isComplete
    );
  });

  return {
    plan,
    loaded,
    lines,
    listed: strongest,
    exportPlot: exportPlot,
    basePlot: basePlot,
    linePlot,
    back,
    scene,
    caption,
    summary,
    current,
    hovered,
    hoveredLine,
    hoveredHeads,
    cursor,
    search,
    matches,
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
      // Set the traits of both windows, because a window that does not move must stay where it is.
      if (Object.keys(moved).length > 0) assign(state, { query_window, ...moved });
    },
    scaling,
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
          // The neutral grey of a combination would be invisible on a grey image.
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
