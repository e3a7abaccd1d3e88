/**
 * Layers of a model in its order. Some models have layers of several kinds, for example linear
 * layers and layers with a softmax. The layers of each kind are a stack. Such stacks are siblings:
 * they have the same tokens.
 */

import type { Description, StackDescription } from "../../client/protocol";
import { withoutNumber } from "../../client/record-number";
import { headsOf } from "../../client/source";
import { MAX_DEFAULT_HEADS } from "../../client/traits";
import { stackName } from "../text/captions";

export interface ShownStack extends StackDescription {
  /**
   * Name of the stack of the unchanged run that this stack of a changed run replaces in the view.
   * Undefined if this stack belongs to the unchanged run.
   */
  of?: string;
}

/**
 * Return the name of a stack in the unchanged run, without the number of the record. If the stack
 * belongs to a changed run, this is the name of the stack that it replaces.
 */
export function baseName(stack: StackDescription): string {
  return (stack as ShownStack).of ?? withoutNumber(stack.name);
}

/** Layer of a stack or of one of its siblings. */
export interface ModelLayer {
  stack: StackDescription;
  /** Number of the layer in the model. */
  layer: number;
  /** Name of the stack if its layers are linear and it has siblings, otherwise "". */
  kind: string;
}

/** Return a stack and its siblings, in the order of the description. */
export function siblingsOf(
  { stacks, siblings = [] }: Description,
  stack: StackDescription,
): StackDescription[] {
  const isIn = (one: StackDescription) => (sibling: { name: string }) =>
    sibling.name === baseName(one);
  const group = siblings.find((candidates) => candidates.some(isIn(stack)));
  return group ? stacks.filter((other) => group.some(isIn(other))) : [stack];
}

/** Return one stack of each group of siblings, the first, and all stacks without siblings. */
export function firstSiblings(description: Description): StackDescription[] {
  return description.stacks.filter((stack) => siblingsOf(description, stack)[0] === stack);
}

/** Return the word that distinguishes layers of a stack from those of its siblings, or "". */
export function kindOf(
  { siblings = [] }: Pick<Description, "siblings">,
  stack: StackDescription,
): string {
  const name = baseName(stack);
  return siblings.flat().some((other) => other.name === name && other.linear) ? name : "";
}

/** Return the layers of sibling stacks in the order of the model. */
export function layersOf(
  description: Pick<Description, "siblings">,
  siblings: readonly StackDescription[],
): ModelLayer[] {
  const all = siblings.flatMap((stack) => {
    const kind = kindOf(description, stack);
    return stack.layers.map((layer) => ({ stack, layer, kind }));
  });
  // The sort is stable, so layers with the same number stay in the order of their stacks.
  return all.sort((a, b) => a.layer - b.layer);
}

/**
 * Return a sentence that names the siblings of a stack, for a list of heads that are ordered by a
 * score. Such a list has heads of only one stack. Return "" if the stack has no siblings.
 *
 * @param choose end of the sentence, which says how the reader can see the other heads.
 */
export function otherListsInWords(
  { stack, siblings }: { stack: StackDescription; siblings: readonly StackDescription[] },
  choose = "",
): string {
  const others = siblings.filter((other) => other !== stack);
  const names = others.map((other) => `“${stackName(baseName(other))}”`).join(" and ");
  return names && `Heads of stack ${names} have a separate list${choose}.`;
}

/** Return "3", or "0 · linear" for a linear layer of a model that also has others. */
export function layerText({ layer, kind }: ModelLayer): string {
  return kind ? `${layer} · ${kind}` : String(layer);
}

/** Return the fields that change when the reader chooses a layer, which may be of another stack. */
export function atLayer(
  selection: {
    stack: StackDescription;
    siblings: readonly StackDescription[];
    chosen: number[];
    allHeads: number[];
  },
  { stack, layer }: Pick<ModelLayer, "stack" | "layer">,
): { stack?: string; layer: number; heads?: number[] } {
  const moved = { stack: baseName(stack), layer };
  // Set the stack, too, because the state may name a sibling of it (see `selectionOf`).
  if (stack === selection.stack) return selection.siblings.length > 1 ? moved : { layer };
  if (selection.chosen.length < selection.allHeads.length) return moved;
  const heads = headsOf(stack, layer);
  return { ...moved, heads: heads.length <= MAX_DEFAULT_HEADS ? heads : [] };
}
