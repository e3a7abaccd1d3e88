/**
 * Positions of tokens, lines and bars in the head view, in pixels. Pure functions.
 *
 * Queries and keys are two columns of tokens. Positions "along" the plot are measured in the
 * direction in which the tokens follow each other (down). Positions "across" the plot are measured in
 * the direction from the queries to the keys.
 *
 * Bars beside the tokens show weights. Effect bars beside the keys show the effect of each key,
 * which is a signed number.
 */

import type { Description } from "../../client/protocol";
import { PRINT_FONT_SIZE } from "../../draw/figure-request";
import { fontOf } from "../../draw/marks";
import { aspectRatios } from "../../draw/patches";
import {
  type Axis,
  positionOf,
  positionsIn,
  SIDES,
  type Side,
  sectionsOf,
  shownTokens,
  ticksOf,
} from "../../ui/axis";
import { answerStart } from "../../ui/generated-token/state";
import { AXIS_HEIGHT } from "../../ui/plot/bars";
import { fitLabel, type Label, type Measure } from "../../ui/text/labels";
import { axisLabel } from "../../ui/text/places";
import type { Plan } from "./state";

/** Arguments of `layOut`. */
export interface LayoutInput {
  plan: Plan;
  /** Description of the record, with the sizes of its images. */
  description: Description | null;
  /** Available width. */
  width: number;
  /** Sides with room for bars. */
  barSides: readonly Side[];
  /** Whether keys have effect bars. */
  effects: boolean;
  /** Whether the layout is for a figure of a given width. Labels have `PRINT_FONT_SIZE` then. */
  printed: boolean;
  measure: Measure;
}

/** Height of the headings. */
const HEADING = 44;
/** Gap before a group of tokens, or before the answer of the model. It contains the name. */
export const ANSWER_GAP = 26;
/** Size of the name in this gap, in pixels. */
export const HEADING_SIZE = 11.5;
const GAP = 12;
/** Width below which a layout is small: its gaps and its bars are narrower. */
const SMALL = 480;
/** Preferred minimum width of the area of the lines. */
const PREFERRED_LINES = 84;
/** Minimum width of the area of the lines if bars need the room. */
const MIN_LINES = 60;
/** Minimum width of the bars beside the keys. */
const MIN_BARS = 60;
/** Minimum width of the bars beside the queries. */
const SHORT_BARS = 46;
/** Maximum widths of the bars in a view. */
const MAX_BARS = { query: 220, key: 440 };
const MIN_LABEL_STEP = 11;
const MAX_PATCH = 40;
/** Maximum ratio of the longer side of a drawn patch to its shorter side. */
const MAX_STRETCH = 3;

function clamp(value: number, least: number, most: number): number {
  return Math.max(least, Math.min(most, value));
}

/** Label of a position. The label of an image patch has a height but no text. */
export interface TokenLabel extends Label {
  token: number;
  /** Centre of the token along the plot. */
  middle: number;
}

/** Return the distance between tokens, and the size and the maximum width of their labels. */
function tokenSizeOf({ printed, width }: LayoutInput, count: number) {
  const full = count <= 100 ? clamp(640 / count, 13, 26) : Math.max(3, 1150 / count);
  const step = printed ? Math.min(16, full) : full;
  const size = printed ? PRINT_FONT_SIZE : clamp(step - 2.5, 9, 14.5);
  return { step, size, limit: clamp(width * 0.2, 62, 190) };
}

type TokenSize = ReturnType<typeof tokenSizeOf>;

/**
 * Return the labels of an axis. `middleOf` returns the centre of a position along the plot.
 */
