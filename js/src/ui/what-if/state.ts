/**
 * Changes of the attention that a reader can choose, and their descriptions. One of them cuts an
 * edge, which is a query and a key: the query no longer attends to the key.
 */

import { quoted } from "../text/captions";
import type { Selection } from "../view/record";
import { same } from "../view/state";
import { baseName, type Change, type CutChange } from "./changed-run";

/** Heads in which an edge is cut: one head, all heads of the layer, or all heads of the stack. */
export type Reach = "head" | "layer" | "all";

/**
 * Return the changes that the reader can choose with the current pins and heads. `edge` cuts the
 * pinned edge, and is null unless a query and a key are pinned. `head` ablates the shown head, and
 * is null unless exactly one head is shown. `token` hides the pinned key from all queries, and is
 * null unless a key is pinned.
 */
export function offeredAt(selection: Selection) {
  const { layer, token, key, heads } = selection;
  const head = heads.length === 1 ? (heads[0] as number) : null;
  const stack = baseName(selection.stack);
  // The order of the fields is the same as in Python, because changes are compared as JSON.
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
    /** Heads in which the edge can be cut. The choice with the fewest heads comes first. */
    reaches: (head === null ? ["layer", "all"] : ["head", "layer", "all"]) as Reach[],
    head: head === null ? null : ({ kind: "Ablate", stack, layers: layer, heads: head } as const),
    token: key === null ? null : ({ kind: "HideTokens", ...everywhere, tokens: key } as const),
  };
}

/**
 * Return the changes with `one` at the end, which is not listed twice. Cutting an edge before the
 * softmax replaces cutting the same edge after the softmax, and vice versa.
 */
export function withChange(changes: readonly Change[], one: Change): Change[] {
  const target = (change: Change): object => ({ ...change, renormalize: null });
  return [...changes.filter((other) => !same(target(other), target(one))), one];
}

/**
 * Explain why the shown heads have the same weights as in the unchanged run. Return "" if the
 * weights may differ.
 */
export function whyUnchanged(changes: readonly Change[], selection: Selection): string {
  const { layer, heads } = selection;
  const { layers } = selection.stack;
  const stackKey = baseName(selection.stack);
  // For layers of different stacks, the order in which they run is unknown.
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
