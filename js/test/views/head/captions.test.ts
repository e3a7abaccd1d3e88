// @vitest-environment node

import { describe, expect, it } from "vitest";
import type { StackDescription } from "../../../src/client/protocol";
import type { Pins } from "../../../src/ui/axis";
import {
  formatShare,
  formatWeight,
  precision,
  type Quantity,
  quoted,
  quotedAt,
} from "../../../src/ui/text/captions";
import { fitLabel } from "../../../src/ui/text/labels";
import { selectionOf } from "../../../src/ui/view/record";
import { coverage, sentence } from "../../../src/views/head/captions";
import type { LinePlot } from "../../../src/views/head/line-plot";
import type { LineOptions, Lines } from "../../../src/views/head/lines";
import {
  changesWithStack,
  clipWindow,
  type HeadState,
  type LeaveOut,
  type Plan,
  planOf,
  windowShowing,
} from "../../../src/views/head/state";
import { sentences, stackOf, tokensOf } from "../../builders";
import { HEAD_DEFAULTS } from "../../defaults";
import { plotOf } from "./plots";

const RANKS = { name: "rank", signed: false, maximum: 1 };

/** Return the width of a text with ten pixels per character. */
const measure = (text: string): number => Array.from(text).length * 10;

describe("numbers and labels", () => {
  const repeated = ["the", "animal", "the"];
  sentences({
    // Only the exact shares 0 and 1 are written as 0% and 100%. An error is rounded up.
    "0%,<1%,31%,>99%,100%": [0, 0.001, 0.31, 0.996, 1].map(formatShare).join(),
    "0.00,<0.01,0.01,0.68": [0, 0.004, 0.006, 0.684].map((weight) => formatWeight(weight)).join(),
    "exact,exact to 0.004,exact to 0.02,exact to 0.1,exact to 2": [0, 0.00392, 0.0137, 0.095, 1.2]
      .map((error) => precision(error))
      .join(),
    // Only tokens that occur several times have a position.
    "“the” (0),“animal”,“the” (2)": repeated.map((_, i) => quotedAt(repeated, i)).join(),
    "“aaaaaaaaaaaaaaaaaaaaaaa…”": quoted("a".repeat(30)),
    "⏎,␣,␣": ["\n", " ", ""].map((text) => fitLabel(text, 99, "", measure).text).join(),
  });

  it("are cut in the middle, but never inside a character", () => {
    expect(fitLabel("short", 100, "", measure)).toEqual({ text: "short", width: 50 });
    const cut = fitLabel("antidisestablishmentarianism", 100, "", measure);
    expect(cut).toMatchObject({ text: "antidi…ism", width: 100 });
    const flags = fitLabel("🏳️‍🌈".repeat(9), 60, "", measure).text;
    expect(flags.replaceAll("🏳️‍🌈", "").replace("…", "")).toBe("");
  });
});

describe("requests", () => {
  const tokens = tokensOf(Array.from({ length: 2000 }, (_, index) => `t${index}`));
  const state: HeadState = {
    ...HEAD_DEFAULTS,
    query_window: [1000, 1064],
    key_window: [1000, 1064],
  };
  const planWith = (fields: Partial<StackDescription>, heads: number[]): Plan => {
    const stack = stackOf({ heads_per_layer: [32], query_tokens: tokens, ...fields });
    const record = { model: "", notes: [], stacks: [stack] };
    return planOf(selectionOf(record, { ...state, heads }), state);
  };

  it("load complete rows of one head, and only the window of all 32 heads", () => {
    expect(planWith({}, [0]).columns).toEqual([0, 2000]);
    expect(planWith({}, []).columns).toEqual([1000, 1064]);
  });

  it("are for windows that are clipped to the text, have a limited size, and move to a token", () => {
    expect([100, 101].map((count) => clipWindow(null, count))).toEqual([
      [0, 100],
      [0, 64],
    ]);
    expect(clipWindow([0, 131_072], 131_072)).toEqual([0, 2000]);
    expect(clipWindow([500, 600], 200)).toEqual([199, 200]);
    const plan = planWith({}, [0]);
    const around = [1030, 500, 1999].map((key) => windowShowing(plan, "key", key));
    expect(around).toEqual([
      [1000, 1064],
      [468, 532],
      [1936, 2000],
    ]);
  });

  it("load no keys that a causal mask hides from all queries", () => {
    const plan = planWith({ causal: true }, [0]);
    expect([plan.rows, plan.columns, plan.numReached]).toEqual([[960, 1088], [0, 1088], 1088]);
    // In cross-attention, the positions of queries and keys are not comparable.
    expect(planWith({ causal: true, key_tokens: tokens }, [0]).columns).toEqual([0, 2000]);
  });
});

