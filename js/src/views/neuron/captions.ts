/** Captions of the neuron view. Pure functions. */

import type { Vectors } from "../../client/requests/vectors";
import { roundedUp } from "../../ui/exports/csv";
import { predictingInWords } from "../../ui/generated-token/state";
import {
  counted,
  formatShare,
  formatWeight,
  pinInWords,
  plainNumber,
  precision,
  quotedAt,
  stackName,
  withMinus,
} from "../../ui/text/captions";
import type { Selection } from "../../ui/view/record";
import { headOf, tokenOf } from "./state";
import { type Dimensions, type Row, sharesOf, sumOf, type Table } from "./table";

/** Number of dimensions that `sentenceOf` names. */
const MAX_NAMED = 3;

/**
 * Return a number with its sign. Numbers from 0.005 to 100 in size have two decimals. Larger
 * numbers have fewer decimals, and smaller ones have one significant digit.
 */
export function formatSigned(value: number): string {
  const size = Math.abs(value);
  const digits = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 0.005 || size === 0 ? 2 : null;
  const text =
    digits === null ? withMinus(String(Number(size.toPrecision(1)))) : size.toFixed(digits);
  return `${value < 0 ? "−" : "+"}${text}`;
}

/** Return the scale as text after a product: " / √32", " × 0.3", or "" if the scale is 1. */
export function scaleInWords(scale: number): string {
  if (scale === 1) return "";
  const square = 1 / scale ** 2;
  const integer = Math.round(square);
  if (integer > 1 && Math.abs(square / integer - 1) < 1e-5) return ` / √${integer}`;
  return ` × ${Number(scale.toPrecision(3))}`;
}

function factorText(scale: number): string {
  return scale === 1 ? "" : ` × ${Number(scale.toPrecision(3))}`;
}

/** Data from which the captions are written. */
export interface CaptionInput {
  selection: Selection;
  table: Table;
  dimensions: Dimensions;
  sorted: boolean;
}

function keyText(input: CaptionInput, key: number): string {
  return quotedAt(input.selection.keys.text, key);
}

function queryText(input: CaptionInput): string {
  const query = tokenOf(input.selection);
  return quotedAt(input.selection.queries.text, query) + predictingInWords(input.selection, query);
}

function highlightedRow(input: CaptionInput): Row | null {
  const { rows, highlighted: index } = input.table;
  return index === null ? null : (rows[index] ?? null);
}

/** Return the subtitle: the stack, the layer, the head, the dimensions and the precision. */
export function subtitleOf(input: CaptionInput): string {
  const { selection, table } = input;
  const row = highlightedRow(input);
  const order =
    input.sorted && row ? `sorted by their share for ${keyText(input, row.key)}` : "unsorted";
  const { error, measured } = table.vectors.header;
  return [
    "neuron view",
    stackName(selection.stack.name),
    `layer ${selection.layer}, head ${headOf(selection)}`,
    `${table.vectors.headDim} dimensions, ${order}`,
    measured ? `${precision(error)}, measured on ${measured} queries` : precision(error),
  ].join(" · ");
}

function logitInWords(row: Row, vectors: Vectors): string {
  const { softcap, has_bias } = vectors.header;
  const parts = [formatSigned(row.sum)];
  if (softcap !== null) parts.push(`capped to ${formatSigned(row.capped)}`);
  if (has_bias)
    parts.push(`with a bias of ${formatSigned(row.bias)} a logit of ${formatSigned(row.logit)}`);
  return parts.join(", ");
}

/** Return the dimensions of a row with the largest shares, and the sum of these shares. */
function largestDimensions(row: Row, count = MAX_NAMED): { named: number[]; share: number } {
  const shares = sharesOf(row.cells);
  const named = Array.from(shares, (_, dimension) => dimension)
    .sort((a, b) => (shares[b] as number) - (shares[a] as number) || a - b)
    .slice(0, count);
  return { named, share: named.reduce((sum, item) => sum + (shares[item] as number), 0) };
}

/**
 * Return the sentence below the view: the weight and the logit of the highlighted key, and the
 * dimensions with the largest shares. If this key or every displayed key is masked, say only that.
 */
export function sentenceOf(input: CaptionInput): string {
  const row = highlightedRow(input);
  const { vectors } = input.table;
  const query = queryText(input);
  if (!row) {
    return vectors.header.num_allowed === 0
      ? `${query} attends to nothing: all of its keys are masked.`
      : `${query} may not attend to any key that is shown: all of them are masked.`;
  }
  const key = keyText(input, row.key);
  if (!row.allowed) return `${query} may not attend to ${key}: the key is masked.`;
  const { named, share } = largestDimensions(row);
  const product = `q·k${scaleInWords(vectors.header.scale)} = ${logitInWords(row, vectors)}`;
  const carried = `dimensions ${named.join(", ")} carry ${formatShare(share)} of it (by size)`;
  return `${query} gives ${formatWeight(row.weight)} of its attention to ${key}: ${product}, ${carried}.`;
}

