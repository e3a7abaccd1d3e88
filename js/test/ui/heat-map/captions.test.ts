// @vitest-environment node
import { describe, expect, it } from "vitest";
import {
  type CaptionInput,
  coverage,
  emptyQueries,
  sentence,
  strongestCells,
  sumInSight,
  summary,
  whatInWords,
} from "../../../src/ui/heat-map/captions";
import type { Grid } from "../../../src/ui/heat-map/tiles";
import type { Viewport } from "../../../src/ui/heat-map/viewport";
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

const TWELVE = Array.from({ length: 12 }, (_, head) => head);

describe("captions", () => {
  const small = viewport(2);

  it("name the shown heads", () => {
    expect(whatInWords({ heads: [3], chosen: [3], allHeads: [0, 1, 2, 3] })).toBe("head 3");
    expect(whatInWords({ heads: [0, 1], chosen: [], allHeads: [0, 1] })).toBe("mean of 2 heads");
    expect(whatInWords({ heads: [1, 7], chosen: [1, 7], allHeads: TWELVE })).toBe(
      "mean of heads 1, 7",
    );
  });

  it("name the largest weight, and five in the summary", () => {
    const now = inputOf([0.1, 0.9, 0.7, 0.3], small);
    expect(sentence(now)).toBe("Layer 0, head 1. Strongest: “t0” to “t1”, 0.90.");
    expect(summary(now)).toBe(
      "self-attention. Layer 0, head 1. Strongest: “t0” to “t1”, 0.90; “t1” to “t0”, 0.70; “t1” to “t1”, 0.30; “t0” to “t0”, 0.10.",
    );
    expect(strongestCells(now.grid, 2).map(({ row, column }) => [row, column])).toEqual([
      [0, 1],
      [1, 0],
    ]);
    expect(sentence(inputOf([0, 0, 0, 0], small))).toBe("Layer 0, head 1. No weight is in sight.");
    // The weight of the first token on itself is not named, because it has little information.
    expect(sentence(inputOf([1, 0, 0.8, 0.2], small))).toBe(
      "Layer 0, head 1. Strongest apart from the first token: “t1” to “t1”, 0.20.",
    );
  });

  it("describe a pin from its own weights", () => {
    const row = {
      token: 1,
      window: [0, 2] as [number, number],
      values: Float32Array.of(0.2, 0.8),
      error: 0,
    };
    const values = [0.1, 0.9, 0.7, 0.3];
    expect(sentence(inputOf(values, small, { token: 1, row }))).toContain(
      "“t1” attends most to “t1”: 0.80.",
    );
    expect(sentence(inputOf(values, small, { token: 1, key: 0, row }))).toContain(
      "“t1” attends to “t0”: 0.20.",
    );
    const column = {
      token: 0,
      window: [0, 2] as [number, number],
      values: Float32Array.of(0.4, 0.6),
      error: 0,
    };
    expect(sentence(inputOf(values, small, { key: 0, column }))).toContain(
      "“t0” gets most from “t1”: 0.60.",
    );
    expect(coverage(inputOf(values, small, { token: 1, row }), look)).toContain(
      "Pinned: query “t1” (Esc clears).",
    );
  });

  it("describe the visible part and its share of the weight", () => {
    const part = viewport(4, 4, { query_window: [1, 3], key_window: [0, 2] });
    const now = inputOf([0.5, 0.25, 0.25, 0], part);
    expect(sumInSight(part, now.grid)).toBeCloseTo(0.5, 6);
    expect(coverage(now, look)).toBe(
      "Queries 1–2 of 4, keys 0–1 of 4 in sight, where a query’s weights sum to 0.50 on average. Blank: no weight.",
    );
    const { stack } = part;
    const other = { ...part, stack: { ...stack, normalized: false } };
    expect(sumInSight(other, now.grid)).toBeNull();
  });

  it("describe pooling, masks and empty rows", () => {
    const causal = viewport(2, 2, {}, { causal: true });
    expect(coverage({ ...inputOf([1, 0, 0.5, 0.5], causal) }, look)).toContain(
      "no query attends to later keys",
    );
    const empty = inputOf([0, 0, 0.5, 0.5], small);
    expect(emptyQueries(small, empty.grid)).toBe(1);
    expect(coverage(empty, look)).toContain("1 query has no weight at all.");
    const far = viewport(1000);
    const cells = far.rows.cells * far.columns.cells;
    const pooled = inputOf(new Array(cells).fill(0.25), far);
    expect(coverage(pooled, look)).toContain("Each cell is the mean of 2 × 2 weights.");
    expect(sentence(pooled)).toContain("Strongest: queries 0 to 1 to keys 0 to 1, mean 0.25.");
    expect(coverage(pooled, { ...look, scale: "log" })).toContain("from 0.0001 on");
  });

  it("name the largest weight that the codec rounds to 0", () => {
    const now = inputOf([0, 1, 1, 1], small);
    now.grid.error = 0.00392;
    expect(coverage(now, look)).toContain("Blank: no weight or less than 0.000004.");
  });
});
