/**
 * Captions of the head view. Pure functions of the plot.
 *
 * A series is the set of lines of one head, or of the mean or maximum of several heads. The
 * highlight (`Focus`) is the query or key under the pointer or cursor, otherwise the pinned query
 * and key.
 */

import type { Captions } from "../../draw/figure";
import { tokenEffectsInWords, tokenEffectsSpoken } from "../../ui/effects/effects";
import { predictingInWords } from "../../ui/generated-token/state";
import { keysInWords } from "../../ui/pairs";
import {
  aroundZero,
  capital,
  counted,
  formatShare,
  headsInWords,
  pinInWords,
  plainNumber,
  pluralOf,
  precision,
  quoted,
  quotedAt,
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
import { type Lines, MAX_LINES, MIN_VISIBLE } from "./lines";
import { isWindowed, type Plan } from "./state";
import { strongestKeys } from "./strongest";

/** Name the drawn heads: "heads 1, 7, 9", "head 3" or "mean of 12 heads". */
export function drawnInWords(lines: Lines): string {
  const heads = lines.series.map((series) => series.head);
  if (heads.includes(null)) return lines.series[0]?.name ?? "no head";
  return headsInWords(heads as number[]);
}

function placeInWords({ plan, lines }: LinePlot): string {
  return `Layer ${plan.layer}, ${drawnInWords(lines)}.`;
}

/** Return the query in quotation marks, with its prediction. */
function queryInWords({ plan }: LinePlot, query: number): string {
  return quotedAt(plan.queries.text, query) + predictingInWords(plan, query);
}

function inSeries(lines: Lines, series: number): string {
  // The beginning of the sentence has already named a single series.
  return lines.series.length > 1 ? ` in ${lines.series[series]?.name}` : "";
}

interface Weight {
  series: number;
  query: number;
  key: number;
  value: number;
}

/** Format a weight with its head, such as "0.30 in head 7". */
function weightInWords({ lines, quantity }: LinePlot, at: Weight, write = written): string {
  return withWay(quantity, at.value, write(quantity, at.value)) + inSeries(lines, at.series);
}

/**
 * Return the `count` strongest weights in descending order. Equal weights keep their order.
 *
 * @param give function that passes every weight to its argument `add`.
 */
function strongestOf(
  count: number,
  give: (add: (series: number, query: number, key: number, value: number) => void) => void,
): Weight[] {
  const all: Weight[] = [];
  let minSize = 0;
  give((series, query, key, value) => {
    const size = Math.abs(value);
    if (!(size > minSize)) return;
    const position = all.findIndex((item) => Math.abs(item.value) < size);
    all.splice(position < 0 ? all.length : position, 0, { series, query, key, value });
    if (all.length > count) all.pop();
    if (all.length === count) minSize = Math.abs(all.at(-1)?.value ?? 0);
  });
  return all;
}

/** Return the strongest drawn lines for whose query and key `counts` returns true. */
function strongestDrawn(
  { lines }: LinePlot,
  numLines: number,
  counts: (query: number, key: number) => boolean = () => true,
): Weight[] {
  return strongestOf(numLines, (add) => {
    lines.series.forEach(({ query, key, weight }, series) => {
      for (let i = 0; i < query.length; i++) {
        const [from, to] = [query[i] as number, key[i] as number];
        if (counts(from, to)) add(series, from, to, weight[i] as number);
      }
    });
  });
}

/**
 * Return the strongest weights of the highlighted query or key. Without a highlight, return the
 * strongest drawn lines. Weights outside the windows are ignored. As an exception, if the strongest
 * keys of the highlighted query in the complete text are loaded, they are returned, and `anywhere`
 * is true.
 */
function strongestWeights(
  plot: LinePlot,
  focus: Focus,
  count: number,
): { weights: Weight[]; anywhere: boolean } {
  const { plan, options, lines } = plot;
  const { query, key } = focus;
  if (query === null && key === null)
    return { weights: strongestDrawn(plot, count), anywhere: false };
  const loaded =
    query !== null && key === null && isWindowed(plan)
      ? strongestKeys(plot.strongest, query, options.renormalize)
      : null;
  if (loaded && query !== null && loaded.length > 0)
    return { weights: loaded.slice(0, count).map((at) => ({ ...at, query })), anywhere: true };
  const [first, last] = query === null ? plan.queryWindow : [query, query + 1];
  const [start, stop] = key === null ? plan.keyWindow : [key, key + 1];
  const weights = strongestOf(count, (add) => {
    for (let series = 0; series < lines.series.length; series++)
      for (let row = first; row < last; row++)
        for (let column = start; column < stop; column++)
          if (key !== null || !options.leftOut[column])
            add(series, row, column, drawnValue(plot, series, row, column));
  });
  return { weights, anywhere: false };
}

/** Number of heads whose weights a sentence lists, if there are more than `MAX_NAMED + 1` heads. */
const MAX_NAMED = 3;

/** Return the weights of a query on a key in all series, strongest first. */
function pairInWords(plot: LinePlot, query: number, key: number): string {
  const { plan, lines, quantity } = plot;
  const { signed, name } = quantity;
  const weights = lines.series
    .map((_, series) => ({ series, query, key, value: drawnValue(plot, series, query, key) }))
    .sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  const named = weights.length > MAX_NAMED + 1 ? weights.slice(0, MAX_NAMED) : weights;
  const others = weights.slice(named.length);
  const parts = named.map((at) => weightInWords(plot, at));
  if (others.length > 0) {
    const limit = written({ ...quantity, signed: false }, Math.abs(others[0]?.value ?? 0));
    parts.push(`${limit} or less${signed ? " in size" : ""} in the other ${others.length}`);
  }
  const [from, to] = [queryInWords(plot, query), quotedAt(plan.keys.text, key)];
  const values = parts.join(", ");
  return signed ? `${from} to ${to}: ${name} ${values}.` : `${from} attends to ${to}: ${values}.`;
}

/**
 * Return the sentence below the plot: the layer, the heads, and the weight of the highlighted query
 * and key. If only one of them is highlighted, state the strongest weight of this token. Without a
 * highlight, state the weight of the strongest line. If this line is between resting tokens (such
 * as "[CLS]"), state the strongest line between other tokens instead, if there is one.
 */
export function sentence(plot: LinePlot): string {
  const { plan, quantity } = plot;
  const { signed, name } = quantity;
  const focus = focusOf(plot);
  const where = placeInWords(plot);
  if (focus.query !== null && focus.key !== null)
    return `${where} ${pairInWords(plot, focus.query, focus.key)}`;
  const { weights, anywhere } = strongestWeights(plot, focus, 1);
  const [best] = weights;
  const value = best ? weightInWords(plot, best, anywhere ? writtenSmall : written) : "";
  if (focus.query !== null) {
    const from = queryInWords(plot, focus.query);
    if (!best && signed) return `${where} No ${name} from ${from} in sight.`;
    if (!best) return `${where} ${from} attends to no key in sight.`;
    const [start, stop] = plan.keyWindow;
    const outside = best.key < start || best.key >= stop ? " outside the window" : "";
    const to = quotedAt(plan.keys.text, best.key) + outside;
    return signed
      ? `${where} Largest ${name} from ${from}: to ${to}, ${value}.`
      : `${where} ${from} attends most to ${to}: ${value}.`;
  }
  if (focus.key !== null) {
    const to = quotedAt(plan.keys.text, focus.key);
    if (!best && signed) return `${where} No ${name} to ${to} in sight.`;
    if (!best) return `${where} No query in sight attends to ${to}.`;
    const [start, stop] = plan.queryWindow;
    const scope = stop - start < plan.queries.text.length ? " among the queries in sight" : "";
    const from = quotedAt(plan.queries.text, best.query);
    return signed
      ? `${where} Largest ${name} to ${to}${scope}: from ${from}, ${value}.`
      : `${where} ${to} gets most from ${from}${scope}: ${value}.`;
  }
  if (!best) return `${where} No line is drawn.`;
  const line = ({ query, key }: Weight): string =>
    `${quotedAt(plan.queries.text, query)} to ${quotedAt(plan.keys.text, key)}`;
  const resting = restingTokens(plan.queries, plan.keys, plan.stack.key_tokens === null);
  const [between] =
    !signed && resting.isQuery(best.query) && resting.isKey(best.key)
      ? strongestDrawn(plot, 1, (query, key) => !resting.isQuery(query) && !resting.isKey(key))
      : [];
  if (between)
    return `${where} Strongest apart from ${resting.words}: ${line(between)}, ${weightInWords(plot, between)}.`;
  return `${where} ${signed ? `Largest ${name}` : "Strongest"}: ${line(best)}, ${value}.`;
}

/** Maximum number of weights that a summary lists. */
const MAX_IN_SUMMARY = 5;

/**
 * Return the text for screen readers: the layer, the heads, the highlight and its strongest
 * weights. It describes the cursor or the pins, not the pointer.
 */
export function summaryOf(pointed: LinePlot): string {
  const plot = { ...pointed, hovered: null };
  const { plan, quantity, effects } = plot;
  const focus = focusOf(plot);
  const { weights, anywhere } = strongestWeights(plot, focus, MAX_IN_SUMMARY);
  const { text: queries } = plan.queries;
  const { text: keys } = plan.keys;
  const listed = weights.map((at) => {
    const key = quotedAt(keys, at.key);
    const between = focus.query === null ? `${quotedAt(queries, at.query)} to ${key}` : key;
    return `${between} ${weightInWords(plot, at, anywhere ? writtenSmall : written)}`;
  });
  const adjective = quantity.signed ? `Largest ${pluralOf(quantity)}` : "Strongest";
  const heading = anywhere ? `${adjective} anywhere` : adjective;
  const { query, key } = focus;
  return [
    `${stackName(plan.stack.name)}. ${placeInWords(plot)}`,
    ...(query === null
      ? []
      : [pinInWords("Query", queries, query, predictingInWords(plan, query))]),
    ...(key === null ? [] : [pinInWords("Key", keys, key)]),
    listed.length > 0 ? `${heading}: ${listed.join("; ")}.` : `No ${quantity.name} is shown.`,
    ...(effects ? [tokenEffectsSpoken(effects, keys, key)] : []),
  ].join(" ");
}

/** Name the lines that are drawn, such as "Top 3 keys per query drawn". */
function drawnLinesInWords({ lines, options, quantity, weights }: LinePlot): string {
  const { topK, threshold } = options;
  const isLimited = lines.total > MAX_LINES;
  // If `MAX_LINES` limits the lines, only strong lines are drawn, so the limit of visible weights
  // is not relevant.
  const hasFaint = lines.invisibleShare >= 0.005 && !isLimited;
  const least = hasFaint
    ? plainNumber(Number((MIN_VISIBLE * weights.maximum).toPrecision(2)))
    : threshold > 0
      ? written({ ...quantity, signed: false }, threshold)
      : null;
  const inSize = quantity.signed ? " in size" : "";
  const from = least === null ? "" : ` of at least ${least}`;
  const strongest = `The strongest ${counted(MAX_LINES)} of`;
  if (topK !== null) {
    const perQuery = `${topK === 1 ? "key" : `${topK} keys`}${inSize} per query${from}`;
    return isLimited ? `${strongest} the top ${perQuery} drawn` : `Top ${perQuery} drawn`;
  }
  if (isLimited) return `${strongest} ${counted(lines.total)} lines${from} drawn`;
  if (least === null) return "All lines drawn";
  return `${capital(pluralOf(quantity))} of at least ${least}${inSize} drawn`;
}

/** Name the pinned tokens, and say which of them are outside the windows. */
function pinsInWords({ token, key, queries, keys, queryWindow, keyWindow }: Plan): string[] {
  return (
    [
      ["query", token, queries, queryWindow],
      ["key", key, keys, keyWindow],
    ] as const
  ).flatMap(([side, index, { text }, [start, stop]]) => {
    if (index === null) return [];
    const isOutside = index < start || index >= stop;
    return [`${side} ${quoted(text[index] ?? "")}${isOutside ? ", outside the window" : ""}`];
  });
}

/**
 * Return the second caption below the plot: which lines are drawn, their share of the weight, and
 * the shares of keys that are left out, in another text or outside the window.
 *
 * @param live whether the caption is for the view, in which Esc clears the pins. False for a figure.
 */
export function coverage(plot: LinePlot, live: boolean): string {
  const { plan, lines, options, quantity, effects } = plot;
  const { signed, name } = quantity;
  const { shares, wholeRows } = lines;
  const { renormalize } = options;
  // Rows of maxima over several heads do not sum to 1.
  const maxima = options.combine === "max" && plan.heads.length > 1;
  const inSight = lines.outsideKnown ? "" : " on the keys in sight";
  const total = `${maxima ? "the sum of the maxima over heads" : `the ${name}`}${inSight}`;
  const drawn = drawnLinesInWords(plot);
  const parts = [signed ? `${drawn}.` : `${drawn}: ${formatShare(shares.drawn)} of ${total}.`];
  if (signed && maxima) parts.push("Over several heads, the number of largest size is shown.");
  const keysOf = keysInWords(options.pair, plan.queries);
  if (options.leaveOut.length > 0) {
    const items = options.leaveOut.map((item) => {
      if (item === "special") return "special tokens";
      return item === "first" ? "first token" : quoted(plan.keys.text[item] ?? `#${item}`);
    });
    const share = shareWithin(shares.leftOut, shares.leftOutError);
    const rest = wholeRows ? "the rest" : "the rest, with all outside the window,";
    parts.push(
      `Left out: ${items.join(", ")}, ${share}${wholeRows ? "" : " within the window"}` +
        `${renormalize ? `; ${rest} is renormalised` : ""}.`,
    );
  } else if (renormalize && keysOf !== "") {
    parts.push(`Renormalised over the keys of ${keysOf}.`);
  }
  if (keysOf !== "" && signed) parts.push(`Only to tokens of ${keysOf}.`);
  else if (keysOf !== "")
    parts.push(`To tokens outside ${keysOf}: ${formatShare(shares.otherPair)}.`);
  if (!signed && shares.outside > 0.0005)
    parts.push(`${formatShare(shares.outside)} outside the window.`);
  if (lines.emptyQueries > 0) parts.push(`Some queries have no ${name} at all.`);
  const pinned = pinsInWords(plan);
  if (pinned.length > 0) parts.push(`Pinned: ${pinned.join(", ")}${live ? " (Esc clears)" : ""}.`);
  if (effects) parts.push(tokenEffectsInWords(effects, plot.layout.orientation === "horizontal"));
  // Only a figure needs the sentence about an intervention. The view has it in a separate line.
  const changed = live ? "" : changedInWords(plan.stack);
  return [...parts, ...(changed === "" ? [] : [changed])].join(" ");
}

/**
 * Return the subtitle: the stack, the number of its tokens, and the precision of the weights.
 *
 * @param plot plot of the loaded weights, or null before they are loaded.
 */
export function subtitleOf(plan: Plan, plot: LinePlot | null): string {
  const tokens = tokensInWords(
    plan.queries.text.length,
    plan.keys.text.length,
    plan.stack.key_tokens === null,
  );
  const parts = [stackName(baseName(plan.stack)), tokens];
  if (plot) {
    const { renormalize, leaveOut, pair } = plot.options;
    const { error } = plot.weights;
    const isDivided = renormalize && error > 0 && (leaveOut.length > 0 || pair !== "all");
    parts.push(precision(error, plan.stack) + (isDivided ? " before renormalising" : ""));
  }
  return parts.join(" · ");
}

/** Return the captions of a figure, without its title. */
export function captionsOf(plot: LinePlot): Omit<Captions, "title"> {
  return {
    subtitle: subtitleOf(plot.plan, plot),
    sentence: sentence(plot),
    coverage: coverage(plot, false),
  };
}

/** Return the labels of the opacity scale, at its start, middle and end, and its explanation. */
export function scaleInWords(plot: Pick<LinePlot, "scale" | "quantity" | "lines">): {
  labels: [string, string, string];
  quantity: string;
} {
  const { scale, quantity } = plot;
  const end = plainNumber(scale);
  if (colorsSigns(plot)) return { labels: aroundZero(end), quantity: signsInWords(quantity) };
  const divided = scale === 1 ? "" : ` ÷ ${end}`;
  const note = quantity.signed ? "opacity = size" : `opacity = ${quantity.name}${divided}`;
  return { labels: ["0", "", end], quantity: note };
}
