// @vitest-environment node
import { describe, expect, it } from "vitest";
import {
  type Captioned,
  coverage,
  sentence,
  sumInSight,
  summary,
} from "../../../src/ui/heat-map/captions";
import type { HeatMapState } from "../../../src/ui/heat-map/state";
import type { Grid } from "../../../src/ui/heat-map/tiles";
import type { Viewport } from "../../../src/ui/heat-map/viewport";
import { lostInWords } from "../../../src/ui/text/captions";
import { sentences } from "../../builders";
import { viewport } from "./viewports";

function inputOf(values: number[], now: Viewport, more: Partial<Captioned> = {}): Captioned {
  const grid: Grid = {
    rows: now.axes.query.groups.length,
    columns: now.axes.key.groups.length,
    values: Float32Array.from(values),
    maximum: now.stack.maximum,
    error: 0,
    missing: 0,
    fine: true,
  };
  const none = { query: null, key: null };
  const heatMap = { layout: { viewport: now }, grid, pins: none, lines: none, effects: null };
  return { ...heatMap, scale: "linear", end: 1, queryNumbers: "", ...more };
}

const small = viewport(2);
const ranks = viewport(2, 2, {}, { measure: "rank" });
const causalRanks = viewport(2, 2, {}, { measure: "rank", causal: true });
const WINDOWS: Partial<HeatMapState> = { query_window: [1, 3], key_window: [0, 2] };
const FORCED = { forced_queries: [0] };
const forced = viewport(2, 2, {}, FORCED);
const allForced = viewport(2, 2, {}, { forced_queries: [0, 1] });
const FOUR = [0.1, 0.9, 0.7, 0.3];
const withError = (heatMap: Captioned): Captioned => {
  return { ...heatMap, grid: { ...heatMap.grid, error: 0.004 } };
};
const line = (token: number, ...values: number[]) => ({
  token,
  window: [0, 2] as [number, number],
  values: Float32Array.from(values),
  error: 0,
});
const row = line(1, 0.2, 0.8);
const far = viewport(1000);
const pooled = inputOf(
  new Array(far.axes.query.groups.length * far.axes.key.groups.length).fill(0.25),
  far,
);
const part = viewport(4, 4, WINDOWS);
const inPart = inputOf([0.5, 0.25, 0.25, 0], part);

describe("captions", () => {
  sentences({
    "Layer 0, head 1. Strongest: “t0” to “t1”, 0.90.": sentence(inputOf(FOUR, small)),
    "self-attention. Layer 0, head 1. Strongest: “t0” to “t1”, 0.90.": summary(
      inputOf(FOUR, small),
    ),
    "Layer 0, head 1. No weight is in sight.": sentence(inputOf([0, 0, 0, 0], small)),
    // The first token's weight on itself is the largest, so the sentence is about other tokens.
    "Layer 0, head 1. Strongest apart from the first token: “t1” to “t1”, 0.20.": sentence(
      inputOf([1, 0, 0.8, 0.2], small),
    ),
    "Layer 0, head 1. “t1” attends most to “t1”: 0.80.": sentence(
      inputOf(FOUR, small, { pins: { query: 1, key: null }, lines: { query: row, key: null } }),
    ),
    "Layer 0, head 1. Largest rank from “t1”: to “t1”, 0.80.": sentence(
      inputOf(FOUR, ranks, { pins: { query: 1, key: null }, lines: { query: row, key: null } }),
    ),
    "Layer 0, head 1. “t1” to “t0”: rank 0.20.": sentence(
      inputOf(FOUR, ranks, { pins: { query: 1, key: 0 }, lines: { query: row, key: null } }),
    ),
    "Layer 0, head 1. “t0” gets most from “t1”: 0.60.": sentence(
      inputOf(FOUR, small, {
        pins: { query: null, key: 0 },
        lines: { query: null, key: line(0, 0.4, 0.6) },
      }),
    ),
    "Each cell is one rank. Blank: no rank; no query attends to later keys.": coverage(
      withError(inputOf([1, 0, 0.5, 1], causalRanks)),
      true,
    ),
    // The mask forces the first query to attend to the first key.
    "Layer 0, head 1. Strongest apart from the first query: “t1” to “t0”, 0.70.": sentence(
      inputOf([1, 0, 0.7, 0.3], forced),
    ),
    "Layer 0, head 1. Strongest in sight apart from the first query: “t1” to “t0”, 0.70.": sentence(
      inputOf([1, 0, 0.7, 0.3], viewport(4, 4, { ...WINDOWS, query_window: [0, 2] }, FORCED)),
    ),
    // Each query has a best rank, so none of them is named.
    "Layer 0, head 1., Layer 0, head 1.": [
      inputOf([1, 0, 0, 1], allForced),
      inputOf([0.1, 0.9, 0.7, 0.8], ranks),
    ]
      .map(sentence)
      .join(", "),
    "Layer 0, head 1. “t0” may attend only to “t0”.": sentence(
      inputOf([1, 0, 0.7, 0.3], forced, {
        pins: { query: 0, key: null },
        lines: { query: line(0, 1, 0), key: null },
      }),
    ),
    "Layer 0, head 1. “t0” gets most from “t1”: 0.70.": sentence(
      inputOf([1, 0, 0.7, 0.3], forced, {
        pins: { query: null, key: 0 },
        lines: { query: null, key: line(0, 1, 0.7) },
      }),
    ),
    "Queries “t1 – t2” of 4, keys “t0 – t1” of 4 in sight, where a query’s weights sum to 0.50 on average. Blank: no weight.":
      coverage(inPart, true),
  });

  it.each([
    [
      "a pin",
      inputOf(FOUR, small, { pins: { query: 1, key: null }, lines: { query: row, key: null } }),
      "Pinned: query “t1” (Esc clears).",
    ],
    [
      "a mask",
      inputOf([1, 0, 0.5, 0.5], viewport(2, 2, {}, { causal: true })),
      "no query attends to later keys",
    ],
    ["pooled cells", pooled, "Each cell is the mean of 2 × 2 weights."],
  ])("describe %s", (_, input, words) => expect(coverage(input, true)).toContain(words));
});

describe("keys that were not chosen", () => {
  // Key t0 was not chosen for query t1, and key t1 is masked for query t0.
  const chooses = viewport(2, 2, {}, { chooses_keys: true });
  const lost = lostInWords([0.1, 0.146]);
  const pinned = (query: number, key: number) =>
    inputOf([1, -0, 0, 1], chooses, {
      pins: { query, key },
      lines: { query: query === 1 ? line(1, 0, 1) : line(0, 1, -0), key: null },
    });

  sentences({
    "Layer 0, head 1. “t1” does not attend to “t0”: the key was not chosen, so the softmax did not score it.":
      sentence(pinned(1, 0)),
    "Layer 0, head 1. “t0” may not attend to “t1”: the key is masked.": sentence(pinned(0, 1)),
    "Each cell is one weight. Hatched: keys that were not chosen, so the softmax did not score them. Blank: masked. Keys that were not chosen would have 12.3% of the weight (mean of 2 heads).":
      coverage(inputOf([1, -0, 0, 1], chooses, { queryNumbers: lost }), true),
    "<0.1%": lostInWords([1e-5]).match(/\S+%/)?.[0] ?? "",
    "": lostInWords([0]),
  });
});

it("sums of a query's weights are unknown if rows need not sum to 1", () => {
  expect(sumInSight(part, inPart.grid)).toBeCloseTo(0.5, 6);
  const stack = { ...part.stack, normalized: false };
  expect(sumInSight({ ...part, stack }, inPart.grid)).toBeNull();
});
