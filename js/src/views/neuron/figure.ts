/** Exports of the neuron view: a figure, and a CSV table of all numbers. */

import type { LegendScale } from "../../draw/figure";
import { signColorAt } from "../../ui/colors/color-scales";
import { csvText, roundedUp } from "../../ui/exports/csv";
import { type CaptionInput, scaleInWords } from "./captions";
import type { DrawnTable } from "./marks";
import { headOf, tokenOf } from "./state";
import { halfError, type Row, sumOf } from "./table";

/** Return the legends of two colour scales: that of q and k, and that of their products. */
export function scalesOf({ table, dimensions, palette }: DrawnTable): LegendScale[] {
  const cells = table.cellScale;
  const beyond = (row: Row): boolean =>
    row.allowed && Math.abs(sumOf(row.cells, dimensions.others)) > cells.limit;
  const scaleOf = (name: string, limit: number, hasLarger: boolean): LegendScale => ({
    color: (position) => signColorAt(2 * position - 1, palette),
    // Numbers that exceed the limit have the same colour as the limit.
    labels: hasLarger ? [`≤ −${limit}`, name, `≥ +${limit}`] : [`−${limit}`, name, `+${limit}`],
  });
  return [
    scaleOf("q, k", table.vectorScale.limit, table.vectorScale.beyond),
    scaleOf(
      `q × k${scaleInWords(table.vectors.header.scale)}`,
      cells.limit,
      cells.beyond || table.rows.some(beyond),
    ),
  ];
}

const COLUMNS = [
  "stack",
  "layer",
  "head",
  "query",
  "query_token",
  "key",
  "key_token",
  "quantity",
  "dimension",
  "q",
  "k",
  "scale",
  "value",
];

/**
 * Return a CSV table with one number per row. The column `quantity` says what the number is.
 *
 * A "product" is q x k x scale in one dimension. Each key has its products and their "sum". It also
 * has "capped" if the layer has a soft cap, and "bias" if the layer has a bias. The last rows of a
 * key are "logit" and "weight", or only "masked". At the end, the query has "log_sum_exp", and
 * "sink_logit" and "sink_weight" if its head has a sink.
 */
export function neuronCsv(input: CaptionInput): string {
  const digits = (value: number): number => Number(value.toPrecision(7));
  const { selection, table } = input;
  const { header } = table.vectors;
  const token = tokenOf(selection);
  const start = [
    selection.stack.name,
    selection.layer,
    headOf(selection),
    token,
    selection.queries.text[token] ?? "",
  ];
  const rows: (string | number | null)[][] = [];
  const add = (
    key: number | null,
    quantity: string,
    value: number | null,
    error = 0,
    of: (number | null)[] = [null, null, null, null],
  ): void => {
    const keyText = key === null ? null : (selection.keys.text[key] ?? "");
    const number = value === null ? null : digits(value);
    rows.push([...start, key, keyText, quantity, ...of, number, roundedUp(error)]);
  };
  const rounded = header.logit_error > 0;
  for (const row of table.rows) {
    let sumError = 0;
    row.cells.forEach((cell, dimension) => {
      const [q, k] = [table.query[dimension] as number, row.vector[dimension] as number];
      const error = rounded ? halfError(q, k, header.scale) : 0;
      sumError += error;
      add(row.key, "product", cell, error, [dimension, digits(q), digits(k), digits(header.scale)]);
    });
    // The header's error of the logits also bounds the error of the sum, except if there is a cap
    // between them, if the key is masked, or if the error was measured on a sample of queries.
    if (row.allowed && header.softcap === null && !header.measured) sumError = header.logit_error;
    add(row.key, "sum", row.sum, sumError);
    if (header.softcap !== null) {
      add(row.key, "capped", row.capped, row.allowed ? header.logit_error : sumError);
    }
    if (header.has_bias) add(row.key, "bias", row.bias);
    if (row.allowed) {
      add(row.key, "logit", row.logit, header.logit_error);
      add(row.key, "weight", row.weight, header.error);
    } else add(row.key, "masked", null);
  }
  add(null, "log_sum_exp", header.log_sum_exp, header.logit_error);
  if (header.sink) {
    add(null, "sink_logit", header.sink.logit);
    add(null, "sink_weight", header.sink.weight, header.error);
  }
  const { measured } = header;
  const errors = measured ? [`largest_error_measured_on_${measured}_queries`] : ["largest_error"];
  return csvText([...COLUMNS, ...errors], rows);
}
