// @vitest-environment node
import { describe, expect, it } from "vitest";
import type { TokenList } from "../../../src/client/protocol";
import { findTokens, nextMatch } from "../../../src/ui/text/token-search";

describe("finding", () => {
  const tokens = (text: string[]): TokenList => ({ text, special: [], sequence: [] });
  const texts = Array.from({ length: 131_072 }, (_, index) => `t${index}`);
  const queries = tokens(texts);

  it("looks through all of a long text, or goes to a number", () => {
    const both = { queries, keys: queries };
    expect(findTokens(both, "")).toBeNull();
    expect(findTokens(both, "t13107")?.indices).toEqual([13_107, 131_070, 131_071]);
    expect(findTokens(both, "#65536")).toEqual({ side: "query", indices: [65_536] });
    expect(findTokens(both, "#131072")?.indices).toEqual([]);
  });

  it("goes to the keys where no query says so", () => {
    const other = { queries: tokens(["a", "b"]), keys: tokens(["x", "B", "y"]) };
    expect(findTokens(other, "y")).toEqual({ side: "key", indices: [2] });
    expect(findTokens(other, "b")).toEqual({ side: "query", indices: [1] });
  });

  it("begins with the match that is nearest on", () => {
    expect(nextMatch([3, 50, 90], 10, 1)).toBe(1);
    expect(nextMatch([3, 50, 90], 95, 1)).toBe(0);
    expect(nextMatch([3, 50, 90], 10, -1)).toBe(0);
    expect(nextMatch([3, 50, 90], 0, -1)).toBe(2);
    expect(nextMatch([], 0, 1)).toBe(-1);
  });

  it("looks no further than it is told to, as in one sentence of a pair", () => {
    const both = { queries: tokens(["a", "b", "a"]), keys: tokens(["a", "a", "b"]) };
    const within = (from: number, to: number) => ({
      queries: [from, to] as [number, number],
      keys: [from, to] as [number, number],
    });
    expect(findTokens(both, "a", within(1, 3))).toEqual({ side: "query", indices: [2] });
    expect(findTokens(both, "a", within(1, 2))).toEqual({ side: "key", indices: [1] });
    expect(findTokens(both, "#0", within(1, 3))?.indices).toEqual([]);
  });

  it("takes whole tokens in quotes, and a space for the dot in its place", () => {
    const both = { queries: tokens(["·cat", "cats", "##cat"]), keys: tokens([]) };
    expect(findTokens(both, '"cat"')?.indices).toEqual([0, 2]);
    expect(findTokens(both, " CAT")?.indices).toEqual([0]);
  });
});
