/** Tables for spreadsheets and for pandas. */

import { printable } from "../draw/marks";

/** What a spreadsheet would take for the beginning of a formula. */
const BEGINS_FORMULA = /^[=+\-@\t\r]/;

function cell(value: string | number | null): string {
  if (value === null) return "";
  if (typeof value === "number") return String(value);
  // An apostrophe makes it text: nothing may run that came in as data. The token's number stands
  // beside it, so that nothing is lost.
  const text = BEGINS_FORMULA.test(value) ? `'${value}` : value;
  return `"${printable(text).replaceAll('"', '""')}"`;
}

/** An error rounded up to one digit, so that it stays a bound. */
export function roundedUp(error: number): number {
  if (!(error > 0)) return 0;
  const power = 10 ** Math.floor(Math.log10(error));
  return Number((Math.ceil(error / power - 1e-9) * power).toPrecision(1));
}

/** A weight with no more digits than it is exact to. */
export function roundedTo(value: number, error: number): number {
  return error > 0 ? Math.round(value * 1e4) / 1e4 : Number(value.toPrecision(7));
}

/** Rows as comma-separated values (RFC 4180), the names of the columns first. */
export function csvText(
  columns: readonly string[],
  rows: readonly (readonly (string | number | null)[])[],
): string {
  return [columns.join(","), ...rows.map((row) => row.map(cell).join(","))].join("\r\n");
}
