/**
 * Signals of the image panel beside a plot, which shows weights over one image. A heat map shows
 * the weights of one head or of several combined heads.
 */

import { computed, type ReadonlySignal, signal, untracked } from "@preact/signals";
import type { PatchGrid } from "../../client/protocol";
import { largestOf } from "../../client/signs";
import { type Figure, joined, pictureWidth } from "../../draw/figure";
import { FigureError } from "../../draw/figure-request";
import { sceneOf } from "../../draw/marks";
import { patchIn, patchToken } from "../../draw/patches";
import { type Axis, type BySide, type Focus, pinsOf, type Side } from "../axis";
import { type ImageExport, type ViewFigure, viewFigure } from "../exports/exports";
import { capital, numbersInWords, quoted } from "../text/captions";
import type { RecordContext, ViewContext } from "../view/define-view";
import type { RecordState } from "../view/record";
import { assign, same } from "../view/state";
import { drawnTokens, heatsInWords } from "./captions";
import { areSmall, heatScale, type PanelContent, panelMarks, smallImages } from "./marks";
import {
  createImageRoom,
  gridsOf,
  type Heat,
  type HeatQuestion,
  type HeatSeries,
  heatQuestion,
  loadHeat,
  MAX_MAPS,
  type MapKind,
  mapKinds,
  mapsOf,
  onGrid,
  PANEL_GAP,
  queryGridOf,
  type WithImages,
} from "./state";

/**
 * Return a context for a plot that shares the width of the view with an image panel.
 *
 * @param withPanel whether the panel is shown if the keys are patches of an image.
 */
export function sharingRoom<S extends RecordState>(
  context: ViewContext<S>,
  withPanel = true,
): WithImages<ViewContext<S>> {
  const image = createImageRoom(context.record, context.source, context.width, withPanel);
  return { ...context, width: image.plotWidth, image };
}

/** Patch under the pointer or at the keyboard cursor. `patch` is its index in the patch grid. */
export interface HoveredPatch {
  patch: number;
  /** Index of the heat map in which the patch is highlighted. */
  tile: number;
}

/** Input of an image panel, and functions that the panel calls to change the view around it. */
interface PanelOptions {
  axes: ReadonlySignal<BySide<Axis> | null>;
  series: ReadonlySignal<HeatSeries[]>;
  /**
   * Query and key that the view highlights or, if none is highlighted, that are pinned. The panel
   * ignores this signal while a patch of the panel is highlighted, because the view then
   * highlights the tokens of this patch.
   */
  focus: ReadonlySignal<Focus>;
  /**
   * Highlight in the view the query and the key of the patch under the pointer or at the keyboard
   * cursor. `tile` is the index of the heat map that contains the patch. null removes the
   * highlight.
   */
  point: (pointed: (Focus & Pick<HoveredPatch, "tile">) | null) => void;
  /** Make a token visible in the view before the panel pins it. */
  reveal: (side: Side, token: number) => void;
  /** Sentence below the image, or "" without a note. */
  note?: ReadonlySignal<string>;
}

/**
 * Return the end of the colour scale of heat maps over an image: the largest weight itself. A larger
 * round number would make the heat maps paler. Return 0 without heat maps.
 */
function endOf(heats: readonly Heat[], grid: PatchGrid): number {
  return Math.max(...heats.map((heat) => Math.abs(largestOf(onGrid(heat, grid)))), 0);
}

