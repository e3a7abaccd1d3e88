import { describe, expect, it } from "vitest";
import { orderHeads } from "../../../src/ui/head-grid/order";

describe("the order of heads", () => {
  it.each([
    // Heads without a score are last.
    {
      scores: [0.2, null, 0.9, 0.2],
      minScore: null,
      heads: [2, 0, 3, 1],
      ordered: [0.9, 0.2, 0.2, null],
    },
    { scores: [0.2, null, 0.9, -0.2], minScore: 0, heads: [2, 0], ordered: [0.9, 0.2] },
    { scores: [0.2, 0.5, 0.49, 0], minScore: 0.5, heads: [1], ordered: [0.5] },
  ])("by $scores from $minScore is $heads", ({ scores, minScore, heads, ordered }) => {
    expect(orderHeads([0, 1, 2, 3], scores, minScore)).toEqual({ heads, scores: ordered });
  });
});
