/** Address of a page. The URL fragment stores which part of the data is shown. */

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

/**
 * Set signals from the URL fragment. Then write each change of the signals to the fragment, until
 * `ended` is aborted.
 */
export function bindAddress<S extends object>(
  signals: Signals<S>,
  fields: HashFields<S>,
  ended: AbortSignal,
): void {
  const opened = valuesOf(signals);
  assign(signals, readHash<S>(location.hash, fields));
  // The first run of the effect must not change the address with which the page was opened.
  let written: string | null = null;
  const stop = effect(() => {
    const hash = `#${writeHash(follow(signals), fields, opened)}`;
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
