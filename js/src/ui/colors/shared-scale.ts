/** Colour scale that several plots share: the same colour means the same number in all of them. */

import { computed, type ReadonlySignal, signal } from "@preact/signals";

/**
 * Return a function that each plot calls with its name and a signal with its own number. The
 * function returns a signal with the largest number of all plots that have called it.
 */
function largestOfAll() {
  const all = signal<Record<string, ReadonlySignal<number>>>({});
  return (name: string, own: ReadonlySignal<number>): ReadonlySignal<number> => {
    all.value = { ...all.peek(), [name]: own };
    return computed(() => Math.max(...Object.values(all.value).map((plot) => plot.value)));
  };
}

/**
 * Create a scale for several plots. The returned function takes the name of a plot, and returns the
 * parts of the scale that this plot uses. `largest` takes a
 * signal with the largest visible number of this plot, and `maximum` one with its largest possible
 * number. They return signals with the largest of these numbers among all plots.
 */
export function createSharedScale() {
  const [largest, maximum] = [largestOfAll(), largestOfAll()];
  return (name: string) => ({
    largest: (own: ReadonlySignal<number>) => largest(name, own),
    maximum: (own: ReadonlySignal<number>) => maximum(name, own),
  });
}

export type SharedScale = ReturnType<ReturnType<typeof createSharedScale>>;
