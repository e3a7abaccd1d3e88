/**
 * Captions of the head view. Pure functions of the plot.
 *
 * A series is the set of lines of one head, or of the mean or maximum of several heads. The
 * highlight is the query or key under the pointer or cursor, otherwise the pinned query and key.
 * Resting tokens are special tokens and the first token, to which heads attend when no other key
 * fits.
 */

import { zeroInWords } from "../../client/zeros";
import {
  countedTokens,
  isComplete,
  isVisible,
  isWithin,
  SIDES,
  type Side,
  type TokenAxis,
} from "../../ui/axis";
import { tokenEffectsInWords, tokenEffectsSpoken } from "../../ui/effects/effects";
import { predictingInWords } from "../../ui/generated-token/state";
import { gatesInWords } from "../../ui/head-grid/gates";
import {
  apartFromForced,
  aroundZero,
  capital,
  counted,
  formatShare,
  hasForced,
  headsInWords,
  isAttention,
  pairInSentence,
  plainNumber,
  pluralOf,
  precision,
  quoted,
  quotedAt,
  restingTokens,
  signsInWords,
  stackName,
  strongestInWords,
  tokensInWords,
  withWay,
  written,
  writtenSmall,
} from "../../ui/text/captions";
import { silenceInWords } from "../../ui/text/places";
import { baseName } from "../../ui/view/model-layers";
import { changedInWords } from "../../ui/what-if/changed-run";
import { colorsSigns, drawnValue, focusOf, isRenormalized, type LinePlot } from "./line-plot";
import { type Line, type Lines, MAX_LINES, MIN_VISIBLE, strongestLines } from "./lines";
import type { Plan } from "./state";

/** Name the drawn heads: "heads 1, 7, 9", "head 3" or "mean of 12 heads". */
function drawnInWords({ series }: Lines): string {
  const heads = series.flatMap(({ head }) => head ?? []);
  return heads.length > 0 ? headsInWords(heads) : (series[0]?.name ?? "no head");
}

/** Name the layer and the drawn heads, and their gates if they have gates. */
function placeInWords({ plan, lines }: LinePlot): string {
  const gates = gatesInWords(plan.stack, plan.layer, plan.heads);
  return `Layer ${plan.layer}, ${drawnInWords(lines)}.${gates}`;
}

/**
 * Return the query in quotation marks. If it predicted a token of the model's answer, add this
 * token.
 */
function queryInWords({ plan }: LinePlot, query: number): string {
  return quotedAt(plan.queries.text, query) + predictingInWords(plan, query);
}

/** Return whether a query may attend to one key only. */
function isForced({ stack }: Plan, query: number): boolean {
  return hasForced(stack, [query, query + 1]);
}

/** Format a weight, such as "0.30 in head 7". The head is omitted if there is only one series. */
function weightInWords({ plan, lines, quantity }: LinePlot, line: Line, write = written): string {
  const reason = zeroInWords(plan.stack, line.weight);
  const number = reason ?? withWay(quantity, line.weight, write(quantity, line.weight));
  // The beginning of the sentence has already named a single series.
  return lines.series.length > 1 ? `${number} in ${lines.series[line.series]?.name}` : number;
}

/**
 * Return the strongest weight of the highlighted query or key, or undefined if all are 0.
 *
 * `anywhere` is true if the weight is the strongest one in the complete text. This is possible only
 * for a highlighted query whose strongest keys are loaded. Otherwise weights outside the windows are
 * ignored.
 */
function strongestWeight(plot: LinePlot): { best: Line | undefined; anywhere: boolean } {
  const { plan, lines, strongest } = plot;
  const { query, key } = focusOf(plot);
  if (key === null && strongest?.query === query) {
    const [best] = strongestLines(
      strongest.lists.flatMap(({ keys }) => keys),
      1,
    );
    if (best) return { best, anywhere: true };
  }
  const queries = query === null ? countedTokens(plan.axes.query) : [query];
  const keys = key === null ? countedTokens(plan.axes.key) : [key];
  const weights = [...lines.series.keys()].flatMap((series) =>
    queries.flatMap((row) =>
      keys.flatMap((column): Line[] => {
        if (query === null && isForced(plan, row)) return [];
        const weight = drawnValue(plot, series, row, column);
        return Math.abs(weight) > 0 ? [{ series, query: row, key: column, weight }] : [];
      }),
    ),
  );
  return { best: strongestLines(weights, 1)[0], anywhere: false };
}

/** Number of heads whose weights a sentence lists, if there are more than `MAX_NAMED + 1` heads. */
const MAX_NAMED = 3;

/**
 * Return a sentence with the weights of a query on a key, the strongest first. If there are more
 * than `MAX_NAMED` + 1 series, it gives only an upper limit for the weaker ones.
 */
