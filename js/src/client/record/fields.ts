/** Reads what JSON has in a file that anyone may have written: what is not as it must be is refused. */

/** A file that cannot be shown, with the reason in words. */
export class RefusedFile extends Error {}

/** @throws RefusedFile that says what is wrong with the file, and what to do. */
export function damaged(reason: string): never {
  throw new RefusedFile(
    `This file is damaged: ${reason}. Copy it again, or save the record again with ` +
      'record.save("x.safetensors").',
  );
}

/** What is shown of a text that a file has, in an error. */
export function quoted(value: unknown): string {
  const text = String(JSON.stringify(value) ?? value);
  return text.length > 60 ? `${text.slice(0, 59)}…` : text;
}

/** Names and values. */
export type Fields = Readonly<Record<string, unknown>>;

export function fieldsOf(value: unknown, name: string): Fields {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    return damaged(`${name} has no names and values`);
  }
  // Without what every object inherits: a file may name a field "constructor".
  return Object.assign(Object.create(null), value) as Fields;
}

export function listOf(value: unknown, name: string): readonly unknown[] {
  return Array.isArray(value) ? value : damaged(`${name} is not a list`);
}

export function textOf(value: unknown, name: string): string {
  return typeof value === "string" ? value : damaged(`${name} is not a text`);
}

export function flagOf(value: unknown, name: string): boolean {
  return typeof value === "boolean" ? value : damaged(`${name} is neither true nor false`);
}

/** A whole number, from `least` on. */
export function wholeOf(value: unknown, name: string, least = 0): number {
  const fits = typeof value === "number" && Number.isSafeInteger(value) && value >= least;
  return fits ? value : damaged(`${name} is ${quoted(value)}, not a whole number from ${least} on`);
}

export function finiteOf(value: unknown, name: string): number {
  const fits = typeof value === "number" && Number.isFinite(value);
  return fits ? value : damaged(`${name} is ${quoted(value)}, not a number`);
}

/** What `read` gives, or null for null. */
export function orNull<T>(value: unknown, read: (value: unknown) => T): T | null {
  return value === null ? null : read(value);
}
