/**
 * Captions of the head view. Pure functions.
 *
 * A series is the set of lines of one head, or of the mean or maximum of several heads. The
 * highlight (`Focus`) is the query or key under the pointer or cursor, otherwise the pinned query
 * and key.
 */

import type { TokenList } from "../../client/protocol";
import type { Captions } from "../../draw/figure";
import { tokenEffectsInWords, tokenEffectsSpoken } from "../../ui/effects/effects";
import { predictingInWords } from "../../ui/generated-token/state";
import { keysInWords, type Pair, pairOf } from "../../ui/pairs";
import {
  capital,
  counted,
  formatShare,
  headsInWords,
  pinInWords,
  plainNumber,
  pluralOf,
  precision,
  type Quantity,
  quoted,
  quotedAt,
  type RestingTokens,
  restingTokens,
  shareWithin,
  signsInWords,
  stackName,
  tokensInWords,
  withWay,
  written,
  writtenSmall,
} from "../../ui/text/captions";
import { baseName, changedInWords } from "../../ui/what-if/changed-run";
import { colorsSigns, drawnValue, type Focus, focusOf, type LinePlot } from "./line-plot";
import { type Lines, MAX_LINES, MIN_VISIBLE, type Shares } from "./lines";
import { type HeadState, isWindowed, leftOutOf, type Plan } from "./state";
import { type StrongKey, strongestKeys } from "./strongest";

function joinItems(items: (string | number)[]): string {
  return items.join(", ");
}

/** Name the drawn heads: "heads 1, 7, 9", "head 3" or "mean of 12 heads". */
export function drawnInWords(lines: Lines): string {
  const heads = lines.series.map((series) => series.head);
  if (heads.includes(null)) return lines.series[0]?.name ?? "no head";
  return headsInWords(heads as number[]);
}

/** Arguments of `sentence` and `summary`. */
export interface SentenceInput {
  layer: number;
  lines: Lines;
  focus: Focus;
  queryTexts: readonly string[];
  keyTexts: readonly string[];
  /** Return the prediction of a query, such as ", predicting “cat” (0.62),", or "" without one. */
  predicting?: (query: number) => string;
  /** Return the weight in a series, renormalised if the lines are. NaN if it is not loaded. */
  value: (series: number, query: number, key: number) => number;
  /**
   * Return the strongest keys of a query in the complete text, or null if they are not loaded.
   * Omitted if the window shows all keys.
   */
  strongest?: (query: number) => StrongKey[] | null;
  keyWindow: readonly [number, number];
  queryWindow: readonly [number, number];
  /** 1 for each key that is left out, and 0 for the others. */
  leftOut: Uint8Array;
  /** Name and range of the drawn numbers. The default is weights. */
  quantity?: Quantity;
  /** Tokens that attract attention in every text. `sentence` prefers lines between other tokens. */
  resting?: RestingTokens;
}

const WEIGHT: Quantity = { name: "weight", signed: false, maximum: 1 };

/** Return the query in quotation marks, with its prediction. */
function queryOf(input: SentenceInput, query: number): string {
  return quotedAt(input.queryTexts, query) + (input.predicting?.(query) ?? "");
}

function inSeries(lines: Lines, series: number): string {
  const shown = lines.series[series];
  if (!shown) return "";
  // The beginning of the sentence has already named a single series.
  return lines.series.length === 1 ? "" : ` in ${shown.name}`;
}

/** Number of heads whose weights a sentence lists, if there are more than `MAX_NAMED + 1` heads. */
const MAX_NAMED = 3;

/**
 * Return the sentence below the plot: the layer, the heads, and the weight of the highlighted query
 * and key. If only one of them is highlighted, return the strongest weight of this token. Without a
 * highlight, return the weight of the strongest line.
 */
