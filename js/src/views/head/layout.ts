/**
 * Positions of tokens, lines and bars in the head view, in pixels. Pure functions.
 *
 * In a vertical layout, queries and keys are two columns of tokens. In a horizontal layout, they
 * are two rows, which the code calls columns, too. Positions "along" the plot are measured in the
 * direction in which the tokens follow each other. Positions "across" the plot are measured in the
 * direction from the queries to the keys.
 */

import type { Range } from "../../client/protocol";
import { PRINT_FONT_SIZE } from "../../draw/figure-request";
import { fontOf, type TextFont } from "../../draw/marks";
import type { PatchAspect } from "../../draw/patches";
import { AXIS_HEIGHT } from "../../ui/plot/bars";
import { fitLabel, graphemes, type Label, type Measure } from "../../ui/text/labels";

export type Orientation = "vertical" | "horizontal";
export type Side = "query" | "key";

/** Queries or keys of the window, with their positions. */
export interface Column {
  side: Side;
  window: Range;
  labels: Label[];
  /** Number of tokens per label. It is 1, or more if tokens are too close to have a label each. */
  every: number;
  /** Font size of the labels. */
  size: number;
  /** Position of the labels across the plot. */
  anchor: number;
  /** Position of the ends of the lines across the plot. */
  edge: number;
  /** Whether labels are rotated, because they are too wide. Always false in a vertical layout. */
  rotated: boolean;
  /**
   * Index in the window of the first token that the model generated. A gap precedes this token.
   * Null if the window shows only the prompt or only the answer.
   */
  answerIndex: number | null;
  /** Position across the plot at which bars of weights start. */
  barStart: number;
  /** Maximum length of these bars. It is negative beside queries, where bars extend backwards. */
  barReach: number;
  /** Position and length across the plot of effect bars. Omitted for queries. */
  effects?: { start: number; size: number };
}

export interface Layout {
  orientation: Orientation;
  width: number;
  height: number;
  /** Distance between neighbouring tokens along the plot. */
  step: number;
  /** Centre of the first token along the plot. */
  first: number;
  query: Column;
  key: Column;
}

/** Functions that return the aspect ratio of an image patch. Null for a side without patches. */
export type Shapes = Record<Side, PatchAspect | null>;

/** Arguments of `layOut`. */
export interface LayoutInput {
  orientation: Orientation;
  /** Available width. */
  width: number;
  queryTexts: readonly string[];
  keyTexts: readonly string[];
  queryWindow: Range;
  keyWindow: Range;
  /**
   * Sides with room for bars. A view needs room on both sides, because bars that appear must not
   * move the tokens under the pointer.
   */
  barSides: readonly Side[];
  /** Index of the first query and key that the model generated, or null. */
  starts?: Record<Side, number | null>;
  /** Aspect ratios of the tokens that are drawn as image patches. */
  shapes?: Shapes;
  /** Whether the numbers are signed, so that bars may extend to both sides of an axis. */
  signed?: boolean | undefined;
  /** Whether keys have effect bars. */
  effects?: boolean;
  /** Whether the layout is for a figure of a given width. Labels have `PRINT_FONT_SIZE` then. */
  printed?: boolean;
  measure: Measure;
}

/** Height of the headings. */
const HEADING = 44;
/** Gap between the prompt and the answer of the model. It contains the word "answer". */
export const ANSWER_GAP = 26;
const GAP = 12;
const MAX_LABEL = 190;
/** Minimum width of the area of the lines, between the two columns. */
const MIN_LINES = 84;
/** Width below which a view makes room for bars by shrinking the lines to `MIN_NARROW_LINES`. */
const NARROW = 320;
const MIN_NARROW_LINES = 60;
/** Minimum width of the bars on each side, if both sides have bars of equal width. */
const MIN_BARS = 72;
/** `MIN_BARS` for a view that is narrower than `SMALL`. */
const SMALL_BARS = 60;
/** Width of the bars beside the queries, if bars of equal width do not fit. */
const SHORT_BARS = 46;
const SMALL = 480;
const MIN_LABEL_STEP = 11;
const PRINTED_STEP = 16;
const MAX_PATCH = 40;
/** Maximum ratio of the longer side of a drawn patch to its shorter side. */
const MAX_STRETCH = 3;
/** Distance between the queries and the keys in a horizontal layout. */
const CROSS = 230;
const HORIZONTAL_BARS = { query: 58, key: 72 };
/** Additional room for bars of signed numbers, which are on both sides of an axis. */
const SIGNED_BARS = 30;
/** Length of effect bars. */
const EFFECTS = 56;
/** Length of effect bars in a view that is narrower than `SMALL`. */
const NARROW_EFFECTS = 30;
const HORIZONTAL_MARGIN = 74;
const PRINTED_MARGIN = 48;

