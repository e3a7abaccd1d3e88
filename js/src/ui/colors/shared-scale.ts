/** Colour scale that several plots share: the same colour means the same number in all of them. */

import { computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import type { Scaling } from "./color-scales";

/** Shared scale, as one of the plots uses it. */
export interface SharedScale {
  scaling: Signal<Scaling>;
  /** Register `own`, the largest number of this plot. Return the largest number of all plots. */
  largest: (own: ReadonlySignal<number>) => ReadonlySignal<number>;
}

/**
 * Return a function that returns the shared scale for the plot with the given name. Calling
 * `largest` registers the plot and replaces an earlier plot of the same name.
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