export function sentence(input: SentenceInput): string {
  const { lines, focus, quantity = WEIGHT } = input;
  const { signed, name } = quantity;
  const where = `Layer ${input.layer}, ${drawnInWords(lines)}.`;
  const number = (value: number, write = written): string =>
    withWay(quantity, value, write(quantity, value));
  if (focus.query !== null && focus.key !== null) {
    const values = lines.series.map((_, series) => ({
      series,
      value: input.value(series, focus.query as number, focus.key as number),
    }));
    values.sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
    const named = values.length > MAX_NAMED + 1 ? values.slice(0, MAX_NAMED) : values;
    const others = values.slice(named.length);
    const parts = named.map(({ series, value }) => `${number(value)}${inSeries(lines, series)}`);
    if (others.length > 0) {
      const largestOther = Math.abs(others[0]?.value ?? 0);
      const limitText = written({ ...quantity, signed: false }, largestOther);
      parts.push(`${limitText} or less${signed ? " in size" : ""} in the other ${others.length}`);
    }
    const [from, to] = [queryOf(input, focus.query), quotedAt(input.keyTexts, focus.key)];
    return signed
      ? `${where} ${from} to ${to}: ${name} ${joinItems(parts)}.`
      : `${where} ${from} attends to ${to}: ${joinItems(parts)}.`;
  }
  const [first] = (focus.query !== null && input.strongest?.(focus.query)) || [];
  if (focus.query !== null && first) {
    const [start, stop] = input.keyWindow;
    const outside = first.key < start || first.key >= stop ? " outside the window" : "";
    const strongestText = `${number(first.value, writtenSmall)}${inSeries(lines, first.series)}`;
    const [from, to] = [queryOf(input, focus.query), quotedAt(input.keyTexts, first.key)];
    return signed
      ? `${where} Largest ${name} from ${from}: to ${to}${outside}, ${strongestText}.`
      : `${where} ${from} attends most to ${to}${outside}: ${strongestText}.`;
  }
  let best = { series: -1, query: -1, key: -1, value: 0 };
  const consider = (series: number, query: number, key: number, value: number): void => {
    if (Math.abs(value) > Math.abs(best.value)) best = { series, query, key, value };
  };
  const bestText = (): string => `${number(best.value)}${inSeries(lines, best.series)}`;
  if (focus.query !== null || focus.key !== null) {
    const [start, stop] = focus.query !== null ? input.keyWindow : input.queryWindow;
    lines.series.forEach((_, series) => {
      for (let index = start; index < stop; index++) {
        const query = focus.query ?? index;
        const key = focus.query !== null ? index : (focus.key as number);
        if (input.leftOut[key] && focus.query !== null) continue;
        consider(series, query, key, input.value(series, query, key));
      }
    });
    if (focus.query !== null) {
      const query = queryOf(input, focus.query);
      const to = quotedAt(input.keyTexts, best.key);
      if (best.series < 0 && signed) return `${where} No ${name} from ${query} in sight.`;
      if (best.series < 0) return `${where} ${query} attends to no key in sight.`;
      return signed
        ? `${where} Largest ${name} from ${query}: to ${to}, ${bestText()}.`
        : `${where} ${query} attends most to ${to}: ${bestText()}.`;
    }
    const key = quotedAt(input.keyTexts, focus.key as number);
    if (best.series < 0 && signed) return `${where} No ${name} to ${key} in sight.`;
    if (best.series < 0) return `${where} No query in sight attends to ${key}.`;
    const from = quotedAt(input.queryTexts, best.query);
    const part = stop - start < input.queryTexts.length;
    const scope = part ? " among the queries in sight" : "";
    return signed
      ? `${where} Largest ${name} to ${key}${scope}: from ${from}, ${bestText()}.`
      : `${where} ${key} gets most from ${from}${scope}: ${bestText()}.`;
  }
  const [strongest] = strongestDrawn(lines);
  if (strongest) consider(strongest.series, strongest.query, strongest.key, strongest.value);
  if (best.series < 0) return `${where} No line is drawn.`;
  const { resting } = input;
  let beside = "";
  if (!signed && resting?.isQuery(best.query) && resting.isKey(best.key)) {
    const [betweenTexts] = strongestDrawn(
      lines,
      (query, key) => !resting.isQuery(query) && !resting.isKey(key),
    );
    if (betweenTexts) {
      best = betweenTexts;
      beside = ` apart from ${resting.words}`;
    }
  }
  const between = `${quotedAt(input.queryTexts, best.query)} to ${quotedAt(input.keyTexts, best.key)}`;
  return `${where} ${signed ? `Largest ${name}` : `Strongest${beside}`}: ${between}, ${bestText()}.`;
}

/** Maximum number of weights that a summary lists. */
const MAX_IN_SUMMARY = 5;

interface NamedWeight {
  series: number;
  query: number;
  key: number;
  value: number;
}

