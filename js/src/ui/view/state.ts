/**
 * State of a view as signals. They are synchronized with the traits of a widget or with the URL of
 * a page.
 *
 * The fields have the same names as the traits in Python.
 */

import {
  batch,
  computed,
  effect,
  type ReadonlySignal,
  type Signal,
  signal,
  untracked,
} from "@preact/signals";
import type { WidgetModel } from "../../client/kernel";
import type { Kind, Trait } from "../../client/traits";

/**
 * Declarations of the fields of a state: traits of Python, or results that only a page has.
 */
export type Declared<S extends object> = { readonly [K in keyof S]: Trait<unknown> };

/** Return the default values of the fields of a state. */
export function defaultsOf<S extends object>(traits: Declared<S>): S {
  const entries = Object.entries<Trait<unknown>>(traits).map(([name, { value }]) => [name, value]);
  return Object.fromEntries(entries) as S;
}

export type Signals<S extends object> = { [K in keyof S]: Signal<S[K]> };

export function makeSignals<S extends object>(values: S): Signals<S> {
  const entries = Object.entries(values).map(([name, value]) => [name, signal(value)]);
  return Object.fromEntries(entries) as Signals<S>;
}

/** Return whether two values are equal. Arrays and objects are compared by their JSON text. */
export function same(a: unknown, b: unknown): boolean {
  return Object.is(a, b) || JSON.stringify(a) === JSON.stringify(b);
}

/** Return a computed signal that keeps its old value if the new value equals it (see `same`). */
export function computedValue<T>(compute: () => T): ReadonlySignal<T> {
  let last: T;
  return computed(() => {
    const next = compute();
    if (!same(last, next)) last = next;
    return last;
  });
}

/** Return the values of all signals without subscribing to them. */
export function valuesOf<S extends object>(signals: Signals<S>): S {
  return untracked(() => ({ ...follow(signals) }));
}

/**
 * Return an object with the values of signals. Reading a field subscribes to its signal, so that an
 * effect runs again after a change of the fields that it has read.
 */
export function follow<S extends object>(signals: Signals<S>): S {
  const get = (_: object, name: string | symbol) => signals[name as keyof S]?.value;
  return new Proxy(signals, { get }) as unknown as S;
}

/**
 * Set several fields in one batch. Undefined values are ignored. A signal whose value already
 * equals the new one does not change.
 */
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
 * Set the signals to the values of the traits. Then copy each change of a trait to its signal, and
 * each change of a signal to its trait, until `ended` is aborted.
 *
 * @param isBehind returns whether the traits belong to a newer record than the one that the view
 *   shows. While it returns true, no change is copied.
 * @returns a function that sets the signals to the values of the traits.
 */
export function bindModel<S extends object>(
  model: Omit<WidgetModel, "send">,
  signals: Signals<S>,
  ended: AbortSignal,
  isBehind: () => boolean = () => false,
): () => void {
  const names = Object.keys(signals) as (keyof S & string)[];
  let writing = false;
  // The widget may lack traits for some fields of the state. `get` returns undefined for them, and
  // `assign` ignores undefined values.
  const take = (): void =>
    assign(signals, Object.fromEntries(names.map((name) => [name, model.get(name)])) as S);
  // One message may change several traits, with one event for each. Take all traits at the first
  // event. Otherwise, the effect below would write old values of the other traits to the model.
  const listener = (): void => {
    if (!writing && !isBehind()) take();
  };
  take();
  for (const name of names) model.on(`change:${name}`, listener);
  const stop = effect(() => {
    const values = { ...follow(signals) };
    if (isBehind()) return;
    const changed = names.filter((name) => {
      const trait = model.get(name);
      return trait !== undefined && !same(trait, values[name]);
    });
    if (changed.length === 0) return;
    writing = true;
    for (const name of changed) model.set(name, values[name]);
    writing = false;
    try {
      model.save_changes();
    } catch {
      // The kernel is gone. The view keeps working with its data and reports the lost kernel at the
      // next request.
    }
  });
  ended.addEventListener("abort", () => {
    stop();
    for (const name of names) model.off(`change:${name}`, listener);
  });
  return take;
}

