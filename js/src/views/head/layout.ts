/**
 * Positions of tokens, lines and bars in the head view, in pixels. Pure functions.
 *
 * In a vertical layout, queries and keys are two columns of tokens. A horizontal layout is the same
 * with x and y swapped: the two rows of tokens are called columns, too. Positions "along" the plot
 * are measured in the direction in which the tokens follow each other. Positions "across" the plot
 * are measured in the direction from the queries to the keys.
 */

import type { Description } from "../../client/protocol";
import { PRINT_FONT_SIZE } from "../../draw/figure-request";
import { fontOf } from "../../draw/marks";
import { aspectRatios } from "../../draw/patches";
import { answerStart } from "../../ui/generated-token/state";
import { AXIS_HEIGHT } from "../../ui/plot/bars";
import { fitLabel, graphemes, type Label, type Measure } from "../../ui/text/labels";
import { type Orientation, type Plan, SIDES, type Side, tokensOf, windowOf } from "./state";

/** Arguments of `layOut`. */
export interface LayoutInput {
  plan: Plan;
  /** Description of the record, with the sizes of its images. */
  description: Description | null;
  orientation: Orientation;
  /** Available width. */
  width: number;
  /** Sides with room for bars. */
  barSides: readonly Side[];
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
const MAX_PATCH = 40;
/** Maximum ratio of the longer side of a drawn patch to its shorter side. */
const MAX_STRETCH = 3;
/** Length of effect bars, and their length in a view that is narrower than `SMALL`. */
const EFFECTS = 56;
const NARROW_EFFECTS = 30;

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

/** Return the centre of a token along the plot. `index` counts from the start of the window. */
export function positionOf(
  layout: Pick<Layout, "first" | "step">,
  index: number,
  column: Pick<Column, "answerIndex">,
): number {
  const isAnswer = column.answerIndex !== null && index >= column.answerIndex;
  return layout.first + index * layout.step + (isAnswer ? ANSWER_GAP : 0);
}

/** Return the value of `Column.answerIndex` for the queries or for the keys. */
function answerIndexOf({ plan }: LayoutInput, side: Side): number | null {
  const [first, stop] = windowOf(plan, side);
  const start = answerStart(tokensOf(plan, side));
  return start !== null && start > first && start < stop ? start - first : null;
}

/** Size of the tokens and their labels, which both columns have in common. */
interface TokenSize {
  step: number;
  /** Font size. */
  size: number;
  /** Maximum width of a label. */
  limit: number;
}

function tokenSizeOf(input: LayoutInput, count: number, room: number): TokenSize {
  const { printed = false, width } = input;
  if (input.orientation === "horizontal") {
    const step = Math.min(84, Math.max(printed ? PRINT_FONT_SIZE + 2 : 14, room / count));
    const size = printed ? PRINT_FONT_SIZE : Math.max(10, Math.min(14.5, step - 3.5));
    return { step, size, limit: 120 };
  }
  const full = count <= 100 ? Math.min(26, Math.max(13, 640 / count)) : Math.max(3, 1150 / count);
  const step = printed ? Math.min(16, full) : full;
  const size = printed ? PRINT_FONT_SIZE : Math.max(9, Math.min(14.5, step - 2.5));
  return { step, size, limit: Math.min(190, Math.max(62, width * 0.2)) };
}

/** Return the labels of one side. The label of an image patch has a size but no text. */
function labelsOf(input: LayoutInput, side: Side, { step, size, limit }: TokenSize): Label[] {
  const font = fontOf({ size, font: "token" });
  const tokens = tokensOf(input.plan, side);
  const window = windowOf(input.plan, side);
  const shapeOf = aspectRatios(tokens, input.description);
  // Length of a patch along the plot. There are gaps between patches, unless tokens are very close.
  const along = step < MIN_LABEL_STEP ? step : Math.min(MAX_PATCH, step - 2);
  return tokens.text.slice(window[0], window[1]).map((text, index) => {
    const shape = shapeOf?.(window[0] + index) ?? null;
    if (shape === null) return fitLabel(text, limit, font, input.measure);
    const stretch = Math.min(MAX_STRETCH, Math.max(1 / MAX_STRETCH, shape));
    const [width, height] =
      input.orientation === "vertical" ? [along * stretch, along] : [along, along / stretch];
    return { text: "", cut: false, width, height };
  });
}

/**
 * Return the room of labels across the plot, and whether the labels are rotated because they are
 * too wide. In a vertical layout, labels are never rotated.
 */
function labelRoomOf({ orientation }: LayoutInput, labels: Label[], { step, size }: TokenSize) {
  const largest = (sizes: number[], least: number): number =>
    sizes.reduce((most, one) => Math.max(most, one), least);
  const widths = labels.map(({ width }) => width);
  if (orientation === "vertical") return { rotated: false, depth: largest(widths, 36) };
  const rotated = labels.some(({ width, height }) => !height && width > step - 5);
  const depths = labels.map(({ text, width, height }) => {
    if (height || !rotated) return height ?? 0;
    return standsUpright(text) ? graphemes(text).length * (size + 1) : width;
  });
  return { rotated, depth: largest(depths, size + 6) };
}

/** Widths across the plot. */
interface Widths {
  lines: number;
  /** Room for the bars beside queries and keys. */
  bars: Record<Side, number>;
}

/**
 * Divide the width of a vertical layout among lines and bars. If the bars beside queries and keys
 * do not both fit, one or both sides have none.
 *
 * @param fixed width of everything else.
 */
function divideWidth({ width, printed = false, barSides }: LayoutInput, fixed: number): Widths {
  const preferredLines = Math.min(340, Math.max(110, width * 0.29));
  const spare = Math.max(0, width - fixed - preferredLines);
  const minLines = width < NARROW && !printed ? MIN_NARROW_LINES : MIN_LINES;
  const free = Math.max(0, width - fixed - minLines);
  const small = width < SMALL && !printed;
  // In a small view, the bars have a fixed width and the lines get the remaining width.
  const equal = small ? Math.min(SMALL_BARS, free / 2) : Math.min(300, spare / 2);
  const several = barSides.length > 1;
  const linesBeside = (bars: Record<Side, number>, least = minLines): Widths => ({
    bars,
    lines: Math.max(least, Math.min(520, width - fixed - bars.query - bars.key)),
  });
  // Both sides have bars of equal width if these bars are wide enough to be readable.
  if (several && equal >= (small ? SMALL_BARS : MIN_BARS))
    return linesBeside({ query: equal, key: equal });
  const most = width - fixed - MIN_NARROW_LINES;
  // Otherwise, the bars beside the keys are wider. They are more useful, because they show all
  // weights of a query, which sum to 1.
  const short = several && !printed && most >= 2 * SHORT_BARS ? SHORT_BARS : 0;
  const long = Math.max(
    Math.min(84, free - short),
    short > 0 ? Math.min(SMALL_BARS, most - short) : 0,
    small ? 0 : Math.min(printed ? 300 : 170, spare - short),
  );
  const bars = {
    query: several ? short : barSides.includes("query") ? long : 0,
    key: barSides.includes("key") ? long : 0,
  };
  return linesBeside(bars, short > 0 ? MIN_NARROW_LINES : minLines);
}

/** Return the part of a column that does not depend on the other column. */
function columnOf(input: LayoutInput, side: Side, tokenSize: TokenSize) {
  const labels = labelsOf(input, side, tokenSize);
  return {
    side,
    window: windowOf(input.plan, side),
    labels,
    /** Font size of the labels. */
    size: tokenSize.size,
    ...labelRoomOf(input, labels, tokenSize),
    /**
     * Index in the window of the first token that the model generated. A gap precedes this token.
     * Null if the window shows only the prompt or only the answer.
     */
    answerIndex: answerIndexOf(input, side),
  };
}

/** Lay out two columns. In this order: bars, queries, lines, keys, effect bars, bars. */
export function layOut(input: LayoutInput) {
  const { plan, orientation, width, printed = false } = input;
  const { queryWindow, keyWindow } = plan;
  const vertical = orientation === "vertical";
  const small = vertical && width < SMALL;
  const gap = small ? 7 : GAP;
  const hasAnswer = SIDES.some((side) => answerIndexOf(input, side) !== null);
  const answerGap = hasAnswer ? ANSWER_GAP : 0;
  const margin = vertical ? HEADING : printed ? 48 : 74;
  const count = Math.max(1, queryWindow[1] - queryWindow[0], keyWindow[1] - keyWindow[0]);
  const tokenSize = tokenSizeOf(input, count, width - margin - GAP - answerGap);
  const { step } = tokenSize;
  const query = columnOf(input, "query", tokenSize);
  const key = columnOf(input, "key", tokenSize);
  const effects = !input.effects ? 0 : small ? NARROW_EFFECTS : EFFECTS;
  const beside = effects > 0 ? effects + gap : 0;
  const fixed = query.depth + key.depth + 6 * gap + beside;
  // Bars of signed numbers are on both sides of an axis.
  const more = plan.stack.signed ? 30 : 0;
  const { lines, bars } = vertical
    ? divideWidth(input, fixed)
    : {
        lines: 230,
        bars: {
          query: input.barSides.includes("query") ? 44 + more : 0,
          key: input.barSides.includes("key") ? 58 + more : 0,
        },
      };
  const used = fixed + lines + bars.query + bars.key;
  const start = vertical ? Math.max(0, (width - used) / 2) + gap : 20;
  const barGap = vertical ? gap : gap / 2;
  const queryBars = start + bars.query;
  const queryAnchor = queryBars + barGap + query.depth;
  const keyAnchor = queryAnchor + 2 * gap + lines;
  const keyEffects = keyAnchor + key.depth + barGap;
  const keyBars = keyEffects + beside;
  const end = margin + count * step + answerGap;
  const hasBars = bars.query + bars.key > 0;
  return {
    orientation,
    // If effect bars or the tokens of a horizontal layout do not fit into `width`, the view
    // scrolls, and a figure is wider than requested.
    ...(vertical
      ? {
          width: effects > 0 ? Math.max(width, Math.ceil(used)) : width,
          height: end + 8 + (hasBars ? AXIS_HEIGHT : 0),
        }
      : { width: Math.max(width, end + GAP), height: keyBars + bars.key + 24 }),
    /** Distance between neighbouring tokens along the plot, and centre of the first token. */
    step,
    first: margin + step / 2,
    /** Number of tokens per label. It is more than 1 if tokens are too close to have a label each. */
    every: vertical && step < MIN_LABEL_STEP ? Math.ceil(MIN_LABEL_STEP / step) : 1,
    query: {
      ...query,
      /** Positions across the plot: of the labels, and of the ends of the lines. */
      anchor: queryAnchor,
      edge: queryAnchor + gap,
      /** Start and maximum length of bars across the plot. Bars beside queries extend backwards. */
      barStart: queryBars,
      barReach: -bars.query,
    },
    key: {
      ...key,
      anchor: keyAnchor,
      edge: keyAnchor - gap,
      barStart: keyBars,
      barReach: bars.key,
    },
    /** Position and length across the plot of effect bars beside the keys, or null without them. */
    effects: effects > 0 ? { start: keyEffects, size: effects } : null,
  };
}

export type Layout = ReturnType<typeof layOut>;
/** Queries or keys of the window, with their positions. */
export type Column = Layout["query"];
