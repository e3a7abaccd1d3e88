import { signal } from "@preact/signals";
import { describe, expect, it } from "vitest";
import type { ReadRequest, StackDescription } from "../../../src/client/protocol";
import type { Source } from "../../../src/client/source";
import { PALETTES } from "../../../src/ui/colors/palette";
import { createSharedScale } from "../../../src/ui/colors/shared-scale";
import { layerGrid } from "../../../src/ui/head-grid/grid";
import { formatSmall } from "../../../src/ui/text/captions";
import { layersOf } from "../../../src/ui/view/model-layers";
import { selectionOf } from "../../../src/ui/view/record";
import {
  coverageOf,
  openingInWords,
  sentenceOf,
  signed,
} from "../../../src/views/compare/captions";
import { cellMarks } from "../../../src/views/compare/marks";
import { loadMoved, movedIn } from "../../../src/views/compare/moved";
import {
  type CompareSelection,
  compareSelection,
  describedOnce,
} from "../../../src/views/compare/state";
import { withGaps } from "../../../src/views/compare/store";
import { sentences, stackOf } from "../../builders";

const TOKENS = { text: ["it", "doctor", "nurse"], special: [], sequence: [0, 0, 0] };

function stack(name: string): StackDescription {
  return stackOf({
    name,
    layers: [0, 2],
    heads_per_layer: [2, 3],
    query_tokens: TOKENS,
    patterns: ["previous token"],
  });
}

/** Comparison of three records: the distances of heads from the first record, and their errors. */
const COMPARED = {
  names: ["first", "second", "third"],
  stacks: {
    self: {
      members: ["self: first", "self: second", "self: third"],
      ...{ differences: [null, null, null], sampled: null, missing: [] },
      distances: [
        null,
        [
          [0.1, 0.0004],
          [0.3, null, 0.2],
        ],
        [
          [0.01, 0],
          [0.02, 0.5, 0.4],
        ],
      ],
      rounding: [
        null,
        [
          [0.001, 0.001],
          [0.001, null, null],
        ],
        null,
      ],
    },
  },
};
const DESCRIPTION = {
  model: "tiny",
  notes: [],
  stacks: [stack("self: first"), stack("self: second"), stack("self: third")],
} as never;

function at(
  changes: Partial<Parameters<typeof selectionOf>[1]> = {},
  member = 1,
): CompareSelection {
  const once = describedOnce(DESCRIPTION, COMPARED, 1);
  const state = { stack: "self", layer: 2, heads: [0], token: null, key: null, ...changes };
  return compareSelection(selectionOf(once, state), {
    comparison: COMPARED,
    member,
  }) as CompareSelection;
}

/** Return a selection whose pinned query 0 is missing in the first of the compared records. */
function missing(): CompareSelection {
  const selection = at({ token: 0 });
  const members = [
    { queries: [0], keys: [0] },
    { queries: [], keys: [] },
  ];
  return { ...selection, compared: { ...selection.compared, missing: members } };
}

describe("the selection", () => {
  it("falls back to a member and to the head with the largest distance", () => {
    expect(at({}, 9).member).toBe(2);
    expect(at({}, 0).member).toBe(1);
    expect(at({ heads: [] }, 2).head).toBe(1);
    expect(at({ heads: [2, 1] }).head).toBe(2);
    expect(compareSelection(at(), { comparison: { names: [], stacks: {} }, member: 1 })).toBeNull();
  });
});

it("a token that one member does not have is faint only in the pane of that member", () => {
  const selection = missing();
  const faintIn = (name: "a" | "b" | "difference") => {
    const { queries, keys } = withGaps(selection, selection, name);
    return [queries.special, keys.special];
  };
  expect(faintIn("a")).toEqual([[0], [0]]);
  expect(faintIn("b")).toEqual([[], []]);
  expect(faintIn("difference")).toEqual([[], []]);
});