/** Return whether a token can be written from top to bottom with upright characters. */
export function standsUpright(text: string): boolean {
  return /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}·。、，！？「」…]+$/u.test(
    text,
  );
}

/** Return whether a label is short enough to stay horizontal while others are rotated. */
export function staysLevel(label: Label, step: number): boolean {
  return label.width <= Math.min(24, step - 4);
}

/** Return the distance between neighbouring tokens in a column of `count` tokens. */
export function rowStep(count: number): number {
  if (count <= 100) return Math.min(26, Math.max(13, 640 / Math.max(1, count)));
  return Math.max(3, 1150 / count);
}

/**
 * Return the length of a patch along the plot. There are gaps between patches, unless tokens are
 * very close.
 *
 * @param step distance between neighbouring tokens.
 */
function patchSide(step: number): number {
  return step < MIN_LABEL_STEP ? step : Math.min(MAX_PATCH, step - 2);
}

/** Return the labels of one side. The label of an image patch has a size but no text. */
function labelsOf(
  input: LayoutInput,
  side: Side,
  look: { limit: number; size: number; step: number },
): Label[] {
  const font = fontOf({ size: look.size, font: "token" satisfies TextFont });
  const [texts, window] =
    side === "query" ? [input.queryTexts, input.queryWindow] : [input.keyTexts, input.keyWindow];
  const shapeOf = input.shapes?.[side];
  return texts.slice(window[0], window[1]).map((text, index) => {
    const shape = shapeOf?.(window[0] + index) ?? null;
    if (shape === null) return fitLabel(text, look.limit, font, input.measure);
    const room = patchSide(look.step);
    const stretch = Math.min(MAX_STRETCH, Math.max(1 / MAX_STRETCH, shape));
    const [width, height] =
      input.orientation === "vertical" ? [room * stretch, room] : [room, room / stretch];
    return { text: "", cut: false, width, height };
  });
}

function maxLabelWidth(labels: Label[]): number {
  return labels.reduce((most, label) => Math.max(most, label.width), 0);
}

/** Return the centre of a token along the plot. `index` counts from the start of the window. */
export function positionOf(
  layout: Layout,
  index: number,
  column: Pick<Column, "answerIndex">,
): number {
  const isAnswer = column.answerIndex !== null && index >= column.answerIndex;
  return layout.first + index * layout.step + (isAnswer ? ANSWER_GAP : 0);
}

/** Return `Column.answerIndex` of one side. */
function answerIndexOf(input: LayoutInput, side: Side): number | null {
  const [first, stop] = side === "query" ? input.queryWindow : input.keyWindow;
  const start = input.starts?.[side] ?? null;
  return start !== null && start > first && start < stop ? start - first : null;
}

/**
 * Lay out two columns. From left to right: bars, queries, lines, keys, effect bars, bars. If the
 * bars beside queries and keys do not both fit, one or both sides have none.
 */