/**
 * Parse a value of a trait. Return undefined for invalid text. An empty text is null if the trait can
 * be null.
 */
function readValue({ kind, min, nullable }: Trait<unknown>, text: string): unknown {
  if (text === "" && nullable) return null;
  return kind && readKind(kind, text, min);
}

function readKind(kind: Kind, text: string, min = Number.NEGATIVE_INFINITY): unknown {
  if (kind === "text") return text;
  if (kind === "boolean") return ["false", "true"].includes(text) ? text === "true" : undefined;
  if (typeof kind === "string") {
    const form =
      kind === "number" ? /^-?[\d.]+(e-?\d+)?$/ : kind === "index" ? /^\d{1,9}$/ : /^-?\d{1,9}$/;
    return form.test(text) && Number(text) >= min ? Number(text) : undefined;
  }
  if ("either" in kind)
    return kind.either.map((one) => readKind(one, text)).find((value) => value !== undefined);
  if (!("list" in kind)) return kind.find((word) => word === text);
  const { list, size } = kind;
  const values = text === "" ? [] : text.split(",").map((item) => readKind(list, item, min));
  const isValid = !values.includes(undefined) && (size === undefined || values.length === size);
  return isValid ? values : undefined;
}

/** Names of the traits that the address of a page can have. */
function addressNames<S extends object>(traits: Declared<S>): (keyof S & string)[] {
  const names = Object.keys(traits) as (keyof S & string)[];
  return names.filter((name) => {
    const { kind, address } = traits[name];
    return kind && address !== "never";
  });
}

/**
 * Return the URL fragment, without "#", for the traits that differ from their values when the page
 * opened (`opened`), and for the traits that it always contains.
 */
export function writeHash<S extends object>(
  values: S,
  traits: Declared<S>,
  opened: Partial<S> = {},
): string {
  const parts: string[] = [];
  for (const name of addressNames(traits)) {
    const { value: off, address } = traits[name];
    const value = values[name];
    if (address !== "always" && same(value, opened[name] ?? off)) continue;
    const text = Array.isArray(value) ? value.join(",") : String(value ?? "");
    parts.push(`${name}=${encodeURIComponent(text).replaceAll("%2C", ",")}`);
  }
  return parts.join("&");
}

/** Return the values of the traits that a URL fragment contains, except invalid ones. */
export function readHash<S extends object>(hash: string, traits: Declared<S>): Partial<S> {
  const values: Partial<S> = {};
  const parameters = new URLSearchParams(hash.replace(/^#/, ""));
  for (const name of addressNames(traits)) {
    const text = parameters.get(name);
    const trait = traits[name];
    const value = text === null ? undefined : readValue(trait, text);
    if (value !== undefined) values[name] = value as S[typeof name];
  }
  return values;
}

/**
 * Set signals from the URL fragment of a page. Then write each change of the signals to the
 * fragment, until `ended` is aborted.
 */
export function bindAddress<S extends object>(
  signals: Signals<S>,
  traits: Declared<S>,
  ended: AbortSignal,
): void {
  const opened = valuesOf(signals);
  assign(signals, readHash<S>(location.hash, traits));
  // Fragment after the previous run of the effect. It is null in the first run, which must not
  // change the address with which the page was opened.
  let written: string | null = null;
  const stop = effect(() => {
    const hash = `#${writeHash(follow(signals), traits, opened)}`;
    if (written !== null && hash !== written) {
      try {
        history.replaceState(history.state, "", hash);
      } catch {
        // The page is in the srcdoc of an iframe, so it has no URL that can store state.
      }
    }
    written = hash;
  });
  ended.addEventListener("abort", stop);
}