function weightsInWords(plot: LinePlot, query: number, key: number): string {
  const all = plot.lines.series.map((_, series): Line => {
    return { series, query, key, weight: drawnValue(plot, series, query, key) };
  });
  const weights = strongestLines(all, all.length);
  const named = weights.length > MAX_NAMED + 1 ? weights.slice(0, MAX_NAMED) : weights;
  const parts = named.map((line) => weightInWords(plot, line));
  const next = weights[named.length];
  if (next) {
    const limit = written({ ...plot.quantity, signed: false }, Math.abs(next.weight));
    const others = `${limit} or less${plot.quantity.signed ? " in size" : ""} in the other`;
    parts.push(`${others} ${weights.length - named.length}`);
  }
  return pairInSentence(
    plot.plan.stack,
    query,
    [queryInWords(plot, query), quotedAt(plot.plan.keys.text, key)],
    all.map(({ weight }) => weight),
    parts.join(", "),
  );
}

/**
 * Describe the strongest drawn line of a query that is not forced. If its query and its key are
 * resting tokens, describe the strongest line without a resting token instead, if such a line exists.
 * For signed numbers, resting tokens are not skipped. Return "" for ranks.
 */
function strongestLineInWords(plot: LinePlot): string {
  const { plan, lines, quantity } = plot;
  const { signed, name } = quantity;
  const describe = (line: Line): string => {
    const query = quotedAt(plan.queries.text, line.query);
    return `${query} to ${quotedAt(plan.keys.text, line.key)}, ${weightInWords(plot, line)}.`;
  };
  const free = lines.drawn.filter(({ query }) => !isForced(plan, query));
  const [best] = strongestLines(free, 1);
  if (lines.drawn.length === 0) return "No line is drawn.";
  if (!best) return "";
  // The best keys of all queries have the same rank.
  if (name === "rank") return "";
  if (signed) return `Largest ${name}: ${describe(best)}`;
  const resting = restingTokens(plan);
  if (resting.isQuery(best.query) && resting.isKey(best.key)) {
    const others = free.filter(({ query, key }) => !resting.isQuery(query) && !resting.isKey(key));
    const [between] = strongestLines(others, 1);
    if (between) return `Strongest apart from ${resting.words}: ${describe(between)}`;
  }
  const apart = free.length < lines.drawn.length ? apartFromForced(plan.stack) : "";
  return `Strongest${apart}: ${describe(best)}`;
}

/** Return why a token is not visible: " outside the window", " hidden", or "" if it is visible. */
function unseenInWords(axis: TokenAxis, token: number): string {
  if (isVisible(axis, token)) return "";
  return isWithin(axis.window, token) ? " hidden" : " outside the window";
}

/** Describe the strongest weight of the highlighted query or key. */
function strongestOfToken(plot: LinePlot, side: Side, index: number): string {
  const { plan } = plot;
  const { queries, keys, axes } = plan;
  const { best, anywhere } = strongestWeight(plot);
  const isQuery = side === "query";
  const token = isQuery ? queryInWords(plot, index) : quotedAt(keys.text, index);
  if (!best) return strongestInWords(plan.stack, side, index, token, null);
  const other = isQuery
    ? quotedAt(keys.text, best.key) + unseenInWords(axes.key, best.key)
    : quotedAt(queries.text, best.query) +
      (isComplete(axes.query) ? "" : " among the queries in sight");
  const weight = weightInWords(plot, best, anywhere ? writtenSmall : written);
  return strongestInWords(plan.stack, side, index, token, { token: other, weight });
}

/**
 * Return the sentence below the plot: the layer, the heads, and the weights of the highlighted
 * query on the highlighted key. If only one token is highlighted, state the strongest weight of
 * this token. Without a highlight, describe the strongest line, as `strongestLineInWords` does.
 */
export function sentence(plot: LinePlot): string {
  const { query, key } = focusOf(plot);
  const where = placeInWords(plot);
  if (query !== null && key !== null) return `${where} ${weightsInWords(plot, query, key)}`;
  if (query !== null) return `${where} ${strongestOfToken(plot, "query", query)}`;
  if (key !== null) return `${where} ${strongestOfToken(plot, "key", key)}`;
  return `${where} ${strongestLineInWords(plot)}`.trim();
}

/**
 * Return the text for screen readers: the sentence below the plot with its stack, and the effects of
 * keys. It describes the cursor or the pins, not the pointer.
 */
export function summaryOf(plot: LinePlot): string {
  const { plan, effects } = plot;
  const parts = [`${stackName(plan.stack.name)}.`, sentence(plot)];
  if (effects) parts.push(tokenEffectsSpoken(effects, plan.axes.key, focusOf(plot).key));
  return parts.join(" ");
}