export function createImagePanel<S extends RecordState>(
  context: WithImages<ViewContext<S>>,
  options: PanelOptions,
) {
  const { record, common: state, image: room } = context;
  const hovered = signal<HoveredPatch | null>(null);
  /** Index of the patch grid that the reader chose, or null without a choice. */
  const picked = signal<number | null>(null);
  const selection = computed(() => (room?.shown.value ? record.selection.value : null));
  const grids = computed(() => (selection.value ? gridsOf(selection.value) : []));
  const shownGrid = computed(() => {
    const chosen = picked.value;
    if (chosen !== null && chosen < grids.value.length) return chosen;
    const { queries, token = null, key = null } = selection.value ?? {};
    const ofQuery = queries?.grids?.find((grid) => patchIn(grid, token) !== null);
    const holds = (grid: PatchGrid): boolean =>
      patchIn(grid, key) !== null || grid.image === ofQuery?.image;
    const held = grids.value.findIndex(holds);
    // Models that read a small picture and tiles of the same image have most tokens of the tiles.
    const sizes = grids.value.map(({ rows, columns }) => rows * columns);
    return held < 0 ? Math.max(0, sizes.indexOf(Math.max(...sizes))) : held;
  });
  /**
   * `now` is the selection. `grid` is the shown patch grid. `by` has it for the side whose patches it
   * has, and for the other side the grid with the same image, rows and columns, if there is one.
   */
  const shown = computed(() => {
    const [now, grid] = [selection.value, grids.value[shownGrid.value]];
    if (!now || !grid) return null;
    const hasKeys = now.keys.grids?.length;
    const by = hasKeys ? { query: queryGridOf(now, grid), key: grid } : { query: grid, key: null };
    return { now, grid, by };
  });

  // While a patch of the panel is highlighted, show the weights of the pinned tokens. The view then
  // highlights the tokens of this patch, so the weights of highlighted tokens would change whenever
  // the pointer moves.
  // Small maps are of the pinned tokens, too.
  const focus = computed<Focus>(() =>
    hovered.value || state.maps.value !== "chosen" ? pinsOf(selection.value) : options.focus.value,
  );
  /** Return the request for all maps of a kind. */
  const ask = (kind: MapKind): HeatQuestion | null => {
    const [of, axes] = [shown.value, options.axes.value];
    if (!of || !axes) return null;
    const { now, by } = of;
    // Without a word, there is no map of patches on it. Show those of all words.
    const isOfWords = by.key === null && focus.value.key === null;
    const { series } = options;
    const maps = mapsOf(isOfWords ? "words" : kind, now, series.value, context.palette.value);
    return heatQuestion(now, by, focus.value, maps, axes);
  };
  const asked = computed(() => ask(state.maps.value));
  const question = computed(
    () => asked.value && { ...asked.value, series: asked.value.series.slice(0, MAX_MAPS) },
  );
  const { latest: answered } = record.answer(question, (request, ended) =>
    loadHeat(context.source, request, ended),
  );

  /** Loaded maps, their request, and the grid and side of their patches. */
  const loaded = computed(() => {
    if (!shown.value) return null;
    const { by } = shown.value;
    const [requested, latest] = [question.value, answered.value];
    // The last loaded weights may belong to an earlier stack or layer. They are not shown then.
    const fits =
      latest?.question.stack === requested?.stack && latest?.question.layer === requested?.layer;
    const { question: of = null, answer: heats = [] } = (fits && latest) || {};
    const drawn: Side = of?.side === "key" || !by.key ? "query" : "key";
    return { of, heats, drawn, grid: by[drawn] as PatchGrid };
  });
  const ownEnd = computed(() => (loaded.value ? endOf(loaded.value.heats, loaded.value.grid) : 0));
  const end = context.imageScale?.largest(ownEnd) ?? ownEnd;

  const content = computed<PanelContent | null>(() => {
    const [axes, image] = [options.axes.value, room?.images.value[shown.value?.grid.image ?? -1]];
    if (!room || !shown.value || !loaded.value || !axes || !image) return null;
    const { now, by } = shown.value;
    const { of, heats, drawn, grid } = loaded.value;
    const palette = context.palette.value;
    const numMaps = asked.value?.series.length ?? 0;
    // The second frame is around the patch whose weights are shown. The first frame is around the
    // other patch in `focus`. Tokens that are not patches of the grid have no frame.
    const patchAt = (inGrid: PatchGrid | null, token: number | null): number | null =>
      (inGrid && patchIn(inGrid, token)?.index) ?? null;
    const isChosen = ({ series: { choice } }: Heat): boolean =>
      choice !== undefined &&
      Object.entries(choice).every(([name, value]) => same(state[name as "key"].value, value));
    return {
      ...{ stack: now.stack, axes, question: of, grid, heats, image, palette },
      chosen: heats.filter(isChosen),
      width: room.panelWidth.value,
      end: end.value || 1,
      frames: [
        { patch: patchAt(grid, focus.value[drawn]), stroke: palette.muted, strokeWidth: 1.2 },
        {
          patch: of?.side ? patchAt(by[of.side], of.token) : null,
          stroke: palette.ink,
          strokeWidth: 1.8,
        },
      ],
      note:
        (numMaps > MAX_MAPS ? `The first ${MAX_MAPS} of ${numMaps} maps are shown. ` : "") +
        (options.note?.value ?? ""),
    };
  });
  const drawn = computed(() => {
    if (!content.value || !shown.value) return null;
    const { palette, frames } = content.value;
    const { now, by } = shown.value;
    const as = by.query ? "query. You can also choose any other query" : "key";
    const ofPatch =
      now.token === null
        ? `Click a patch to choose it as the ${by.key ? as : "query"}.`
        : "Click a patch to choose another. Esc clears the choice.";
    const advice = areSmall(content.value.heats) ? "Click a map to choose it." : ofPatch;
    const patch = hovered.value?.patch ?? null;
    const hover = { patch, stroke: palette.ink, strokeWidth: 1 };
    return panelMarks({ ...content.value, frames: [...frames, hover] }, advice);
  });

  /**
   * Return the query and the key of the weight that is shown at a patch. One of them is null if the
   * weight is a mean over all queries, or if only the image is shown.
   */
  const tokensAt = ({ patch, tile }: HoveredPatch): Focus => {
    const { question: of = null, grid = null, heats = [] } = content.peek() ?? {};
    const own = of?.side ? (heats[tile]?.series.token ?? of.token) : null;
    const token = grid && patchToken(grid, patch);
    if (of?.side === "key" || !shown.peek()?.by.key) return { query: token, key: own };
    return { query: own, key: token };
  };
  return {
    content,
    drawn,
    /**
     * Return the patch at which the keyboard cursor starts: the patch of the token whose weights
     * are shown, or the first patch if this token is not a patch.
     */
    start: () => content.peek()?.frames[1]?.patch ?? 0,
    /** Caption of the panel for screen readers, or "" if no weights are shown. */
    caption: computed(() => {
      const now = content.value;
      return now?.question ? heatsInWords(now.heats, { ...now, question: now.question }) : "";
    }),
    /**
     * Whether the panel is up to date: the image is loaded, and the shown values are those of the
     * current request, if any. Also true if the panel is not shown.
     */
    current: computed(() => {
      const requested = question.value;
      const answers = requested === null || same(answered.value?.question, requested);
      return selection.value === null || (content.value !== null && answers);
    }),
    hovered,
    /** Highlight a patch in the panel and its tokens in the view. null removes the highlight. */
    point: (to: HoveredPatch | null) => {
      if (same(hovered.peek(), to)) return;
      hovered.value = to;
      // A small map may be of another layer or token than the view.
      const isSmall = areSmall(content.peek()?.heats ?? []);
      options.point(isSmall || !to ? null : { ...tokensAt(to), tile: to.tile });
    },
    picked,
    grids,
    /** Kinds of maps among which the reader can choose. */
    kinds: computed(() => {
      const { now, by } = shown.value ?? {};
      return now && (by?.key || now.key !== null) ? mapKinds(now) : [];
    }),
    shownGrid,
    tokensAt,
    ask: (kind: MapKind) => untracked(() => ask(kind)),
    choose: ({ patch, tile }: HoveredPatch) => {
      const now = shown.peek();
      if (!now) return;
      const { choice } = content.peek()?.heats[tile]?.series ?? {};
      if (choice) return assign(state, choice);
      const side = now.by.query ? "query" : "key";
      const token = patchToken(now.by.query ?? now.grid, patch);
      const pin = now.by.query ? "token" : "key";
      const isPinned = state[pin].peek() === token;
      if (!isPinned) options.reveal(side, token);
      assign(state, { [pin]: isPinned ? null : token });
    },
  };
}

