/** Captions of a heat map. All functions are pure. */

import { TOP_CODE, TOP_SIGNED_CODE } from "../../client/codec";
import type { Range } from "../../client/protocol";
import { type ColorScale, LOG_FLOOR } from "../colors/color-scales";
import { type TokenEffects, tokenEffectsInWords, tokenEffectsSpoken } from "../effects/effects";
import { roundedUp } from "../exports/csv";
import { predictingInWords } from "../generated-token/state";
import { pairInWords } from "../pairs";
import {
  counted,
  formatWeight,
  headsInWords,
  pinInWords,
  plainNumber,
  pluralOf,
  precision,
  quantityOf,
  quoted,
  quotedAt,
  rangeInWords,
  restingTokens,
  stackName,
  tokensInWords,
  withWay,
  written,
  writtenSmall,
} from "../text/captions";
import { baseName, changedInWords } from "../what-if/changed-run";
import type { Line } from "./marks";
import type { Grid } from "./tiles";
import { isPooled, isWhole, tokensOf, type Viewport } from "./viewport";

/** Describe the shown heads: "head 3", "mean of 12 heads" or "mean of heads 1, 7". */
export function whatInWords({
  heads,
  chosen,
  allHeads,
}: Pick<Viewport, "heads" | "chosen" | "allHeads">): string {
  if (heads.length === 1) return headsInWords(heads);
  return chosen.length === 0 || chosen.length === allHeads.length
    ? `mean of ${allHeads.length} heads`
    : `mean of ${headsInWords(chosen)}`;
}

/** Return the subtitle: name of the stack, numbers of tokens and, if known, precision. */
export function subtitleOf(viewport: Viewport, error: number | null): string {
  const same = viewport.stack.key_tokens === null;
  const tokens = tokensInWords(viewport.queries.text.length, viewport.keys.text.length, same);
  const exact = error === null ? [] : [precision(error, viewport.stack)];
  return [stackName(baseName(viewport.stack)), tokens, ...exact].join(" · ");
}

/** Cell of the grid by row and column, with its weight. */
interface WeightedCell {
  row: number;
  column: number;
  weight: number;
}

/**
 * Return at most `maxCells` cells with the largest weights, in decreasing order. Signed numbers are
 * compared by their absolute values. Cells for which `counts` returns false are skipped.
 */
export function strongestCells(
  grid: Grid,
  maxCells: number,
  counts: (cell: WeightedCell) => boolean = () => true,
): WeightedCell[] {
  const cells: WeightedCell[] = [];
  for (let i = 0; i < grid.values.length; i++) {
    const weight = grid.values[i] as number;
    const size = Math.abs(weight);
    if (!(size > 0)) continue;
    if (cells.length === maxCells && size <= Math.abs((cells[maxCells - 1] as WeightedCell).weight))
      continue;
    const cell = { row: Math.floor(i / grid.columns), column: i % grid.columns, weight };
    if (!counts(cell)) continue;
    let at = cells.length;
    while (at > 0 && Math.abs((cells[at - 1] as WeightedCell).weight) < size) at--;
    cells.splice(at, 0, cell);
    if (cells.length > maxCells) cells.pop();
  }
  return cells;
}

/** Describe the token or tokens of a row or column of cells: “it”, or "queries 8 to 15". */
export function cellInWords(viewport: Viewport, side: "query" | "key", cell: number): string {
  const axis = side === "query" ? viewport.rows : viewport.columns;
  const { text } = side === "query" ? viewport.queries : viewport.keys;
  const [start, stop] = tokensOf(axis, cell);
  if (stop - start === 1) return quotedAt(text, start);
  return rangeInWords([start, stop], side, side === "query" ? "queries" : "keys");
}

/**
 * Describe how the value of a cell is computed: "mean of 4 × 4 weights", or "" if the cell is one
 * weight.
 */
