import { describe, expect, it } from "vitest";
import { orderHeads } from "../../../src/ui/head-grid/order";

describe("the order of heads", () => {
  it("is by decreasing score, with heads without a score at the end", () => {
    const ordered = { heads: [2, 0, 3, 1], scores: [0.9, 0.2, 0.2, null] };
    expect(orderHeads([0, 1, 2, 3], [0.2, null, 0.9, 0.2])).toEqual(ordered);
  });
});
