/**
 * Contents of the head view, from which its marks, captions and tooltips are computed.
 *
 * A series is the set of lines of one head, or of the mean or maximum of several heads. A side is
 * the queries or the keys.
 */

import type { StrongestAnswer } from "../../client/requests/strongest";
import { signColor } from "../../ui/colors/color-scales";
import { headColor, headsPerColor, headTextColor, type Palette } from "../../ui/colors/palette";
import type { TokenEffects } from "../../ui/effects/effects";
import type { Images } from "../../ui/image/state";
import type { Pair } from "../../ui/pairs";
import { headsInWords, type Quantity, waysOf } from "../../ui/text/captions";
import type { Layout } from "./layout";
import type { LeaveOut, LineOptions, Lines, Weights } from "./lines";
import type { Plan, Side } from "./state";

/** A query or a key. */
export interface TokenAt {
  side: Side;
  index: number;
}

/** Line from a query to a key. */
export interface LineAt {
  series: number;
  query: number;
  key: number;
}

/** Everything that determines the drawn plot. */
export interface LinePlot {
  /** Drawn plan, with the pins that the reader has chosen. */
  plan: Plan;
  weights: Weights;
  options: PlotOptions;
  lines: Lines;
  layout: Layout;
  palette: Palette;
  /** Images of the record, whose patches are tokens. */
  images: Images;
  /** Name and range of the drawn numbers. */
  quantity: Quantity;
  /** Absolute value that is drawn with full opacity. */
  scale: number;
  /** Strongest keys of the pinned query in the complete text, or null if not needed or loaded. */
  strongest: StrongestAnswer | null;
  /** Effects of the keys, which are drawn as bars beside the keys. */
  effects: TokenEffects | null;
  /** Pinned query and key, if they are in the windows. */
  token: number | null;
  key: number | null;
  /** Token under the pointer. */
  hovered: TokenAt | null;
  /** Line under the pointer. */
  hoveredLine: LineAt | null;
  /** Heads of the button or legend entry under the pointer. Their lines are highlighted. */
  hoveredHeads: readonly number[];
  /** Token under the keyboard cursor. */
  cursor: TokenAt | null;
  /** Return whether a token matches the search. Null without a search. */
  isFound: ((token: string) => boolean) | null;
}

/** Options of the drawn lines, and what the reader has chosen to obtain them. */
export interface PlotOptions extends LineOptions {
  leaveOut: readonly LeaveOut[];
  pair: Pair;
}

/** Plot without pins, pointer, cursor and search. */
export const NO_HIGHLIGHTS = {
  ...{ token: null, key: null, hovered: null, hoveredLine: null, hoveredHeads: [] },
  ...{ cursor: null, isFound: null },
} satisfies Partial<LinePlot>;

/** Query and key whose lines are highlighted. Null stands for none. */
export interface Focus {
  query: number | null;
  key: number | null;
}

export type Pointing = Pick<LinePlot, "hovered" | "cursor" | "token" | "key">;

/** Return the token under the pointer, otherwise the token at the keyboard cursor, or null. */
export function pointedAt(linePlot: Pointing): TokenAt | null {
  return linePlot.hovered ?? linePlot.cursor;
}

/** Return the highlight: the token under the pointer or cursor, otherwise the pins. */
export function focusOf(linePlot: Pointing): Focus {
  const pointed = pointedAt(linePlot);
  const pins = { query: linePlot.token, key: linePlot.key };
  if (!pointed) return pins;
  // If only a query (key) is pinned, its bars are beside the keys (queries). The bars must stay
  // while the pointer is on them, so the pin stays highlighted.
  const across =
    pointed.side === "query"
      ? pins.key !== null && pins.query === null
      : pins.query !== null && pins.key === null;
  if (across) return pins;
  return pointed.side === "query"
    ? { query: pointed.index, key: null }
    : { query: null, key: pointed.index };
}