/**
 * Return the `MAX_IN_SUMMARY` strongest weights in descending order. Equal weights keep their
 * order.
 *
 * @param give function that passes every weight to its argument `add`.
 */
function strongestOf(
  give: (add: (series: number, query: number, key: number, value: number) => void) => void,
): NamedWeight[] {
  const all: NamedWeight[] = [];
  let minSize = -1;
  give((series, query, key, value) => {
    const size = Math.abs(value);
    if (!(size > minSize)) return;
    const position = all.findIndex((item) => Math.abs(item.value) < size);
    all.splice(position < 0 ? all.length : position, 0, { series, query, key, value });
    if (all.length > MAX_IN_SUMMARY) all.pop();
    if (all.length === MAX_IN_SUMMARY) minSize = Math.abs(all.at(-1)?.value ?? 0);
  });
  return all;
}

/** Return the strongest drawn lines for whose query and key `counts` returns true. */
function strongestDrawn(
  lines: Lines,
  counts: (query: number, key: number) => boolean = () => true,
): NamedWeight[] {
  return strongestOf((add) => {
    lines.series.forEach(({ query, key, weight }, series) => {
      for (let i = 0; i < query.length; i++) {
        const [from, to] = [query[i] as number, key[i] as number];
        if (counts(from, to)) add(series, from, to, weight[i] as number);
      }
    });
  });
}

/**
 * Return the strongest weights of the highlighted tokens. The windows limit the queries or keys
 * that are not highlighted.
 */
function strongestInSight({ lines, focus, ...input }: SentenceInput): NamedWeight[] {
  const [first, last] = focus.query === null ? input.queryWindow : [focus.query, focus.query + 1];
  const [start, stop] = focus.key === null ? input.keyWindow : [focus.key, focus.key + 1];
  return strongestOf((add) => {
    for (let series = 0; series < lines.series.length; series++) {
      for (let query = first; query < last; query++) {
        for (let key = start; key < stop; key++) {
          if (input.leftOut[key] && focus.key === null) continue;
          const value = input.value(series, query, key);
          if (value) add(series, query, key, value);
        }
      }
    }
  });
}

/** Return the layer, the heads, the highlight and its strongest weights, for screen readers. */
export function summary(input: SentenceInput): string {
  const { lines, focus, quantity = WEIGHT } = input;
  const anywhere = focus.query !== null && focus.key === null && input.strongest?.(focus.query);
  const named = anywhere
    ? strongestOf((add) => {
        for (const { series, key, value } of anywhere)
          add(series, focus.query as number, key, value);
      })
    : focus.query === null && focus.key === null
      ? strongestDrawn(lines)
      : strongestInSight(input);
  const query = (index: number): string => quotedAt(input.queryTexts, index);
  const key = (index: number): string => quotedAt(input.keyTexts, index);
  const pinned = [
    ...(focus.query === null
      ? []
      : [pinInWords("Query", input.queryTexts, focus.query, input.predicting?.(focus.query))]),
    ...(focus.key === null ? [] : [pinInWords("Key", input.keyTexts, focus.key)]),
  ];
  const inWords = named.map((item) => {
    const between =
      focus.query === null ? `${query(item.query)} to ${key(item.key)}` : key(item.key);
    const number = (anywhere ? writtenSmall : written)(quantity, item.value);
    const value = withWay(quantity, item.value, number);
    return `${between} ${value}${inSeries(lines, item.series)}`;
  });
  const adjective = quantity.signed ? `Largest ${pluralOf(quantity)}` : "Strongest";
  const heading = anywhere ? `${adjective} anywhere` : adjective;
  const strongest =
    inWords.length > 0 ? `${heading}: ${inWords.join("; ")}.` : `No ${quantity.name} is shown.`;
  return [`Layer ${input.layer}, ${drawnInWords(lines)}.`, ...pinned, strongest].join(" ");
}