/** Name the lines that are drawn, such as "Top 3 keys per query drawn". */
function drawnLinesInWords({ lines, options, quantity, weights }: LinePlot): string {
  const { top_k, threshold } = options;
  const isLimited = lines.total > MAX_LINES;
  // If `MAX_LINES` limits the lines, only strong lines are drawn, so the limit of visible weights
  // is not relevant.
  // "All lines" next to a share below 100% (see `formatShare`) would be a contradiction.
  const minFaint = top_k === null ? 1e-4 : 0.005;
  const hasFaint = lines.invisibleShare >= minFaint && !isLimited;
  const least = hasFaint
    ? plainNumber(Number((MIN_VISIBLE * weights.maximum).toPrecision(2)))
    : threshold > 0
      ? written({ ...quantity, signed: false }, threshold)
      : null;
  const inSize = quantity.signed ? " in size" : "";
  const from = least === null ? "" : ` of at least ${least}`;
  const strongest = `The strongest ${counted(MAX_LINES)} of`;
  if (top_k !== null) {
    const perQuery = `${top_k === 1 ? "key" : `${top_k} keys`}${inSize} per query${from}`;
    const top = quantity.name === "rank" ? "best" : "top";
    return isLimited
      ? `${strongest} the ${top} ${perQuery} drawn`
      : `${capital(top)} ${perQuery} drawn`;
  }
  if (isLimited) return `${strongest} ${counted(lines.total)} lines${from} drawn`;
  if (least === null) return "All lines drawn";
  return `${capital(pluralOf(quantity))} of at least ${least}${inSize} drawn`;
}

/** Name the pinned tokens, and say which of them are not visible. */
function pinsInWords(plan: Plan): string[] {
  return SIDES.flatMap((side) => {
    const index = side === "query" ? plan.token : plan.key;
    if (index === null) return [];
    const axis = plan.axes[side];
    const unseen = unseenInWords(axis, index).replace(" ", ", ");
    return [`${side} ${quoted(axis.tokens.text[index] ?? "")}${unseen}`];
  });
}

/**
 * Return the second caption below the plot: which lines are drawn, their share of the weight, and
 * the shares of the other keys. These are keys that do not count, by the choices of the reader, and
 * keys outside the window.
 *
 * @param live whether the caption is for the view, in which Esc clears the pins. False for a
 *   figure.
 */
export function coverage(plot: LinePlot, live: boolean): string {
  const { plan, lines, options, quantity, effects } = plot;
  const { signed, name } = quantity;
  const { shares } = lines;
  const { renormalize } = options;
  // Rows of maxima over several heads do not sum to 1.
  const maxima = options.combine === "max" && plan.heads.length > 1;
  const drawn = drawnLinesInWords(plot);
  const total = maxima ? "the sum of the maxima over heads" : `the ${name}`;
  const inSight = lines.outsideKnown ? "" : " on the keys in sight";
  // A share of a sum of ranks means nothing.
  const hasShare = isAttention(quantity);
  const parts = [
    hasShare ? `${drawn}: ${formatShare(shares.drawn)} of ${total}${inSight}.` : `${drawn}.`,
  ];
  if (name === "rank" && options.top_k !== null && plan.token === null) {
    const numRows = new Set(lines.drawn.map(({ series, query }) => `${series} ${query}`)).size;
    if (lines.drawn.length > options.top_k * numRows) parts.push("Keys of equal rank included.");
  }
  if (signed && maxima) parts.push("Over several heads, the number of largest size is shown.");
  const { exclusions } = plan.axes.key;
  if (exclusions.length > 0) {
    const [within, rest] = lines.wholeRows
      ? ["", "the rest"]
      : [" within the window", "the rest, with all outside the window,"];
    const items = exclusions.map(({ words }, i) =>
      hasShare ? `${words}, ${formatShare(shares.excluded[i] as number)}${within}` : words,
    );
    if (renormalize) items.push(`${rest} is renormalised`);
    parts.push(`Left out: ${items.join("; ")}.`);
  }
  if (hasShare && shares.outside > 0.0005)
    parts.push(`${formatShare(shares.outside)} outside the window.`);
  parts.push(silenceInWords(plan.axes));
  if (lines.emptyQueries > 0) parts.push(`Some queries have no ${name} at all.`);
  const pinned = pinsInWords(plan);
  if (pinned.length > 0) parts.push(`Pinned: ${pinned.join(", ")}${live ? " (Esc clears)" : ""}.`);
  parts.push(plot.queryNumbers);
  if (effects) parts.push(tokenEffectsInWords(effects, false));
  // Only a figure needs the sentence about an intervention. The view has it in a separate line.
  if (!live) parts.push(changedInWords(plan.stack));
  return parts.filter((part) => part !== "").join(" ");
}

/**
 * Return the subtitle: the stack, the number of its tokens, and the precision of the weights.
 *
 * @param plot plot of the loaded weights, or null before they are loaded.
 */
export function subtitleOf(plan: Plan, plot: LinePlot | null): string {
  const parts = [stackName(baseName(plan.stack)), tokensInWords(plan)];
  if (plot) {
    const { error } = plot.weights;
    const isDivided = error > 0 && isRenormalized(plot);
    parts.push(precision(error, plan.stack) + (isDivided ? " before renormalising" : ""));
  }
  return parts.filter(Boolean).join(" · ");
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