/** Return the weight in a series, or NaN if it is not loaded. */
export function drawnValue(linePlot: LinePlot, series: number, query: number, key: number): number {
  const { rows, columns, numReached } = linePlot.weights;
  // The causal mask excludes keys from `numReached` on for all loaded queries.
  if (key >= numReached) return 0;
  const drawn = linePlot.lines.series[series];
  if (query < rows[0] || query >= rows[1] || key < columns[0] || key >= columns[1])
    return Number.NaN;
  const width = columns[1] - columns[0];
  return drawn?.matrix[(query - rows[0]) * width + key - columns[0]] ?? 0;
}

export function seriesColor(linePlot: LinePlot, seriesIndex: number): string {
  const { series } = linePlot.lines;
  const only = series[seriesIndex];
  // A mean or maximum over heads does not have the colour of a head.
  if (!only || only.head === null) return linePlot.palette.neutral;
  return headColor(linePlot.palette, seriesIndex, series.length);
}

/**
 * Return whether the colours of lines and bars stand for signs instead of heads. This is the case
 * for a single series of signed numbers.
 */
export function colorsSigns({ quantity, lines }: Pick<LinePlot, "quantity" | "lines">): boolean {
  return quantity.signed && lines.series.length === 1;
}

export function valueColor(linePlot: LinePlot, seriesIndex: number, value: number): string {
  return colorsSigns(linePlot)
    ? signColor(value, linePlot.palette)
    : seriesColor(linePlot, seriesIndex);
}

/** Return the colour of a series for text. It has more contrast than the colour of its lines. */
export function seriesTextColor(linePlot: LinePlot, seriesIndex: number): string {
  const { series } = linePlot.lines;
  if (series[seriesIndex]?.head == null || colorsSigns(linePlot)) return linePlot.palette.neutral;
  return headTextColor(linePlot.palette, seriesIndex, series.length);
}

/** Entry of the legend: a colour or line style, and the heads that have this colour. */
export interface LegendEntry {
  name: string;
  color: string;
  heads: number[];
  /** Whether the lines of this entry are dashed. */
  dashed?: boolean;
}

/** Return "heads 0, 1", or "heads 0 to 3" for at least three consecutive heads. */
function groupName(heads: readonly number[]): string {
  const first = heads[0] as number;
  const last = heads.at(-1) as number;
  const inTurn = heads.every((head, i) => head === first + i);
  return heads.length > 2 && inTurn ? `heads ${first} to ${last}` : headsInWords(heads);
}

/** Return the entries of the legend. Heads with the same colour have a common entry. */
export function legendOf(linePlot: LinePlot): LegendEntry[] {
  const { lines, quantity, palette } = linePlot;
  const { series } = lines;
  const headsPerEntry = headsPerColor(series.length);
  const [less, more] = waysOf(quantity);
  if (colorsSigns(linePlot)) {
    return [
      { name: `${series[0]?.name}: ${more}`, color: palette.positive, heads: [] },
      { name: less, color: palette.negative, heads: [], dashed: true },
    ];
  }
  const signs = [
    { name: more, color: palette.neutral, heads: [] },
    { name: less, color: palette.neutral, heads: [], dashed: true },
  ];
  const named = series
    .map((_, index) => index)
    .filter((index) => index % headsPerEntry === 0)
    .map((index) => {
      const members = series.slice(index, index + headsPerEntry);
      const heads = members.flatMap(({ head }) => (head === null ? [] : [head]));
      const name = members.length > 1 ? groupName(heads) : (members[0]?.name ?? "");
      return { name, color: seriesColor(linePlot, index), heads };
    });
  return quantity.signed ? [...named, ...signs] : named;
}

/** Return whether the pointer is on the button or the legend entry of a head. */
export function isHovered(linePlot: Pick<LinePlot, "hoveredHeads">, head: number | null): boolean {
  return head !== null && linePlot.hoveredHeads.includes(head);
}
