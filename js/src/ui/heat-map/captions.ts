/**
 * Captions of a heat map. A cell that covers several weights is pooled: it shows their mean or
 * their maximum. The pins are the query and the key that the reader has pinned. All functions are
 * pure.
 */

import { TOP_CODE, TOP_SIGNED_CODE } from "../../client/codec";
import { topKeys } from "../../client/requests/strongest";
import {
  type Axis,
  contains,
  indexIn,
  isComplete,
  isVisible,
  oneToken,
  otherSide,
  SIDES,
  type Side,
  sizeOf,
  tokenAt,
  tokenIn,
  tokensAt,
} from "../axis";
import { LOG_FLOOR } from "../colors/color-scales";
import { tokenEffectsInWords, tokenEffectsSpoken } from "../effects/effects";
import { predictingInWords } from "../generated-token/state";
import { gatesInWords } from "../head-grid/gates";
import { pairInWords } from "../pairs";
import {
  apartFromForced,
  capital,
  counted,
  formatNumber,
  formatWeight,
  hasForced,
  headsInWords,
  PLURALS,
  pairInSentence,
  plainNumber,
  pluralOf,
  precision,
  quantityOf,
  quoted,
  quotedAt,
  quotedSpan,
  restingTokens,
  stackName,
  strongestInWords,
  tokensInWords,
  withWay,
  writtenAmong,
} from "../text/captions";
import { roundedUp } from "../text/csv";
import { silenceInWords } from "../text/places";
import { baseName } from "../view/model-layers";
import type { Selection } from "../view/record";
import { changedInWords } from "../what-if/changed-run";
import { type HeatMap, hatchesCells, type Line, notChosenCells } from "./marks";
import type { Grid } from "./tiles";
import { isPooled, isWhole, type Viewport } from "./viewport";

/**
 * Describe the shown heads: "head 3", "mean of heads 1, 7" or, for all heads of the layer, "mean of
 * 12 heads".
 */
export function whatInWords({ heads, chosen, allHeads }: Selection): string {
  if (heads.length === 1) return headsInWords(heads);
  return chosen.length === 0 || chosen.length === allHeads.length
    ? `mean of ${allHeads.length} heads`
    : `mean of ${headsInWords(chosen)}`;
}

/**
 * Return the subtitle: name of the stack, numbers of tokens and, if all cells are loaded at full
 * resolution and none is estimated, the precision of the weights.
 */
export function subtitleOf(viewport: Viewport, grid: Grid | undefined): string {
  const parts = [stackName(baseName(viewport.stack)), tokensInWords(viewport)];
  if (grid?.fine && grid.samplingInterval === undefined)
    parts.push(precision(grid.error, viewport.stack));
  return parts.filter(Boolean).join(" · ");
}

/** Parts of a heat map that determine its captions. */
export type Captioned = Pick<
  HeatMap,
  "grid" | "pins" | "lines" | "effects" | "scale" | "end" | "queryNumbers"
> & { layout: { viewport: Viewport } };

interface WeightedCell {
  row: number;
  column: number;
  weight: number;
}

/** Return whether each row contains a forced query (see `StackNumbers.forced_queries`). */
function forcedRows({ stack, axes }: Viewport): boolean[] {
  return axes.query.groups.map((queries) => hasForced(stack, queries));
}

/**
 * Return the cell with the largest weight, or undefined if all are skipped. Signed numbers are
 * compared by their absolute values. Cells that are 0 or not loaded, cells of forced queries, and
 * cells for which `isCounted` returns false, are skipped.
 */
function strongestCell(
  viewport: Viewport,
  { values, columns }: Grid,
  isCounted: (row: number, column: number) => boolean = () => true,
): WeightedCell | undefined {
  const isForced = forcedRows(viewport);
  const isIncluded = (i: number): boolean => {
    const row = Math.floor(i / columns);
    return !Number.isNaN(values[i]) && !isForced[row] && isCounted(row, i % columns);
  };
  const [best] = topKeys(values, 1, isIncluded);
  if (best === undefined) return undefined;
  const weight = values[best] as number;
  return { row: Math.floor(best / columns), column: best % columns, weight };
}

