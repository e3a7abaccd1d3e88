/**
 * Picture of an earlier choice. A view keeps its last picture while the numbers of a newer choice
 * are loading, or if they never arrive. The controls then show the newer choice, so the frame dims
 * the picture and says what it still shows.
 */

import { computed, type ReadonlySignal, signal } from "@preact/signals";
import type { TokenList } from "../../client/protocol";
import { orderLabel, quoted, stackName } from "../text/captions";
import { isGenerating, type RecordState, type RecordStore, type Selection } from "./record";
import { type Signals, same } from "./state";

/** Describe stack, layer and heads, and the pins of a selection, with one text for each. */
function selectionInWords(selection: Selection): { chosen: string[]; pins: string[] } {
  const { stack, layer, chosen, queries, keys, token, key } = selection;
  const heads = `head${chosen.length > 1 ? "s" : ""} ${chosen.join(", ")}`;
  const pin = (side: string, { text }: TokenList, index: number | null): string =>
    index === null ? `no ${side} pinned` : `${side} ${quoted(text[index] ?? "")} (${index})`;
  return {
    chosen: [
      stackName(stack.name),
      `layer ${layer}`,
      chosen.length === 0 ? "no head chosen" : heads,
    ],
    pins: [pin("query", queries, token), pin("key", keys, key)],
  };
}

interface Choice {
  stack: string;
  chosen: string[];
  pins: string[];
  /** All traits that the reader can change, by name. */
  traits: object;
}

/** Return what differs between two choices in words. Pins are named only if nothing else differs. */
function difference(before: Choice, now: Choice): [string, string] | null {
  for (const part of ["chosen", "pins"] as const) {
    const at = now[part].flatMap((words, i) => (words === before[part][i] ? [] : [i]));
    const [was, wanted] = [before, now].map((choice) => at.map((i) => choice[part][i]).join(", "));
    if (was && wanted) return [was, wanted];
  }
  return null;
}

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
  const shown = signal<Choice | null>(null);
  const now = computed<Choice | null>(() => {
    const selection = record.selection.value;
    if (!selection) return null;
    const { chosen, pins } = selectionInWords(selection);
    const order = `heads by ${orderLabel(state.order.value)}`;
    return {
      stack: selection.stack.name,
      chosen: [...chosen, order],
      pins,
      traits: traits.value,
    };
  });
  const loading = computed(() => !drawn.value || record.loading.value);
  record.live(() => {
    now.value;
    if (loading.value) return undefined;
    // The change may also set `drawn` to false, in an effect that runs after this one.
    const timer = setTimeout(() => {
      shown.value = now.peek();
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
      const [before, wanted] = [shown.value, now.value];
      if (before === null || wanted === null) return "";
      if (!isOld.value) return "The picture stays.";
      const [was, missing] = difference(before, wanted) ?? [
        "the picture before the last change",
        "the new picture",
      ];
      return `Still shown: ${was}. ${missing[0]?.toUpperCase()}${missing.slice(1)} ${verb}.`;
    },
  };
}

export type OldPicture = ReturnType<typeof createOldPicture>;