export type ImagePanel = ReturnType<typeof createImagePanel>;

/**
 * Compose the figure of a view with its panel, which is on the right of the picture or below it. If
 * the panel is not shown or not loaded, the figure has only the picture.
 *
 * @param context context that `sharingRoom` returned.
 */
export function figureWithPanel<S extends RecordState>(
  context: WithImages<ViewContext<S>>,
  panel: ImagePanel,
  parts: ViewFigure,
): Figure {
  const content = panel.content.peek();
  if (!content) return viewFigure(context, parts);
  const { picture } = parts;
  const boxes = [{ ...picture, marks: picture.front }, panelMarks(content)];
  const { marks, ...size } = joined(boxes, PANEL_GAP, context.image?.beside.peek());
  const withPanel = { ...picture, ...size, front: marks };
  const figure = viewFigure(context, { ...parts, picture: withPanel });
  return { ...figure, title: `${figure.title} ${panel.caption.peek()}`.trim() };
}

/** Return why a view has no weights over an image, and what to do. */
function imageProblem({ record }: Pick<RecordContext, "record">): string {
  const { stacks = [], images = [] } = record.description.peek() ?? {};
  const selection = record.selection.peek();
  if (images.length === 0)
    return "needs an image, and the record has none. Pass a model and inputs with an image, or omit content=.";
  const isOver = stacks.filter(
    ({ query_tokens: queries, key_tokens: keys }) =>
      gridsOf({ queries, keys: keys ?? queries }).length,
  );
  if (selection && !isOver.includes(selection.stack)) {
    const names = isOver.map(({ name }) => `stack=${JSON.stringify(name)}`).join(" or ");
    const remedy = names ? `Pass ${names}.` : "Omit content=.";
    return `needs queries or keys that are patches of an image, and stack=${JSON.stringify(selection.stack.name)} has none. ${remedy}`;
  }
  return "needs the weights of one token, because the text is too long for the mean over its queries. Pass token=.";
}