/** Name the token or the range of tokens of a row (or column): “it”, “0.04–0.10 s”. */
function cellInWords({ axes }: Viewport, side: Side, cell: number): string {
  return quotedSpan(axes[side].tokens, tokensAt(axes[side], cell));
}

/**
 * Describe how the value of a cell is computed: "mean of 4 × 4 weights", or "" if the cell is one
 * weight.
 */
export function pooledInWords(
  { axes, stack, pooled }: Viewport,
  row: number,
  column: number,
): string {
  const [high, wide] = [sizeOf(tokensAt(axes.query, row)), sizeOf(tokensAt(axes.key, column))];
  if (high * wide === 1) return "";
  const how = pooled === "max" ? (stack.signed ? "largest" : "maximum") : "mean";
  return `${how} of ${high} × ${wide} ${pluralOf(quantityOf(stack))}`;
}

function weightInWords({ stack, keys }: Viewport, weight: number): string {
  const quantity = quantityOf(stack);
  return withWay(quantity, weight, writtenAmong(keys.text.length, quantity, weight));
}

function whereOf(viewport: Viewport): string {
  const pair = pairInWords(viewport.pair, viewport.queries);
  const gates = gatesInWords(viewport.stack, viewport.layer, viewport.heads);
  const what = `${whatInWords(viewport)}${pair === "" ? "" : `, ${pair}`}`;
  return `Layer ${viewport.layer}, ${what}.${gates}`;
}

/**
 * Return the main caption of a heat map beside a line plot of the same heads. For several heads, it
 * is the full caption (see `sentence`). For one head, it only names the layer and the head, because
 * the caption of the line plot says the rest.
 */
export function sentenceBesideLines(heatMap: Captioned): string {
  const { viewport } = heatMap.layout;
  return viewport.chosen.length === 1 ? whereOf(viewport) : sentence(heatMap);
}

/**
 * Describe a cell by its query, its key, the kind of pooling and its weight: "“it” to “cat”, mean
 * 0.31".
 */
function strongInWords(viewport: Viewport, { row, column, weight }: WeightedCell): string {
  const from = cellInWords(viewport, "query", row);
  const to = cellInWords(viewport, "key", column);
  const [pooling] = pooledInWords(viewport, row, column).split(" ");
  return `${from} to ${to}, ${pooling ? `${pooling} ` : ""}${weightInWords(viewport, weight)}`;
}

/**
 * Return the main caption. It names the layer and the heads, and ends with the sentence that
 * `findingOf` returns.
 */
export function sentence(heatMap: Captioned): string {
  return `${whereOf(heatMap.layout.viewport)} ${findingOf(heatMap)}`.trim();
}

/**
 * Quote a pinned token. If it is a query at which the model predicted a token of the answer, add
 * the predicted token and its probability.
 */
function pinnedInWords(viewport: Viewport, side: Side, token: number): string {
  const predicting = side === "query" ? predictingInWords(viewport, token) : "";
  return quotedAt(viewport.axes[side].tokens.text, token) + predicting;
}

/**
 * Return the largest weight of a pinned query (or key) as text, with its quoted key (or query), or
 * null if all are 0.
 */
function strongestInLine(viewport: Viewport, side: Side, { values, window }: Line) {
  const { text } = viewport.axes[otherSide(side)].tokens;
  const isFree = (i: number): boolean =>
    side === "query" || !hasForced(viewport.stack, oneToken(tokenIn(window, i)));
  const [best] = topKeys(values, 1, isFree);
  if (best === undefined) return null;
  return {
    token: quotedAt(text, tokenIn(window, best)),
    weight: weightInWords(viewport, values[best] as number),
  };
}