describe("a query with a single key", () => {
  const heads = [
    [
      [1, 0],
      [0.6, 0.4],
    ],
  ];
  const captioned = (
    pins: Partial<Pins>,
    stack: Partial<StackDescription> = { forced_queries: [0] },
  ) => sentence(plotOf({ heads, stack }, pins));
  sentences({
    "Layer 0, head 0. Strongest apart from the first query: “t1” to “t0”, 0.60.": captioned({}),
    "Layer 0, head 0.": captioned({}, { forced_queries: [0, 1] }),
    "Layer 0, head 0. “t0” may attend only to “t0”.": captioned({ token: 0 }),
    "Layer 0, head 0. “t0” gets most from “t1”: 0.60.": captioned({ key: 0 }),
  });
});

describe("keys that were not scored", () => {
  const stack = { chooses_keys: true };
  const pins = { token: 1, key: 0 };
  const asked = (...heads: number[][][]) => sentence(plotOf({ heads, stack }, pins));
  const [leftOut, scored] = [
    [
      [1, -0],
      [0, 1],
    ],
    [
      [1, -0],
      [0.25, 0.75],
    ],
  ];
  sentences({
    "Layer 0, head 0. “t1” does not attend to “t0”: the key was not chosen, so the softmax did not score it.":
      asked(leftOut),
    "Layer 0, heads 0, 1. “t1” attends to “t0”: 0.25 in head 1, not chosen in head 0.": asked(
      leftOut,
      scored,
    ),
  });
});

describe("the share of the weight that is drawn", () => {
  const EVEN = Array.from({ length: 8 }, () => new Array<number>(8).fill(0.125));
  const shares = {
    ...{ drawn: 0.71, outside: 0, excluded: [0.2] },
  };
  /** Return the caption of a plot with the given options, properties of lines, and pins. */
  const drawn = (
    { leaveOut = [], ...options }: Partial<LineOptions> & { leaveOut?: LeaveOut[] },
    lines: Partial<Lines> = {},
    pins: Partial<Plan> = {},
    quantity: { quantity?: Quantity } = {},
  ): string => {
    const input = { heads: [EVEN], options: { top_k: 3, ...options }, leaveOut };
    const plot = plotOf(input, quantity);
    const numbers = { shares, total: 100, invisibleShare: 0 };
    Object.assign(plot, {
      lines: { ...plot.lines, ...numbers, ...lines },
      plan: { ...plot.plan, ...pins },
    });
    return coverage(plot, true);
  };
  sentences({
    "Top 3 keys per query of at least 0.002 drawn: 71% of the weight.": drawn(
      {},
      { invisibleShare: 0.01 },
    ),
    "All lines drawn: 71% of the weight.": drawn({ top_k: null }),
    "Weights of at least 0.002 drawn: >99% of the weight.": drawn(
      { top_k: null },
      { invisibleShare: 0.0002, shares: { ...shares, drawn: 0.9998, excluded: [0] } },
    ),
    "All lines drawn: 100% of the weight.": drawn(
      { top_k: null },
      { invisibleShare: 0.00005, shares: { ...shares, drawn: 0.99995, excluded: [0] } },
    ),
    "The strongest 20,000 of the top 3 keys per query of at least 0.01 drawn: 71% of the weight.":
      drawn({ threshold: 0.01 }, { invisibleShare: 0.01, total: 394_752 }),
    "Top 3 keys per query drawn: 71% of the weight. Left out: special tokens, 20%; the rest is renormalised. 5% outside the window. Pinned: query “t2” (Esc clears).":
      drawn(
        { leaveOut: ["special"], renormalize: true },
        { shares: { ...shares, outside: 0.05 } },
        { token: 2 },
      ),
    "Best key per query drawn.": drawn({ top_k: 1 }, {}, {}, { quantity: RANKS }),
    "Best 3 keys per query drawn. Pinned: query “t2” (Esc clears).": drawn(
      {},
      {},
      { token: 2 },
      { quantity: RANKS },
    ),
    "Top 3 keys per query drawn: 71% of the weight. Left out: first token, 42%.": drawn(
      { leaveOut: ["first"] },
      { shares: { ...shares, excluded: [0.4172] } },
    ),
  });
});

