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

/** A number with as many digits as tell it from its neighbours of single precision. */
export function shortest(value: number): number {
  for (let digits = 6; digits < 9; digits++) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === Math.fround(value)) return short;
  }
  return Number(value.toPrecision(9));
}

type Rows = readonly (readonly (string | number | null)[])[];

/** Rows as comma-separated values (RFC 4180), the names of the columns first. */
export function csvText(columns: readonly string[], rows: Rows): string {
  return [columns.join(","), ...rows.map((row) => row.map(cell).join(","))].join("\r\n");
}

/** The same with tabs, to be pasted into a spreadsheet. */
export function tabbedText(columns: readonly string[], rows: Rows): string {
  return [columns.join("\t"), ...rows.map((row) => row.map(cell).join("\t"))].join("\n");
}
