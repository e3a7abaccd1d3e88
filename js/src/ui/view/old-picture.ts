/**
 * Picture of an earlier choice. A view keeps its last picture while the numbers of a newer choice
 * are loading, or if they never arrive. The controls then show the newer choice, so the frame dims
 * the picture and says what it still shows.
 */

import { computed, type ReadonlySignal, signal } from "@preact/signals";
import { isGenerating, type RecordState, type RecordStore } from "./record";
import { type Signals, same } from "./state";

/**
 * Track what the picture of a view shows.
 *
 * @param traits all traits that the reader can change.
 * @param drawn whether the picture that the controls describe is drawn (see `setDrawn` in
 *   `define-view.tsx`).
 * @param keeps whether the view keeps the previous picture while it is not.
 */
export function createOldPicture(
  record: Pick<RecordStore, "selection" | "loading" | "live">,
  state: Signals<RecordState>,
  traits: ReadonlySignal<object>,
  drawn: ReadonlySignal<boolean>,
  keeps: ReadonlySignal<boolean>,
) {
  const now = computed(() => {
    const selection = record.selection.value;
    return selection && { stack: selection.stack.name, traits: traits.value };
  });
  const shown = signal<typeof now.value>(null);
  const loading = computed(() => !drawn.value || record.loading.value);
  record.live(() => {
    const current = now.value;
    if (loading.value) return undefined;
    // The change may also set `drawn` to false, in an effect that runs after this one.
    const timer = setTimeout(() => {
      shown.value = current;
    });
    return () => clearTimeout(timer);
  });
  const isOld = computed(
    () =>
      loading.value &&
      (keeps.value || record.loading.value) &&
      shown.value !== null &&
      !isGenerating(state) &&
      !same(shown.value, now.value),
  );
  return {
    /** Whether the picture belongs to an earlier choice than the controls. */
    isOld,
    /**
     * Return a sentence about the picture that remains without an answer of the kernel, or "" if
     * nothing was drawn yet. `verb` is what the missing numbers did not do.
     */
    inWords: (verb: "did not arrive" | "has not arrived"): string => {
      if (shown.value === null || now.value === null) return "";
      if (!isOld.value) return "The picture stays.";
      return `Still shown: the picture before the last change. The new picture ${verb}.`;
    },
  };
}

export type OldPicture = ReturnType<typeof createOldPicture>;