describe("what moved", () => {
  const rowsOfMembers: Record<string, number[][]> = {
    a: [
      [1, 0],
      [0.5, 0.5],
      [0, 1],
    ],
    b: [
      [0.5, 0.5],
      [0.25, 0.75],
      [1, 0],
    ],
  };
  const sourceOf = (members: Record<string, number[][]>, error = 0): Source =>
    ({
      block: async ({ stack, rows: [first, stop] }: ReadRequest) => ({
        matrices: [Float32Array.from((members[stack] ?? []).slice(first, stop).flat())],
        error,
      }),
    }) as unknown as Source;
  const question = {
    ...{ a: "a", b: "b", difference: null as string | null, layer: 0, head: 0, numQueries: 3 },
    ...{ numKeys: 2, missing: [] as number[], token: null as number | null },
  };
  const { signal: ended } = new AbortController();
  const load = (changed: Partial<typeof question>, source = sourceOf(rowsOfMembers)) =>
    loadMoved(source, { ...question, ...changed }, ended);

  it("is half of the absolute changes, with the keys that lost and gained most", () => {
    const from = { key: 0, change: -0.25 };
    const to = { key: 2, change: 0.25 };
    expect(movedIn(Float32Array.of(-0.25, 0, 0.25))).toEqual({ total: 0.25, from, to });
    // Key 0 lost 0.25, and no key gained: a learned sink has the weight. Then `to` is null.
    expect(movedIn(Float32Array.of(-0.25, 0))).toEqual({ total: 0.25, from, to: null });
  });

  it("belongs to the pinned query, or to the one that changed most in both members", async () => {
    const second = { query: 1, most: false, total: 0.25 };
    const changes = { from: { key: 0, change: -0.25 }, to: { key: 1, change: 0.25 } };
    expect(await load({ token: 1 })).toEqual({ ...second, ...changes });
    expect(await load({ token: 1, missing: [1] })).toBeNull();
    expect(await load({})).toMatchObject({ query: 2, most: true, total: 1 });
    expect(await load({ missing: [2] })).toMatchObject({ query: 0, total: 0.5 });
    expect(await load({ token: 1, missing: [0] })).toMatchObject(second);
  });

  it("equals the picture of the difference if members are rounded", async () => {
    const a = [[0.54, 0.1]];
    const b = [[0.09, 0.55]];
    const rounded = sourceOf({ "b − a": [[-0.44, 0.44]], a, b }, 0.004);
    const changeOf = async (difference: string | null) =>
      (await load({ token: 0, difference }, rounded))?.from?.change;
    expect(await changeOf("b − a")).toBeCloseTo(-0.44, 6);
    expect(await changeOf(null)).toBeCloseTo(-0.45, 6);
  });

  it("is found by the sum of changes in a long text", async () => {
    const numQueries = 700;
    const asked: unknown[] = [];
    // Each row has one key, its weight, and two sums.
    const values = new Float32Array(4 * numQueries);
    values[4 * 600 + 2] = 0.9;
    values[4 * 650 + 2] = 1.5;
    const long = {
      read: async ({ reduce, rows }: ReadRequest) => {
        asked.push([reduce?.kind, rows]);
        return [{ values, rows: numQueries, columns: 4 }];
      },
      block: async ({ rows, stack }: ReadRequest) => {
        asked.push([stack, rows]);
        return { matrices: [Float32Array.of(-0.5, 0.5, ...new Array(698).fill(0))], error: 0 };
      },
    } as unknown as Source;
    const sizes = { numQueries, numKeys: numQueries, missing: [650], difference: "b − a" };
    const moved = await load(sizes, long);
    expect(moved).toMatchObject({ query: 600, most: true, total: 0.5, from: { key: 0 } });
    expect(asked).toEqual([
      ["strongest", [0, numQueries]],
      ["b − a", [600, 601]],
    ]);
  });
});

const MOVED = {
  ...{ query: 0, most: false, total: 0.41 },
  ...{ from: { key: 1, change: -0.41 }, to: { key: 2, change: 0.4 } },
};
/** Layer and head whose distance is smaller than the rounding error. */
const SAME = { layer: 0, heads: [1] };

