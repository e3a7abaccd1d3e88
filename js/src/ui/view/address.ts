/** URL fragment of a page, which stores what is shown. */

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

/** Set signals from the URL fragment, and write their changes to it until `ended` is aborted. */
export function bindAddress<S extends object>(
  signals: Signals<S>,
  fields: HashFields<S>,
  ended: AbortSignal,
): void {
  const opened = valuesOf(signals);
  assign(signals, readHash<S>(location.hash, fields));
  // The first run must not change the address with which the page was opened.
  let written: string | null = null;
  const stop = effect(() => {
    const hash = `#${writeHash(follow(signals), fields, opened)}`;
    if (written !== null && hash !== written) {
      try {
        history.replaceState(history.state, "", hash);
      } catch {
        // A page in an iframe's srcdoc has no URL that can store state.
      }
    }
    written = hash;
  });
  ended.addEventListener("abort", stop);
}
