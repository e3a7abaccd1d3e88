/**
 * Keyboard shortcuts that all views of records share: layers, heads and the token search.
 */

import type { RecordContext } from "../view/define-view";
import { atLayer } from "../view/model-layers";
import { assign } from "../view/state";
import type { Shortcut } from "./keys";

/**
 * Choose only this head if `single` is true. Otherwise add it to the chosen heads, or remove it if
 * it is chosen.
 */
export function chooseHead({ common }: RecordContext, head: number, single: boolean): void {
  // Read the state, not the heads of the last rendering. The second click of a double click may
  // come before the first click is rendered.
  const now = common.heads.peek();
  const toggled = now.includes(head) ? now.filter((other) => other !== head) : [...now, head];
  assign(common, { heads: single ? [head] : toggled });
}

/**
 * Return the shortcuts that choose the layer and the heads.
 *
 * @param choose "head" if the view shows exactly one head, "heads" if it shows any number.
 */
export function recordShortcuts(
  context: RecordContext,
  choose: "head" | "heads" = "heads",
): Shortcut[] {
  const { common, record } = context;
  const single = choose === "head";
  const moveLayer = (by: number) => () => {
    const selection = record.selection.peek();
    if (!selection) return false;
    const { layers, modelLayer } = selection;
    const layer = layers[layers.indexOf(modelLayer) + by];
    if (layer) assign(common, atLayer(selection, layer));
    return true;
  };
  const digit = (head: number) => () => {
    if (!record.selection.peek()?.allHeads.includes(head)) return false;
    chooseHead(context, head, single);
    return true;
  };
  const [previous, next] = [moveLayer(-1), moveLayer(1)];
  const digits = Array.from({ length: 10 }, (_, head) => [String(head), digit(head)]);
  const layers = { "[": previous, PageUp: previous, "]": next, PageDown: next };
  const none = { n: () => assign(common, { heads: [] }) };
  const meaning = single ? "choose a head" : "choose a head, or remove it";
  return [
    ["[ ]", "previous, next layer", layers],
    ["0 … 9", meaning, Object.fromEntries(digits)],
    ...(single ? [] : [["n", "choose no head: show the mean", none] as const]),
  ];
}

/** Return the shortcut that moves the focus to the search field for tokens. */
export function findShortcut({ root }: RecordContext): Shortcut {
  const find = () => root.querySelector<HTMLInputElement>(".av-find input")?.focus();
  return ["f", "find a token, or #number", { f: find }];
}