/**
 * Return the sentence about the most important weight. With two pins, it is the weight of the
 * pinned query on the pinned key. With one pin, it is the largest weight of the pinned query or on
 * the pinned key. Without pins, or until their weights are loaded, it is the strongest cell, with
 * an exception for resting tokens (see `apartFromResting`). The sentence about the strongest cell
 * is "Loading finer cells." until all cells are loaded at full resolution.
 */
function findingOf({ layout, grid, pins, lines }: Captioned): string {
  const { viewport } = layout;
  const quantity = quantityOf(viewport.stack);
  const { name, signed } = quantity;
  const { query, key } = pins;
  if (query !== null && key !== null) {
    const row = lines.query?.token === query ? lines.query : null;
    const weight = row?.values[indexIn(row.window, key)];
    if (weight !== undefined) {
      const pair = SIDES.map((side) => pinnedInWords(viewport, side, pins[side] ?? 0));
      const number = weightInWords(viewport, weight);
      return pairInSentence(viewport.stack, query, pair as [string, string], [weight], number);
    }
  } else {
    const side = query === null ? "key" : "query";
    const [token, line] = [pins[side], lines[side]];
    if (token !== null && line?.token === token) {
      const strongest = strongestInLine(viewport, side, line);
      const name = pinnedInWords(viewport, side, token);
      return strongestInWords(viewport.stack, side, token, name, strongest);
    }
  }
  if (!grid.fine) return "Loading finer cells.";
  const best = strongestCell(viewport, grid);
  if (!best) return forcedRows(viewport).includes(true) ? "" : `No ${name} is in sight.`;
  // The best keys of all queries have the same rank.
  if (name === "rank") return "";
  const strongest =
    (signed ? `Largest ${name}` : "Strongest") + (isWhole(viewport) ? "" : " in sight");
  const other = signed || isPooled(viewport) ? null : apartFromResting(viewport, grid, best);
  if (other)
    return `${strongest} apart from ${other.words}: ${strongInWords(viewport, other.cell)}.`;
  const [largest = 0] = topKeys(grid.values, 1, (i) => !Number.isNaN(grid.values[i]));
  const isForced = forcedRows(viewport)[Math.floor(largest / grid.columns)];
  const apart = isForced ? apartFromForced(viewport.stack) : "";
  return `${strongest}${apart}: ${strongInWords(viewport, best)}.`;
}

/**
 * Return the strongest cell whose query and key are both not resting tokens, with words for the
 * resting tokens. These are tokens to which heads attend when no other key fits, such as "[CLS]".
 * Return null if the query or the key of `best`, the strongest of all cells, is not a resting token,
 * or if all cells between other tokens are 0 or not loaded.
 */
function apartFromResting(
  viewport: Viewport,
  grid: Grid,
  best: WeightedCell,
): { cell: WeightedCell; words: string } | null {
  const { axes } = viewport;
  const { isQuery, isKey, words } = restingTokens(viewport);
  const isRow = (row: number): boolean => isQuery(tokenAt(axes.query, row));
  const isColumn = (column: number): boolean => isKey(tokenAt(axes.key, column));
  if (!isRow(best.row) || !isColumn(best.column)) return null;
  const cell = strongestCell(viewport, grid, (row, column) => !isRow(row) && !isColumn(column));
  return cell ? { cell, words } : null;
}

/**
 * Return the text for screen readers: the main caption with the stack, and the effects of keys.
 */
export function summary(heatMap: Captioned): string {
  const { layout, pins, effects } = heatMap;
  const { stack, axes } = layout.viewport;
  const parts = [`${stackName(stack.name)}.`, sentence(heatMap)];
  if (effects) parts.push(tokenEffectsSpoken(effects, axes.key, pins.key));
  return parts.join(" ");
}

/**
 * Return the sum of the visible weights of a query, averaged over the visible queries. Return
 * null if all keys are visible, or if the sum cannot be computed from the loaded cells.
 */
