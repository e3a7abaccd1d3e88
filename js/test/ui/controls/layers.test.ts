// @vitest-environment node
import { describe, expect, it } from "vitest";
import { layerForKey } from "../../../src/ui/controls/layers";

describe("keys for layers", () => {
  const at = (layer: number) => ({ stack: { layers: [0, 5, 11] }, layer });

  it("select existing layers, and stop at the last", () => {
    expect(["PageUp", "["].map((key) => layerForKey(key, at(5)))).toEqual([0, 0]);
    expect(["PageDown", "]"].map((key) => layerForKey(key, at(5)))).toEqual([11, 11]);
    expect(layerForKey("[", at(0))).toBe(0);
    expect(layerForKey("]", at(11))).toBe(11);
  });

  it("exclude all other keys", () => {
    expect(["ArrowUp", "n", "5", ""].map((key) => layerForKey(key, at(5)))).toEqual([
      null,
      null,
      null,
      null,
    ]);
  });
});
