/** A page's address: its fragment says what is shown, and the browser's Back takes back a choice. */

import { effect } from "@preact/signals";
import type { History, Values } from "./history";
import { assign, type HashFields, readHash, type Signals, valuesOf, writeHash } from "./state";

/** What an entry of the browser's history says of the view's. */
interface Entry {
  number: number;
  values: Values;
}

/** A browser that has dropped its oldest entries answers no call to go back to them. */
const MOST_WAITING = 1000;

/** Values that no address shows are written after so many milliseconds. */
const WRITE_LATER = 300;

function entryOf(state: unknown): Entry | null {
  const entry = (state as { attnviz?: Entry } | null)?.attnviz;
  return entry && typeof entry.number === "number" ? entry : null;
}

/**
 * Keeps signals and the page's address in step until the abort signal.
 *
 * A page of its own has an entry in the browser's history for each step of the view's. In a frame
 * the entries would be the host's, whose Back would then seem to do nothing: there are none.
 */
export function bindAddress<S extends object>(
  signals: Signals<S>,
  fields: HashFields<S>,
  view: History,
  ended: AbortSignal,
): void {
  const own = window.parent === window;
  const opened = valuesOf(signals);
  const read = (): void => assign(signals, readHash<S>(location.hash, fields));
  const write = (way: "pushState" | "replaceState", hash: string | undefined): void => {
    const { number, values } = view.now.peek();
    try {
      history[way](own ? { attnviz: { number, values } } : history.state, "", hash);
    } catch {
      // A page inside an iframe's srcdoc has no address of its own to keep state in.
    }
  };
  const before = own ? entryOf(history.state) : null;
  // A page that was loaded again is where it was.
  if (before) view.go(before.number, before.values);
  read();
  // A page that was only opened keeps the address that it was opened with.
  if (own) write("replaceState", undefined);

  const hashNow = (): string => {
    const values = view.now.peek().values as Partial<S>;
    return `#${writeHash(values, fields as HashFields<Partial<S>>, opened)}`;
  };
  let asked = Number.NEGATIVE_INFINITY;
  const waiting = (): boolean => performance.now() - asked < MOST_WAITING;
  const travelTo = (number: number, from: number): void => {
    // One at a time: browsers drop all but the last. The rest of the way follows on arrival.
    if (waiting()) return;
    asked = performance.now();
    history.go(number - from);
  };
  const onPopState = (event: PopStateEvent): void => {
    const entry = entryOf(event.state);
    if (!entry) return;
    const ours = waiting();
    asked = Number.NEGATIVE_INFINITY;
    if (!ours) view.go(entry.number, entry.values);
    const { number } = view.now.peek();
    if (entry.number === number) write("replaceState", hashNow());
    else travelTo(number, entry.number);
  };
  const onHashChange = (): void => {
    if (own) {
      if (entryOf(history.state)) return;
      // An address that was typed or followed: the browser has made an entry of it.
      const { number, values } = view.now.peek();
      history.replaceState({ attnviz: { number: number + 1, values } }, "");
    }
    view.outside();
    read();
  };
  window.addEventListener("hashchange", onHashChange, { signal: ended });
  if (own) window.addEventListener("popstate", onPopState, { signal: ended });

  let written: string | null = null;
  let later: ReturnType<typeof setTimeout> | undefined;
  const stop = effect(() => {
    const { number, travelled } = view.now.value;
    const hash = hashNow();
    const at = own ? entryOf(history.state)?.number : undefined;
    clearTimeout(later);
    if (written === null) written = hash;
    else if (at !== undefined && at !== number) {
      if (travelled || number < at) travelTo(number, at);
      else write("pushState", hash);
      written = hash;
    } else if (hash !== written) {
      write("replaceState", hash);
      written = hash;
    } else if (own) {
      // What only a page that is loaded again needs. Browsers refuse a write for each step of a drag.
      later = setTimeout(() => {
        // A window that was closed meanwhile has none.
        const left = globalThis.history;
        if (left && entryOf(left.state)?.number === number) write("replaceState", hash);
      }, WRITE_LATER);
    }
  });
  ended.addEventListener("abort", () => {
    stop();
    clearTimeout(later);
  });
}
