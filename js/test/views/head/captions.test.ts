// @vitest-environment node

import { describe, expect, it } from "vitest";
import {
  formatShare,
  formatWeight,
  precision,
  quoted,
  quotedAt,
} from "../../../src/ui/text/captions";
import { fitLabel } from "../../../src/ui/text/labels";
import { selectionOf } from "../../../src/ui/view/record";
import { coverage } from "../../../src/views/head/captions";
import { toggleLeaveOut } from "../../../src/views/head/controls";
import { standsUpright } from "../../../src/views/head/layout";
import {
  clipWindow,
  HEAD_DEFAULTS,
  type HeadState,
  isWindowed,
  planOf,
  resizeWindow,
  windowAround,
} from "../../../src/views/head/state";
import { sentences, stackOf } from "../../builders";

/** Return the width of a text with ten pixels per character. */
const measure = (text: string): number => Array.from(text).length * 10;

it("numbers are never rounded to 0% or 100%", () => {
  expect([0, 0.001, 0.31, 0.996, 1].map(formatShare).join()).toBe("0%,<1%,31%,>99%,100%");
  const weights = [0, 0.004, 0.006, 0.684].map((weight) => formatWeight(weight));
  expect(weights.join()).toBe("0.00,<0.01,0.01,0.68");
});

it("tokens have a position if their text occurs several times, and short quotations", () => {
  const texts = ["the", "animal", "the"];
  expect(texts.map((_, index) => quotedAt(texts, index)).join()).toBe(
    "“the” (0),“animal”,“the” (2)",
  );
  expect(quoted("x".repeat(30))).toBe(`“${"x".repeat(23)}…”`);
});

it("a precision is rounded up", () => {
  expect([0, 0.00392, 0.0137, 0.004, 0.095, 1.2].map((error) => precision(error)).join()).toBe(
    "exact,exact to 0.004,exact to 0.02,exact to 0.004,exact to 0.1,exact to 2",
  );
});

describe("labels", () => {
  it("are cut in the middle, but never inside a character", () => {
    expect(fitLabel("short", 100, "", measure)).toEqual({ text: "short", cut: false, width: 50 });
    const cut = fitLabel("antidisestablishmentarianism", 100, "", measure);
    expect(cut).toMatchObject({ text: "antidi…ism", cut: true });
    expect(cut.width).toBeLessThanOrEqual(100);
    const flags = fitLabel("🏳️‍🌈".repeat(9), 60, "", measure).text;
    expect(flags.replaceAll("🏳️‍🌈", "").replace("…", "")).toBe("");
  });

  it("show white space", () => {
    expect(["\n", " ", ""].map((text) => fitLabel(text, 99, "", measure).text).join()).toBe(
      "⏎,␣,␣",
    );
  });

  it("are upright in scripts that allow it", () => {
    expect(["注意", "カタカナ", "한국", "abc", "注a"].filter(standsUpright).join()).toBe(
      "注意,カタカナ,한국",
    );
  });
});

describe("plans", () => {
  const text = Array.from({ length: 2000 }, (_, index) => `t${index}`);
  const stack = stackOf({
    heads_per_layer: [32],
    query_tokens: { text, special: [0], sequence: text.map(() => 0) },
    causal: true,
    vectors: true,
  });
  const record = { model: "", notes: [], stacks: [stack] };
  const state: HeadState = {
    ...HEAD_DEFAULTS,
    query_window: [1000, 1064],
    key_window: [1000, 1064],
  };

  it("load only the window if rows are long", () => {
    expect(planOf(selectionOf(record, state), state).columns).toEqual([1000, 1064]);
  });

  it("load complete rows if they are short", () => {
    const ahead = { ...record, stacks: [{ ...stack, causal: false }] };
    const plan = planOf(selectionOf(ahead, { ...state, heads: [0] }), state);
    expect(plan.columns).toEqual([0, 2000]);
    expect(isWindowed(plan)).toBe(true);
    expect(isWindowed({ ...plan, keyWindow: [0, 2000] })).toBe(false);
  });

  it("load no keys that a causal mask hides from all queries", () => {
    const plan = planOf(selectionOf(record, { ...state, heads: [0] }), state);
    expect([plan.rows, plan.columns, plan.numReached]).toEqual([[960, 1088], [0, 1088], 1088]);
    const sides = { ...stack, key_tokens: stack.query_tokens };
    const cross = selectionOf({ ...record, stacks: [sides] }, { ...state, heads: [0] });
    expect(planOf(cross, state).columns).toEqual([0, 2000]);
  });

  it("have a limited number of tokens", () => {
    expect(clipWindow([0, 131_072], 131_072)).toEqual([0, 2000]);
  });
});

