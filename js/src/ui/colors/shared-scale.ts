/** Colour scale that several plots share: the same colour means the same number in all of them. */

import { computed, type ReadonlySignal, signal } from "@preact/signals";
import type { Scaling } from "./color-scales";

/**
 * Create a scale for several plots. The returned function takes the name of a plot, and returns the
 * parts of the scale that this plot uses. `scaling` is one signal for all plots. `largest` takes a
 * signal with the largest number of this plot, and returns a signal with the largest number of all
 * plots that have called it.
 */
export function createSharedScale() {
  const scaling = signal<Scaling>("auto");
  const all = signal<Record<string, ReadonlySignal<number>>>({});
  return (name: string) => ({
    scaling,
    largest: (own: ReadonlySignal<number>) => {
      all.value = { ...all.peek(), [name]: own };
      return computed(() => Math.max(...Object.values(all.value).map((plot) => plot.value)));
    },
  });
}

export type SharedScale = ReturnType<ReturnType<typeof createSharedScale>>;
