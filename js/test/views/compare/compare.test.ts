import { signal } from "@preact/signals";
import { describe, expect, it } from "vitest";
import type { StackDescription } from "../../../src/client/protocol";
import type { Source } from "../../../src/client/source";
import { PALETTES } from "../../../src/ui/colors/palette";
import { createSharedScale } from "../../../src/ui/colors/shared-scale";
import { layerGrid, offeredHeads } from "../../../src/ui/head-grid/grid";
import { formatSmall } from "../../../src/ui/text/captions";
import { selectionOf } from "../../../src/ui/view/record";
import {
  coverageOf,
  distanceInWords,
  openingInWords,
  sentenceOf,
  signed,
} from "../../../src/views/compare/captions";
import { WITH_NUMBERS } from "../../../src/views/compare/layout";
import { cellMarks } from "../../../src/views/compare/marks";
import { loadMoved, movedIn } from "../../../src/views/compare/moved";
import {
  type CompareSelection,
  compareSelection,
  describedOnce,
} from "../../../src/views/compare/state";
import { withGaps } from "../../../src/views/compare/store";
import { stackOf } from "../../builders";

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

const COMPARED = {
  names: ["first", "second", "third"],
  stacks: {
    self: {
      members: ["self: first", "self: second", "self: third"],
      differences: [null, null, null],
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
      sampled: null,
      missing: [],
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

describe("the selection", () => {
  it("has each stack once, under its own name and without patterns", () => {
    const once = describedOnce(DESCRIPTION, COMPARED, 1);
    expect(once.stacks.map(({ name, patterns }) => [name, patterns])).toEqual([["self", []]]);
  });

  it("falls back to a member and to the head with the largest distance", () => {
    expect(at({}, 9).member).toBe(2);
    expect(at({}, 0).member).toBe(1);
    expect(at({ heads: [] }, 2).head).toBe(1);
    expect(at({ heads: [2, 1] }).head).toBe(2);
    expect(compareSelection(at(), { comparison: { names: [], stacks: {} }, member: 1 })).toBeNull();
  });
});

describe("a token that a member does not have", () => {
  it("is faint only in the pane of that member", () => {
    const now = at();
    now.compared = {
      ...now.compared,
      missing: [
        { queries: [1], keys: [1, 2] },
        { queries: [], keys: [0] },
      ],
    };
    const paleIn = (name: "a" | "b" | "difference") => {
      const { queries, keys } = withGaps(now, now, name);
      return [queries.special, keys.special];
    };
    expect(paleIn("a")).toEqual([[1], [1, 2]]);
    expect(paleIn("b")).toEqual([[], [0]]);
    expect(paleIn("difference")).toEqual([[], []]);
  });
});

describe("what moved", () => {
  it("is half of the absolute changes, with the keys that lost and gained most", () => {
    expect(movedIn(Float32Array.of(-0.25, 0, 0.25))).toEqual({
      total: 0.25,
      from: { key: 0, change: -0.25 },
      to: { key: 2, change: 0.25 },
    });
  });

  it("counts a sink as one more key", () => {
    expect(movedIn(Float32Array.of(-0.5, 0))).toEqual({
      total: 0.5,
      from: { key: 0, change: -0.5 },
      to: null,
    });
  });

  const rows: Record<string, number[][]> = {
    "self: first": [
      [1, 0],
      [0.5, 0.5],
      [0, 1],
    ],
    "self: second": [
      [0.5, 0.5],
      [0.25, 0.75],
      [1, 0],
    ],
  };
  const source = {
    block: async ({ stack, rows: [from, to] }: { stack: string; rows: [number, number] }) => ({
      matrices: [Float32Array.from((rows[stack] as number[][]).slice(from, to).flat())],
      error: 0,
    }),
  } as unknown as Source;
  const question = {
    a: "self: first",
    b: "self: second",
    difference: null as string | null,
    layer: 0,
    head: 0,
    numQueries: 3,
    numKeys: 2,
    missing: [] as number[],
  };
  const { signal: ended } = new AbortController();

  it("belongs to the pinned query, or to the one that changed most", async () => {
    const pinned = await loadMoved(source, { ...question, token: 1 }, ended);
    expect(pinned).toMatchObject({ query: 1, most: false, total: 0.25 });
    const most = await loadMoved(source, { ...question, token: null }, ended);
    expect(most).toMatchObject({ query: 2, most: true, total: 1 });
  });

  it("equals the picture of the difference if members are rounded", async () => {
    const rounded = {
      block: async ({ stack }: { stack: string }) => ({
        matrices: [
          Float32Array.from({ "b − a": [-0.44, 0.44], a: [0.54, 0.1] }[stack] ?? [0.09, 0.55]),
        ],
        error: 0.004,
      }),
    } as unknown as Source;
    const asked = { ...question, a: "a", b: "b", token: 0 };
    const rowMoved = await loadMoved(rounded, { ...asked, difference: "b − a" }, ended);
    expect(rowMoved?.from?.change).toBeCloseTo(-0.44, 6);
    const alone = await loadMoved(rounded, asked, ended);
    expect(alone?.from?.change).toBeCloseTo(-0.45, 6);
  });

  it("ignores queries that only one member has, and long texts", async () => {
    const most = await loadMoved(source, { ...question, token: null, missing: [2] }, ended);
    expect(most).toMatchObject({ query: 0, total: 0.5 });
    const long = { ...question, token: null, numQueries: 1 << 15, numKeys: 1 << 15 };
    expect(await loadMoved(source, long, ended)).toBeNull();
  });

  it("is found by the sum of changes in a long text", async () => {
    const asked: unknown[] = [];
    const numQueries = 700;
    const strongest = { keys: new Int32Array(numQueries), weights: new Float32Array(numQueries) };
    const sums = new Float32Array(3 * numQueries);
    sums[3 * 600] = 0.9;
    sums[3 * 650] = 1.5;
    const long = {
      fetch: async (name: string, request: { rows: [number, number] }) => {
        asked.push([name, request.rows]);
        return [{ ...strongest, sums }];
      },
      block: async ({ rows, stack }: { rows: [number, number]; stack: string }) => {
        asked.push([stack, rows]);
        const row = new Float32Array(numQueries);
        if (stack !== "self: second − first") throw new Error(stack);
        row.set([-0.5, 0.5]);
        return { matrices: [row], error: 0 };
      },
    } as unknown as Source;
    const sizes = { numQueries, numKeys: numQueries, token: null, missing: [650] };
    const most = await loadMoved(
      long,
      { ...question, ...sizes, difference: "self: second − first" },
      ended,
    );
    expect(most).toMatchObject({ query: 600, most: true, total: 0.5, from: { key: 0 } });
    expect(asked).toEqual([
      ["strongest", [0, numQueries]],
      ["self: second − first", [600, 601]],
    ]);
  });
});

describe("the main caption", () => {
  const moved = {
    query: 0,
    most: false,
    total: 0.41,
    from: { key: 1, change: -0.41 },
    to: { key: 2, change: 0.4 },
  };

  it("names both keys and the query", () => {
    expect(sentenceOf(at(), moved)).toBe(
      "Layer 2, head 0 moved 0.41 of the attention of “it” from “doctor” (−0.41) to “nurse” (+0.40).",
    );
    expect(sentenceOf(at(), { ...moved, most: true })).toBe(
      "Layer 2, head 0 moved 0.41 of the attention of “it”, the query that changed most in this head, from “doctor” (−0.41) to “nurse” (+0.40).",
    );
    expect(sentenceOf(at(), { ...moved, to: { key: 2, change: 0.2 } })).toContain(
      "of “it”: the largest part from “doctor” (−0.41), the largest part to “nurse” (+0.20).",
    );
    expect(sentenceOf(at(), { ...moved, to: null })).toContain("to the attention sink.");
  });

  it("treats changes within rounding as no difference", () => {
    const text = sentenceOf(at({ layer: 0, heads: [1] }), moved);
    expect(text).toContain("Layer 0, head 1 does not differ");
    expect(text).toContain("rounding alone may cause 0.001");
    expect(sentenceOf(at({ layer: 0, heads: [1] }, 2), moved)).toBe(
      "Layer 0, head 1 is exactly the same in first and third.",
    );
    expect(sentenceOf(at({ heads: [1] }), moved)).toContain("nothing to compare");
  });

  it("reports a query that only one text has, and what is unknown for a long text", () => {
    const lacks = at({ token: 0 });
    lacks.compared = {
      ...lacks.compared,
      missing: [
        { queries: [0], keys: [0] },
        { queries: [], keys: [] },
      ],
    };
    expect(sentenceOf(lacks, null)).toContain("only one of first and second has “it” as a query");
    expect(sentenceOf(at(), null)).toContain(
      "distance between first and second is 0.30, the mean over queries. Pin a query",
    );
    const grid = layerGrid(lacks.stack, offeredHeads(lacks.stack, null));
    expect(coverageOf(lacks, grid, [])).toContain("Queries without a counterpart are excluded");
  });

  it("lists changes if rows do not sum to one", () => {
    const selection = at();
    selection.stack = { ...selection.stack, normalized: false };
    expect(sentenceOf(selection, moved)).toBe(
      "Layer 2, head 0: the largest changes of “it” from first to second are “doctor” (−0.41) and “nurse” (+0.40).",
    );
  });

  it("writes signed numbers, and small numbers in full", () => {
    expect([signed(-0.3), signed(0.12), signed(-0.0004)]).toEqual(["−0.30", "+0.12", "−0.0004"]);
    expect([formatSmall(0.000012), formatSmall(0.25), formatSmall(0)]).toEqual([
      "1.2e−5",
      "0.25",
      "0",
    ]);
  });
});

describe("the detail caption", () => {
  const grid = layerGrid(at().stack, offeredHeads(at().stack, null));

  it("counts equal heads, and mentions estimates", () => {
    expect(coverageOf(at(), grid, [])).toContain("1 head of 5, hatched, differs by no more");
    const selection = at({}, 2);
    expect(coverageOf(selection, grid, ["A note."])).toMatch(/1 head of 5, hatched.* A note\.$/);
    selection.compared = { ...selection.compared, sampled: 64 };
    expect(coverageOf(selection, grid, [])).toContain(
      "estimated from 64 queries of each head, with a standard error of at most 0.063",
    );
  });

  it("describes each head", () => {
    expect(distanceInWords(at(), { layer: 2, head: 0 })).toBe(
      "distance 0.30; rounding alone: up to 0.001",
    );
    expect(distanceInWords(at(), { layer: 2, head: 1 })).toBe("nothing to compare");
    expect(distanceInWords(at(), { layer: 0, head: 1 })).toBe(
      "no difference: 0.0004; rounding alone: up to 0.001",
    );
    expect(distanceInWords(at({}, 2), { layer: 0, head: 1 })).toBe(
      "no difference: exactly the same",
    );
  });

  it("mentions the opening head only while it is shown", () => {
    const opening = { stack: "self", layer: 2, head: 0, member: 1, distance: 0.3, rounding: null };
    expect(openingInWords(opening, at())).toContain("Opened at layer 2, head 0");
    expect(openingInWords(opening, at({ heads: [2] }))).toBe("");
    expect(openingInWords(opening, at({}, 2))).toBe("");
    expect(openingInWords(null, at())).toBe("");
  });
});

describe("the grid", () => {
  const style = { theme: "light", palette: PALETTES.light, end: 0.5 } as const;
  const kinds = (distance: number | null, rounding: number | null, side = 40) =>
    cellMarks({ distance, rounding }, 0, 0, side, style).map(({ kind }) => kind);

  it("hatches heads that do not differ", () => {
    expect(new Set(kinds(0.001, 0.002))).toEqual(new Set(["line"]));
    expect(new Set(kinds(0, null))).toEqual(new Set(["line"]));
    expect(kinds(0.003, 0.002)).toEqual(["rect", "text"]);
    expect(kinds(0.3, null, WITH_NUMBERS - 1)).toEqual(["rect"]);
    expect(kinds(null, null)).toEqual(["text"]);
    const lines = cellMarks({ distance: 0, rounding: 0 }, 10, 20, 40, style);
    for (const mark of lines) {
      if (mark.kind !== "line") continue;
      expect(Math.min(mark.x0, mark.x1)).toBeGreaterThanOrEqual(10);
      expect(Math.max(mark.y0, mark.y1)).toBeLessThanOrEqual(60);
    }
  });
});

describe("a shared scale", () => {
  it("covers all pictures, and drops a replaced picture", () => {
    const of = createSharedScale();
    const [a, b] = [signal(0.2), signal(0.6)];
    const largest = of("a").largest(a);
    of("b").largest(b);
    expect(largest.value).toBe(0.6);
    of("b").largest(signal(0.1));
    expect(largest.value).toBe(0.2);
    a.value = 0.9;
    expect(largest.value).toBe(0.9);
  });
});