/** Arguments of `coverage`. */
export interface CoverageInput {
  shares: Shares;
  /** Whether each weight is the maximum over several heads. Rows do not sum to 1 then. */
  maxima: boolean;
  topK: number | null;
  threshold: number;
  /** Number of lines, including those that are not drawn because of `MAX_LINES`. */
  total: number;
  /** Smallest visible weight, or null if invisible lines have less than 0.5% of the weight. */
  faintest: number | null;
  /** Names of the keys that are left out. */
  leaveOut: string[];
  renormalize: boolean;
  pair: Pair;
  queries?: TokenList;
  emptyQueries: number;
  /** Whether the weights of all keys are loaded, not only of keys in the window. */
  wholeRows: boolean;
  /** Whether the total weight of the keys outside the window is known. */
  outsideKnown: boolean;
  /** Pinned query and key in words. */
  pinned: string[];
  /** Whether the caption is for the view, in which Esc clears the pins. False for a figure. */
  live: boolean;
  /** Name and range of the drawn numbers. The default is weights. */
  quantity?: Quantity;
}

/**
 * Return the second caption below the plot: which lines are drawn, their share of the weight, and
 * the shares of keys that are left out, in another text or outside the window.
 */
export function coverage(input: CoverageInput): string {
  const { shares, quantity = WEIGHT } = input;
  const { signed } = quantity;
  const parts: string[] = [];
  const isLimited = input.total > MAX_LINES;
  // If `MAX_LINES` limits the lines, all drawn lines are visible and `faintest` is irrelevant.
  const minDrawn =
    input.faintest !== null && !isLimited
      ? plainNumber(Number(input.faintest.toPrecision(2)))
      : input.threshold > 0
        ? written({ ...quantity, signed: false }, input.threshold)
        : null;
  const inSize = signed ? " in size" : "";
  const from = minDrawn === null ? "" : ` of at least ${minDrawn}`;
  const perQuery = `${input.topK === 1 ? "key" : `${input.topK} keys`}${inSize} per query${from}`;
  const strongest = `The strongest ${counted(MAX_LINES)} of`;
  let drawnText: string;
  if (input.topK !== null)
    drawnText = isLimited ? `${strongest} the top ${perQuery} drawn` : `Top ${perQuery} drawn`;
  else if (isLimited) drawnText = `${strongest} ${counted(input.total)} lines${from} drawn`;
  else if (minDrawn === null) drawnText = "All lines drawn";
  else drawnText = `${capital(pluralOf(quantity))} of at least ${minDrawn}${inSize} drawn`;
  const maxima = "the sum of the maxima over heads";
  const inSight = input.outsideKnown ? "" : " on the keys in sight";
  const total = `${input.maxima ? maxima : `the ${quantity.name}`}${inSight}`;
  const share = signed ? "" : `: ${formatShare(shares.drawn)} of ${total}`;
  parts.push(`${drawnText}${share}.`);
  if (signed && input.maxima)
    parts.push("Over several heads, the number of largest size is shown.");
  const keysOf = keysInWords(input.pair, input.queries);
  if (input.leaveOut.length > 0) {
    const where = input.wholeRows ? "" : " within the window";
    const remainder = input.wholeRows ? "the rest" : "the rest, with all outside the window,";
    const after = input.renormalize ? `; ${remainder} is renormalised` : "";
    const share = shareWithin(shares.leftOut, shares.leftOutError);
    parts.push(`Left out: ${joinItems(input.leaveOut)}, ${share}${where}${after}.`);
  } else if (input.renormalize && keysOf !== "") {
    parts.push(`Renormalised over the keys of ${keysOf}.`);
  }
  if (keysOf !== "" && signed) parts.push(`Only to tokens of ${keysOf}.`);
  else if (keysOf !== "")
    parts.push(`To tokens outside ${keysOf}: ${formatShare(shares.otherPair)}.`);
  if (!signed && shares.outside > 0.0005)
    parts.push(`${formatShare(shares.outside)} outside the window.`);
  if (input.emptyQueries > 0) parts.push(`Some queries have no ${quantity.name} at all.`);
  if (input.pinned.length > 0)
    parts.push(`Pinned: ${joinItems(input.pinned)}${input.live ? " (Esc clears)" : ""}.`);
  return parts.join(" ");
}

/** Texts around the plot. */
export interface Caption extends Captions {
  /** Label at the upper end of the opacity scale. */
  scale: string;
  /** Explanation of the opacity scale. */
  scaleNote: string;
}

