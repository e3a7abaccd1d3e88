/**
 * Changes of the attention that a reader can choose, and their descriptions. One of them cuts an
 * edge, which is a query and a key: the query no longer attends to the key.
 */

import type { RequestedChange } from "../../client/protocol";
import { quoted } from "../text/captions";
import type { Selection } from "../view/record";
import { same } from "../view/state";
import { baseName } from "./changed-run";

/** Heads in which an edge is cut: one head, all heads of the layer, or all heads of the stack. */
export type Reach = "head" | "layer" | "all";

/**
 * Changes that the reader can choose at the current selection. A field is null if its change is not
 * possible.
 */
export interface Offered {
  edge: ((reach: Reach, renormalize: boolean) => RequestedChange) | null;
  /** Choices of heads in which an edge can be cut. The smallest choice comes first. */
  reaches: Reach[];
  head: RequestedChange | null;
  token: RequestedChange | null;
}

/** Return the changes that are possible with the pins and the chosen heads. */
export function offeredAt(selection: Selection): Offered {
  const { layer, token, key, heads } = selection;
  const head = heads.length === 1 ? (heads[0] as number) : null;
  // The order of the fields is the same as in Python. Python and this code compare changes as JSON.
  const change = (
    kind: RequestedChange["kind"],
    where: Partial<Pick<RequestedChange, "layer" | "head" | "query" | "key">>,
    renormalize = true,
  ): RequestedChange => ({
    kind,
    stack: baseName(selection.stack),
    layer: where.layer ?? null,
    head: where.head ?? null,
    query: where.query ?? null,
    key: where.key ?? null,
    renormalize,
  });
  const edge = (reach: Reach, renormalize: boolean): RequestedChange =>
    change(
      "knockout",
      {
        layer: reach === "all" ? null : layer,
        head: reach === "head" ? head : null,
        query: token,
        key,
      },
      renormalize,
    );
  return {
    edge: token === null || key === null ? null : edge,
    reaches: head === null ? ["layer", "all"] : ["head", "layer", "all"],
    head: head === null ? null : change("ablate", { layer, head }),
    token: key === null ? null : change("hide", { key }),
  };
}

/**
 * Return the changes with a new one. Cutting an edge before the softmax replaces cutting the same
 * edge after the softmax, and vice versa.
 */
export function withChange(
  changes: readonly RequestedChange[],
  one: RequestedChange,
): RequestedChange[] {
  const edge = ({ renormalize, ...where }: RequestedChange): typeof where => where;
  return [...changes.filter((other) => !same(edge(other), edge(one))), one];
}

/**
 * Explain why the shown heads have the same weights as in the unchanged run. Return "" if the
 * weights may differ.
 */
export function whyUnchanged(changes: readonly RequestedChange[], selection: Selection): string {
  const { layer, heads } = selection;
  const { layers } = selection.stack;
  const stackKey = baseName(selection.stack);
  // For layers of different stacks, the order in which they run is unknown.
  if (changes.length === 0 || changes.some(({ stack }) => stack !== stackKey)) return "";
  const isHere = (change: RequestedChange): boolean =>
    (change.layer === null || change.layer === layer) &&
    (change.head === null || heads.includes(change.head));
  const reaches = (change: RequestedChange): boolean =>
    (change.layer ?? 0) < layer || (change.kind !== "ablate" && isHere(change));
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

export function changeInWords(change: RequestedChange, selection: Selection): string {
  const { kind, layer, head, query, key } = change;
  const sameStack = change.stack === baseName(selection.stack);
  const name = (texts: readonly string[], token: number | null): string =>
    sameStack ? `${quoted(texts[token ?? -1] ?? "")} (${token})` : String(token);
  const of = sameStack ? "" : ` of ${change.stack}`;
  const where =
    layer === null
      ? `all layers${head === null ? "" : `, head ${head}`}`
      : `layer ${layer}${head === null ? "" : `, head ${head}`}`;
  if (kind === "ablate") {
    const named = layer !== null && head !== null;
    return `Without ${named ? `head ${layer}.${head}` : where}${of}`;
  }
  const token = name(selection.keys.text, key);
  if (kind === "hide")
    return `${token} hidden${layer === null && head === null ? "" : `, ${where}`}${of}`;
  const when = change.renormalize ? "before" : "after";
  return `${name(selection.queries.text, query)} to ${token}, ${where}${of}, ${when} the softmax`;
}
