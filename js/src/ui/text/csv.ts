/** Tables as comma-separated values for spreadsheets and pandas. */

import { printable, withoutIsolates } from "../../draw/marks";

/**
 * Characters that can begin a formula at the start of a spreadsheet's cell. The last four are the
 * full-width forms of =, +, - and @.
 */
const BEGINS_FORMULA = /^[=+\-@\t\r\n＝＋－＠]/;

function cell(value: string | number | null): string {
  if (value === null) return "";
  if (typeof value === "number") return String(value);
  // A leading apostrophe makes a spreadsheet read the cell as text, so that a token never runs as a
  // formula. The index of the token, in another column, identifies its original text.
  const text = BEGINS_FORMULA.test(value) ? `'${value}` : value;
  return `"${printable(withoutIsolates(text)).replaceAll('"', '""')}"`;
}

/**
 * Return the cell for the name of a column. A name with characters other than letters, digits and
 * "_" may come from data, so it is escaped as data are.
 */
function header(name: string): string {
  return /^\w+$/.test(name) ? name : cell(name);
}

/**
 * Round an error up to one significant digit, so that it remains an upper bound. Return 0 for 0 and
 * NaN.
 */
export function roundedUp(error: number): number {
  if (!(error > 0)) return 0;
  const power = 10 ** Math.floor(Math.log10(error));
  return Number((Math.ceil(error / power - 1e-9) * power).toPrecision(1));
}

/**
 * Return the number of decimals with which a weight is written: two more than the position of the
 * first non-zero decimal of its error, such as 6 for 0.0005. It is 4 for errors of 0.001 or more,
 * and at most 15.
 *
 * @param error upper bound of the error of the weight.
 */
function decimalsOf(error: number): number {
  return error < 1e-3 ? Math.min(15, 2 - Math.floor(Math.log10(error))) : 4;
}

/**
 * Round a weight to the decimals that its error allows (see `decimalsOf`). If the error is 0,
 * return the weight with the fewest digits that give the same float32 value.
 */
export function roundedTo(value: number, error: number): number {
  return error > 0 ? Number(value.toFixed(decimalsOf(error))) : shortest(value);
}

/**
 * Return an upper bound of the error of a weight after `roundedTo`.
 *
 * @param error upper bound of the error before `roundedTo`.
 */
export function writtenError(error: number): number {
  return error > 0 ? roundedUp(error + 0.5 * 10 ** -decimalsOf(error)) : 0;
}

/** Round a number to the fewest significant digits that give the same float32 value. */
export function shortest(value: number): number {
  for (let digits = 6; digits < 9; digits++) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === Math.fround(value)) return short;
  }
  return Number(value.toPrecision(9));
}

/**
 * Return the name of a column with the numbers of a stack: `measure`, such as "weight" or
 * "difference". A word `before` precedes it: "strongest_weight".
 */
export function columnName({ measure = "weight" }: { measure?: string }, before = ""): string {
  return `${before} ${measure}`.trim().replaceAll(" ", "_");
}

/** Format a table as comma-separated values (RFC 4180), with the column names in the first line. */
export function csvText(
  columns: readonly string[],
  rows: readonly (readonly (string | number | null)[])[],
): string {
  const lines = [columns.map(header), ...rows.map((row) => row.map(cell))];
  return lines.map((cells) => cells.join(",")).join("\r\n");
}

/**
 * Add a column to a table of `csvText`, with the same value in all rows. If the value is "", return
 * the table unchanged. No cell of the table contains a line break.
 */
export function withColumn(text: string, name: string, value: string): string {
  if (value === "") return text;
  const lines = text.split("\r\n");
  return lines.map((line, i) => `${line},${i === 0 ? name : cell(value)}`).join("\r\n");
}