export function pooledInWords(viewport: Viewport, row: number, column: number): string {
  const [top, bottom] = tokensOf(viewport.rows, row);
  const [left, right] = tokensOf(viewport.columns, column);
  const [high, wide] = [bottom - top, right - left];
  if (high * wide === 1) return "";
  const { stack, pooled } = viewport;
  const how = pooled === "max" ? (stack.signed ? "largest" : "maximum") : "mean";
  return `${how} of ${high} × ${wide} ${pluralOf(quantityOf(stack))}`;
}

/**
 * Return the largest of the weights of a pinned token, with the index of the other token. Return
 * null if all weights are 0.
 */
function strongestOf(line: Line): { index: number; weight: number } | null {
  let best: { index: number; weight: number } | null = null;
  line.values.forEach((weight, i) => {
    if (Math.abs(weight) > Math.abs(best?.weight ?? 0))
      best = { index: line.window[0] + i, weight };
  });
  return best;
}

/** Heat map that the captions describe. */
export interface CaptionInput {
  viewport: Viewport;
  grid: Grid;
  /** Pinned query and pinned key of the current state. Their weights may not be loaded yet. */
  token: number | null;
  key: number | null;
  /** Weights of the pinned query and of the pinned key, or null until they are loaded. */
  row: Line | null;
  column: Line | null;
  /** Effects of the keys, drawn as bars. */
  effects?: TokenEffects | null;
}

/**
 * With at least this many keys, nearly all weights are below 0.01. They are then written with two
 * significant digits.
 */
const MANY_KEYS = 1000;

function weightInWords({ stack, keys }: Viewport, weight: number): string {
  const quantity = quantityOf(stack);
  const number = (keys.text.length < MANY_KEYS ? written : writtenSmall)(quantity, weight);
  return withWay(quantity, weight, number);
}

function whereOf(viewport: Viewport): string {
  const pair = pairInWords(viewport.pair, viewport.queries);
  return `Layer ${viewport.layer}, ${whatInWords(viewport)}${pair === "" ? "" : `, ${pair}`}.`;
}

/**
 * Return the sentence for a heat map beside a line plot of the same heads. For one head, the
 * sentence only names the layer and the head, because the line plot has the full sentence.
 */
export function sentenceBesideLines(input: CaptionInput): string {
  return input.viewport.chosen.length === 1 ? whereOf(input.viewport) : sentence(input);
}

/** Describe a cell with a large weight: its query, its key, the pooling and the weight. */
function strongInWords(input: CaptionInput, cell: WeightedCell): string {
  const { viewport } = input;
  const from = cellInWords(viewport, "query", cell.row);
  const to = cellInWords(viewport, "key", cell.column);
  const pooling = pooledInWords(viewport, cell.row, cell.column);
  return `${from} to ${to}, ${pooling === "" ? "" : `${pooling.split(" ")[0]} `}${weightInWords(viewport, cell.weight)}`;
}