function labelsOf(
  input: LayoutInput,
  axis: Axis,
  { step, size, limit }: TokenSize,
  middleOf: (position: number) => number,
): TokenLabel[] {
  const font = fontOf({ size, font: "token" });
  const { tokens } = axis;
  const shapeOf = aspectRatios(tokens, input.description);
  // Length of a patch along the plot. There are gaps between patches, unless tokens are very close.
  const along = step < MIN_LABEL_STEP ? step : Math.min(MAX_PATCH, step - 2);
  const labels = shownTokens(axis).map((token) => {
    const shape = shapeOf?.(token) ?? null;
    if (shape === null)
      return { token, ...fitLabel(axisLabel(tokens, token), limit, font, input.measure) };
    const stretch = clamp(shape, 1 / MAX_STRETCH, MAX_STRETCH);
    return { token, text: "", width: along * stretch, height: along };
  });
  return labels.map((label: Label & { token: number }, position) => ({
    ...label,
    middle: middleOf(position),
  }));
}

/**
 * Return the headings of an axis: names of groups of tokens at their first position, and "answer"
 * at that of the first token of an answer after the prompt. Tokens after a group have the heading
 * "". If the headings would need more room than the tokens, there are none.
 */
function headingsOf(axis: Axis, step: number): ReadonlyMap<number, string> {
  const answer = positionsIn(axis, [answerStart(axis.tokens) ?? 0, axis.extent[1]]);
  const sections = sectionsOf(axis).map(({ name, tokens }) => ({
    name,
    at: positionsIn(axis, tokens),
  }));
  const headings = new Map<number, string>();
  for (const { name, at } of [...sections, { name: "answer", at: answer }]) {
    const [first, stop] = at;
    if (first === stop || (first === 0 && (name === "" || at === answer))) continue;
    headings.set(first, headings.get(first) || name);
  }
  return headings.size * ANSWER_GAP > axis.groups.length * step ? new Map() : headings;
}

/**
 * Return the part of a column that does not depend on the other column.
 *
 * @param start start of the column along the plot.
 */
function columnOf(input: LayoutInput, side: Side, tokenSize: TokenSize, start: number) {
  const { step, size } = tokenSize;
  const axis = input.plan.axes[side];
  const font = fontOf({ size: HEADING_SIZE, font: "text" });
  const headings = [...headingsOf(axis, step)].map(([position, name]) => {
    const none = { text: "", width: 0 };
    return { position, ...(name ? fitLabel(name, tokenSize.limit, font, input.measure) : none) };
  });
  const labels = labelsOf(input, axis, tokenSize, (position) => {
    const before = headings.filter((heading) => heading.position <= position).length;
    return start + step / 2 + position * step + before * ANSWER_GAP;
  });
  const ticks = ticksOf(axis, step, MIN_LABEL_STEP).map(({ at }) => Math.floor(at + 1e-6));
  return {
    ...axis,
    labels,
    /** Font size of the labels. */
    size,
    /** Room of the labels across the plot. */
    depth: [...labels, ...headings].reduce((most, { width }) => Math.max(most, width), 36),
    /** Headings. A gap with the heading precedes the token at its position. */
    headings,
    /** Tokens that have a label. It is not all tokens if these are too close. */
    named: step < MIN_LABEL_STEP ? new Set(ticks) : null,
    /** Start and end of the tokens along the plot. */
    extent: [start, (labels.at(-1)?.middle ?? start) + step / 2] as const,
  };
}

/**
 * Divide the width among lines and bars. If the bars beside queries and keys
 * do not both fit, one or both sides have none.
 *
 * @param fixed width of everything else.
 */