/**
 * Return the export of the images with their weights, without the plot.
 *
 * @param context context of the whole view, whose width the images have.
 * @param subtitleOf function that returns the subtitle of the view's figure.
 */
export function imageExport<S extends RecordState>(
  context: ViewContext<S>,
  panel: ImagePanel,
  subtitleOf: () => string,
): ImageExport {
  return {
    isOffered: computed(() => (panel.content.value?.heats.length ?? 0) > 0),
    figure: async (of) => {
      const now = panel.content.peek();
      if (!now?.question || now.heats.length === 0)
        throw new FigureError(`content="${of}" ${imageProblem(context)}`);
      const { grid } = now;
      const question = (of === "layers" && panel.ask("layers")) || now.question;
      const count = question.series.length;
      if (count > MAX_MAPS)
        throw new FigureError(
          `content="layers" would draw ${count} images, more than ${MAX_MAPS}. Pass fewer heads= or ` +
            "include_layers=.",
        );
      const width = pictureWidth(context.figure) ?? context.width.peek();
      const heats =
        of === "layers" ? await loadHeat(context.source, question, context.ended) : now.heats;
      const layers = new Set(question.series.map(({ layer }) => layer ?? question.layer));
      const content = {
        ...now,
        question,
        width,
        heats,
        chosen: [],
        end: of === "layers" ? endOf(heats, grid) || 1 : now.end,
      };
      const { marks, ...size } = smallImages(content);
      const { text } = drawnTokens({ ...now, question });
      const heads = [...new Set(heats.flatMap(({ series }) => series.heads))];
      const framed = now.frames.flatMap(({ patch }) =>
        patch === null ? [] : [quoted(text[patchToken(grid, patch)] ?? "")],
      );
      const frames = framed.length > 0 ? ` Framed: ${framed.join(" and ")}.` : "";
      const scale = heatScale(content);
      return viewFigure(context, {
        picture: sceneOf(size, [], marks),
        captions: {
          subtitle: subtitleOf(),
          sentence:
            `${capital(numbersInWords("layer", [...layers]))}, ${numbersInWords("head", heads)}. ` +
            heatsInWords(heats, { ...content, question }),
          coverage:
            `Below the weights, the image is grey, with less contrast.${frames} ${now.note}`.trim(),
        },
        scales: scale ? [scale] : [],
      });
    },
  };
}