/** Return the main sentence: the layer, the heads, the pins and the largest weight. */
export function sentence(input: CaptionInput): string {
  const { viewport, row, column } = input;
  const where = whereOf(viewport);
  const { name, signed } = quantityOf(viewport.stack);
  const query =
    input.token === null
      ? ""
      : quotedAt(viewport.queries.text, input.token) + predictingInWords(viewport, input.token);
  const key = input.key === null ? "" : quotedAt(viewport.keys.text, input.key);
  if (input.token !== null && input.key !== null && row?.token === input.token) {
    const at = input.key - row.window[0];
    const weight = at >= 0 && at < row.values.length ? (row.values[at] as number) : null;
    if (weight !== null) {
      const number = weightInWords(viewport, weight);
      return signed
        ? `${where} ${query} to ${key}: ${name} ${number}.`
        : `${where} ${query} attends to ${key}: ${number}.`;
    }
  }
  if (input.token !== null && input.key === null && row?.token === input.token) {
    const best = strongestOf(row);
    if (!best && signed) return `${where} No ${name} from ${query} in sight.`;
    if (!best) return `${where} ${query} attends to no key in sight.`;
    const to = quotedAt(viewport.keys.text, best.index);
    const number = weightInWords(viewport, best.weight);
    return signed
      ? `${where} Largest ${name} from ${query}: to ${to}, ${number}.`
      : `${where} ${query} attends most to ${to}: ${number}.`;
  }
  if (input.key !== null && input.token === null && column?.token === input.key) {
    const best = strongestOf(column);
    if (!best && signed) return `${where} No ${name} to ${key} in sight.`;
    if (!best) return `${where} No query in sight attends to ${key}.`;
    const from = quotedAt(viewport.queries.text, best.index);
    const number = weightInWords(viewport, best.weight);
    return signed
      ? `${where} Largest ${name} to ${key}: from ${from}, ${number}.`
      : `${where} ${key} gets most from ${from}: ${number}.`;
  }
  if (!input.grid.fine) return `${where} Loading finer cells.`;
  const [best] = strongestCells(input.grid, 1);
  if (!best) return `${where} No ${name} is in sight.`;
  const strongest = signed ? `Largest ${name}` : "Strongest";
  const inSight = isWhole(viewport) ? strongest : `${strongest} in sight`;
  const other = signed || isPooled(viewport) ? null : strongestApartFromResting(input, best);
  return other
    ? `${where} ${inSight} apart from ${other.words}: ${strongInWords(input, other.cell)}.`
    : `${where} ${inSight}: ${strongInWords(input, best)}.`;
}

/**
 * If the strongest cell is between resting tokens (such as "[CLS]"), return the strongest cell
 * between other tokens. Otherwise return null.
 */
function strongestApartFromResting(
  { viewport, grid }: CaptionInput,
  best: WeightedCell,
): { cell: WeightedCell; words: string } | null {
  const { queries, keys, stack, rows, columns } = viewport;
  const { isQuery, isKey, words } = restingTokens(queries, keys, stack.key_tokens === null);
  const queryOf = ({ row }: WeightedCell): boolean => isQuery(tokensOf(rows, row)[0]);
  const keyOf = ({ column }: WeightedCell): boolean => isKey(tokensOf(columns, column)[0]);
  if (!queryOf(best) || !keyOf(best)) return null;
  const [cell] = strongestCells(grid, 1, (candidate) => !queryOf(candidate) && !keyOf(candidate));
  return cell ? { cell, words } : null;
}

const MAX_IN_SUMMARY = 5;

/** Describe the stack, layer, heads and pins, and the five largest weights, for screen readers. */
export function summary(input: CaptionInput): string {
  const { viewport, row, column, grid } = input;
  const query = (index: number): string => quotedAt(viewport.queries.text, index);
  const key = (index: number): string => quotedAt(viewport.keys.text, index);
  const { token, key: pin } = input;
  const pinned = [
    ...(token === null
      ? []
      : [pinInWords("Query", viewport.queries.text, token, predictingInWords(viewport, token))]),
    ...(pin === null ? [] : [pinInWords("Key", viewport.keys.text, pin)]),
  ];
  const ofLine = (line: Line, name: (index: number) => string): string[] =>
    Array.from(line.values, (weight, i) => ({ weight, index: line.window[0] + i }))
      .filter(({ weight }) => weight !== 0)
      .sort((a, b) => Math.abs(b.weight) - Math.abs(a.weight))
      .slice(0, MAX_IN_SUMMARY)
      .map(({ weight, index }) => `${name(index)} ${weightInWords(viewport, weight)}`);
  const named =
    row !== null
      ? ofLine(row, key)
      : column !== null
        ? ofLine(column, query)
        : strongestCells(grid, MAX_IN_SUMMARY).map((cell) => strongInWords(input, cell));
  const { name, signed } = quantityOf(viewport.stack);
  const heading = signed ? `Largest ${pluralOf({ name })}` : "Strongest";
  const strongest =
    named.length > 0 ? `${heading}: ${named.join("; ")}.` : `No ${name} is in sight.`;
  const spoken = input.effects ? [tokenEffectsSpoken(input.effects, viewport.keys.text, pin)] : [];
  return [
    `${stackName(viewport.stack.name)}.`,
    whereOf(viewport),
    ...pinned,
    strongest,
    ...spoken,
  ].join(" ");
}