function layOutColumns(input: LayoutInput): Layout {
  const { width } = input;
  const count = Math.max(
    input.queryWindow[1] - input.queryWindow[0],
    input.keyWindow[1] - input.keyWindow[0],
  );
  const step = input.printed ? Math.min(PRINTED_STEP, rowStep(count)) : rowStep(count);
  const size = input.printed ? PRINT_FONT_SIZE : Math.max(9, Math.min(14.5, step - 2.5));
  const limit = Math.min(MAX_LABEL, Math.max(62, width * 0.2));
  const queryLabels = labelsOf(input, "query", { limit, size, step });
  const keyLabels = labelsOf(input, "key", { limit, size, step });
  const queryWidth = Math.max(36, maxLabelWidth(queryLabels));
  const keyWidth = Math.max(36, maxLabelWidth(keyLabels));
  const gap = width < SMALL ? 7 : GAP;
  const effects = !input.effects ? 0 : width < SMALL ? NARROW_EFFECTS : EFFECTS;
  const beside = effects > 0 ? effects + gap : 0;
  const fixed = queryWidth + keyWidth + 6 * gap + beside;
  const preferredLines = Math.min(340, Math.max(110, width * 0.29));
  const spareWidth = Math.max(0, width - fixed - preferredLines);
  const minLines = width < NARROW && !input.printed ? MIN_NARROW_LINES : MIN_LINES;
  const freeWidth = Math.max(0, width - fixed - minLines);
  const small = width < SMALL && !input.printed;
  // In a small view, the bars have a fixed width and the lines get the remaining width.
  const side = small ? Math.min(SMALL_BARS, freeWidth / 2) : Math.min(300, spareWidth / 2);
  // Both sides have bars of equal width if these bars are wide enough to be readable.
  const several = input.barSides.length > 1;
  const bothSides = several && side >= (small ? SMALL_BARS : MIN_BARS);
  // If bars of equal width do not fit, the bars beside the keys are wider. They are more useful,
  // because they show all weights of a query, which sum to 1.
  const crowded = several && !bothSides;
  const maxBars = width - fixed - MIN_NARROW_LINES;
  const queryBars = crowded && !input.printed && maxBars >= 2 * SHORT_BARS ? SHORT_BARS : 0;
  const narrow =
    queryBars > 0
      ? Math.max(Math.min(84, freeWidth - queryBars), Math.min(SMALL_BARS, maxBars - queryBars))
      : Math.min(84, freeWidth);
  const room = Math.max(
    narrow,
    small ? 0 : Math.min(input.printed ? 300 : 170, spareWidth - queryBars),
  );
  const barRoom = bothSides
    ? { query: side, key: side }
    : {
        query: crowded ? queryBars : input.barSides.includes("query") ? room : 0,
        key: input.barSides.includes("key") ? room : 0,
      };
  const lines = Math.max(
    queryBars > 0 ? MIN_NARROW_LINES : minLines,
    Math.min(520, width - fixed - barRoom.query - barRoom.key),
  );
  const used = fixed + lines + barRoom.query + barRoom.key;
  const left = Math.max(0, (width - used) / 2);
  const queryAnchor = left + barRoom.query + 2 * gap + queryWidth;
  const queryEdge = queryAnchor + gap;
  const keyEdge = queryEdge + lines;
  const keyAnchor = keyEdge + gap;
  const every = step < MIN_LABEL_STEP ? Math.ceil(MIN_LABEL_STEP / step) : 1;
  const answer = { query: answerIndexOf(input, "query"), key: answerIndexOf(input, "key") };
  const answerGap = answer.query === null && answer.key === null ? 0 : ANSWER_GAP;
  const bottom = HEADING + count * step + answerGap;
  return {
    orientation: "vertical",
    // If effect bars do not fit into `width`, the view scrolls, and a figure is wider than
    // requested.
    width: effects > 0 ? Math.max(width, Math.ceil(used)) : width,
    height: bottom + 8 + (barRoom.query + barRoom.key > 0 ? AXIS_HEIGHT : 0),
    step,
    first: HEADING + step / 2,
    query: {
      side: "query",
      window: input.queryWindow,
      labels: queryLabels,
      every,
      size,
      anchor: queryAnchor,
      edge: queryEdge,
      rotated: false,
      answerIndex: answer.query,
      barStart: queryAnchor - queryWidth - gap,
      barReach: -barRoom.query,
    },
    key: {
      side: "key",
      window: input.keyWindow,
      labels: keyLabels,
      every,
      size,
      anchor: keyAnchor,
      edge: keyEdge,
      rotated: false,
      answerIndex: answer.key,
      barStart: keyAnchor + keyWidth + gap + beside,
      ...(effects > 0 && { effects: { start: keyAnchor + keyWidth + gap, size: effects } }),
      barReach: barRoom.key,
    },
  };
}

