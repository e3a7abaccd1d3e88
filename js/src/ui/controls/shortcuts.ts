/** Keyboard shortcuts that all views of records share: layers, heads and the search. */

import type { ViewContext } from "../view/define-view";
import type { RecordState } from "../view/record";
import { assign } from "../view/state";
import { toggleHead } from "./heads";
import type { Shortcut } from "./keys";

/** Return the shortcuts for choosing the layer and the heads of a record. */
export function recordShortcuts<S extends RecordState>(
  { common, record }: ViewContext<S>,
  choose: "head" | "heads" = "heads",
): Shortcut[] {
  const moveLayer = (by: number) => () => {
    const selection = record.selection.peek();
    if (!selection) return false;
    const { layers } = selection.stack;
    const layer = layers[layers.indexOf(selection.layer) + by];
    if (layer !== undefined) assign(common, { layer });
    return true;
  };
  const chooseHead = (head: number) => () => {
    if (!record.selection.peek()?.allHeads.includes(head)) return false;
    assign(common, { heads: choose === "head" ? [head] : toggleHead(common.heads.peek(), head) });
    return true;
  };
  const [previous, next] = [moveLayer(-1), moveLayer(1)];
  const digits = Array.from({ length: 10 }, (_, head) => [String(head), chooseHead(head)]);
  const layers = { "[": previous, PageUp: previous, "]": next, PageDown: next };
  const none = { n: () => assign(common, { heads: [] }) };
  return [
    ["[ ]", "previous, next layer", layers],
    [
      "0 … 9",
      choose === "head" ? "choose a head" : "choose a head, or remove it",
      Object.fromEntries(digits),
    ],
    ...(choose === "head" ? [] : [["n", "choose no head: show the mean", none] as const]),
  ];
}

/** Return the shortcut for focusing the search field. */
export function findShortcut({ root }: Pick<ViewContext<RecordState>, "root">): Shortcut {
  const find = () => root.querySelector<HTMLInputElement>(".av-find input")?.focus();
  return ["f", "find a token, or #number", { f: find }];
}