export function sumInSight(viewport: Viewport, grid: Grid): number | null {
  const { query: rows, key: columns } = viewport.axes;
  // A sum of visible weights has no meaning if complete rows do not sum to 1. It cannot be computed
  // from maxima.
  if (!viewport.stack.normalized || (isPooled(viewport) && viewport.pooled === "max")) return null;
  if (grid.missing > 0 || grid.samplingInterval !== undefined || isComplete(columns)) return null;
  const sum = grid.values.reduce((total, weight, i) => {
    const high = sizeOf(tokensAt(rows, Math.floor(i / grid.columns)));
    return total + weight * high * sizeOf(tokensAt(columns, i % grid.columns));
  }, 0);
  return Math.min(1, sum / sizeOf(rows.window));
}

/**
 * Count the queries whose weights on all keys are 0, for example because a mask hides all keys.
 * Return 0 if the cells cannot show this: some keys are hidden, weights are estimated or missing,
 * or a row covers several queries.
 */
function emptyQueries({ axes }: Viewport, { values, columns, ...grid }: Grid): number {
  const isUnknown = axes.query.level > 0 || grid.missing > 0 || grid.samplingInterval !== undefined;
  if (isUnknown || !isComplete(axes.key)) return 0;
  const rows = Array.from({ length: grid.rows }, (_, row) =>
    values.subarray(row * columns, (row + 1) * columns),
  );
  return rows.filter((row) => row.every((weight) => weight === 0)).length;
}

function windowInWords(side: Side, axis: Axis): string {
  const count = axis.tokens.text.length;
  return isComplete(axis)
    ? `all ${count} ${PLURALS[side]}`
    : `${PLURALS[side]} ${quotedSpan(axis.tokens, axis.window)} of ${count}`;
}

/**
 * Describe the possible values of a cell that is drawn as 0: "0" or, for example, "less than 1e−5".
 * The encoding of weights in replies and pages rounds the smallest ones to 0.
 */
export function nothingInWords(
  grid: Pick<Grid, "error" | "maximum" | "largest">,
  stack: Pick<Viewport["stack"], "signed" | "embedded"> = {},
): string {
  if (grid.error === 0) return "0";
  // A page may contain only those signed numbers that have the largest absolute values. All others
  // are shown as 0, but may be as large as `error` in absolute value.
  const isIncomplete = stack.signed && stack.embedded?.form === "strongest";
  const smallestShare = (0.5 / (stack.signed ? TOP_SIGNED_CODE : TOP_CODE)) ** 2;
  const bound = isIncomplete ? grid.error : (grid.largest ?? grid.maximum) * smallestShare;
  return `less than ${formatNumber(roundedUp(bound))}${stack.signed ? " in absolute value" : ""}`;
}

/**
 * Return the sentence that says what a cell is, such as "Each cell is the mean of 4 × 4 weights."
 *
 * @param isWholeText whether all tokens are visible. If not, the result for cells of one weight is
 *   "" in place of "Each cell is one weight."
 */
function cellsInWords(viewport: Viewport, isWholeText: boolean): string {
  const { axes, stack, pooled } = viewport;
  const quantity = quantityOf(stack);
  if (!isPooled(viewport)) {
    if (!isWholeText) return "";
    return viewport.heads.length === 1
      ? `Each cell is one ${quantity.name}.`
      : "Each cell is one query and one key.";
  }
  const of = `${2 ** axes.query.level} × ${2 ** axes.key.level} ${pluralOf(quantity)}`;
  if (!quantity.signed)
    return `Each cell is the ${pooled === "max" ? "maximum" : "mean"} of ${of}.`;
  return pooled === "max"
    ? `Each cell is the one of ${of} with the largest absolute value.`
    : `Each cell is the mean of ${of}. Positive and negative numbers are averaged separately, and the mean with the larger absolute value is shown.`;
}

