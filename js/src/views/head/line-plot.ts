/** Contents of the head view, from which its marks, captions and hints are made. */

import type { TokenList } from "../../client/protocol";
import type { StrongestAnswer } from "../../client/requests/strongest";
import { signColor } from "../../ui/colors/color-scales";
import { headColor, headsPerColor, headTextColor, type Palette } from "../../ui/colors/palette";
import type { TokenEffects } from "../../ui/effects/effects";
import type { Images } from "../../ui/image/state";
import { headsInWords, type Quantity, waysOf } from "../../ui/text/captions";
import type { Layout, Side } from "./layout";
import type { Lines, Weights } from "./lines";

/** Token of one side. */
export interface TokenAt {
  side: Side;
  index: number;
}

/** Line between two tokens. */
export interface LineAt {
  series: number;
  query: number;
  key: number;
}

/** Contents of the drawn plot. */
export interface LinePlot {
  layout: Layout;
  palette: Palette;
  queries: TokenList;
  keys: TokenList;
  /** Images whose patches are tokens. */
  images: Images;
  weights: Weights;
  /** Kind of the numbers. */
  quantity: Quantity;
  lines: Lines;
  /** Weight that is drawn with full opacity. */
  scale: number;
  /** Pinned query and key. */
  token: number | null;
  key: number | null;
  hovered: TokenAt | null;
  hoveredLine: LineAt | null;
  /** Heads under the pointer in the head selector or in the legend. */
  hoveredHeads: readonly number[];
  /** Token under the keyboard cursor. */
  cursor: TokenAt | null;
  /** Whether the weights of the keys that are not left out are divided by their sum. */
  renormalized: boolean;
  leftOut: Uint8Array;
  pairQueries: Uint8Array;
  pairKeys: Uint8Array;
  /** Strongest keys of the pinned query in the complete text, or null if they are not loaded. */
  strongest: StrongestAnswer | null;
  /** Effects of the keys, which are drawn as bars. */
  effects?: TokenEffects | null;
  /** Function that returns whether a token matches the search, or null without a search. */
  isFound: ((token: string) => boolean) | null;
}

/** Query and key whose lines are highlighted. */
export interface Focus {
  query: number | null;
  key: number | null;
}

export type Pointing = Pick<LinePlot, "hovered" | "cursor" | "token" | "key">;

/** Return the token under the pointer, or else the token under the keyboard cursor. */
export function pointedAt(linePlot: Pointing): TokenAt | null {
  return linePlot.hovered ?? linePlot.cursor;
}

/** Return the highlighted query or key: the one under pointer or cursor, or else the pins. */
export function focusOf(linePlot: Pointing): Focus {
  const pointed = pointedAt(linePlot);
  const pins = { query: linePlot.token, key: linePlot.key };
  if (!pointed) return pins;
  // Opposite a single pin, the pointer is on the bars of that pin, which must not disappear.
  const across =
    pointed.side === "query"
      ? pins.key !== null && pins.query === null
      : pins.query !== null && pins.key === null;
  if (across) return pins;
  return pointed.side === "query"
    ? { query: pointed.index, key: null }
    : { query: null, key: pointed.index };
}

/** Return the drawn weight of a series, or NaN if it is not loaded. */
export function drawnValue(linePlot: LinePlot, series: number, query: number, key: number): number {
  const { rows, columns, numReached } = linePlot.weights;
  // The causal mask excludes this key for all loaded queries.
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
  // A mean or maximum over heads has no head's colour.
  if (!only || only.head === null) return linePlot.palette.neutral;
  return headColor(linePlot.palette, seriesIndex, series.length);
}

/** Whether colours show the sign, as for one series of signed numbers. Else they show the head. */
export function colorsSigns({ quantity, lines }: Pick<LinePlot, "quantity" | "lines">): boolean {
  return quantity.signed && lines.series.length === 1;
}

export function valueColor(linePlot: LinePlot, seriesIndex: number, value: number): string {
  return colorsSigns(linePlot)
    ? signColor(value, linePlot.palette)
    : seriesColor(linePlot, seriesIndex);
}

/** Return the text colour of a series, which has more contrast than its lines. */
export function seriesTextColor(linePlot: LinePlot, seriesIndex: number): string {
  const { series } = linePlot.lines;
  if (series[seriesIndex]?.head == null || colorsSigns(linePlot)) return linePlot.palette.neutral;
  return headTextColor(linePlot.palette, seriesIndex, series.length);
}

/** Entry of the legend, with the heads that have its colour. */
export interface LegendEntry {
  name: string;
  color: string;
  heads: number[];
  /** Whether its lines are dashed. */
  dashed?: boolean;
}

/** Return "heads 0, 1", or "heads 0 to 3" for at least three consecutive heads. */
function groupName(heads: readonly number[]): string {
  const first = heads[0] as number;
  const last = heads.at(-1) as number;
  const inTurn = heads.every((head, i) => head === first + i);
  return heads.length > 2 && inTurn ? `heads ${first} to ${last}` : headsInWords(heads);
}

/** Return the entries of the legend. Heads that share a colour share an entry. */
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

/** Whether the pointer is on the head in the head selector or in the legend. */
export function isHovered(linePlot: Pick<LinePlot, "hoveredHeads">, head: number | null): boolean {
  return head !== null && linePlot.hoveredHeads.includes(head);
}
