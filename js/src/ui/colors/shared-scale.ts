/** One scale for pictures beside each other, so that the same colour is the same number. */

import { computed, type ReadonlySignal, type Signal, signal } from "@preact/signals";
import type { Scaling } from "./color-scales";

/** What scales of pictures beside each other have in common: where they end. */
export interface SharedScale {
  scaling: Signal<Scaling>;
  /** The largest number that any of the pictures shows, of which this one shows `own`. */
  largest: (own: ReadonlySignal<number>) => ReadonlySignal<number>;
}

/** Scales for pictures by their names; a picture that is made anew takes the place of the old. */
export function createSharedScale(): (name: string) => SharedScale {
  const scaling = signal<Scaling>("auto");
  const all = signal<Record<string, ReadonlySignal<number>>>({});
  return (name) => ({
    scaling,
    largest: (own) => {
      all.value = { ...all.peek(), [name]: own };
      return computed(() => Math.max(...Object.values(all.value).map((each) => each.value)));
    },
  });
}
