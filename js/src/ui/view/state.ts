/**
 * A view's state as signals, kept in step with a widget's traits or with a page's URL.
 *
 * Names are the traits' names in Python, so that one word means one thing on both sides.
 */

import { batch, effect, type Signal, signal } from "@preact/signals";

/** One signal for each field. */
export type Signals<S extends object> = { [K in keyof S]: Signal<S[K]> };

/** The part of anywidget's model that holds traits. */
export interface TraitModel {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  on(event: string, listener: (...args: never[]) => void): void;
  off(event?: string | null, listener?: ((...args: never[]) => void) | null): void;
}

export function makeSignals<S extends object>(values: S): Signals<S> {
  const entries = Object.entries(values).map(([name, value]) => [name, signal(value)]);
  return Object.fromEntries(entries) as Signals<S>;
}

/** Whether two values say the same; arrays by their elements. */
export function same(a: unknown, b: unknown): boolean {
  return Object.is(a, b) || JSON.stringify(a) === JSON.stringify(b);
}

/** The values of all signals, without following them. */
export function valuesOf<S extends object>(signals: Signals<S>): S {
  const entries = Object.entries<Signal<unknown>>(signals as Record<string, Signal<unknown>>);
  return Object.fromEntries(entries.map(([name, each]) => [name, each.peek()])) as S;
}

/** The values of all signals, followed: an effect that reads them runs again when one changes. */
export function follow<S extends object>(signals: Signals<S>): S {
  const entries = Object.entries<Signal<unknown>>(signals as Record<string, Signal<unknown>>);
  return Object.fromEntries(entries.map(([name, each]) => [name, each.value])) as S;
}

/** Sets the fields that are given, all at once. */
export function assign<S extends object>(signals: Signals<S>, values: Partial<S>): void {
  batch(() => {
    for (const name of Object.keys(values) as (keyof S)[]) {
      const target = signals[name];
      const value = values[name] as S[typeof name];
      if (target && value !== undefined && !same(target.peek(), value)) target.value = value;
    }
  });
}

/**
 * Keeps signals and traits in step, both ways, until the abort signal.
 *
 * @param onOutside called before a change that did not come from this view.
 * @param isBehind whether the traits are those of another record than the one that is drawn: what
 *   changes outside then waits.
 * @returns takes what waited.
 */
export function bindModel<S extends object>(
  model: TraitModel,
  signals: Signals<S>,
  ended: AbortSignal,
  onOutside: () => void = () => {},
  isBehind: () => boolean = () => false,
): () => void {
  const names = Object.keys(signals) as (keyof S & string)[];
  const stops: (() => void)[] = [];
  let writing = false;
  // The view shows these in place of the values that wait.
  const waiting = new Map<string, unknown>();
  /** Values of the model that the view has not, without those that the model lacks. */
  const news = (): Partial<S> =>
    Object.fromEntries(
      names
        .map((name) => [name, model.get(name)] as const)
        .filter(([name, value]) => value !== undefined && !same(signals[name].peek(), value)),
    ) as Partial<S>;
  const take = (): void => {
    waiting.clear();
    assign(signals, news());
  };
  take();
  for (const name of names) {
    // All that changed in one message is taken at once: else what is still to be taken would be
    // written back.
    const listener = (): void => {
      if (writing) return;
      const changed = news();
      if (Object.keys(changed).length === 0) return;
      if (isBehind()) {
        for (const each of Object.keys(changed) as (keyof S & string)[])
          if (!waiting.has(each)) waiting.set(each, signals[each].peek());
        return;
      }
      onOutside();
      assign(signals, changed);
    };
    model.on(`change:${name}`, listener as never);
    stops.push(() => model.off(`change:${name}`, listener as never));
  }
  const stop = effect(() => {
    let changed = false;
    writing = true;
    for (const name of names) {
      const value = signals[name].value;
      const before = model.get(name);
      if (before === undefined || same(before, value)) continue;
      if (waiting.has(name) && same(waiting.get(name), value)) continue;
      // A choice that the reader made meanwhile counts.
      waiting.delete(name);
      model.set(name, value);
      changed = true;
    }
    writing = false;
    if (!changed) return;
    try {
      model.save_changes();
    } catch {
      // The kernel is gone; the view goes on with what it has, and says so when it asks for more.
    }
  });
  ended.addEventListener("abort", () => {
    stop();
    for (const each of stops) each();
  });
  return take;
}

/**
 * Which fields a URL fragment contains, and how each is read; a reader gives undefined for nonsense.
 * A value that is `off` is left out where the page opened with it.
 */
export type HashFields<S extends object> = {
  [K in keyof S]?: ((text: string) => S[K] | undefined) & { off?: S[K] };
};

/** A whole number that is not negative. */
export function readIndex(text: string): number | undefined {
  return /^\d{1,9}$/.test(text) ? Number(text) : undefined;
}

/** Whole numbers with commas between; none for an empty text. */
export function readIndices(text: string): number[] | undefined {
  if (text === "") return [];
  const values = text.split(",").map(readIndex);
  return values.every((value) => value !== undefined) ? [...new Set(values)] : undefined;
}

/** An entry of a list: of one with fields their values, in their order. */
function partText(value: unknown): string {
  if (value === null || typeof value !== "object") return String(value);
  const texts = Object.values(value).map((each) => encodeURIComponent(each ?? ""));
  // What parts them may stand in a text.
  return texts.map((each) => each.replaceAll(".", "%2E")).join(".");
}

/** The fields as a URL fragment without its "#"; what is null, or off and was off, is left out. */
export function writeHash<S extends object>(
  values: S,
  fields: HashFields<S>,
  opened: Partial<S> = {},
): string {
  const parts: string[] = [];
  for (const name of Object.keys(fields) as (keyof S & string)[]) {
    const value = values[name];
    if (value === null || value === undefined) continue;
    if (value === false && opened[name] !== true) continue;
    const off = fields[name]?.off;
    if (off !== undefined && same(value, off) && same(opened[name] ?? off, off)) continue;
    const text = Array.isArray(value) ? value.map(partText).join(",") : String(value);
    parts.push(`${name}=${encodeURIComponent(text).replaceAll("%2C", ",")}`);
  }
  return parts.join("&");
}

/** What a URL fragment says; fields that it does not name, or names wrongly, are absent. */
export function readHash<S extends object>(hash: string, fields: HashFields<S>): Partial<S> {
  const values: Partial<S> = {};
  const parameters = new URLSearchParams(hash.replace(/^#/, ""));
  for (const name of Object.keys(fields) as (keyof S & string)[]) {
    const text = parameters.get(name);
    const value = text === null ? undefined : fields[name]?.(text);
    if (value !== undefined) values[name] = value;
  }
  return values;
}
