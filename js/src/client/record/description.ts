/** What a saved record holds, as views know it (`attnviz/server/description.py`). */

import type { Description, StackDescription } from "../protocol";
import { offeredPatterns } from "./patterns";
import type { SavedRecord, SavedStack } from "./record";

/** @param maximum of each stack the largest weight, in their order. */
export function descriptionOf(record: SavedRecord, maximum: readonly number[]): Description {
  const sizes = record.images.map(({ shape }) => ({
    height: shape[0] as number,
    width: shape[1] as number,
  }));
  const file = record.model
    .replaceAll(/[^\p{L}\p{N}_.-]+/gu, "-")
    .slice(0, 80)
    .replaceAll(/^[-._]+|[-._]+$/g, "");
  return {
    model: record.model,
    ...(file && { file }),
    notes: record.notes,
    ...(sizes.length > 0 && { images: sizes }),
    stacks: record.stacks.map((stack, at) => describedStack(stack, maximum[at] as number)),
  };
}

function describedStack(stack: SavedStack, maximum: number): StackDescription {
  const layers = [...stack.layers.values()];
  const { zeros } = stack.lookedThrough;
  const all = layers.every((layer) => layer.heads.length === layer.numHeads);
  return {
    name: stack.name,
    layers: [...stack.layers.keys()],
    heads_per_layer: layers.map((layer) => layer.numHeads),
    ...(!all && { heads: layers.map((layer) => [...layer.heads]) }),
    normalized: stack.normalized,
    ...(stack.signed && { signed: true }),
    ...(stack.measure !== "weight" && { measure: stack.measure }),
    maximum,
    causal: layers.every((layer) => layer.causal),
    vectors: layers.every((layer) => layer.vectors !== null),
    patterns: offeredPatterns(stack),
    ...(zeros?.flat().some(([found]) => found > 0) && { zeros }),
    query_tokens: stack.queries.list,
    key_tokens: stack.keys === stack.queries ? null : stack.keys.list,
  };
}
