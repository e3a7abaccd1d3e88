/**
 * Contents of the head view, from which its marks, captions and tooltips are computed.
 *
 * A series is the set of lines of one head, or of the mean or maximum of several heads. A side is
 * the queries or the keys.
 */

import type { WeightBlock } from "../../client/source";
import {
  bySide,
  type Focus,
  indexIn,
  isVisible,
  isWithin,
  pinsOf,
  rowOf,
  type Side,
} from "../../ui/axis";
import { inkColor } from "../../ui/colors/color-scales";
import { headColor, headsPerColor, headTextColor, type Palette } from "../../ui/colors/palette";
import type { TokenEffects } from "../../ui/effects/effects";
import type { Images } from "../../ui/image/state";
import { numbersInWords, type Quantity, waysOf } from "../../ui/text/captions";
import type { Layout } from "./layout";
import type { Line, LineOptions, Lines } from "./lines";
import type { Plan } from "./state";
import type { StrongestKeys } from "./strongest";

/** A query or a key. */
export interface TokenAt {
  side: Side;
  index: number;
}

/** Everything that determines the drawn plot. */
export interface LinePlot {
  /** Tokens and weights that are drawn, and the pins that the reader has chosen. */
  plan: Plan;
  weights: Pick<WeightBlock, "maximum" | "error">;
  options: LineOptions;
  lines: Lines;
  layout: Layout;
  palette: Palette;
  /** Images of the record, whose patches are tokens. */
  images: Images;
  /** Name and range of the drawn numbers. */
  quantity: Quantity;
  /** Absolute value that is drawn with full opacity. */
  scale: number;
  /**
   * Strongest keys of the pinned query in the complete text. Null if they are not needed or not
   * loaded.
   */
  strongest: StrongestKeys | null;
  /**
   * Effects of the keys: signed numbers that are drawn as bars beside the keys. Null without
   * effects.
   */
  effects: TokenEffects | null;
  /** Token under the pointer. */
  hovered: TokenAt | null;
  /** Line under the pointer. */
  hoveredLine: Omit<Line, "weight"> | null;
  /** Heads of the button or legend entry under the pointer. Their lines are highlighted. */
  hoveredHeads: readonly number[];
  /** Token under the keyboard cursor. */
  cursor: TokenAt | null;
  /** Return whether a token matches the search. Null without a search. */
  isFound: ((token: string) => boolean) | null;
  /** Sentences about numbers of the pinned query, or "" (see `query-numbers.ts`). */
  queryNumbers: string;
}

/**
 * Return whether the drawn weights are renormalised, so that they differ from the model's weights.
 */
export function isRenormalized({ plan, options }: Pick<LinePlot, "plan" | "options">): boolean {
  return options.renormalize && plan.axes.key.exclusions.length > 0;
}

/** Plot without pins, pointer, cursor and search. */
export const NO_HIGHLIGHTS = {
  ...{ hovered: null, hoveredLine: null, hoveredHeads: [] },
  ...{ cursor: null, isFound: null, queryNumbers: "" },
} satisfies Partial<LinePlot>;

/** Return the token under the pointer, otherwise the token at the keyboard cursor, or null. */
export function pointedAt({ hovered, cursor }: Pick<LinePlot, "hovered" | "cursor">) {
  return hovered ?? cursor;
}

/**
 * Return the query and key whose lines are highlighted: the token under the pointer or cursor,
 * otherwise the pins. If only one token is pinned, a token of the other side does not replace it.
 */
export function focusOf(linePlot: LinePlot): Focus {
  const { axes } = linePlot.plan;
  const pins = pinsOf(linePlot.plan);
  const visible = bySide((side) => (isVisible(axes[side], pins[side]) ? pins[side] : null));
  return focusAmong(visible, pointedAt(linePlot));
}

export function focusAmong(pins: Focus, pointed: TokenAt | null): Focus {
  const numPins = [pins.query, pins.key].filter((pin) => pin !== null).length;
  // If only a query (key) is pinned, its bars are beside the keys (queries). The bars must stay
  // while the pointer is on them, so the pin stays highlighted.
  if (!pointed || (numPins === 1 && pins[pointed.side] === null)) return pins;
  return { query: null, key: null, [pointed.side]: pointed.index };
}

/**
 * Return a weight of a series. Return −0 for a key that the causal mask excludes, and NaN if the
 * weight is not loaded.
 */
export function drawnValue(
  { plan, lines }: LinePlot,
  series: number,
  query: number,
  key: number,
): number {
  const { rows, columns, numReached } = plan;
  // No loaded query may attend to the key `numReached` or later keys.
  if (key >= numReached) return -0;
  if (!isWithin(rows, query) || !isWithin(columns, key)) return Number.NaN;
  const { matrix } = lines.series[series] ?? {};
  return (matrix && rowOf(matrix, plan, query)[indexIn(columns, key)]) ?? 0;
}

export function seriesColor({ lines: { series }, palette }: LinePlot, index: number): string {
  // A mean or maximum over heads does not have the colour of a head.
  if (series[index]?.head == null) return palette.neutral;
  return headColor(palette, index, series.length);
}

/**
 * Return whether the colours of lines and bars stand for signs instead of heads. This is the case
 * for a single series of signed numbers.
 */
export function colorsSigns({ quantity, lines }: Pick<LinePlot, "quantity" | "lines">): boolean {
  return quantity.signed && lines.series.length === 1;
}

export function valueColor(linePlot: LinePlot, index: number, value: number): string {
  const { palette } = linePlot;
  return colorsSigns(linePlot) ? inkColor(palette, value) : seriesColor(linePlot, index);
}

/** Return the colour of a series for text. It has more contrast than the colour of its lines. */
export function seriesTextColor(linePlot: LinePlot, index: number): string {
  const { series } = linePlot.lines;
  const { palette } = linePlot;
  if (series[index]?.head == null || colorsSigns(linePlot)) return palette.neutral;
  return headTextColor(palette, index, series.length);
}

/**
 * Return the entries of the legend: a name, its colour, the heads that have this colour, and
 * whether the lines are dashed. Heads with the same colour have a common entry.
 */
export function legendOf(linePlot: LinePlot) {
  const { quantity, palette } = linePlot;
  const { series } = linePlot.lines;
  const entry = (name: string, color: string, heads: number[] = [], dashed = false) => {
    return { name, color, heads, dashed };
  };
  const [less, more] = waysOf(quantity);
  if (colorsSigns(linePlot))
    return [
      entry(`${series[0]?.name}: ${more}`, palette.positive),
      entry(less, palette.negative, [], true),
    ];
  const perEntry = headsPerColor(series.length);
  const named = series.flatMap(({ name }, index) => {
    if (index % perEntry > 0) return [];
    const heads = series.slice(index, index + perEntry).flatMap(({ head }) => head ?? []);
    return [
      entry(
        heads.length > 1 ? numbersInWords("head", heads) : name,
        seriesColor(linePlot, index),
        heads,
      ),
    ];
  });
  if (!quantity.signed) return named;
  return [...named, entry(more, palette.neutral), entry(less, palette.neutral, [], true)];
}

/** Return the indices of the series whose head's button or legend entry is under the pointer. */
export function hoveredSeries({ lines: { series }, hoveredHeads }: LinePlot): number[] {
  return [...series.keys()].filter((index) => {
    const head = series[index]?.head;
    return head != null && hoveredHeads.includes(head);
  });
}
