/** Images beside a picture, live as signals: their pixels, the width they take, the weights over one. */

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

/** From this width on the panel stands beside the picture. */
const BESIDE = 760;
const BETWEEN = 28;
const SHARE = 0.34;
const LEAST = 230;
const MOST = 380;
const MOST_BELOW = 420;

function numbersOf(...lists: TokenList[]): number[] {
  const numbers = lists.flatMap(({ grids }) => grids?.map((grid) => grid.image) ?? []);
  return [...new Set(numbers)].sort((a, b) => a - b);
}

function createImageRoom<S extends RecordState>(
  context: ViewContext<S>,
  withPanel: boolean,
): ImageRoom {
  const { record, source, width } = context;
  const wanted = computed(() => {
    const selection = record.selection.value;
    const numbers = selection ? numbersOf(selection.queries, selection.keys) : [];
    const there = numbers.length > 0 && record.description.value?.images;
    return there ? { numbers, record: record.number.value } : null;
  });
  const answered = record.answer(wanted, ({ numbers }, ended) =>
    Promise.all(numbers.map((each) => source.image(each, ended))),
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
      withPanel && wanted.value !== null && (record.selection.value?.keys.grids?.length ?? 0) > 0,
  );
  const beside = computed(() => shown.value && width.value >= BESIDE);
  const panelWidth = computed(() =>
    beside.value
      ? Math.round(Math.max(LEAST, Math.min(MOST, width.value * SHARE)))
      : Math.min(MOST_BELOW, width.value),
  );
  return {
    images,
    ready: computed(() => (wanted.value?.numbers ?? []).every((number) => images.value[number])),
    shown,
    beside,
    plotWidth: computed(() =>
      beside.value ? width.value - panelWidth.value - BETWEEN : width.value,
    ),
    panelWidth,
    drawn: signal(false),
  };
}

/**
 * The same context for a picture that shares its room with a panel.
 *
 * @param withPanel whether it may have one, where there is an image.
 */
export function sharingRoom<S extends RecordState>(
  context: ViewContext<S>,
  withPanel = true,
): ViewContext<S> {
  const image = createImageRoom(context, withPanel);
  return { ...context, width: image.plotWidth, image };
}

/** Whether images are there, and the panel that shows them is drawn. */
export function imagesDrawn({ image }: Pick<ViewContext<RecordState>, "image">): boolean {
  return !image || (image.ready.value && (!image.shown.value || image.drawn.value));
}

/** A patch under the pointer, by its index in the grid. */
export interface HoveredPatch {
  patch: number;
  /** The heat-map that the pointer is in. */
  tile: number;
}

/** The tokens of the patch under the pointer. */
export interface Pointed extends Focus {
  tile: number;
}

/** What a panel takes from its view, and what it calls there. */
interface PanelOptions {
  series: ReadonlySignal<HeatSeries[]>;
  /** What stands out in the view, apart from what the panel itself points at. */
  focus: ReadonlySignal<Focus>;
  /** Lights what is pointed at. */
  point: (pointed: Pointed | null) => void;
  /** Brings a token that is chosen into sight. */
  reveal: (side: "query" | "key", token: number) => void;
  /** A note on the numbers; "" for none. */
  note?: ReadonlySignal<string>;
}

export function createImagePanel<S extends RecordState>(
  context: ViewContext<S>,
  options: PanelOptions,
) {
  const { record, common: state, image: room } = context;
  const hovered = signal<HoveredPatch | null>(null);
  /** Whether the scale ends at the largest weight that there can be, not at the largest shown. */
  const wholeScale = signal(false);
  /** The number of the grid that is shown, where there are several. */
  const picked = signal<number | null>(null);
  const selection = computed(() => (room?.shown.value ? record.selection.value : null));
  const grids = computed(() => selection.value?.keys.grids ?? []);
  const shownGrid = computed(() => {
    const chosen = picked.value;
    if (chosen !== null && chosen < grids.value.length) return chosen;
    const { queries, token = null, key = null } = selection.value ?? {};
    const holds = (grid: PatchGrid): boolean =>
      patchIn(grid, key) !== null ||
      (queries?.grids?.some((each) => each.image === grid.image && patchIn(each, token) !== null) ??
        false);
    return Math.max(0, grids.value.findIndex(holds));
  });
  const keyGrid = computed(() => grids.value[shownGrid.value] ?? null);

  // What the panel itself points at must not change what it shows under the pointer.
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
  const answered = record.answer(question, (asked, ended) =>
    loadHeat(context.source, asked, ended),
  );

  const base = computed<Omit<PanelContent, "hovered" | "notes"> | null>(() => {
    const [now, grid] = [selection.value, keyGrid.value];
    const image = grid && room?.images.value[grid.image];
    if (!room || !now || !grid || !image) return null;
    const asked = question.value;
    const had = answered.value;
    // Of another stack or layer the last answer says nothing here.
    const fits = asked && had?.question.stack === asked.stack && had.question.layer === asked.layer;
    const heats: readonly Heat[] = fits ? had.answer : [];
    const queryGrid = queryGridOf(now, grid);
    const of = fits ? had.question : null;
    const lies = of?.side === "key" && queryGrid ? queryGrid : grid;
    const captionInput: HeatCaptionInput | null = of && {
      question: of,
      grid: lies,
      queries: now.queries,
      keys: now.keys,
      quantity: quantityOf(now.stack),
    };
    const largest = Math.max(0, ...heats.map((heat) => Math.abs(largestOf(onGrid(heat, lies)))));
    const own = (token: number | null, on: PatchGrid | null): number | null =>
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
      // To the largest weight itself: a rounder end would leave the heat-map paler.
      end: (wholeScale.value ? now.stack.maximum : largest) || 1,
      own: of?.side === "key" ? own(key, grid) : own(query, queryGrid),
      other: of?.side === "key" ? null : own(key, grid),
    };
  });
  const advice = computed(() => {
    const [now, grid] = [selection.value, keyGrid.value];
    if (!now || !grid) return "";
    const role = queryGridOf(now, grid) ? "query" : "key";
    return now.token === null
      ? `Click a patch to choose it as the ${role}${role === "query" ? ", or any other query" : ""}.`
      : "Click a patch to choose another; Esc clears.";
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

  /** The tokens that a patch stands for. */
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
    /** The text for a screen reader; "" where there is no panel. */
    caption: computed(() => {
      const now = base.value;
      return now?.captionInput ? heatsInWords(now.heats, now.captionInput) : "";
    }),
    /** Whether what is drawn is what is asked for. */
    current: computed(() => {
      const asked = question.value;
      const answers = asked === null || same(answered.value?.question, asked);
      return selection.value === null || (base.value !== null && answers);
    }),
    hovered,
    /** Points at a patch, here and in the view. */
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
    /** The panel for an export; null where there is none. */
    forExport: (): Box | null => {
      const now = base.peek();
      return now && panelMarks({ ...now, hovered: null, notes: [options.note?.peek() ?? ""] });
    },
  };
}

export type ImagePanel = ReturnType<typeof createImagePanel>;

/** A picture and its panel as one, for print: side by side, or one below the other. */
export function withPanel<P extends Pick<Scene, "width" | "height" | "back" | "front">>(
  picture: P,
  box: Box | null,
  beside: boolean,
): P {
  if (!box) return picture;
  const [dx, dy] = beside ? [picture.width + BETWEEN, 0] : [0, picture.height + BETWEEN];
  return {
    ...picture,
    width: Math.max(picture.width, dx + box.width),
    height: Math.max(picture.height, dy + box.height),
    front: [...picture.front, ...translate(box.marks, dx, dy)],
  };
}