function divideWidth({ width, printed, barSides }: LayoutInput, fixed: number) {
  const small = width < SMALL && !printed;
  /** Return the width that remains beside lines or bars of the given width. */
  const besides = (other: number): number => Math.max(0, width - fixed - other);
  const free = besides(PREFERRED_LINES);
  // Bars are wide only if the lines have a comfortable width. A small view has no room for this.
  const spare = small ? free : besides(clamp(width * 0.29, 110, 340));
  const both = barSides.length > 1;
  // The bars beside the keys are more useful, because they show all weights of a query, which sum to
  // 1. They have two thirds of the width.
  const bars = {
    query: Math.min(MAX_BARS.query, spare / 3),
    key: Math.min(MAX_BARS.key, (2 * spare) / 3),
  };
  if (!both || bars.query < SHORT_BARS) {
    const short = both && !printed && besides(MIN_LINES) >= 2 * SHORT_BARS ? SHORT_BARS : 0;
    const long = Math.max(
      Math.min(MIN_BARS, besides(MIN_LINES) - short),
      Math.min(84, free - short),
      Math.min(printed ? 300 : MAX_BARS.key, spare - short),
    );
    bars.query = both ? short : barSides.includes("query") ? long : 0;
    bars.key = barSides.includes("key") ? long : 0;
  }
  return { bars, lines: clamp(besides(bars.query + bars.key), MIN_LINES, 520) };
}

/**
 * Lay out the plot. Across the plot, the order is: bars beside the queries, queries, lines, keys,
 * effect bars of the keys, bars beside the keys.
 */
export function layOut(input: LayoutInput) {
  const { plan, width } = input;
  const small = width < SMALL;
  const gap = small ? 7 : GAP;
  const axes = SIDES.map((side) => plan.axes[side]);
  const count = Math.max(1, ...axes.map(({ groups }) => groups.length));
  const tokenSize = tokenSizeOf(input, count);
  const { step } = tokenSize;
  const query = columnOf(input, "query", tokenSize, HEADING);
  const key = columnOf(input, "key", tokenSize, HEADING);
  const effects = !input.effects ? 0 : small ? 30 : 56;
  // Numbers with "<" are wider than this, but their bars leave the room beside the zero line free.
  const effectNumbers = 38;
  const beside = effects > 0 ? effects + effectNumbers + gap : 0;
  const fixed = query.depth + key.depth + 6 * gap + beside;
  const { lines, bars } = divideWidth(input, fixed);
  const used = fixed + lines + bars.query + bars.key;
  const start = Math.max(0, (width - used) / 2) + gap;
  const queryBars = start + bars.query;
  const queryAnchor = queryBars + gap + query.depth;
  const keyAnchor = queryAnchor + 2 * gap + lines;
  const keyEffects = keyAnchor + key.depth + gap;
  const keyBars = keyEffects + beside;
  const end = Math.max(HEADING + count * step, query.extent[1], key.extent[1]);
  const axis = bars.query + bars.key > 0 ? AXIS_HEIGHT : 0;
  return {
    // If effect bars do not fit into `width`, the view scrolls, and a figure is wider than requested.
    width: effects > 0 ? Math.max(width, Math.ceil(used)) : width,
    height: end + 8 + axis,
    /** Distance between neighbouring tokens along the plot. */
    step,
    query: {
      ...query,
      /** Position of the labels across the plot. */
      anchor: queryAnchor,
      /** Position of the ends of the lines across the plot. */
      edge: queryAnchor + gap,
      /** Position across the plot at which the bars start. */
      barStart: queryBars,
      /**
       * Maximum length of the bars. It is negative, because these bars extend away from the lines.
       */
      barReach: -bars.query,
    },
    key: {
      ...key,
      anchor: keyAnchor,
      edge: keyAnchor - gap,
      barStart: keyBars,
      barReach: bars.key,
    },
    /**
     * Position and length across the plot of effect bars beside the keys, and the room for their
     * numbers. null without effect bars.
     */
    effects: effects > 0 ? { start: keyEffects, size: effects, numbers: effectNumbers } : null,
  };
}

export type Layout = ReturnType<typeof layOut>;
/** Axis of the queries or of the keys, with the places of its tokens. */
export type Column = Layout["query"];

/** Return the label of a visible token, which has the place of the token. */
export function labelOf(column: Column, token: number): TokenLabel {
  return column.labels[positionOf(column, token) as number] as TokenLabel;
}
