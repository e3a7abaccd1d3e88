/**
 * Signals for images beside a plot: the images, the width of the panel, and the weights over one
 * image.
 */

import { computed, type ReadonlySignal, signal } from "@preact/signals";
import type { PatchGrid, TokenList } from "../../client/protocol";
import type { RecordImage } from "../../client/requests/images";
import { largestOf } from "../../client/signs";
import type { Box } from "../../draw/figure";
import { type Scene, translate } from "../../draw/marks";
import { patchIn } from "../../draw/patches";
import { quantityOf } from "../text/captions";
import type { ViewContext } from "../view/define-view";
import type { RecordState } from "../view/record";
import { assign, same } from "../view/state";
import { type HeatCaptionInput, heatsInWords } from "./captions";
import { type PanelContent, panelMarks } from "./marks";
import {
  type Focus,
  fewSeries,
  type Heat,
  type HeatQuestion,
  type HeatSeries,
  heatQuestion,
  type ImageRoom,
  type Images,
  loadHeat,
  onGrid,
  queryGridOf,
} from "./state";

/** Smallest width of the view, in pixels, at which the panel is beside the plot. */
const MIN_WIDTH_WITH_PANEL_BESIDE = 760;
const PANEL_GAP = 28;
const SHARE = 0.34;
const MIN_WIDTH_BESIDE = 230;
const MAX_WIDTH_BESIDE = 380;
const MAX_WIDTH_BELOW = 420;

function numbersOf(...lists: TokenList[]): number[] {
  const numbers = lists.flatMap(({ grids }) => grids?.map((grid) => grid.image) ?? []);
  return [...new Set(numbers)].sort((a, b) => a - b);
}

function createImageRoom<S extends RecordState>(
  context: ViewContext<S>,
  withPanel: boolean,
): ImageRoom {
  const { record, source, width } = context;
  const requested = computed(() => {
    const selection = record.selection.value;
    const numbers = selection ? numbersOf(selection.queries, selection.keys) : [];
    const hasImages = numbers.length > 0 && record.description.value?.images;
    return hasImages ? { numbers, record: record.number.value } : null;
  });
  const answered = record.answer(requested, ({ numbers }, ended) =>
    Promise.all(numbers.map((imageNumber) => source.image(imageNumber, ended))),
  );
  const images = computed<Images>(() => {
    const all: (RecordImage | null)[] = (record.description.value?.images ?? []).map(() => null);
    if (answered.value?.question.record !== record.number.value) return all;
    answered.value.question.numbers.forEach((number, i) => {
      all[number] = answered.value?.answer[i] ?? null;
    });
    return all;
  });
  const shown = computed(
    () =>
      withPanel &&
      requested.value !== null &&
      (record.selection.value?.keys.grids?.length ?? 0) > 0,
  );
  const beside = computed(() => shown.value && width.value >= MIN_WIDTH_WITH_PANEL_BESIDE);
  const panelWidth = computed(() =>
    beside.value
      ? Math.round(Math.max(MIN_WIDTH_BESIDE, Math.min(MAX_WIDTH_BESIDE, width.value * SHARE)))
      : Math.min(MAX_WIDTH_BELOW, width.value),
  );
  return {
    images,
    ready: computed(() => (requested.value?.numbers ?? []).every((number) => images.value[number])),
    shown,
    beside,
    plotWidth: computed(() =>
      beside.value ? width.value - panelWidth.value - PANEL_GAP : width.value,
    ),
    panelWidth,
    drawn: signal(false),
  };
}

/**
 * Return a context for a plot that shares the width of the view with an image panel.
 *
 * @param withPanel whether the panel is shown if the keys are patches of an image.
 */
export function sharingRoom<S extends RecordState>(
  context: ViewContext<S>,
  withPanel = true,
): ViewContext<S> {
  const image = createImageRoom(context, withPanel);
  return { ...context, width: image.plotWidth, image };
}

