/**
 * Numbers of records, for widgets in which one record can replace another.
 *
 * The kernel counts the records that a view has shown, from 0. In the browser the names of stacks
 * contain this number if it is not 0, as in "self@1", so that answers about two records are never
 * confused. The kernel and the reader see the names without the number.
 */

/** Trait with the number. */
export const RECORD_NUMBER = "_record_number";

/** Return the name of a stack with the number of its record. */
export function withNumber(name: string, number: number): string {
  return number === 0 ? name : `${name}@${number}`;
}

/** Return the name of a stack without the number of its record. */
export function withoutNumber(name: string): string {
  return name.replace(/@\d+$/, "");
}
