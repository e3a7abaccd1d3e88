// @vitest-environment node

import { describe, expect, it } from "vitest";
import type { Description } from "../../../src/client/protocol";
import {
  atLayer,
  firstSiblings,
  layerText,
  otherListsInWords,
} from "../../../src/ui/view/model-layers";
import { selectionOf } from "../../../src/ui/view/record";
import { stackOf, tokensOf } from "../../builders";

const query_tokens = tokensOf(["a", "b"]);
const SELF = stackOf({ layers: [1, 3], heads_per_layer: [2, 2], query_tokens });
const LINEAR = stackOf({
  ...{ name: "linear", layers: [0, 1, 2], heads_per_layer: [3, 3, 3], query_tokens },
  ...{ normalized: false, signed: true, measure: "linear weight" },
});
const VISION = stackOf({ name: "vision", query_tokens: tokensOf(["p"]) });
const siblings = [
  [
    { name: "self", linear: false },
    { name: "linear", linear: true },
  ],
];
const HYBRID: Description = { model: "m", notes: [], stacks: [SELF, LINEAR, VISION], siblings };

const at = (stack: string, layer: number, heads: number[] = []) =>
  selectionOf(HYBRID, { stack, layer, heads, token: null, key: null });

describe("the layers of a hybrid model", () => {
  const ALL = ["0 · linear", "1", "1 · linear", "2 · linear", "3"];

  it.each(["self", "linear"])("are in the order of the model, from the stack %s", (stack) => {
    expect(at(stack, 1).layers.map(layerText)).toEqual(ALL);
    expect(layerText(at(stack, 1).modelLayer)).toBe(stack === "self" ? "1" : "1 · linear");
  });

  it("do not include other tokens", () => {
    expect(at("vision", 0).layers.map(layerText)).toEqual(["0"]);
    expect(firstSiblings(HYBRID)).toEqual([SELF, VISION]);
  });

  it("are named if a list of heads lacks them", () => {
    const sentence = "Heads of stack “linear” have a separate list: choose this stack.";
    expect(otherListsInWords(at("self", 1), ": choose this stack")).toBe(sentence);
    expect(otherListsInWords(at("linear", 1))).toContain("stack “self-attention” have");
    expect(otherListsInWords(at("vision", 0))).toBe("");
  });

  it("keep their kinds in a changed run", () => {
    const after = { ...LINEAR, name: "linear · after: cut", of: "linear" };
    const changed = { ...HYBRID, stacks: [SELF, after, VISION] };
    const selection = selectionOf(changed, { ...at("linear", 2), stack: "linear" });
    expect(selection.stack).toBe(after);
    expect(selection.layers.map(layerText)).toEqual(ALL);
  });

  it("are those of a sibling if the stack lacks the layer", () => {
    // A link of the field "layer" alone leaves the stack as it was.
    expect(at("self", 2).modelLayer).toEqual({ stack: LINEAR, layer: 2, kind: "linear" });
    expect(at("linear", 3).stack).toBe(SELF);
    expect([at("self", 9).stack, at("self", 9).layer]).toEqual([SELF, 1]);
    expect(at("vision", 2).stack).toBe(VISION);
    // Both stacks have layer 1, so a choice names the stack.
    expect(atLayer(at("self", 2), { stack: LINEAR, layer: 1 })).toEqual({
      ...{ stack: "linear", layer: 1 },
    });
  });

  it("change the stack", () => {
    const from = at("self", 3, [1]);
    expect(atLayer(at("vision", 0), { stack: VISION, layer: 1 })).toEqual({ layer: 1 });
    expect(atLayer(from, { stack: LINEAR, layer: 2 })).toEqual({ stack: "linear", layer: 2 });
    // All heads stay all heads.
    const all = at("self", 3, [0, 1]);
    expect(atLayer(all, { stack: LINEAR, layer: 2 }).heads).toEqual([0, 1, 2]);
  });
});
