/** Signals of the image panel beside a plot, which shows weights over one image. */

import { computed, type ReadonlySignal, signal } from "@preact/signals";
import type { PatchGrid } from "../../client/protocol";
import { largestOf } from "../../client/signs";
import type { Box } from "../../draw/figure";
import { type Scene, translate } from "../../draw/marks";
import { patchIn } from "../../draw/patches";
import { quantityOf } from "../text/captions";
import type { ViewContext } from "../view/define-view";
import type { RecordState } from "../view/record";
import { assign, same } from "../view/state";
import { heatsInWords } from "./captions";
import { type PanelContent, panelMarks } from "./marks";
import {
  createImageRoom,
  type Focus,
  fewSeries,
  type HeatQuestion,
  type HeatSeries,
  heatQuestion,
  loadHeat,
  onGrid,
  PANEL_GAP,
  queryGridOf,
} from "./state";

/**
 * Return a context for a plot that shares the width of the view with an image panel.
 *
 * @param withPanel whether the panel is shown if the keys are patches of an image.
 */
export function sharingRoom<S extends RecordState>(
  context: ViewContext<S>,
  withPanel = true,
): ViewContext<S> {
  const image = createImageRoom(context.record, context.source, context.width, withPanel);
  return { ...context, width: image.plotWidth, image };
}

/** Patch under the pointer or at the keyboard cursor, as index in the grid. */
export interface HoveredPatch {
  patch: number;
  /** Index of the heat map in which the patch is highlighted. */
  tile: number;
}

/** Tokens of the highlighted patch, and the index of the heat map. */
export interface Pointed extends Focus {
  tile: number;
}

/** Input of an image panel, and functions that it calls to change its view. */
interface PanelOptions {
  series: ReadonlySignal<HeatSeries[]>;
  /** Tokens that the view highlights. Tokens that the panel highlights are not included. */
  focus: ReadonlySignal<Focus>;
  /** Highlight the tokens of a patch in the view, or nothing for null. */
  point: (pointed: Pointed | null) => void;
  /** Make a token visible in the view before the panel pins it. */
  reveal: (side: "query" | "key", token: number) => void;
  /** Sentence below the image, or "" without a note. */
  note?: ReadonlySignal<string>;
}

