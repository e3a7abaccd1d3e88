/** What the head view says in words. Pure functions. */

import type { TokenList } from "../../client/source";
import {
  formatShare,
  formatSmall,
  formatWeight,
  headsInWords,
  quoted,
  quotedAt,
} from "../../ui/captions";
import { keysInWords, type Pair } from "../../ui/pairs";
import type { Lines, Shares } from "./lines";
import type { Focus } from "./picture";
import type { Spread } from "./strips";
import type { StrongKey } from "./strongest";

function listed(items: (string | number)[]): string {
  return items.join(", ");
}

/** "heads 1, 7, 9", "head 3" or "mean of 12 heads". */
export function drawnInWords(lines: Lines): string {
  const heads = lines.series.map((each) => each.head);
  if (heads.includes(null)) return lines.series[0]?.name ?? "no head";
  return headsInWords(heads as number[]);
}

/** What the sentence needs to know. */
export interface Said {
  layer: number;
  lines: Lines;
  focus: Focus;
  queryTexts: readonly string[];
  keyTexts: readonly string[];
  /** What a query predicted: ", predicting “cat” (0.62),"; "" where it did not. */
  predicting?: (query: number) => string;
  /** The weight in a series' matrix, as drawn. */
  value: (series: number, query: number, key: number) => number;
  /**
   * Where only a part of the keys is in sight: a query's strongest keys of all, null where they
   * are not known yet.
   */
  strongest?: (query: number) => StrongKey[] | null;
  keyWindow: readonly [number, number];
  queryWindow: readonly [number, number];
  leftOut: Uint8Array;
}

/** A query in a sentence, with what it predicted. */
function queryOf(said: Said, query: number): string {
  return quotedAt(said.queryTexts, query) + (said.predicting?.(query) ?? "");
}

function inSeries(lines: Lines, series: number): string {
  const each = lines.series[series];
  if (!each) return "";
  // Where one thing is drawn, it has just been named.
  return lines.series.length === 1 ? "" : ` in ${each.name}`;
}

/** Heads whose weights a sentence gives one by one. */
const MOST_NAMED = 3;

/** The one sentence: where we are, and what stands out. */
export function sentence(said: Said): string {
  const { lines, focus } = said;
  const where = `Layer ${said.layer}, ${drawnInWords(lines)}.`;
  if (focus.query !== null && focus.key !== null) {
    const values = lines.series.map((_, series) => ({
      series,
      value: said.value(series, focus.query as number, focus.key as number),
    }));
    values.sort((a, b) => b.value - a.value);
    const named = values.length > MOST_NAMED + 1 ? values.slice(0, MOST_NAMED) : values;
    const others = values.slice(named.length);
    const parts = named.map(
      ({ series, value }) => `${formatWeight(value)}${inSeries(lines, series)}`,
    );
    if (others.length > 0) {
      parts.push(`${formatWeight(others[0]?.value ?? 0)} or less in the other ${others.length}`);
    }
    return `${where} ${queryOf(said, focus.query)} attends to ${quotedAt(said.keyTexts, focus.key)}: ${listed(parts)}.`;
  }
  if (focus.query !== null && said.strongest) {
    const [first] = said.strongest(focus.query) ?? [];
    if (!first) return where;
    const [start, stop] = said.keyWindow;
    const outside = first.key < start || first.key >= stop ? " outside the window" : "";
    return `${where} ${queryOf(said, focus.query)} attends most to ${quotedAt(said.keyTexts, first.key)}${outside}: ${formatSmall(first.value)}${inSeries(lines, first.series)}.`;
  }
  let best = { series: -1, query: -1, key: -1, value: 0 };
  const consider = (series: number, query: number, key: number, value: number): void => {
    if (value > best.value) best = { series, query, key, value };
  };
  if (focus.query !== null || focus.key !== null) {
    const [start, stop] = focus.query !== null ? said.keyWindow : said.queryWindow;
    lines.series.forEach((_, series) => {
      for (let index = start; index < stop; index++) {
        const query = focus.query ?? index;
        const key = focus.query !== null ? index : (focus.key as number);
        if (said.leftOut[key] && focus.query !== null) continue;
        consider(series, query, key, said.value(series, query, key));
      }
    });
    if (focus.query !== null) {
      const query = queryOf(said, focus.query);
      if (best.series < 0) return `${where} ${query} attends to no key in sight.`;
      return `${where} ${query} attends most to ${quotedAt(said.keyTexts, best.key)}: ${formatWeight(best.value)}${inSeries(lines, best.series)}.`;
    }
    const key = quotedAt(said.keyTexts, focus.key as number);
    if (best.series < 0) return `${where} No query in sight attends to ${key}.`;
    return `${where} ${key} gets most from ${quotedAt(said.queryTexts, best.query)}: ${formatWeight(best.value)}${inSeries(lines, best.series)}.`;
  }
  lines.series.forEach((each, series) => {
    for (let i = 0; i < each.count; i++) {
      consider(series, each.query[i] as number, each.key[i] as number, each.weight[i] as number);
    }
  });
  if (best.series < 0) return `${where} No line is drawn.`;
  return `${where} Strongest: ${quotedAt(said.queryTexts, best.query)} to ${quotedAt(said.keyTexts, best.key)}, ${formatWeight(best.value)}${inSeries(lines, best.series)}.`;
}

/** Weights that a summary names. */
const MOST_IN_SUMMARY = 5;

