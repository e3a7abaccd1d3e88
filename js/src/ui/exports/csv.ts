/** Tables for spreadsheets and for pandas. */

import { printable } from "../../draw/marks";

/** What a spreadsheet would take for the beginning of a formula; some take full-width signs, too. */
const BEGINS_FORMULA = /^[=+\-@\t\r\n＝＋－＠]/;

function cell(value: string | number | null): string {
  if (value === null) return "";
  if (typeof value === "number") return String(value);
  // An apostrophe makes it text: nothing may run that came in as data. The token's number stands
  // beside it, so that nothing is lost.
  const text = BEGINS_FORMULA.test(value) ? `'${value}` : value;
  return `"${printable(text).replaceAll('"', '""')}"`;
}

/** The name of a column. One that is not a plain word may have come in as data. */
function header(name: string): string {
  return /^\w+$/.test(name) ? name : cell(name);
}

/** An error rounded up to one digit, so that it stays a bound. */
export function roundedUp(error: number): number {
  if (!(error > 0)) return 0;
  const power = 10 ** Math.floor(Math.log10(error));
  return Number((Math.ceil(error / power - 1e-9) * power).toPrecision(1));
}

/** Decimals of a weight: rounding it adds little to its error. */
function decimalsOf(error: number): number {
  return error < 1e-3 ? Math.min(15, 2 - Math.floor(Math.log10(error))) : 4;
}

/** A weight with no more digits than it is exact to; an exact one with all that tell it apart. */
export function roundedTo(value: number, error: number): number {
  return error > 0 ? Number(value.toFixed(decimalsOf(error))) : shortest(value);
}

/** How far a weight is off at most as `roundedTo` writes it. */
export function writtenError(error: number): number {
  return error > 0 ? roundedUp(error + 0.5 * 10 ** -decimalsOf(error)) : 0;
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

/** The name of the column with a stack's numbers: what they are, which came in as data. */
export function columnName({ measure = "weight" }: { measure?: string }, before = ""): string {
  return [...(before ? [before] : []), ...measure.split(" ")].join("_");
}

/** Rows as comma-separated values (RFC 4180), the names of the columns first. */
export function csvText(columns: readonly string[], rows: Rows): string {
  return [columns.map(header).join(","), ...rows.map((row) => row.map(cell).join(","))].join(
    "\r\n",
  );
}
