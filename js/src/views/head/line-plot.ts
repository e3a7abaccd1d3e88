/** What the head view shows, as its parts draw it and speak of it. */

import type { TokenList } from "../../client/protocol";
import type { Strongest } from "../../client/requests/strongest";
import { signColor } from "../../ui/colors/color-scales";
import { headColor, headsPerColor, headTextColor, type Palette } from "../../ui/colors/palette";
import type { TokenEffects } from "../../ui/effects/effects";
import type { Images } from "../../ui/image/state";
import { headsInWords, type Quantity, waysOf } from "../../ui/text/captions";
import type { Layout, Side } from "./layout";
import type { Lines, Weights } from "./lines";

/** A token of one side. */
export interface TokenAt {
  side: Side;
  index: number;
}

/** A line between two tokens. */
export interface LineAt {
  series: number;
  query: number;
  key: number;
}

/** Everything that is drawn. */
export interface LinePlot {
  layout: Layout;
  palette: Palette;
  queries: TokenList;
  keys: TokenList;
  /** Of which tokens may be patches. */
  images: Images;
  weights: Weights;
  /** What the numbers are. */
  quantity: Quantity;
  lines: Lines;
  /** The weight that is drawn with full opacity. */
  scale: number;
  /** The pinned query and key. */
  token: number | null;
  key: number | null;
  hovered: TokenAt | null;
  hoveredLine: LineAt | null;
  /** Heads that the pointer is on, in the strip of heads or in the legend. */
  hoveredHeads: readonly number[];
  /** Where the keyboard is. */
  cursor: TokenAt | null;
  /** Whether what is not left out is divided by its sum. */
  renormalized: boolean;
  leftOut: Uint8Array;
  pairQueries: Uint8Array;
  pairKeys: Uint8Array;
  /** The strongest keys of the pinned query anywhere; null where they are not known. */
  strongest: Strongest | null;
  /** Effects of the keys, which have bars. */
  effects?: TokenEffects | null;
  /** Whether a token matches what is searched for; null without a search. */
  isFound: ((token: string) => boolean) | null;
}

/** The queries and keys whose lines stand out. */
export interface Focus {
  query: number | null;
  key: number | null;
}

export type Pointing = Pick<LinePlot, "hovered" | "cursor" | "token" | "key">;

/** The token that the pointer, else the keyboard, is on. */
export function pointedAt(linePlot: Pointing): TokenAt | null {
  return linePlot.hovered ?? linePlot.cursor;
}

/** What stands out: what is pointed at, else what is pinned. */
export function focusOf(linePlot: Pointing): Focus {
  const at = pointedAt(linePlot);
  const pins = { query: linePlot.token, key: linePlot.key };
  if (!at) return pins;
  // Across from the only pin the pointer reads the pin's bars: they must not go away under it.
  const across =
    at.side === "query"
      ? pins.key !== null && pins.query === null
      : pins.query !== null && pins.key === null;
  if (across) return pins;
  return at.side === "query" ? { query: at.index, key: null } : { query: null, key: at.index };
}

/** The weight in a series as drawn; NaN for what is not in hand. */
export function drawnValue(linePlot: LinePlot, series: number, query: number, key: number): number {
  const { rows, columns, numReached } = linePlot.weights;
  // No query looks so far ahead.
  if (key >= numReached) return 0;
  const of = linePlot.lines.series[series];
  if (query < rows[0] || query >= rows[1] || key < columns[0] || key >= columns[1])
    return Number.NaN;
  const width = columns[1] - columns[0];
  return of?.matrix[(query - rows[0]) * width + key - columns[0]] ?? 0;
}

/** The colour of a series. */
export function seriesColor(linePlot: LinePlot, place: number): string {
  const { series } = linePlot.lines;
  const only = series[place];
  // What is drawn for several heads together does not belong to one of them.
  if (!only || only.head === null) return linePlot.palette.neutral;
  return headColor(linePlot.palette, place, series.length);
}

/** Whether colours say the sign: of one series of signed numbers. Of several they say the head. */
export function colorsSigns({ quantity, lines }: Pick<LinePlot, "quantity" | "lines">): boolean {
  return quantity.signed && lines.series.length === 1;
}

/** The colour of one number of a series. */
export function valueColor(linePlot: LinePlot, place: number, value: number): string {
  return colorsSigns(linePlot) ? signColor(value, linePlot.palette) : seriesColor(linePlot, place);
}

/** The same for text. */
export function seriesTextColor(linePlot: LinePlot, place: number): string {
  const { series } = linePlot.lines;
  if (series[place]?.head == null || colorsSigns(linePlot)) return linePlot.palette.neutral;
  return headTextColor(linePlot.palette, place, series.length);
}

/** One of the legend's names, with the heads that have its colour. */
export interface LegendEntry {
  name: string;
  color: string;
  heads: number[];
  /** Whether its lines are dashed. */
  dashed?: boolean;
}

/** "heads 0, 1", or "heads 0 to 3" where they follow each other. */
function groupName(heads: readonly number[]): string {
  const first = heads[0] as number;
  const last = heads.at(-1) as number;
  const inTurn = heads.every((head, i) => head === first + i);
  return heads.length > 2 && inTurn ? `heads ${first} to ${last}` : headsInWords(heads);
}

/** The names of what is drawn: of more heads than colours, those that share one together. */
export function legendOf(linePlot: LinePlot): LegendEntry[] {
  const { lines, quantity, palette } = linePlot;
  const { series } = lines;
  const each = headsPerColor(series.length);
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
    .map((_, place) => place)
    .filter((place) => place % each === 0)
    .map((place) => {
      const own = series.slice(place, place + each);
      const heads = own.flatMap(({ head }) => (head === null ? [] : [head]));
      const name = own.length > 1 ? groupName(heads) : (own[0]?.name ?? "");
      return { name, color: seriesColor(linePlot, place), heads };
    });
  return quantity.signed ? [...named, ...signs] : named;
}

/** Whether a series is of a head that the pointer is on. */
export function isHovered(linePlot: Pick<LinePlot, "hoveredHeads">, head: number | null): boolean {
  return head !== null && linePlot.hoveredHeads.includes(head);
}
