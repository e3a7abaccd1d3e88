/**
 * Captions of the neuron view. Pure functions. A product is q × k × scale in one dimension. The
 * share of a dimension is the absolute value of its product, divided by the sum of the absolute
 * values of all products of the same key. The highlighted key is the pinned key or, if no displayed
 * key is pinned, the displayed key with the largest weight.
 */

import type { Vectors } from "../../client/requests/vectors";
import { predictingInWords } from "../../ui/generated-token/state";
import { gateInWords, gateOf, gateText, isClosed } from "../../ui/head-grid/gates";
import type { Hint } from "../../ui/plot/plot";
import {
  counted,
  formatShare,
  formatWeight,
  lostInWords,
  plainNumber,
  precision,
  quoted,
  quotedAt,
  stackName,
  unscoredInWords,
  unscoredPairInWords,
  withMinus,
} from "../../ui/text/captions";
import { roundedUp } from "../../ui/text/csv";
import type { Cell, Line } from "./layout";
import { type Dimensions, type Row, sumOf, type Table } from "./table";

/** Maximum number of dimensions that `sentenceOf` names. */
const MAX_NAMED = 3;

/**
 * Return a number with its sign. Absolute values from 0.005 to 100 have two decimals, and so has 0.
 * Larger values have fewer decimals, and smaller ones have one significant digit.
 */
export function formatSigned(value: number): string {
  const size = Math.abs(value);
  const digits = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 0.005 || size === 0 ? 2 : null;
  const text =
    digits === null ? withMinus(String(Number(size.toPrecision(1)))) : size.toFixed(digits);
  return `${value < 0 ? "−" : "+"}${text}`;
}

function factorInWords(scale: number): string {
  return scale === 1 ? "" : ` × ${Number(scale.toPrecision(3))}`;
}

/** Return the scale as text after a product: " / √32", " × 0.3", or "" if the scale is 1. */
export function scaleInWords(scale: number): string {
  const square = 1 / scale ** 2;
  const integer = Math.round(square);
  const isRoot = integer > 1 && Math.abs(square / integer - 1) < 1e-5;
  return isRoot ? ` / √${integer}` : factorInWords(scale);
}

function keyText({ selection }: Table, key: number): string {
  return quotedAt(selection.keys.text, key);
}

/**
 * Return the subtitle: stack, layer, head, number and order of dimensions, precision of weights.
 */
export function subtitleOf(table: Table, { sorted }: Dimensions): string {
  const { selection, highlighted, vectors } = table;
  const order =
    sorted && highlighted
      ? `sorted by their share for ${keyText(table, highlighted.key)}`
      : "unsorted";
  const { error, measured } = vectors.header;
  return [
    "neuron view",
    stackName(selection.stack.name),
    `layer ${selection.layer}, head ${selection.head}`,
    `${vectors.headDim} dimensions, ${order}`,
    precision(error, selection.stack) + (measured ? `, measured on ${measured} queries` : ""),
  ]
    .filter(Boolean)
    .join(" · ");
}

/**
 * Return one text for each step of the computation of the logit of an unmasked key: the scaled dot
 * product q·k, the soft cap and the bias. Steps that the layer does not have are omitted.
 */
function stepsInWords({ vectors }: Table, row: Row): string[] {
  const { scale, softcap, has_bias } = vectors.header;
  const steps = [`q·k${scaleInWords(scale)} = ${formatSigned(row.sum)}`];
  if (softcap !== null) {
    steps.push(`capped at ${Number(softcap.toPrecision(4))}: ${formatSigned(row.capped)}`);
  }
  if (has_bias) steps.push(`bias ${formatSigned(row.bias)}, logit ${formatSigned(row.logit)}`);
  return steps;
}

/**
 * Return the sentence below the view: the weight of the highlighted key, the steps to its logit,
 * and the dimensions with the largest shares. If the highlighted key is masked, or if there is none
 * because all displayed keys are masked, the sentence says only this.
 */
