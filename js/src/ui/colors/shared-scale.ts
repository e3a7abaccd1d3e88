/** Colour scale that several plots share, so the same colour means the same number. */

import { computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import type { Scaling } from "./color-scales";

/** End of the scale of several plots. */
export interface SharedScale {
  scaling: Signal<Scaling>;
  /** Return the largest number that any plot shows. `own` is the largest number of this plot. */
  largest: (own: ReadonlySignal<number>) => ReadonlySignal<number>;
}

/**
 * Return a function that registers a plot by name and returns its scale. A plot replaces an earlier
 * plot of the same name.
 */
export function createSharedScale(): (name: string) => SharedScale {
  const scaling = signal<Scaling>("auto");
  const all = signal<Record<string, ReadonlySignal<number>>>({});
  return (name) => ({
    scaling,
    largest: (own) => {
      all.value = { ...all.peek(), [name]: own };
      return computed(() =>
        Math.max(...Object.values(all.value).map((largestOf) => largestOf.value)),
      );
    },
  });
}