/** Return whether the images are loaded and, if a panel is shown, the panel is drawn. */
export function imagesDrawn({ image }: Pick<ViewContext<RecordState>, "image">): boolean {
  return !image || (image.ready.value && (!image.shown.value || image.drawn.value));
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
  /** Whether the scale ends at the largest possible weight instead of the largest shown one. */
  const wholeScale = signal(false);
  /** Index of the patch grid that the reader chose, or null without a choice. */
  const picked = signal<number | null>(null);
  const selection = computed(() => (room?.shown.value ? record.selection.value : null));
  const grids = computed(() => selection.value?.keys.grids ?? []);
  const shownGrid = computed(() => {
    const chosen = picked.value;
    if (chosen !== null && chosen < grids.value.length) return chosen;
    const { queries, token = null, key = null } = selection.value ?? {};
    const holds = (grid: PatchGrid): boolean =>
      patchIn(grid, key) !== null ||
      (queries?.grids?.some(
        (candidate) => candidate.image === grid.image && patchIn(candidate, token) !== null,
      ) ??
        false);
    return Math.max(0, grids.value.findIndex(holds));
  });
  const keyGrid = computed(() => grids.value[shownGrid.value] ?? null);

  // While the pointer is on the panel, show the weights of the pinned tokens. Otherwise the weights
  // below the pointer would change with the pointer.
  const focus = computed<Focus>(() =>
    hovered.value
      ? { query: selection.value?.token ?? null, key: selection.value?.key ?? null }
      : options.focus.value,
  );
  const question = computed<HeatQuestion | null>(() => {
    const [now, grid] = [selection.value, keyGrid.value];
    const series = fewSeries(options.series.value);
    return now && grid && series.length > 0 ? heatQuestion(now, grid, focus.value, series) : null;
  });
  const answered = record.answer(question, (request, ended) =>
    loadHeat(context.source, request, ended),
  );

  const base = computed<Omit<PanelContent, "hovered" | "notes"> | null>(() => {
    const [now, grid] = [selection.value, keyGrid.value];
    const image = grid && room?.images.value[grid.image];
    if (!room || !now || !grid || !image) return null;
    const requested = question.value;
    const lastAnswer = answered.value;
    // The last answer may belong to an earlier stack or layer.
    const fits =
      requested &&
      lastAnswer?.question.stack === requested.stack &&
      lastAnswer.question.layer === requested.layer;
    const heats: readonly Heat[] = fits ? lastAnswer.answer : [];
    const queryGrid = queryGridOf(now, grid);
    const of = fits ? lastAnswer.question : null;
    const lies = of?.side === "key" && queryGrid ? queryGrid : grid;
    const captionInput: HeatCaptionInput | null = of && {
      question: of,
      grid: lies,
      queries: now.queries,
      keys: now.keys,
      quantity: quantityOf(now.stack),
    };
    const largest = Math.max(0, ...heats.map((heat) => Math.abs(largestOf(onGrid(heat, lies)))));
    const indexOn = (token: number | null, on: PatchGrid | null): number | null =>
      token !== null && on && patchIn(on, token) ? token - on.start : null;
    const query = of?.side === "query" ? of.token : null;
    const key = of?.side === "key" ? of.token : focus.value.key;
    return {
      width: room.panelWidth.value,
      palette: context.palette.value,
      image,
      grid: lies,
      heats,
      captionInput,
      // Use the largest weight itself as the end. A larger round number would make the heat map
      // paler.
      end: (wholeScale.value ? now.stack.maximum : largest) || 1,
      own: of?.side === "key" ? indexOn(key, grid) : indexOn(query, queryGrid),
      other: of?.side === "key" ? null : indexOn(key, grid),
    };
  });
  const advice = computed(() => {
    const [now, grid] = [selection.value, keyGrid.value];
    if (!now || !grid) return "";
    const role = queryGridOf(now, grid) ? "query" : "key";
    return now.token === null
      ? `Click a patch to choose it as the ${role}${role === "query" ? ". You can also choose any other query" : ""}.`
      : "Click a patch to choose another. Esc clears the choice.";
  });
  const content = computed<PanelContent | null>(
    () =>
      base.value && {
        ...base.value,
        hovered: hovered.value?.patch ?? null,
        notes: [options.note?.value ?? "", advice.value],
      },
  );
  const drawn = computed(() => content.value && panelMarks(content.value));

  /** Return the query and the key for a patch of the shown weights. */
  const tokensAt = (patch: number): Focus => {
    const now = base.peek();
    const [of, grid] = [now?.captionInput?.question, keyGrid.peek()];
    const token = (now?.grid.start ?? 0) + patch;
    if (of?.side === "key") return { query: token, key: of.token };
    const query = of?.side === "query" ? of.token : null;
    return { query, key: grid ? grid.start + patch : null };
  };
  return {
    content,
    drawn,
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
    wholeScale,
    picked,
    shownGrid,
    tokensAt,
    choose: (patch: number) => {
      const [now, grid] = [selection.peek(), keyGrid.peek()];
      if (!now || !grid) return;
      const queryGrid = queryGridOf(now, grid);
      const token = (queryGrid ?? grid).start + patch;
      const field = queryGrid ? "token" : "key";
      const pinned = state[field].peek() === token;
      if (!pinned) options.reveal(queryGrid ? "query" : "key", token);
      assign(state, { [field]: pinned ? null : token });
    },
    /** Return the panel for an export, or null without a panel. */
    forExport: (): Box | null => {
      const now = base.peek();
      return now && panelMarks({ ...now, hovered: null, notes: [options.note?.peek() ?? ""] });
    },
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
