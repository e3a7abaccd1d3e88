/**
 * A record that takes another's place in a widget, and how answers about the two are told apart.
 *
 * The kernel counts the records that a view has shown, from 0. From the second on the number is part
 * of a stack's name in the browser, "self@1": what is known of one record never passes for another's,
 * and what is drawn stays until the next has come. The kernel and the reader do not see it.
 */

/** The trait that has the number. */
export const RECORD_NUMBER = "_record_number";

/** A stack's name with the number of its record. */
export function withNumber(name: string, number: number): string {
  return number === 0 ? name : `${name}@${number}`;
}

/** A stack's name, whatever record it is of. */
export function withoutNumber(name: string): string {
  return name.replace(/@\d+$/, "");
}