export function sentenceOf(table: Table): string {
  const { selection, vectors, highlighted: row, ranking } = table;
  const { token } = selection;
  const query = quotedAt(selection.queries.text, token) + predictingInWords(selection, token);
  if (!row) {
    const why = vectors.header.num_left_out ? "masked or not chosen" : "masked";
    return vectors.header.num_allowed === 0
      ? `${query} attends to nothing: all of its keys are ${why}.`
      : `${query} may not attend to any key that is shown: all of them are ${why}.`;
  }
  const key = keyText(table, row.key);
  if (!row.allowed) return unscoredPairInWords(query, key, row.unscored);
  const named = ranking.slice(0, MAX_NAMED);
  const carried = `dimensions ${named.join(", ")} carry ${formatShare(sumOf(row.shares, named))} of it (by size)`;
  const steps = stepsInWords(table, row).join(", ");
  const gives = `gives ${formatWeight(row.weight)} of its attention to`;
  const { num_allowed: numAllowed, num_left_out: numLeftOut } = vectors.header;
  const verb = numAllowed === 1 && !numLeftOut ? "may attend only to" : gives;
  return `${query} ${verb} ${key}: ${steps}, ${carried}.`;
}

/** Name the gate of the query: "gate 0.43", "gate closed: 0.01", or "" without a gate. */
export function queryGateInWords({ vectors }: Table): string {
  const { gate } = vectors.header;
  if (gate === undefined) return "";
  return `gate ${isClosed(gate) ? "closed: " : ""}${gateText(gate)}`;
}

/** Return sentences that describe the layer's soft cap, bias and sink, and name the absent ones. */
function extrasInWords({ header: { softcap, has_bias, sink } }: Vectors): string[] {
  const cap = softcap === null ? "" : Number(softcap.toPrecision(4));
  const absent = [
    ...(has_bias ? [] : ["bias"]),
    ...(softcap === null ? ["cap"] : []),
    ...(sink ? [] : ["sink"]),
  ];
  return [
    softcap === null ? "" : `The sum is capped: ${cap} × tanh(sum / ${cap}).`,
    has_bias ? "A bias is added." : "",
    sink
      ? `The sink, a learned logit of ${formatSigned(sink.logit)}, takes ${formatWeight(sink.weight)} of the row.`
      : "",
    absent.length > 0 ? `No ${absent.join(", ").replace(/, (?=\w+$)/, " or ")} in this layer.` : "",
  ];
}

/**
 * Return the second caption below the view: how the numbers of a row add up, which dimensions and
 * keys are not shown, which heads have the same keys, and how exact the numbers are.
 */
