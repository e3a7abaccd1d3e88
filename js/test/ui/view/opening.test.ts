// @vitest-environment node
import { expect, it } from "vitest";
import { type Opening, openingInWords } from "../../../src/ui/view/opening";

const opening: Opening = {
  ...{ stack: "self", layer: 3, head: 1, pattern: "previous token" },
  ...{ score: 0.871, baseline: 0.0625, num_queries: 64 },
};
const at = (layer: number, ...chosen: number[]) => ({ stack: { name: "self" }, layer, chosen });

it("names the pattern of the initial head, its score and that of uniform attention", () => {
  expect(openingInWords(opening, at(3, 1))).toBe(
    "Opened at layer 3, head 1, which shows the most distinct pattern: “previous token”, 0.87 of " +
      "the weight where uniform attention has 0.06, estimated from 64 queries.",
  );
});

it("has no words if the user chose the head, and at other heads", () => {
  expect(openingInWords(null, at(3, 1))).toBe("");
  for (const elsewhere of [at(2, 1), at(3, 0), at(3, 1, 2), at(3)])
    expect(openingInWords(opening, elsewhere)).toBe("");
});
