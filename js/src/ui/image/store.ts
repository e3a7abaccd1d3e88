/**
 * Signals of the image panel beside a plot, which shows weights over one image. A heat map shows
 * the weights of one head or of several combined heads.
 */

import { computed, type ReadonlySignal, signal } from "@preact/signals";
import type { PatchGrid, StackDescription } from "../../client/protocol";
import { largestOf } from "../../client/signs";
import { headsOf } from "../../client/source";
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
import { drawnTokens, heatsInWords, layersInWords } from "./captions";
import { heatScale, imageRows, type PanelContent, panelMarks } from "./marks";
import {
  createImageRoom,
  type Heat,
  type HeatQuestion,
  type HeatSeries,
  heatQuestion,
  loadHeat,
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
 * round number would make the heat maps paler.
 */
function endOf(heats: readonly Heat[], grid: PatchGrid): number {
  return Math.max(...heats.map((heat) => Math.abs(largestOf(onGrid(heat, grid)))), 0) || 1;
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
  /**
   * `now` is the selection. `grid` is the shown patch grid, whose patches are keys. `queryGrid` is
   * the patch grid of the queries that has the same image, rows and columns, or null if there is
   * none.
   */
  const shown = computed(() => {
    const [now, grid] = [selection.value, grids.value[shownGrid.value]];
    return now && grid ? { now, grid, queryGrid: queryGridOf(now, grid) } : null;
  });

  // While a patch of the panel is highlighted, show the weights of the pinned tokens. The view then
  // highlights the tokens of this patch, so the weights of highlighted tokens would change whenever
  // the pointer moves.
  const focus = computed<Focus>(() =>
    hovered.value ? pinsOf(selection.value) : options.focus.value,
  );
  const question = computed(() => {
    const [of, axes] = [shown.value, options.axes.value];
    return of && axes && heatQuestion(of.now, of.grid, focus.value, options.series.value, axes);
  });
  const { latest: answered } = record.answer(question, (request, ended) =>
    loadHeat(context.source, request, ended),
  );

  const content = computed<PanelContent | null>(() => {
    const [axes, image] = [options.axes.value, room?.images.value[shown.value?.grid.image ?? -1]];
    if (!room || !shown.value || !axes || !image) return null;
    const { now, grid: keyGrid, queryGrid } = shown.value;
    const [requested, latest] = [question.value, answered.value];
    // The last loaded weights may belong to an earlier stack or layer. They are not shown then.
    const fits =
      latest?.question.stack === requested?.stack && latest?.question.layer === requested?.layer;
    const { question: of = null, answer: heats = [] } = (fits && latest) || {};
    const isOfKey = of?.side === "key";
    const grid = (isOfKey && queryGrid) || keyGrid;
    const palette = context.palette.value;
    // The second frame is around the patch whose weights are shown: the query or, for the weights
    // of all queries on one key, the key. The first frame is around the key in `focus`, and is
    // omitted for the weights on one key. Tokens that are not patches of the grid have no frame.
    const ownGrid = isOfKey ? keyGrid : queryGrid;
    const patchAt = (inGrid: PatchGrid | null, token: number | null): number | null =>
      (inGrid && patchIn(inGrid, token)?.index) ?? null;
    return {
      ...{ stack: now.stack, axes, question: of, grid, heats, image, palette },
      width: room.panelWidth.value,
      end: endOf(heats, grid),
      frames: [
        {
          patch: isOfKey ? null : patchAt(grid, focus.value.key),
          stroke: palette.muted,
          strokeWidth: 1.2,
        },
        {
          patch: of?.side ? patchAt(ownGrid, of.token) : null,
          stroke: palette.ink,
          strokeWidth: 1.8,
        },
      ],
      note: options.note?.value ?? "",
    };
  });
  const drawn = computed(() => {
    if (!content.value || !shown.value) return null;
    const { palette, frames } = content.value;
    const as = shown.value.queryGrid ? "query. You can also choose any other query" : "key";
    const advice =
      shown.value.now.token === null
        ? `Click a patch to choose it as the ${as}.`
        : "Click a patch to choose another. Esc clears the choice.";
    const patch = hovered.value?.patch ?? null;
    const hover = { patch, stroke: palette.ink, strokeWidth: 1 };
    return panelMarks({ ...content.value, frames: [...frames, hover] }, advice);
  });

  /**
   * Return the query and the key of the weight that is shown at a patch. The query is null if the
   * weight is a mean over all queries.
   */
  const tokensAt = (patch: number): Focus => {
    const { question: of = null, grid = null } = content.peek() ?? {};
    const token = grid && patchToken(grid, patch);
    if (of?.side === "key") return { query: token, key: of.token };
    return { query: of?.side === "query" ? of.token : null, key: token };
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
      options.point(to && { ...tokensAt(to.patch), tile: to.tile });
    },
    picked,
    shownGrid,
    tokensAt,
    choose: (patch: number) => {
      const now = shown.peek();
      if (!now) return;
      const side = now.queryGrid ? "query" : "key";
      const token = patchToken(now.queryGrid ?? now.grid, patch);
      const pin = now.queryGrid ? "token" : "key";
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

/** Maximum number of images of a figure: 15 rows at 160 mm, with text of 8 points. */
const MAX_IMAGES = 100;

/** Return why a view has no weights over an image, and what to do. */
function imageProblem({ record }: Pick<RecordContext, "record">): string {
  const { stacks = [], images = [] } = record.description.peek() ?? {};
  const selection = record.selection.peek();
  if (images.length === 0)
    return "needs an image, and the record has none. Pass a model and inputs with an image, or omit content=.";
  const isOver = stacks.filter((stack) => (stack.key_tokens ?? stack.query_tokens).grids?.length);
  if (selection && !isOver.includes(selection.stack)) {
    const names = isOver.map(({ name }) => `stack=${JSON.stringify(name)}`).join(" or ");
    const remedy = names ? `Pass ${names}.` : "Omit content=.";
    return `needs keys that are patches of an image, and stack=${JSON.stringify(selection.stack.name)} has none. ${remedy}`;
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
      const { question, stack, grid } = now;
      const width = pictureWidth(context.figure) ?? context.width.peek();
      const { layers } = of === "layers" ? stack : { layers: [question.layer] };
      const groups = of === "layers" ? await heatsOfLayers(context, stack, question) : [now.heats];
      const heats = groups.flat();
      const content = { ...now, width, heats, end: endOf(heats, grid) };
      const { marks, ...size } = imageRows(content, groups);
      const { text } = drawnTokens({ ...now, question });
      const heads = [...new Set(heats.flatMap(({ series }) => series.heads))];
      const framed = now.frames.flatMap(({ patch }) =>
        patch === null ? [] : [quoted(text[patchToken(grid, patch)] ?? "")],
      );
      const frames = framed.length > 0 ? ` Framed: ${framed.join(" and ")}.` : "";
      const scale = heatScale(content);
      const captioned = { ...content, question };
      return viewFigure(context, {
        picture: sceneOf(size, [], marks),
        captions: {
          subtitle: subtitleOf(),
          sentence:
            `${capital(numbersInWords("layer", layers))}, ${numbersInWords("head", heads)}. ` +
            (of === "layers" ? layersInWords : heatsInWords)(heats, captioned),
          coverage: `The image is grey, with less contrast.${frames} ${now.note}`.trim(),
        },
        scales: scale ? [scale] : [],
      });
    },
  };
}

/**
 * Load the heat maps of all layers of a stack, for each series of a request. If a layer lacks a
 * head, there is no map of this head in this layer.
 */
async function heatsOfLayers(
  { source, ended }: Pick<RecordContext, "source" | "ended">,
  stack: StackDescription,
  question: HeatQuestion,
): Promise<Heat[][]> {
  const { series } = question;
  const questions = series.map((item) =>
    stack.layers.flatMap((layer): HeatQuestion[] => {
      const all = headsOf(stack, layer);
      const heads = item.heads.filter((head) => all.includes(head));
      // A name that does not fit above its image is broken after the comma, not before a number.
      const name = [`layer ${layer}`, ...(series.length > 1 ? [item.name] : [])]
        .map((part) => part.replaceAll(" ", "\u00a0"))
        .join(", ");
      return heads.length > 0 ? [{ ...question, layer, series: [{ ...item, name, heads }] }] : [];
    }),
  );
  const count = questions.flat().length;
  if (count > MAX_IMAGES)
    throw new FigureError(
      `content="layers" would draw ${count} images, more than ${MAX_IMAGES}. Pass fewer heads= or ` +
        "include_layers=.",
    );
  const load = async (one: HeatQuestion): Promise<Heat[]> => loadHeat(source, one, ended);
  return Promise.all(questions.map(async (of) => (await Promise.all(of.map(load))).flat()));
}