/**
 * Return the caption with the details of a picture: whether weights are estimated, which tokens are
 * visible, what a cell is, what blank cells and colours mean, which tokens are pinned, and what the
 * bars of effects show.
 *
 * @param live true for a view, in a notebook or a page, and false for a figure. In a view, the
 *   caption names gestures. In a figure, it names the changes of attention in the run that is
 *   shown.
 */
export function coverage(heatMap: Captioned, live: boolean): string {
  const { layout, grid, pins, lines, effects, scale, end, queryNumbers } = heatMap;
  const { viewport } = layout;
  const { axes, stack } = viewport;
  const quantity = quantityOf(stack);
  const parts: string[] = [];
  if (grid.samplingInterval !== undefined) {
    const nearer = live ? ": zoom in for exact cells" : "";
    parts.push(`Estimate from 1 query in ${counted(grid.samplingInterval)}${nearer}.`);
  }
  const isWholeText = SIDES.every((side) => isComplete(axes[side]));
  if (!isWholeText) {
    const shown = SIDES.map((side) => windowInWords(side, axes[side]));
    const sum = sumInSight(viewport, grid);
    // The text gives a sum and not a percentage of the weight, because a row that is masked or has
    // a sink sums to less than 1.
    const weight =
      sum === null ? "" : `, where a query’s weights sum to ${formatWeight(sum)} on average`;
    parts.push(capital(`${shown.join(", ")} in sight${weight}.`));
  }
  parts.push(silenceInWords(axes));
  parts.push(cellsInWords(viewport, isWholeText));
  const reaches = SIDES.some((side) => !contains(axes[side].extent, axes[side].window));
  if (reaches && viewport.pair !== "all") {
    parts.push("Cells at the border of the two sentences contain tokens of both.");
  }
  if (stack.chooses_keys) {
    const look = hatchesCells(layout) ? "Hatched" : "Tinted";
    if (notChosenCells(heatMap))
      parts.push(`${look}: keys that were not chosen, so the softmax did not score them.`);
    if (grid.values.some((weight) => Object.is(weight, -0))) parts.push("Blank: masked.");
  } else if (grid.values.some((weight) => weight === 0)) {
    // Among n keys, the smallest rank is 1 / n, which is too large to be rounded to 0.
    const isExact = grid.error === 0 || quantity.name === "rank";
    const threshold = isExact ? "" : ` or ${nothingInWords(grid, stack)}`;
    const ahead = stack.causal ? "; no query attends to later keys" : "";
    parts.push(`Blank: no ${quantity.name}${threshold}${ahead}.`);
  }
  if (scale === "log") {
    const followed = quantity.signed ? "the logarithm of the size" : "the logarithm";
    parts.push(`Colour follows ${followed}, from ${plainNumber(end * LOG_FLOOR)} on.`);
  }
  const empty = emptyQueries(viewport, grid);
  if (empty > 0) {
    const who = empty === 1 ? "1 query has" : `${empty} queries have`;
    parts.push(`${who} no ${quantity.name} at all.`);
  }
  const pinned = SIDES.flatMap((side) => {
    const token = pins[side];
    if (token === null) return [];
    const isExact = lines[side]?.error === 0 && grid.error > 0;
    const state = !isVisible(axes[side], token) ? ", out of sight" : isExact ? ", exact" : "";
    return [`${side} ${quoted(axes[side].tokens.text[token] ?? "")}${state}`];
  });
  if (pinned.length > 0) parts.push(`Pinned: ${pinned.join(", ")}${live ? " (Esc clears)" : ""}.`);
  parts.push(queryNumbers);
  if (effects) {
    parts.push(tokenEffectsInWords(effects, true));
    if (axes.key.level > 0) parts.push("The bar of several keys shows the largest absolute value.");
  }
  // A view names the changes in a line below all captions.
  if (!live) parts.push(changedInWords(stack));
  return parts.filter((part) => part !== "").join(" ");
}
