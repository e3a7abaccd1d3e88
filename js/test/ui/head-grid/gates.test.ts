// @vitest-environment node

import { describe, expect, it } from "vitest";
import { PALETTES } from "../../../src/ui/colors/palette";
import {
  gateInWords,
  gateOf,
  gatesInWords,
  isClosed,
  mapInk,
} from "../../../src/ui/head-grid/gates";
import { sentences, stackOf } from "../../builders";

// Layer 5 has no gate, and the gate of head 3 in layer 7 is not known.
const GATES = [[0.5, 0.12, 1.742, 0.01], null, [0.3, -0.004, 0.001, null]];
const STACK = stackOf({ layers: [2, 5, 7], heads_per_layer: [4, 4, 4], gates: GATES });

describe("gates", () => {
  sentences({
    "mean gate 0.12": gateInWords(0.12),
    "mean gate −0.30": gateInWords(-0.3),
    "gate closed: mean 0.01": gateInWords(0.01),
    "gate closed: mean −0.004": gateInWords(-0.004),
    " Mean gate 0.12.": gatesInWords(STACK, 2, [1]),
    " Gate closed: mean 0.01.": gatesInWords(STACK, 2, [3]),
    " Mean gates 0.12 to 1.74.": gatesInWords(STACK, 2, [0, 1, 2]),
    " Mean gates 0.01 to 0.12, closed in head 3.": gatesInWords(STACK, 2, [3, 1]),
    " Mean gates −0.004 to 0.30, closed in heads 1, 2.": gatesInWords(STACK, 7, [0, 1, 2, 3]),
  });

  it("are not named where they are not known", () => {
    expect(gateOf(STACK, { layer: 7, head: 3 })).toBeNull();
    expect(gateInWords(null)).toBe("");
    expect(gatesInWords(STACK, 5, [0, 1])).toBe("");
    expect(gatesInWords(stackOf(), 0, [0])).toBe("");
  });

  it("are closed if they are near 0, on either side", () => {
    expect([0.0499, -0.0499, 0].map(isClosed)).toEqual([true, true, true]);
    expect([0.0501, -0.0501, null].map(isClosed)).toEqual([false, false, false]);
  });

  it("make the map of a closed head grey", () => {
    const ink = (head: number) => mapInk(STACK, { layer: 2, head }, "#ff0000", PALETTES.light);
    expect([ink(0), ink(3)]).toEqual(["#ff0000", "#babdc2"]);
  });
});
