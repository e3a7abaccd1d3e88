// @vitest-environment node
import { describe, expect, it } from "vitest";
import type { Range } from "../../../src/client/protocol";
import { type Countable, tokenAxis } from "../../../src/ui/axis";
import { findTokens, nextMatch } from "../../../src/ui/text/token-search";
import { tokensOf } from "../../builders";

describe("finding", () => {
  const axisOf = (text: string[]): Countable => tokenAxis("key", tokensOf(text), [0, 1]);
  const long = axisOf(Array.from({ length: 131_072 }, (_, index) => `t${index}`));

  it("searches a complete long text, or finds a token by number", () => {
    const both = { query: long, key: long };
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

  it("searches only tokens that windows can show, such as one sentence of a pair", () => {
    const within = (...extent: Range) => ({
      query: { ...axisOf(["a", "b", "a"]), extent },
      key: { ...axisOf(["a", "a", "b"]), extent },
    });
    expect(findTokens(within(1, 3), "a")).toEqual({ side: "query", indices: [2] });
    expect(findTokens(within(1, 2), "a")).toEqual({ side: "key", indices: [1] });
    expect(findTokens(within(1, 3), "#0")?.indices).toEqual([]);
    // The first token of each side is hidden, and the second is only left out.
    const hidden = { words: "", look: "hidden", flags: Uint8Array.of(1, 0, 0) } as const;
    const struck = { words: "", look: "struck", flags: Uint8Array.of(0, 1, 0) } as const;
    const { query, key } = within(0, 3);
    const exclusions = [hidden, struck];
    const both = { query: { ...query, exclusions }, key: { ...key, exclusions } };
    expect(findTokens(both, "a")).toEqual({ side: "query", indices: [2] });
    expect(findTokens(both, "b")).toEqual({ side: "query", indices: [1] });
  });

  it("matches whole tokens in quotes, and a space as a dot", () => {
    const both = { query: axisOf(["·cat", "cats", "##cat"]), key: axisOf([]) };
    expect(findTokens(both, '"cat"')?.indices).toEqual([0, 2]);
    expect(findTokens(both, " CAT")?.indices).toEqual([0]);
  });
});