/** Lay out two rows, with the queries on top. The bars are above the queries and below the keys. */
function layOutRows(input: LayoutInput): Layout {
  const count = Math.max(
    input.queryWindow[1] - input.queryWindow[0],
    input.keyWindow[1] - input.keyWindow[0],
  );
  const answer = { query: answerIndexOf(input, "query"), key: answerIndexOf(input, "key") };
  const answerGap = answer.query === null && answer.key === null ? 0 : ANSWER_GAP;
  const left = input.printed ? PRINTED_MARGIN : HORIZONTAL_MARGIN;
  const room = input.width - left - GAP - answerGap;
  const minStep = input.printed ? PRINT_FONT_SIZE + 2 : 14;
  const step = Math.min(84, Math.max(minStep, room / Math.max(1, count)));
  const size = input.printed ? PRINT_FONT_SIZE : Math.max(10, Math.min(14.5, step - 3.5));
  const limit = 120;
  const queryLabels = labelsOf(input, "query", { limit, size, step });
  const keyLabels = labelsOf(input, "key", { limit, size, step });
  const extent = (labels: Label[]): { rotated: boolean; height: number } => {
    const rotated = maxLabelWidth(labels.filter((label) => !label.height)) > step - 5;
    const patches = Math.max(0, ...labels.map((label) => label.height ?? 0));
    if (!rotated) return { rotated: rotated, height: Math.max(size + 6, patches) };
    const heights = labels.map((label) =>
      label.height
        ? label.height
        : standsUpright(label.text)
          ? graphemes(label.text).length * (size + 1)
          : label.width,
    );
    return { rotated: rotated, height: Math.max(size + 6, ...heights) };
  };
  const query = extent(queryLabels);
  const key = extent(keyLabels);
  const more = input.signed ? SIGNED_BARS : 0;
  const bars = { query: HORIZONTAL_BARS.query + more, key: HORIZONTAL_BARS.key + more };
  const queryAnchor = bars.query + GAP + query.height;
  const queryEdge = queryAnchor + GAP;
  const keyEdge = queryEdge + CROSS;
  const keyAnchor = keyEdge + GAP;
  const effects = input.effects ? EFFECTS : 0;
  const beside = effects > 0 ? effects + GAP : 0;
  const right = left + count * step + answerGap;
  return {
    orientation: "horizontal",
    // If the tokens do not fit into the available width, the view scrolls horizontally.
    width: Math.max(input.width, right + GAP),
    height: keyAnchor + key.height + GAP + beside + bars.key + 4,
    step,
    first: left + step / 2,
    query: {
      side: "query",
      window: input.queryWindow,
      labels: queryLabels,
      every: 1,
      size,
      anchor: queryAnchor,
      edge: queryEdge,
      rotated: query.rotated,
      answerIndex: answer.query,
      barStart: queryAnchor - query.height - GAP / 2,
      barReach: -(bars.query - 14),
    },
    key: {
      side: "key",
      window: input.keyWindow,
      labels: keyLabels,
      every: 1,
      size,
      anchor: keyAnchor,
      edge: keyEdge,
      rotated: key.rotated,
      answerIndex: answer.key,
      barStart: keyAnchor + key.height + GAP / 2 + beside,
      ...(effects > 0 && { effects: { start: keyAnchor + key.height + GAP / 2, size: effects } }),
      barReach: bars.key - 14,
    },
  };
}

export function layOut(input: LayoutInput): Layout {
  return input.orientation === "horizontal" ? layOutRows(input) : layOutColumns(input);
}

/** Return the characters of a label that is written from top to bottom. */
export function charactersOf(text: string): string[] {
  return graphemes(text);
}
