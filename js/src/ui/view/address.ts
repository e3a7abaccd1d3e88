/** A page's address: its fragment says what is shown. */

import { effect } from "@preact/signals";
import {
  assign,
  follow,
  type HashFields,
  readHash,
  type Signals,
  valuesOf,
  writeHash,
} from "./state";

/** Sets signals from the page's address, and writes their changes to it until the abort signal. */
export function bindAddress<S extends object>(
  signals: Signals<S>,
  fields: HashFields<S>,
  ended: AbortSignal,
): void {
  const opened = valuesOf(signals);
  assign(signals, readHash<S>(location.hash, fields));
  // A page that was only opened keeps the address that it was opened with.
  let written: string | null = null;
  const stop = effect(() => {
    const hash = `#${writeHash(follow(signals), fields, opened)}`;
    if (written !== null && hash !== written) {
      try {
        history.replaceState(history.state, "", hash);
      } catch {
        // A page inside an iframe's srcdoc has no address of its own to keep state in.
      }
    }
    written = hash;
  });
  ended.addEventListener("abort", stop);
}