/** Return sentences that describe the soft cap, bias and sink, or name those that are absent. */
function extrasInWords(vectors: Vectors): string[] {
  const { softcap, has_bias, sink } = vectors.header;
  const parts: string[] = [];
  if (softcap !== null) {
    const c = Number(softcap.toPrecision(4));
    parts.push(`The sum is capped: ${c} × tanh(sum / ${c}).`);
  }
  if (has_bias) parts.push("A bias is added.");
  if (sink) {
    parts.push(
      `The sink, a learned logit of ${formatSigned(sink.logit)}, takes ${formatWeight(sink.weight)} of the row.`,
    );
  }
  const absent = [
    ...(has_bias ? [] : ["bias"]),
    ...(softcap === null ? ["cap"] : []),
    ...(sink ? [] : ["sink"]),
  ];
  if (absent.length > 0) {
    const [last, ...before] = absent.reverse();
    const names = before.length > 0 ? `${before.reverse().join(", ")} or ${last}` : last;
    parts.push(`No ${names} in this layer.`);
  }
  return parts;
}

/**
 * Return the second caption below the view: how the numbers of a row add up, which dimensions and
 * keys are not shown, and how exact the numbers are.
 */
export function additionOf(input: CaptionInput): string {
  const { selection, table, dimensions } = input;
  const { vectors } = table;
  const { header } = vectors;
  const parts = [
    "The cells of a row add up to the sum beside them. The softmax runs over the rows.",
    ...extrasInWords(vectors),
  ];
  if (dimensions.others.length > 0) {
    parts.push(
      `The ${dimensions.shown.length} dimensions with the largest share are shown. The last cell is the sum of the other ${dimensions.others.length}.`,
    );
  }
  const numKeys = selection.keys.text.length;
  const masked = numKeys - header.num_allowed;
  if (masked > 0) parts.push(`${counted(masked)} of ${counted(numKeys)} keys are masked.`);
  const [start, stop] = vectors.keys;
  if (stop - start < numKeys) {
    parts.push(
      `Keys ${start} to ${stop - 1} of ${counted(numKeys)} are shown: ${formatShare(vectors.weightInRange)} of the attention.`,
    );
  }
  if (header.num_key_heads < header.num_heads) {
    const group = header.num_heads / header.num_key_heads;
    const first = header.key_head * group;
    const others = Array.from({ length: group }, (_, i) => first + i).filter(
      (head) => head !== header.head,
    );
    parts.push(
      `Its keys are those of key head ${header.key_head} of ${header.num_key_heads}, shared with head${others.length > 1 ? "s" : ""} ${others.join(", ")}.`,
    );
  }
  if (header.error > 0) {
    const [weights, logits] = [header.error, header.logit_error].map((error) =>
      plainNumber(roundedUp(error)),
    );
    parts.push(
      header.measured
        ? `Largest error measured on ${header.measured} queries of each head: weights ${weights}, logits ${logits}.`
        : `Weights exact to ${weights}, logits to ${logits}.`,
    );
  }
  return parts.join(" ");
}

/**
 * Return the summary for screen readers: the stack, layer, head and query, the strongest weights of
 * the query, and the sentence below the view.
 */
export function summaryOf(input: CaptionInput): string {
  const { selection, table } = input;
  const { strongest } = table.vectors.header;
  const token = tokenOf(selection);
  const named = strongest.map(([key, weight]) => `${keyText(input, key)} ${formatWeight(weight)}`);
  const row = highlightedRow(input);
  const about = row ? ` ${sentenceOf(input)}` : "";
  return (
    `${stackName(selection.stack.name)}. Layer ${selection.layer}, head ${headOf(selection)}. ` +
    `${pinInWords("Query", selection.queries.text, token, predictingInWords(selection, token))} ` +
    `${named.length > 0 ? `Strongest: ${named.join("; ")}.` : "No key is allowed."}${about}`
  );
}

/** Describe one cell: "dimension 25: q +1.30 × k +0.98 × 0.177 = +0.23, 6% of |cells|". */
export function cellInWords(table: Table, row: Row, dimension: number): string {
  const q = formatSigned(table.query[dimension] as number);
  const k = formatSigned(row.vector[dimension] as number);
  const cell = row.cells[dimension] as number;
  const share = formatShare(sharesOf(row.cells)[dimension] as number);
  return `dimension ${dimension}: q ${q} × k ${k}${factorText(table.vectors.header.scale)} = ${formatSigned(cell)}, ${share} of |cells|`;
}

/** Describe the shared cell: "other 192 dimensions: together +0.41, 20% of |cells|". */
export function othersInWords(row: Row, others: readonly number[]): string {
  const shares = sharesOf(row.cells);
  const share = others.reduce((sum, item) => sum + (shares[item] as number), 0);
  return `other ${others.length} dimensions: together ${formatSigned(sumOf(row.cells, others))}, ${formatShare(share)} of |cells|`;
}

/** Return one line of text for each step of the computation from a row's products to its weight. */
export function rowInWords(table: Table, row: Row): string[] {
  const { header } = table.vectors;
  if (!row.allowed) return ["masked: this query may not attend to it"];
  const steps = [`q·k${scaleInWords(header.scale)} = ${formatSigned(row.sum)}`];
  if (header.softcap !== null) {
    steps.push(`capped at ${Number(header.softcap.toPrecision(4))}: ${formatSigned(row.capped)}`);
  }
  if (header.has_bias)
    steps.push(`bias ${formatSigned(row.bias)}, logit ${formatSigned(row.logit)}`);
  const sum = header.log_sum_exp ?? 0;
  const power = `e^(${formatSigned(row.logit)} ${sum < 0 ? "+" : "−"} ${formatSigned(Math.abs(sum)).slice(1)})`;
  steps.push(`weight ${power} = ${formatWeight(row.weight, 3)}`);
  return steps;
}
