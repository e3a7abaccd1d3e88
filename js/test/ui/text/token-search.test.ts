// @vitest-environment node
import { describe, expect, it } from "vitest";
import type { TokenList } from "../../../src/client/protocol";
import { findTokens, nextMatch } from "../../../src/ui/text/token-search";

describe("finding", () => {
  const tokens = (text: string[]): TokenList => ({ text, special: [], sequence: [] });
  const texts = Array.from({ length: 131_072 }, (_, index) => `t${index}`);
  const queries = tokens(texts);

  it("searches a complete long text, or finds a token by number", () => {
    const both = { queries, keys: queries };
    expect(findTokens(both, "")).toBeNull();
    expect(findTokens(both, "t13107")?.indices).toEqual([13_107, 131_070, 131_071]);
    expect(findTokens(both, "#65536")).toEqual({ side: "query", indices: [65_536] });
    expect(findTokens(both, "#131072")?.indices).toEqual([]);
  });

  it("starts with the next match", () => {
    expect(nextMatch([3, 50, 90], 10, 1)).toBe(1);
    expect(nextMatch([3, 50, 90], 95, 1)).toBe(0);
    expect(nextMatch([3, 50, 90], 10, -1)).toBe(0);
    expect(nextMatch([3, 50, 90], 0, -1)).toBe(2);
    expect(nextMatch([], 0, 1)).toBe(-1);
  });

  it("searches only the given ranges, such as one sentence of a pair", () => {
    const both = { queries: tokens(["a", "b", "a"]), keys: tokens(["a", "a", "b"]) };
    const within = (from: number, to: number) => ({
      queries: [from, to] as [number, number],
      keys: [from, to] as [number, number],
    });
    expect(findTokens(both, "a", within(1, 3))).toEqual({ side: "query", indices: [2] });
    expect(findTokens(both, "a", within(1, 2))).toEqual({ side: "key", indices: [1] });
    expect(findTokens(both, "#0", within(1, 3))?.indices).toEqual([]);
  });

  it("matches whole tokens in quotes, and a space as a dot", () => {
    const both = { queries: tokens(["·cat", "cats", "##cat"]), keys: tokens([]) };
    expect(findTokens(both, '"cat"')?.indices).toEqual([0, 2]);
    expect(findTokens(both, " CAT")?.indices).toEqual([0]);
  });
});