describe("windows", () => {
  it("move to a token, but not past the ends", () => {
    expect(windowAround([0, 64], 1000, 30)).toEqual([0, 64]);
    expect(windowAround([0, 64], 1000, 500)).toEqual([468, 532]);
    expect(windowAround([0, 64], 1000, 999)).toEqual([936, 1000]);
    expect(resizeWindow([936, 1000], 1000, 100)).toEqual([900, 1000]);
  });
});

describe("the share of the weight that is drawn", () => {
  const shares = {
    drawn: 0.71,
    leftOut: 0.2,
    leftOutError: 0,
    otherPair: 0,
    outside: 0,
    rest: 0.09,
  };
  const drawn = {
    ...{ shares, topK: 3, threshold: 0, total: 100, faintest: null, leaveOut: [] as string[] },
    ...{ renormalize: false, pair: "all" as const, emptyQueries: 0, wholeRows: true },
    ...{ outsideKnown: true, maxima: false, pinned: [] as string[], live: true },
  };
  const faint = { ...drawn, faintest: 0.002 };
  const many = { ...faint, total: 394_752, threshold: 0.01 };
  const first = { ...drawn, leaveOut: ["first token"] };
  sentences({
    "Top 3 keys per query drawn: 71% of the weight.": coverage(drawn),
    "Weights of at least 0.002 drawn: 71% of the weight.": coverage({ ...faint, topK: null }),
    "Top 3 keys per query of at least 0.002 drawn: 71% of the weight.": coverage(faint),
    "The strongest 20,000 of 394,752 lines drawn: 71% of the weight.": coverage({
      ...many,
      topK: null,
      threshold: 0,
    }),
    "The strongest 20,000 of 394,752 lines of at least 0.01 drawn: 71% of the weight.": coverage({
      ...many,
      topK: null,
    }),
    "The strongest 20,000 of the top 3 keys per query of at least 0.01 drawn: 71% of the weight.":
      coverage(many),
    "All lines drawn: 71% of the sum of the maxima over heads.": coverage({
      ...drawn,
      topK: null,
      maxima: true,
    }),
    "Top 3 keys per query drawn: 71% of the weight. Left out: special tokens, 20%; the rest is renormalised. 5% outside the window. Pinned: query “it” (Esc clears).":
      coverage({
        ...{ ...drawn, leaveOut: ["special tokens"], renormalize: true, pinned: ["query “it”"] },
        shares: { ...shares, outside: 0.05 },
      }),
    // The error 0.41% plus the rounding of 41.72% to 41.7%, up to 0.05%, is rounded up to 0.5%.
    "Top 3 keys per query drawn: 71% of the weight. Left out: first token, 41.7% ± 0.5%.": coverage(
      { ...first, shares: { ...shares, leftOut: 0.4172, leftOutError: 0.0041 } },
    ),
    "Top 3 keys per query drawn: 71% of the weight. Left out: first token, 20%.": coverage({
      ...first,
      shares: { ...shares, leftOutError: 0.0001 },
    }),
    "Top 3 keys per query drawn: 71% of the weight on the keys in sight.": coverage({
      ...drawn,
      outsideKnown: false,
    }),
    "Top 3 keys per query drawn: 71% of the weight. Left out: first token, 20% within the window; the rest, with all outside the window, is renormalised.":
      coverage({ ...first, wholeRows: false, renormalize: true }),
  });
});

it("a click adds or removes left-out tokens", () => {
  expect(toggleLeaveOut(["first"], 3)).toEqual(["first", 3]);
  expect(toggleLeaveOut(["first", 3], "first")).toEqual([3]);
});
