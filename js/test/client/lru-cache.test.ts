// @vitest-environment node
import { describe, expect, it } from "vitest";
import { LruCache } from "../../src/client/lru-cache";

describe("a cache of recent values", () => {
  it("drops the oldest values when it is full, and reports each once", () => {
    const dropped: string[] = [];
    const recent = new LruCache<number>(10, (key) => dropped.push(key));
    recent.set("a", 1, 4);
    recent.set("b", 2, 4);
    expect(recent.get("a")).toBe(1);
    recent.set("c", 3, 4);
    expect(dropped).toEqual(["b"]);
    recent.set("a", 5, 4);
    expect(dropped).toEqual(["b", "a"]);
    expect(recent.get("a")).toBe(5);
    recent.delete("c");
    recent.delete("c");
    // The newest value is kept even if it alone exceeds the limit.
    recent.set("d", 4, 99);
    expect(dropped).toEqual(["b", "a", "c", "a"]);
    expect(["a", "b", "c", "d"].map((key) => recent.get(key))).toEqual([
      undefined,
      undefined,
      undefined,
      4,
    ]);
  });
});