/** Return the subtitle: the stack, the number of its tokens, and the precision of the weights. */
export function subtitleOf(plan: Plan, error: number | null, state: HeadState): string {
  const numQueries = plan.queries.text.length;
  const numKeys = plan.keys.text.length;
  const tokens = tokensInWords(numQueries, numKeys, plan.stack.key_tokens === null);
  const excludesKeys = state.leave_out.length > 0 || pairOf(plan, state.pair) !== "all";
  const divided = state.renormalize && !plan.stack.signed && excludesKeys && (error ?? 0) > 0;
  const exact =
    error === null ? [] : [precision(error, plan.stack) + (divided ? " before renormalising" : "")];
  return [stackName(baseName(plan.stack)), tokens, ...exact].join(" · ");
}

function sentenceInputOf(
  plan: Plan,
  linePlot: LinePlot,
  focus: Focus,
  renormalize: boolean,
): SentenceInput {
  return {
    layer: plan.layer,
    lines: linePlot.lines,
    focus,
    queryTexts: plan.queries.text,
    keyTexts: plan.keys.text,
    predicting: (query) => predictingInWords(plan, query),
    value: (series, query, key) => drawnValue(linePlot, series, query, key),
    ...(isWindowed(plan) && {
      strongest: (query) => strongestKeys(linePlot.strongest, query, renormalize),
    }),
    keyWindow: plan.keyWindow,
    queryWindow: plan.queryWindow,
    leftOut: linePlot.leftOut,
    quantity: linePlot.quantity,
    resting: restingTokens(plan.queries, plan.keys, plan.stack.key_tokens === null),
  };
}

/** Return the text for screen readers. It describes the cursor or the pins, not the pointer. */
export function summaryOf(plan: Plan, linePlot: LinePlot, renormalize: boolean): string {
  const focus = focusOf({ ...linePlot, hovered: null });
  const { effects } = linePlot;
  const spoken = effects ? ` ${tokenEffectsSpoken(effects, plan.keys.text, focus.key)}` : "";
  return `${stackName(plan.stack.name)}. ${summary(sentenceInputOf(plan, linePlot, focus, renormalize))}${spoken}`;
}

/**
 * Return the texts around a plot.
 *
 * @param live whether the texts are for the view. False for a figure.
 */
export function captionOf(
  plan: Plan,
  linePlot: LinePlot,
  state: HeadState,
  live: boolean,
): Caption {
  const { lines, scale, weights, quantity } = linePlot;
  const renormalize = state.renormalize && !quantity.signed;
  const pinned: string[] = [];
  const pin = (
    index: number | null,
    texts: readonly string[],
    window: readonly [number, number],
    side: string,
  ): void => {
    if (index === null) return;
    const isOutside = index < window[0] || index >= window[1];
    pinned.push(`${side} ${quoted(texts[index] ?? "")}${isOutside ? ", outside the window" : ""}`);
  };
  pin(plan.token, plan.queries.text, plan.queryWindow, "query");
  pin(plan.key, plan.keys.text, plan.keyWindow, "key");
  const leaveOut = leftOutOf(plan, state.leave_out).map((item) =>
    item === "special"
      ? "special tokens"
      : item === "first"
        ? "first token"
        : quoted(plan.keys.text[item] ?? `#${item}`),
  );
  return {
    title: "",
    subtitle: subtitleOf(plan, weights.error, state),
    sentence: sentence(sentenceInputOf(plan, linePlot, focusOf(linePlot), renormalize)),
    coverage: coverage({
      shares: lines.shares,
      maxima: state.combine === "max" && plan.heads.length > 1,
      topK: state.top_k,
      threshold: state.threshold,
      total: lines.total,
      faintest: lines.invisibleShare >= 0.005 ? MIN_VISIBLE * weights.maximum : null,
      leaveOut,
      renormalize,
      pair: pairOf(plan, state.pair),
      queries: plan.queries,
      emptyQueries: lines.emptyQueries,
      wholeRows: lines.wholeRows,
      outsideKnown: lines.outsideKnown,
      pinned,
      live,
      quantity,
    }).concat(
      linePlot.effects
        ? ` ${tokenEffectsInWords(linePlot.effects, state.orientation === "horizontal")}`
        : "",
      // Only a figure needs the sentence about an intervention. The view has it in a separate line.
      live ? "" : ` ${changedInWords(plan.stack)}`.trimEnd(),
    ),
    scale: plainNumber(scale),
    scaleNote: colorsSigns(linePlot)
      ? signsInWords(quantity)
      : quantity.signed
        ? "opacity = size"
        : `opacity = ${quantity.name}${scale === 1 ? "" : ` ÷ ${plainNumber(scale)}`}`,
  };
}
