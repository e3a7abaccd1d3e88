/**
 * Changes of the attention that the panel "What if" offers, and their descriptions. An edge is a
 * query and a key. If an edge is cut, the query no longer attends to the key.
 */

import { quoted } from "../text/captions";
import { baseName } from "../view/model-layers";
import type { Selection } from "../view/record";
import { same } from "../view/state";
import type { Change, CutChange } from "./changed-run";

/** Heads in which an edge is cut: one head, all heads of the layer, or all heads of the stack. */
export type Reach = "head" | "layer" | "all";

/**
 * Return the changes that the reader can choose for the current pins and heads.
 *
 * `edge` is a function that returns the change that cuts the pinned edge. It is null if the query
 * or the key is not pinned. `head` is the change that removes the output of the shown head, or null
 * if several heads are shown. `token` is the change that hides the pinned key from all queries, or
 * null if no key is pinned.
 */
export function offeredAt(selection: Selection) {
  const { layer, token, key, heads } = selection;
  const head = heads.length === 1 ? (heads[0] as number) : null;
  const stack = baseName(selection.stack);
  // Use the order of the fields in Python, because changes are compared by their JSON text.
  const edge = (reach: Reach, renormalize: boolean): CutChange => ({
    kind: "Knockout",
    stack,
    layers: reach === "all" ? null : layer,
    heads: reach === "head" ? head : null,
    queries: token,
    keys: key,
    renormalize,
  });
  const everywhere = { stack, layers: null, heads: null };
  return {
    edge: token === null || key === null ? null : edge,
    /**
     * Choices of the heads in which the edge can be cut, beginning with the choice with the fewest
     * heads.
     */
    reaches: (head === null ? ["layer", "all"] : ["head", "layer", "all"]) as Reach[],
    head: head === null ? null : ({ kind: "Ablate", stack, layers: layer, heads: head } as const),
    token: key === null ? null : ({ kind: "HideTokens", ...everywhere, tokens: key } as const),
  };
}

/**
 * Return the changes with `one` at the end. Earlier changes that equal `one`, or that differ from
 * it only in `renormalize`, are removed. For example, cutting an edge before the softmax replaces
 * cutting the same edge after the softmax.
 */
export function withChange(changes: readonly Change[], one: Change): Change[] {
  const target = (change: Change): object => ({ ...change, renormalize: null });
  return [...changes.filter((other) => !same(target(other), target(one))), one];
}

/**
 * Explain to the reader why the shown heads have the same weights as in the unchanged run. Return
 * "" if their weights may differ.
 */
export function whyUnchanged(changes: readonly Change[], selection: Selection): string {
  const { layer, heads } = selection;
  const { layers } = selection.stack;
  const stackKey = baseName(selection.stack);
  // If a change is in another stack, the weights may differ: it is unknown whether the layers of
  // that stack run before the shown layer.
  if (changes.length === 0 || changes.some(({ stack }) => stack !== stackKey)) return "";
  const isHere = (change: Change): boolean =>
    (change.layers === null || change.layers === layer) &&
    (change.heads === null || heads.includes(change.heads));
  const reaches = (change: Change): boolean =>
    (change.layers ?? 0) < layer || (change.kind !== "Ablate" && isHere(change));
  if (changes.some(reaches)) return "";
  const why = changes.some(isHere)
    ? "An ablated head keeps its weights, and only its output is 0"
    : "These weights are computed before the change or parallel to it";
  const where =
    layer === layers.at(-1)
      ? "No later layer is in this view."
      : "Later layers show the effect of the change.";
  return `${why}. The weights are the same as before, and their difference is 0. ${where}`;
}

export function changeInWords(change: Change, selection: Selection): string {
  const { layers: layer, heads: head } = change;
  const sameStack = change.stack === baseName(selection.stack);
  const name = (texts: readonly string[], token: number | null): string => {
    if (token === null) return "all tokens";
    return sameStack ? `${quoted(texts[token] ?? "")} (${token})` : String(token);
  };
  const of = sameStack ? "" : ` of ${change.stack}`;
  const inHead = head === null ? "" : `, head ${head}`;
  const where = (layer === null ? "all layers" : `layer ${layer}`) + inHead;
  if (change.kind === "Ablate") {
    const named = layer !== null && head !== null;
    return `Without ${named ? `head ${layer}.${head}` : where}${of}`;
  }
  if (change.kind === "HideTokens") {
    const hidden = `${name(selection.keys.text, change.tokens)} hidden`;
    return `${hidden}${layer === null && head === null ? "" : `, ${where}`}${of}`;
  }
  const edge = `${name(selection.queries.text, change.queries)} to ${name(selection.keys.text, change.keys)}`;
  return `${edge}, ${where}${of}, ${change.renormalize ? "before" : "after"} the softmax`;
}