/**
 * Return the sum of the visible weights of a query, averaged over the visible queries. Return
 * null if all keys are visible, or if the sum cannot be computed from the loaded cells.
 */
export function sumInSight(viewport: Viewport, grid: Grid): number | null {
  const { rows, columns } = viewport;
  // If rows do not sum to 1, or if cells show maxima, the sum cannot be computed from the cells.
  if (!viewport.stack.normalized || (isPooled(viewport) && viewport.pooled === "max")) return null;
  if (grid.missing > 0 || grid.every !== undefined) return null;
  const numKeys = viewport.keys.text.length;
  if (columns.window[1] - columns.window[0] === numKeys) return null;
  let sum = 0;
  for (let row = 0; row < grid.rows; row++) {
    const [top, bottom] = tokensOf(rows, row);
    for (let column = 0; column < grid.columns; column++) {
      const [left, right] = tokensOf(columns, column);
      sum += (grid.values[row * grid.columns + column] as number) * (bottom - top) * (right - left);
    }
  }
  return Math.min(1, sum / (rows.window[1] - rows.window[0]));
}

/**
 * Count the queries whose weights are all 0. Return 0 if some keys are hidden, if weights are
 * estimated or missing, or if a row covers several queries.
 */
export function emptyQueries(viewport: Viewport, grid: Grid): number {
  const { columns, rows } = viewport;
  if (rows.level > 0 || grid.missing > 0 || grid.every !== undefined) return 0;
  if (columns.window[1] - columns.window[0] < viewport.keys.text.length) return 0;
  let count = 0;
  for (let row = 0; row < grid.rows; row++) {
    const cells = grid.values.subarray(row * grid.columns, (row + 1) * grid.columns);
    if (cells.every((weight) => weight === 0)) count++;
  }
  return count;
}

function windowInWords(name: string, window: Range, count: number): string {
  if (window[0] === 0 && window[1] === count) return `all ${count} ${name}`;
  const one = window[1] - window[0] === 1;
  const indices = one ? `${window[0]}` : `${window[0]}–${window[1] - 1}`;
  return `${one ? name.replace("queries", "query").replace("keys", "key") : name} ${indices} of ${count}`;
}

/** Return the smallest share of the maximum that is not encoded as 0 (`client/codec.ts`). */
function smallest({ signed }: Pick<Viewport["stack"], "signed">): number {
  return (0.5 / (signed ? TOP_SIGNED_CODE : TOP_CODE)) ** 2;
}

/**
 * Describe the possible values of a cell that is drawn as 0. The codec rounds the smallest weights
 * to 0.
 */
export function nothingInWords(
  grid: Pick<Grid, "error" | "maximum" | "largest">,
  stack: Pick<Viewport["stack"], "signed" | "embedded"> = {},
): string {
  if (grid.error === 0) return "0";
  // Pages with signed numbers may contain only the largest absolute values. The error is a bound
  // for all other values.
  const isIncomplete = stack.signed && stack.embedded?.form === "strongest";
  const bound = isIncomplete ? grid.error : (grid.largest ?? grid.maximum) * smallest(stack);
  return `less than ${plainNumber(roundedUp(bound))}${stack.signed ? " in absolute value" : ""}`;
}

/**
 * Return the detail caption: which tokens are visible, what a cell is, which weights the colours do
 * not show, and which tokens are pinned.
 */