export function additionOf({ selection, vectors }: Table, { shown, others }: Dimensions): string {
  const { header, keys, weightInRange } = vectors;
  const parts = [
    "The cells of a row add up to the sum beside them. The softmax runs over the rows.",
    ...extrasInWords(vectors),
  ];
  if (others.length > 0) {
    parts.push(
      `The ${shown.length} dimensions with the largest share are shown. The last cell is the sum of the other ${others.length}.`,
    );
  }
  const numKeys = selection.keys.text.length;
  const { num_left_out: numLeftOut = 0, lost = 0 } = header;
  const masked = numKeys - header.num_allowed - numLeftOut;
  const notChosen = numLeftOut > 0 ? `, ${counted(numLeftOut)} not chosen` : "";
  if (masked > 0 || notChosen)
    parts.push(`${counted(masked)} of ${counted(numKeys)} keys are masked${notChosen}.`);
  parts.push(lostInWords([lost]));
  const [start, stop] = keys;
  if (stop - start < numKeys) {
    parts.push(
      `Keys ${start} to ${stop - 1} of ${counted(numKeys)} are shown: ${formatShare(weightInRange)} of the attention.`,
    );
  }
  if (header.num_key_heads < header.num_heads) {
    const group = header.num_heads / header.num_key_heads;
    const others = Array.from({ length: group }, (_, i) => header.key_head * group + i).filter(
      (head) => head !== header.head,
    );
    parts.push(
      `Its keys are those of key head ${header.key_head} of ${header.num_key_heads}, shared with head${others.length > 1 ? "s" : ""} ${others.join(", ")}.`,
    );
  }
  if (header.gate !== undefined) {
    const mean = gateInWords(gateOf(selection.stack, selection));
    const gate = `The gate multiplies the output of this query by ${gateText(header.gate)}`;
    parts.push(`${gate} (mean over dimensions). Over all queries: ${mean}.`);
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
  return parts.filter(Boolean).join(" ");
}

/** Return the text for screen readers: the stack, layer and head, and the sentence below the view. */
export function summaryOf(table: Table): string {
  const { stack, layer, head } = table.selection;
  return `${stackName(stack.name)}. Layer ${layer}, head ${head}. ${sentenceOf(table)}`;
}

/**
 * Describe a cell of a key, for one dimension or for all dimensions without a separate cell:
 * "dimension 25: q +1.30 × k +0.98 × 0.177 = +0.23, 6% of |cells|", or "other 192 dimensions:
 * together +0.41, 20% of |cells|".
 */
function cellInWords({ vectors }: Table, { others, shown }: Dimensions, row: Row, cell: Cell) {
  const dimensions = cell === "others" ? others : shown.slice(cell, cell + 1);
  const sum = formatSigned(sumOf(row.cells, dimensions));
  const share = `${formatShare(sumOf(row.shares, dimensions))} of |cells|`;
  if (cell === "others") return `other ${others.length} dimensions: together ${sum}, ${share}`;
  const dimension = dimensions[0] as number;
  const [q, k] = [vectors.query, row.vector].map((v) => formatSigned(v[dimension] as number));
  return `dimension ${dimension}: q ${q} × k ${k}${factorInWords(vectors.header.scale)} = ${sum}, ${share}`;
}

/**
 * Return the tooltip for the part of the picture under the pointer, or null if no tooltip belongs
 * to this part.
 *
 * @param line line of the table under the pointer, or null for the query above the table. See
 *   `Line`.
 * @param cell cell under the pointer, or null outside of the cells.
 */
export function hintInWords(
  table: Table,
  dimensions: Dimensions,
  line: Line | null,
  cell: Cell | null,
): Pick<Hint, "title" | "rows"> | null {
  const { selection, vectors } = table;
  const { sink, strongest, log_sum_exp } = vectors.header;
  const { token } = selection;
  const keyName = (key: number): string => `${quoted(selection.keys.text[key] ?? "")} (${key})`;
  const query = `${quoted(selection.queries.text[token] ?? "")} (${token})`;
  if (line === null) {
    if (typeof cell !== "number") return null;
    const dimension = dimensions.shown[cell] as number;
    const q = formatSigned(vectors.query[dimension] as number);
    return { title: `${query}, query`, rows: [{ text: `dimension ${dimension}: q ${q}` }] };
  }
  if (line === "elsewhere") {
    const rows = strongest.map(([key, weight]) => ({
      text: `${keyName(key)}  ${formatWeight(weight, 3)}`,
    }));
    return { title: "Strongest of all keys", rows };
  }
  if (line === "sink") {
    const logit = formatSigned(sink?.logit ?? 0);
    const text = `logit ${logit}, weight ${formatWeight(sink?.weight ?? 0, 3)}`;
    return { title: `${query} → sink`, rows: [{ text }] };
  }
  const title = `${query} → ${keyName(line.key)}`;
  if (!line.allowed) return { title, rows: [{ text: unscoredInWords(line.unscored) }] };
  const sum = log_sum_exp ?? 0;
  const power = `${formatSigned(line.logit)} ${sum < 0 ? "+" : "−"} ${formatSigned(Math.abs(sum)).slice(1)}`;
  const weight = `weight e^(${power}) = ${formatWeight(line.weight, 3)}`;
  const steps = [...stepsInWords(table, line), weight].map((text) => ({ text }));
  if (cell === null) return { title, rows: steps };
  const cellRow = { text: cellInWords(table, dimensions, line, cell), meant: true };
  return { title, rows: [cellRow, ...steps] };
}
