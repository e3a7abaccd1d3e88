/** Exports of the neuron view: legends of a figure, and a CSV table of the numbers. */

import type { LegendScale } from "../../draw/figure";
import { rampOf } from "../../ui/colors/color-scales";
import { csvText, roundedUp } from "../../ui/text/csv";
import { scaleInWords } from "./captions";
import type { DrawnTable } from "./marks";
import { halfError, sumOf, type Table } from "./table";

/** Return the legends of two colour scales: one for q and k, and one for their products. */
export function scalesOf({ table, dimensions, palette }: DrawnTable): LegendScale[] {
  const { vectors, rows, vectorScale, cellScale } = table;
  const isSharedBeyond = rows.some(
    ({ allowed, cells }) => allowed && Math.abs(sumOf(cells, dimensions.others)) > cellScale.limit,
  );
  const scaleOf = (name: string, limit: number, beyond: boolean): LegendScale => ({
    color: rampOf(palette),
    // Numbers that exceed the limit have the same colour as the limit.
    labels: beyond ? [`≤ −${limit}`, name, `≥ +${limit}`] : [`−${limit}`, name, `+${limit}`],
  });
  const product = `q × k${scaleInWords(vectors.header.scale)}`;
  return [
    scaleOf("q, k", vectorScale.limit, vectorScale.beyond),
    scaleOf(product, cellScale.limit, cellScale.beyond || isSharedBeyond),
  ];
}

const TOKEN_COLUMNS = ["stack", "layer", "head", "query", "query_token", "key", "key_token"];
const NUMBER_COLUMNS = ["quantity", "dimension", "q", "k", "scale", "value"];

/**
 * Return a CSV table with one number per row. The column `quantity` says what the number is.
 *
 * Each displayed key has a row "product" for q x k x scale in each dimension, a row "sum" for the
 * sum of these products, a row "capped" if the layer has a soft cap, and a row "bias" if the layer
 * has a bias. Its last rows are "logit" and "weight", or only "masked" if the query may not attend
 * to the key, or only "not chosen" if the model did not choose it. Rows without a key follow:
 * "log_sum_exp" and, if the head has a sink, "sink_logit" and "sink_weight". If the gate of the query
 * is known, the last row is "gate".
 */
export function neuronCsv({ selection, vectors, rows: keys }: Table): string {
  const { error, logit_error, measured, scale, softcap, has_bias, sink, log_sum_exp, gate } =
    vectors.header;
  const { stack, layer, head, token, queries } = selection;
  const start = [stack.name, layer, head, token, queries.text[token] ?? ""];
  const digits = (value: number): number => Number(value.toPrecision(7));
  const rows: (string | number | null)[][] = [];
  const add = (
    key: number | null,
    quantity: string,
    value: number | null,
    largestError = 0,
    product: (number | null)[] = [null, null, null, null],
  ): void => {
    const keyText = key === null ? null : (selection.keys.text[key] ?? "");
    const number = value === null ? null : digits(value);
    rows.push([...start, key, keyText, quantity, ...product, number, roundedUp(largestError)]);
  };
  for (const { key, allowed, vector, cells, ...row } of keys) {
    let sumError = 0;
    cells.forEach((cell, dimension) => {
      const [q, k] = [vectors.query[dimension] as number, vector[dimension] as number];
      const cellError = logit_error > 0 ? halfError(q, k, scale) : 0;
      sumError += cellError;
      add(key, "product", cell, cellError, [dimension, ...[q, k, scale].map(digits)]);
    });
    // `logit_error` also bounds the error of the sum, except if the layer has a soft cap, if the
    // key is masked, or if the error was measured on a sample of queries. In these cases, the
    // errors of the products are added.
    if (allowed && softcap === null && !measured) sumError = logit_error;
    add(key, "sum", row.sum, sumError);
    if (softcap !== null) add(key, "capped", row.capped, allowed ? logit_error : sumError);
    if (has_bias) add(key, "bias", row.bias);
    if (allowed) {
      add(key, "logit", row.logit, logit_error);
      add(key, "weight", row.weight, error);
    } else add(key, row.unscored, null);
  }
  add(null, "log_sum_exp", log_sum_exp, logit_error);
  if (sink) {
    add(null, "sink_logit", sink.logit);
    add(null, "sink_weight", sink.weight, error);
  }
  if (gate !== undefined) add(null, "gate", gate);
  const bound = measured ? `largest_error_measured_on_${measured}_queries` : "largest_error";
  return csvText([...TOKEN_COLUMNS, ...NUMBER_COLUMNS, bound], rows);
}