/** Layer, heads, token and the five strongest weights that are shown, in one breath. */
export function summary(said: Said): string {
  const { lines, focus } = said;
  const all: { series: number; query: number; key: number; value: number }[] = [];
  lines.series.forEach((each, series) => {
    if (focus.query === null && focus.key === null) {
      for (let i = 0; i < each.count; i++) {
        const [query, key] = [each.query[i] as number, each.key[i] as number];
        all.push({ series, query, key, value: each.weight[i] as number });
      }
      return;
    }
    const [first, last] = focus.query === null ? said.queryWindow : [focus.query, focus.query + 1];
    const [start, stop] = focus.key === null ? said.keyWindow : [focus.key, focus.key + 1];
    for (let query = first; query < last; query++) {
      for (let key = start; key < stop; key++) {
        if (said.leftOut[key] && focus.key === null) continue;
        const value = said.value(series, query, key);
        if (value > 0) all.push({ series, query, key, value });
      }
    }
  });
  const anywhere = focus.query !== null && focus.key === null && said.strongest?.(focus.query);
  if (anywhere) {
    all.length = 0;
    for (const each of anywhere) all.push({ query: focus.query as number, ...each });
  }
  all.sort((a, b) => b.value - a.value);
  const query = (index: number): string => quotedAt(said.queryTexts, index);
  const key = (index: number): string => quotedAt(said.keyTexts, index);
  const pinned = [
    ...(focus.query === null
      ? []
      : [
          `Query ${focus.query}, ${quoted(said.queryTexts[focus.query] ?? "")}${said.predicting?.(focus.query).slice(0, -1) ?? ""}.`,
        ]),
    ...(focus.key === null ? [] : [`Key ${focus.key}, ${quoted(said.keyTexts[focus.key] ?? "")}.`]),
  ];
  const named = all.slice(0, MOST_IN_SUMMARY).map((each) => {
    const between =
      focus.query === null ? `${query(each.query)} to ${key(each.key)}` : key(each.key);
    const value = anywhere ? formatSmall(each.value) : formatWeight(each.value);
    return `${between} ${value}${inSeries(lines, each.series)}`;
  });
  const which = anywhere ? "Strongest anywhere" : "Strongest";
  const strongest = named.length > 0 ? `${which}: ${named.join("; ")}.` : "No weight is shown.";
  return [`Layer ${said.layer}, ${drawnInWords(lines)}.`, ...pinned, strongest].join(" ");
}

/** What is drawn and what is not. */
export interface Drawn {
  shares: Shares;
  /** Whether shares are of the largest weights over heads, which sum to no one. */
  maxima: boolean;
  topK: number | null;
  threshold: number;
  /** The least weight that is drawn, where lines that are too faint to see hold some. */
  faintest: number | null;
  leaveOut: string[];
  renormalize: boolean;
  pair: Pair;
  queries?: TokenList;
  emptyQueries: number;
  /** What is said of weights that are exactly 0. */
  zeros?: string;
  /** Whether it is known to which keys outside the window weight goes. */
  wholeRows: boolean;
  /** Of a text of which a part is in sight: where the weight goes that leaves it. */
  spread?: Pick<Spread, "before" | "after" | "query" | "done"> | null;
  /** Queries of which nothing is known yet. */
  awaited?: number;
  pinned: string[];
  /** Whether keys can be pressed: not in a picture. */
  live: boolean;
}

/** The second sentence: the covered share of the weight and where the rest is. */
export function coverage(drawn: Drawn): string {
  const { shares } = drawn;
  const parts: string[] = [];
  const least =
    drawn.faintest !== null
      ? String(Number(drawn.faintest.toPrecision(2)))
      : drawn.threshold > 0
        ? formatWeight(drawn.threshold)
        : null;
  const what =
    drawn.topK === null
      ? least === null
        ? "All lines drawn"
        : `Weights of ${least} and more drawn`
      : `Top ${drawn.topK === 1 ? "key" : `${drawn.topK} keys`} per query${least === null ? "" : ` from ${least}`} drawn`;
  const whole = drawn.maxima ? "the maxima over heads, summed" : "the weight";
  parts.push(`${what}: ${formatShare(shares.drawn + shares.away)} of ${whole}.`);
  const keysOf = keysInWords(drawn.pair, drawn.queries);
  if (drawn.leaveOut.length > 0) {
    const where = drawn.wholeRows ? "" : " within the window";
    const rest = drawn.wholeRows ? "the rest" : "the rest, with all outside the window,";
    const after = drawn.renormalize ? `; ${rest} is renormalised` : "";
    const share = formatShare(shares.leftOut);
    parts.push(`Left out: ${listed(drawn.leaveOut)}, ${share}${where}${after}.`);
  } else if (drawn.renormalize && keysOf !== "") {
    parts.push(`Renormalised over the keys of ${keysOf}.`);
  }
  if (keysOf !== "") parts.push(`To tokens outside ${keysOf}: ${formatShare(shares.otherPair)}.`);
  if (shares.outside > 0.0005) {
    const { spread } = drawn;
    const known = spread && spread.query === null && spread.done === 1;
    const ways = known
      ? ` (${formatShare(spread.before)} before, ${formatShare(spread.after)} after)`
      : "";
    const lines = `, of which the ${shares.far} strongest lines, ${formatShare(shares.away)}, end in the strips`;
    const whole = `${formatShare(shares.outside)}${ways}${shares.far > 0 ? lines : ""}`;
    parts.push(`${drawn.spread ? "Outside" : "Leaves"} the window: ${whole}.`);
  }
  if (drawn.awaited) parts.push(`${drawn.awaited} rows are still awaited.`);
  if (drawn.emptyQueries > 0) parts.push("Some queries have no weight at all.");
  if (drawn.zeros) parts.push(drawn.zeros);
  if (drawn.pinned.length > 0)
    parts.push(`Pinned: ${listed(drawn.pinned)}${drawn.live ? " (Esc clears)" : ""}.`);
  return parts.join(" ");
}
