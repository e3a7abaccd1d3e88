// @vitest-environment node
import { describe, expect, it } from "vitest";
import { hasPair, pairOf, pairRange, textOf } from "../../src/ui/pairs";

const pair = {
  text: ["[CLS]", "a", "b", "[SEP]", "c", "[SEP]"],
  special: [0, 3, 5],
  sequence: [null, 0, 0, null, 1, null],
};
const single = { text: ["a", "b"], special: [], sequence: [0, 0] };

describe("a pair of texts", () => {
  it("exists if both sides have tokens of both texts", () => {
    expect(hasPair({ queries: pair, keys: pair })).toBe(true);
    expect(hasPair({ queries: pair, keys: single })).toBe(false);
    expect(pairOf({ queries: single, keys: single }, "a-b")).toBe("all");
    expect(pairOf({ queries: pair, keys: pair }, "b-a")).toBe("b-a");
  });

  it("has a text of the queries and a text of the keys", () => {
    expect([textOf("a-b", "query"), textOf("a-b", "key")]).toEqual([0, 1]);
    expect([textOf("b-b", "query"), textOf("b-a", "key")]).toEqual([1, 0]);
  });

  it("extends from the first to the last token", () => {
    expect(pairRange(pair, "b-a", "query")).toEqual([4, 5]);
    expect(pairRange(pair, "b-a", "key")).toEqual([1, 3]);
    expect(pairRange(pair, "all", "key")).toEqual([0, 6]);
  });
});
