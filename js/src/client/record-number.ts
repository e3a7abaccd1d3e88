/**
 * Numbers of records, for widgets in which one record can replace another.
 *
 * The kernel numbers the records that a view has shown, beginning with 0. In the browser, the names
 * of stacks contain this number unless it is 0, as in "self@1". This distinguishes answers about
 * different records. Names in messages to the kernel, and names that readers see, do not contain
 * the number.
 */

/** Trait that contains the number of the current record. */
export const RECORD_NUMBER = "_record_number";

/** Return the name of a stack with the number of its record, or the name if the number is 0. */
export function withNumber(name: string, number: number): string {
  return number === 0 ? name : `${name}@${number}`;
}

/** Return the name of a stack without the number of its record. */
export function withoutNumber(name: string): string {
  return name.replace(/@\d+$/, "");
}