export function createImagePanel<S extends RecordState>(
  context: ViewContext<S>,
  options: PanelOptions,
) {
  const { record, common: state, image: room } = context;
  const hovered = signal<HoveredPatch | null>(null);
  /** Index of the patch grid that the reader chose, or null without a choice. */
  const picked = signal<number | null>(null);
  const selection = computed(() => (room?.shown.value ? record.selection.value : null));
  const grids = computed(() => selection.value?.keys.grids ?? []);
  const shownGrid = computed(() => {
    const chosen = picked.value;
    if (chosen !== null && chosen < grids.value.length) return chosen;
    const { queries, token = null, key = null } = selection.value ?? {};
    const ofQuery = queries?.grids?.find((grid) => patchIn(grid, token) !== null);
    const holds = (grid: PatchGrid): boolean =>
      patchIn(grid, key) !== null || grid.image === ofQuery?.image;
    return Math.max(0, grids.value.findIndex(holds));
  });
  /** Selection, shown patch grid of its keys, and the same grid of its queries if there is one. */
  const shown = computed(() => {
    const [now, grid] = [selection.value, grids.value[shownGrid.value]];
    return now && grid ? { now, grid, queryGrid: queryGridOf(now, grid) } : null;
  });

  // While the pointer is on the panel, show the weights of the pinned tokens. Otherwise the weights
  // below the pointer would change with the pointer.
  const focus = computed<Focus>(() =>
    hovered.value
      ? { query: selection.value?.token ?? null, key: selection.value?.key ?? null }
      : options.focus.value,
  );
  const question = computed<HeatQuestion | null>(() => {
    const series = fewSeries(options.series.value);
    if (!shown.value || series.length === 0) return null;
    return heatQuestion(shown.value.now, shown.value.grid, focus.value, series);
  });
  const answered = record.answer(question, (request, ended) =>
    loadHeat(context.source, request, ended),
  );

  const base = computed<PanelContent | null>(() => {
    const image = shown.value && room?.images.value[shown.value.grid.image];
    if (!room || !shown.value || !image) return null;
    const { now, grid: keyGrid, queryGrid } = shown.value;
    const [requested, latest] = [question.value, answered.value];
    // The last answer may belong to an earlier stack or layer.
    const fits =
      latest?.question.stack === requested?.stack && latest?.question.layer === requested?.layer;
    const { question: of = null, answer: heats = [] } = (fits && latest) || {};
    const isOfKey = of?.side === "key";
    const grid = (isOfKey && queryGrid) || keyGrid;
    const largest = Math.max(0, ...heats.map((heat) => Math.abs(largestOf(onGrid(heat, grid)))));
    const indexOn = (token: number | null, on: PatchGrid | null): number | null =>
      token !== null && on && patchIn(on, token) ? token - on.start : null;
    return {
      width: room.panelWidth.value,
      palette: context.palette.value,
      image,
      grid,
      heats,
      captionInput: of && {
        ...{ question: of, grid, queries: now.queries, keys: now.keys },
        quantity: quantityOf(now.stack),
      },
      // Use the largest weight itself as the end. A larger round number would make the heat map
      // paler.
      end: largest || 1,
      own: isOfKey
        ? indexOn(of.token, keyGrid)
        : indexOn(of?.side === "query" ? of.token : null, queryGrid),
      other: isOfKey ? null : indexOn(focus.value.key, keyGrid),
      hovered: null,
      notes: [options.note?.value ?? ""],
    };
  });
  const advice = computed(() => {
    if (!shown.value) return "";
    const role = shown.value.queryGrid ? "query" : "key";
    return shown.value.now.token === null
      ? `Click a patch to choose it as the ${role}${role === "query" ? ". You can also choose any other query" : ""}.`
      : "Click a patch to choose another. Esc clears the choice.";
  });
  const content = computed<PanelContent | null>(
    () =>
      base.value && {
        ...base.value,
        hovered: hovered.value?.patch ?? null,
        notes: [...base.value.notes, advice.value],
      },
  );

  /** Return the query and the key for a patch of the shown weights. */
  const tokensAt = (patch: number): Focus => {
    const now = base.peek();
    const of = now?.captionInput?.question;
    if (of?.side === "key") return { query: (now?.grid.start ?? 0) + patch, key: of.token };
    const query = of?.side === "query" ? of.token : null;
    const grid = shown.peek()?.grid;
    return { query, key: grid ? grid.start + patch : null };
  };
  return {
    content,
    drawn: computed(() => content.value && panelMarks(content.value)),
    /** Caption of the panel for screen readers, or "" without a panel. */
    caption: computed(() => {
      const now = base.value;
      return now?.captionInput ? heatsInWords(now.heats, now.captionInput) : "";
    }),
    /** Whether the drawn values are those of the current request. */
    current: computed(() => {
      const requested = question.value;
      const answers = requested === null || same(answered.value?.question, requested);
      return selection.value === null || (base.value !== null && answers);
    }),
    hovered,
    /** Highlight a patch in the panel and its tokens in the view. null removes the highlight. */
    point: (to: HoveredPatch | null) => {
      if (same(hovered.peek(), to)) return;
      hovered.value = to;
      options.point(to && { ...tokensAt(to.patch), tile: to.tile });
    },
    picked,
    shownGrid,
    tokensAt,
    choose: (patch: number) => {
      const now = shown.peek();
      if (!now) return;
      const side = now.queryGrid ? "query" : "key";
      const token = (now.queryGrid ?? now.grid).start + patch;
      const field = now.queryGrid ? "token" : "key";
      const isPinned = state[field].peek() === token;
      if (!isPinned) options.reveal(side, token);
      assign(state, { [field]: isPinned ? null : token });
    },
    /** Return the panel for an export, or null without a panel. */
    forExport: (): Box | null => base.peek() && panelMarks(base.peek() as PanelContent),
  };
}

export type ImagePanel = ReturnType<typeof createImagePanel>;

/** Add the panel to a plot for an export, on the right if `beside`, otherwise below the plot. */
export function withPanel<P extends Pick<Scene, "width" | "height" | "back" | "front">>(
  picture: P,
  box: Box | null,
  beside: boolean,
): P {
  if (!box) return picture;
  const [dx, dy] = beside ? [picture.width + PANEL_GAP, 0] : [0, picture.height + PANEL_GAP];
  return {
    ...picture,
    width: Math.max(picture.width, dx + box.width),
    height: Math.max(picture.height, dy + box.height),
    front: [...picture.front, ...translate(box.marks, dx, dy)],
  };
}