describe("the sentence below the plot", () => {
  const row = [0.5, 0.1, 0.2, 0.2];
  const heads = [
    [[1, 0, 0, 0], row, row, [0, 0, 0.75, 0.25]],
    [[1, 0, 0, 0], row, row, [0, 0.3, 0.3, 0.4]],
  ];
  const plot = (highlights: Partial<LinePlot & Pins>, stack: Partial<StackDescription> = {}) =>
    sentence(plotOf({ heads, stack }, highlights));
  const ranks = { measure: "rank" };
  sentences({
    "Layer 0, heads 0, 1. “t3” attends most to “t2”: 0.75 in head 0.": plot({ token: 3 }),
    "Layer 0, heads 0, 1. “t1” gets most from “t3”: 0.30 in head 1.": plot({ key: 1 }),
    "Layer 0, heads 0, 1. “t3” attends to “t3”: 0.40 in head 1, 0.25 in head 0.": plot({
      token: 3,
      key: 3,
    }),
    "Layer 0, heads 0, 1. Largest rank from “t3”: to “t2”, 0.75 in head 0.": plot(
      { token: 3 },
      ranks,
    ),
    "Layer 0, heads 0, 1. “t3” to “t3”: rank 0.40 in head 1, 0.25 in head 0.": plot(
      { token: 3, key: 3 },
      ranks,
    ),
    // Heads of an indexer may have other best keys, so no key is named.
    "Layer 0, heads 0, 1.": plot({}, ranks),
    // The strongest line is that of the first token to itself, so the sentence is about other tokens.
    "Layer 0, heads 0, 1. Strongest apart from the first token: “t3” to “t2”, 0.75 in head 0.":
      plot({}),
  });
});

it("the number of keys follows the stack, unless the reader chose another number", () => {
  const [short, long] = [stackOf(), stackOf({ top_k: 3 })];
  const after = (top_k: number | null, from: StackDescription, to: StackDescription) =>
    changesWithStack({ top_k, leave_out: ["first", 2] }, from, to);
  expect(after(null, short, long)).toMatchObject({ top_k: 3, leave_out: ["first"] });
  expect(after(3, long, short)).toMatchObject({ top_k: null, query_window: null });
  expect(after(5, long, short)).not.toHaveProperty("top_k");
});

it("lines to ranks have all keys of the largest rank, such as those of a block", () => {
  const rows = [
    [1, 0, 0, 0],
    [1, 1, 0, 0],
    [0.5, 0.5, 1, 0],
    [1, 1, 0.5, 0.25],
  ];
  const stack = { measure: "rank", normalized: false };
  const plot = plotOf({ heads: [rows], stack, options: { top_k: 1 } });
  expect(plot.lines.drawn.map(({ query, key }) => `${query}${key}`)).toEqual([
    ...["00", "10", "11", "22", "30", "31"],
  ]);
  expect(sentence(plot)).toBe("Layer 0, head 0.");
  expect(coverage(plot, true)).toBe("Best key per query drawn. Keys of equal rank included.");
});
