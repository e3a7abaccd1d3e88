// @vitest-environment node
import { describe, expect, it } from "vitest";
import {
  type CaptionInput,
  coverage,
  sentence,
  sumInSight,
  summary,
} from "../../../src/ui/heat-map/captions";
import type { Grid } from "../../../src/ui/heat-map/tiles";
import type { Viewport } from "../../../src/ui/heat-map/viewport";
import { sentences } from "../../builders";
import { viewport } from "./viewports";

function inputOf(values: number[], now: Viewport, more: Partial<CaptionInput> = {}): CaptionInput {
  const grid: Grid = {
    rows: now.rows.cells,
    columns: now.columns.cells,
    values: Float32Array.from(values),
    maximum: now.stack.maximum,
    error: 0,
    missing: 0,
    fine: true,
  };
  return { viewport: now, grid, token: null, key: null, row: null, column: null, ...more };
}

const look = { scale: "linear" as const, end: 1, live: true };
const small = viewport(2);
const FOUR = [0.1, 0.9, 0.7, 0.3];
const line = (token: number, ...values: number[]) => ({
  token,
  window: [0, 2] as [number, number],
  values: Float32Array.from(values),
  error: 0,
});
const row = line(1, 0.2, 0.8);
const far = viewport(1000);
const pooled = inputOf(new Array(far.rows.cells * far.columns.cells).fill(0.25), far);
const part = viewport(4, 4, { query_window: [1, 3], key_window: [0, 2] });
const inPart = inputOf([0.5, 0.25, 0.25, 0], part);

describe("captions", () => {
  sentences({
    "Layer 0, head 1. Strongest: “t0” to “t1”, 0.90.": sentence(inputOf(FOUR, small)),
    "self-attention. Layer 0, head 1. Strongest: “t0” to “t1”, 0.90; “t1” to “t0”, 0.70; “t1” to “t1”, 0.30; “t0” to “t0”, 0.10.":
      summary(inputOf(FOUR, small)),
    "Layer 0, head 1. No weight is in sight.": sentence(inputOf([0, 0, 0, 0], small)),
    // The first token's weight on itself is the largest, so the sentence is about other tokens.
    "Layer 0, head 1. Strongest apart from the first token: “t1” to “t1”, 0.20.": sentence(
      inputOf([1, 0, 0.8, 0.2], small),
    ),
    "Layer 0, head 1. “t1” attends most to “t1”: 0.80.": sentence(
      inputOf(FOUR, small, { token: 1, row }),
    ),
    "Layer 0, head 1. “t0” gets most from “t1”: 0.60.": sentence(
      inputOf(FOUR, small, { key: 0, column: line(0, 0.4, 0.6) }),
    ),
    "Queries 1–2 of 4, keys 0–1 of 4 in sight, where a query’s weights sum to 0.50 on average. Blank: no weight.":
      coverage(inPart, look),
  });

  it.each([
    ["a pin", inputOf(FOUR, small, { token: 1, row }), "Pinned: query “t1” (Esc clears)."],
    [
      "a mask",
      inputOf([1, 0, 0.5, 0.5], viewport(2, 2, {}, { causal: true })),
      "no query attends to later keys",
    ],
    ["pooled cells", pooled, "Each cell is the mean of 2 × 2 weights."],
  ])("describe %s", (_, input, words) => expect(coverage(input, look)).toContain(words));
});

it("sums of a query's weights are unknown if rows need not sum to 1", () => {
  expect(sumInSight(part, inPart.grid)).toBeCloseTo(0.5, 6);
  const stack = { ...part.stack, normalized: false };
  expect(sumInSight({ ...part, stack }, inPart.grid)).toBeNull();
});