export function coverage(
  input: CaptionInput,
  look: { scale: ColorScale; end: number; live: boolean },
): string {
  const { viewport, grid } = input;
  const { rows, columns } = viewport;
  const quantity = quantityOf(viewport.stack);
  const parts: string[] = [];
  if (grid.every !== undefined) {
    const nearer = look.live ? ": zoom in for exact cells" : "";
    parts.push(`Estimate from 1 query in ${counted(grid.every)}${nearer}.`);
  }
  const [numQueries, numKeys] = [viewport.queries.text.length, viewport.keys.text.length];
  const inWhole = rows.window[1] - rows.window[0] === numQueries;
  const whole = inWhole && columns.window[1] - columns.window[0] === numKeys;
  if (!whole) {
    const queries = windowInWords("queries", rows.window, numQueries);
    const keys = windowInWords("keys", columns.window, numKeys);
    const sum = sumInSight(viewport, grid);
    // Write a sum instead of a share: a row that is masked or has a sink sums to less than 1.
    const weight =
      sum === null ? "" : `, where a query’s weights sum to ${formatWeight(sum)} on average`;
    const text = `${queries}, ${keys} in sight${weight}.`;
    parts.push(text.charAt(0).toUpperCase() + text.slice(1));
  }
  if (isPooled(viewport)) {
    const [high, wide] = [2 ** rows.level, 2 ** columns.level];
    const of = `${high} × ${wide} ${pluralOf(quantity)}`;
    if (!quantity.signed) {
      parts.push(`Each cell is the ${viewport.pooled === "max" ? "maximum" : "mean"} of ${of}.`);
    } else if (viewport.pooled === "max") {
      parts.push(`Each cell is the one of ${of} with the largest absolute value.`);
    } else {
      parts.push(
        `Each cell is the mean of ${of}. Positive and negative numbers are averaged separately, and the mean with the larger absolute value is shown.`,
      );
    }
    const reaches = [rows, columns].some(
      ({ window, extent }) => window[0] < extent[0] || window[1] > extent[1],
    );
    if (reaches && viewport.pair !== "all") {
      parts.push("Cells at the border of the two sentences contain tokens of both.");
    }
  } else if (whole) {
    const one = viewport.heads.length === 1;
    parts.push(one ? `Each cell is one ${quantity.name}.` : "Each cell is one query and one key.");
  }
  if (grid.values.some((weight) => weight === 0)) {
    const threshold = grid.error > 0 ? ` or ${nothingInWords(grid, viewport.stack)}` : "";
    const ahead = viewport.stack.causal ? "; no query attends to later keys" : "";
    parts.push(`Blank: no ${quantity.name}${threshold}${ahead}.`);
  }
  if (look.scale === "log") {
    const followed = quantity.signed ? "the logarithm of the size" : "the logarithm";
    parts.push(`Colour follows ${followed}, from ${plainNumber(look.end * LOG_FLOOR)} on.`);
  }
  const empty = emptyQueries(viewport, grid);
  if (empty > 0) {
    const who = empty === 1 ? "1 query has" : `${empty} queries have`;
    parts.push(`${who} no ${quantity.name} at all.`);
  }
  const pin = (
    index: number | null,
    name: string,
    text: string | undefined,
    window: Range,
    line: Line | null,
  ): string[] => {
    if (index === null) return [];
    const away = index < window[0] || index >= window[1];
    const exact = line !== null && line.error === 0 && grid.error > 0 ? ", exact" : "";
    return [`${name} ${quoted(text ?? "")}${away ? ", out of sight" : exact}`];
  };
  const pinned = [
    ...pin(input.token, "query", viewport.queries.text[input.token ?? 0], rows.window, input.row),
    ...pin(input.key, "key", viewport.keys.text[input.key ?? 0], columns.window, input.column),
  ];
  if (pinned.length > 0) {
    parts.push(`Pinned: ${pinned.join(", ")}${look.live ? " (Esc clears)" : ""}.`);
  }
  if (input.effects) {
    parts.push(tokenEffectsInWords(input.effects, true));
    if (columns.level > 0) parts.push("The bar of several keys shows the largest absolute value.");
  }
  // In a live view, the line below all captions already names the changed run.
  if (!look.live) parts.push(changedInWords(viewport.stack));
  return parts.filter((part) => part !== "").join(" ");
}