describe("the main caption", () => {
  const unnormalized = { ...at(), stack: { ...at().stack, normalized: false } };
  sentences({
    "Layer 2, head 0 moved 0.41 of the attention of “it”, the query that changed most in this head, from “doctor” (−0.41) to “nurse” (+0.40).":
      sentenceOf(at(), { ...MOVED, most: true }),
    // A page contains rounded weights, and their changes may add up to more than all attention.
    "Layer 2, head 0 moved 1.00 of the attention of “it” from “doctor” (−1.01) to “nurse” (+1.01).":
      sentenceOf(at(), {
        ...{ ...MOVED, total: 1.01 },
        ...{ from: { key: 1, change: -1.01 }, to: { key: 2, change: 1.01 } },
      }),
    "Layer 0, head 1 is exactly the same in first and third.": sentenceOf(at(SAME, 2), MOVED),
    "Layer 2, head 0: the largest changes of “it” from first to second are “doctor” (−0.41) and “nurse” (+0.40).":
      sentenceOf(unnormalized, MOVED),
    "Layer 2, head 0: the largest change of “it” from first to second is “doctor” (−0.41).":
      sentenceOf(unnormalized, { ...MOVED, to: null }),
    "−0.30 +0.12 −0.0004 1.2e−5 0.25 0": [
      ...[-0.3, 0.12, -0.0004].map(signed),
      ...[0.000012, 0.25, 0].map(formatSmall),
    ].join(" "),
  });

  it.each([
    ["to the attention sink.", sentenceOf(at(), { ...MOVED, to: null })],
    ["rounding alone may cause 0.001", sentenceOf(at(SAME), MOVED)],
    ["only one of first and second has “it” as a query", sentenceOf(missing(), null)],
  ])("contains “%s”", (part, words) => expect(words).toContain(part));
});

describe("the detail caption", () => {
  const grid = layerGrid(layersOf({}, [at().stack]));

  it("counts equal heads, and mentions estimates and excluded queries", () => {
    const selection = at({}, 2);
    expect(coverageOf(selection, grid, ["A note."])).toMatch(/1 head of 5, hatched.* A note\.$/);
    selection.compared = { ...selection.compared, sampled: 64 };
    expect(coverageOf(selection, grid, [])).toContain(
      "estimated from 64 queries of each head, with a standard error of at most 0.063",
    );
    expect(coverageOf(missing(), grid, [])).toContain("Queries without a counterpart are excluded");
  });

  it("defines the distance of ranks", () => {
    const selection = at();
    const stack = { ...selection.stack, measure: "rank", normalized: false };
    const words = coverageOf({ ...selection, stack }, grid, []);
    expect(words).toContain("relative to the absolute numbers of both rows");
  });

  it("mentions the opening head only while it is shown", () => {
    const opening = { stack: "self", layer: 2, head: 0, member: 1, distance: 0.3, rounding: null };
    expect(openingInWords(opening, at())).toBe(
      "Opened at layer 2, head 0, which has the largest distance: 0.30, the mean over queries.",
    );
    expect(openingInWords({ ...opening, rounding: 0.001 }, at())).toContain(
      "head 0, whose distance exceeds its rounding error most: 0.30",
    );
    for (const other of [at({ heads: [2] }), at({}, 2)])
      expect(openingInWords(opening, other)).toBe("");
  });
});

it("the grid hatches heads that do not differ", () => {
  const style = { theme: "light", palette: PALETTES.light, end: 0.5 } as const;
  const kinds = (distance: number | null, rounding: number | null) =>
    cellMarks({ distance, rounding }, { x: 0, y: 0, side: 40 }, style).map(({ kind }) => kind);
  for (const hatched of [kinds(0.001, 0.002), kinds(0, null)])
    expect(new Set(hatched)).toEqual(new Set(["line"]));
  expect(kinds(0.003, 0.002)).toEqual(["rect", "text"]);
  expect(kinds(null, null)).toEqual(["text"]);
});

it("a shared scale covers all pictures, and drops a replaced picture", () => {
  const scaleOf = createSharedScale();
  const first = signal(0.2);
  const largest = scaleOf("a").largest(first);
  scaleOf("b").largest(signal(0.6));
  expect(largest.value).toBe(0.6);
  scaleOf("b").largest(signal(0.1));
  expect(largest.value).toBe(0.2);
  first.value = 0.9;
  expect(largest.value).toBe(0.9);
  // The largest possible numbers of two stacks of linear layers differ.
  scaleOf("a").maximum(signal(1.5));
  expect(scaleOf("b").maximum(signal(1.25)).value).toBe(1.5);
});
