/** Tables as comma-separated values for spreadsheets and pandas. */

import { printable } from "../../draw/marks";

/** Characters with which spreadsheets begin a formula, in ASCII and in full width. */
const BEGINS_FORMULA = /^[=+\-@\t\r\n＝＋－＠]/;

function cell(value: string | number | null): string {
  if (value === null) return "";
  if (typeof value === "number") return String(value);
  // A leading apostrophe makes a spreadsheet read the cell as text, so data never runs as a
  // formula. Readers can find the original text, because tables also have the index of the token.
  const text = BEGINS_FORMULA.test(value) ? `'${value}` : value;
  return `"${printable(text).replaceAll('"', '""')}"`;
}

/**
 * Return a column name as a cell. A name with characters other than letters, digits and "_" may
 * come from data, so it is escaped.
 */
function header(name: string): string {
  return /^\w+$/.test(name) ? name : cell(name);
}

/**
 * Round an error up to one significant digit, so that the result remains an upper bound. Return 0
 * for 0 and NaN.
 */
export function roundedUp(error: number): number {
  if (!(error > 0)) return 0;
  const power = 10 ** Math.floor(Math.log10(error));
  return Number((Math.ceil(error / power - 1e-9) * power).toPrecision(1));
}

/**
 * Return the number of decimals to which a weight with this error is rounded. Below an error of
 * 0.001, this is the decimal of the error's first significant digit plus 2, but at most 15.
 * Otherwise it is 4.
 */
function decimalsOf(error: number): number {
  return error < 1e-3 ? Math.min(15, 2 - Math.floor(Math.log10(error))) : 4;
}

/**
 * Round a weight to the digits that its error justifies. If the error is 0, return the shortest
 * number with the same float32 value.
 */
export function roundedTo(value: number, error: number): number {
  return error > 0 ? Number(value.toFixed(decimalsOf(error))) : shortest(value);
}

/**
 * Return an upper bound of a weight's error after `roundedTo`. `error` is the bound before
 * rounding.
 */
export function writtenError(error: number): number {
  return error > 0 ? roundedUp(error + 0.5 * 10 ** -decimalsOf(error)) : 0;
}

/** Return a number with the fewest digits that give the same float32 value. */
export function shortest(value: number): number {
  for (let digits = 6; digits < 9; digits++) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === Math.fround(value)) return short;
  }
  return Number(value.toPrecision(9));
}

/**
 * Return the name of the column with the numbers of a stack, such as "weight" or, if `before` is
 * "strongest", "strongest_weight".
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
