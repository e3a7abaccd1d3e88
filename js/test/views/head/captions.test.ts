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
import { layOut, standsUpright } from "../../../src/views/head/layout";
import {
  clipWindow,
  HEAD_DEFAULTS,
  type HeadState,
  isWindowed,
  planOf,
  resizeWindow,
  windowAround,
} from "../../../src/views/head/state";
import { stackOf } from "../../builders";

/** Return the width of a text with ten pixels per character. */
const measure = (text: string): number => Array.from(text).length * 10;

describe("numbers", () => {
  it("are never rounded to 0% or 100%", () => {
    expect([0, 0.001, 0.31, 0.996, 1].map(formatShare)).toEqual([
      "0%",
      "<1%",
      "31%",
      ">99%",
      "100%",
    ]);
    expect([0, 0.004, 0.006, 0.684].map((weight) => formatWeight(weight))).toEqual([
      "0.00",
      "<0.01",
      "0.01",
      "0.68",
    ]);
  });

  it("name the position of a token whose text occurs several times", () => {
    const texts = ["the", "animal", "the"];
    expect([0, 1, 2].map((index) => quotedAt(texts, index))).toEqual([
      "“the” (0)",
      "“animal”",
      "“the” (2)",
    ]);
  });

  it("state a precision that holds", () => {
    expect([0, 0.00392, 0.0137, 0.004, 0.095, 1.2].map((error) => precision(error))).toEqual([
      "exact",
      "exact to 0.004",
      "exact to 0.02",
      "exact to 0.004",
      "exact to 0.1",
      "exact to 2",
    ]);
  });
});

describe("labels", () => {
  it("are cut in the middle, but never inside a character", () => {
    expect(fitLabel("short", 100, "", measure)).toEqual({ text: "short", cut: false, width: 50 });
    const cut = fitLabel("antidisestablishmentarianism", 100, "", measure);
    expect(cut.cut).toBe(true);
    expect(cut.width).toBeLessThanOrEqual(100);
    expect(cut.text).toBe("antidi…ism");
    const flags = fitLabel("🏳️‍🌈".repeat(9), 60, "", measure).text;
    expect(flags.replaceAll("🏳️‍🌈", "").replace("…", "")).toBe("");
  });

  it("show white space", () => {
    expect(fitLabel("\n", 99, "", measure).text).toBe("⏎");
    expect(fitLabel(" ", 99, "", measure).text).toBe("␣");
    expect(fitLabel("", 99, "", measure).text).toBe("␣");
  });

  it("are upright in scripts that allow it", () => {
    expect(["注意", "カタカナ", "한국", "abc", "注a"].map(standsUpright)).toEqual([
      true,
      true,
      true,
      false,
      false,
    ]);
  });

  it("are short in quotations", () => {
    expect(quoted("x".repeat(30))).toBe(`“${"x".repeat(23)}…”`);
  });
});

describe("the layout", () => {
  const texts = Array.from({ length: 12 }, (_, i) => `token${i}`);
  const input = {
    orientation: "vertical" as const,
    queryTexts: texts,
    keyTexts: texts,
    queryWindow: [0, 12] as [number, number],
    keyWindow: [0, 12] as [number, number],
    barSides: ["query", "key"] as const,

    measure,
  };

  it.each([320, 400, 560, 900, 1600])("keeps everything inside %d pixels, in order", (width) => {
    const { query, key } = layOut({ ...input, width });
    const inOrder = [
      0,
      query.barStart + query.barReach,
      query.barStart,
      query.anchor,
      query.edge,
      key.edge,
      key.anchor,
      key.barStart,
      key.barStart + key.barReach,
      width,
    ];
    expect(inOrder).toEqual([...inOrder].sort((a, b) => a - b));
    expect(key.barReach).toBeGreaterThanOrEqual(width < 400 ? 0 : 60);
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

describe("sentences", () => {
  const shares = {
    drawn: 0.71,
    leftOut: 0.2,
    leftOutError: 0,
    otherPair: 0,
    outside: 0.05,
    rest: 0.04,
  };
  const drawn = {
    shares,
    topK: 3,
    threshold: 0,
    total: 100,
    faintest: null,
    leaveOut: [],
    renormalize: false,
    pair: "all" as const,
    emptyQueries: 0,
    wholeRows: true,
    outsideKnown: true,
    maxima: false,
    pinned: [],
    live: true,
  };

  it("state the drawn share", () => {
    expect(coverage({ ...drawn, shares: { ...shares, outside: 0 } })).toBe(
      "Top 3 keys per query drawn: 71% of the weight.",
    );
  });

  it("do not say “all lines” if faint lines are omitted", () => {
    const faint = { ...drawn, faintest: 0.002, shares: { ...shares, outside: 0 } };
    expect(coverage({ ...faint, topK: null })).toBe(
      "Weights of at least 0.002 drawn: 71% of the weight.",
    );
    expect(coverage(faint)).toBe(
      "Top 3 keys per query of at least 0.002 drawn: 71% of the weight.",
    );
  });

  it("state that only the strongest of very many lines are drawn", () => {
    const many = {
      ...{ ...drawn, total: 394_752, faintest: 0.002, threshold: 0.01 },
      shares: { ...shares, outside: 0 },
    };
    expect(coverage({ ...many, topK: null, threshold: 0 })).toBe(
      "The strongest 20,000 of 394,752 lines drawn: 71% of the weight.",
    );
    expect(coverage({ ...many, topK: null })).toBe(
      "The strongest 20,000 of 394,752 lines of at least 0.01 drawn: 71% of the weight.",
    );
    expect(coverage(many)).toBe(
      "The strongest 20,000 of the top 3 keys per query of at least 0.01 drawn: 71% of the weight.",
    );
    expect(coverage({ ...many, total: 20_000, threshold: 0 })).toBe(
      "Top 3 keys per query of at least 0.002 drawn: 71% of the weight.",
    );
  });

  it("state that shares are of maxima over heads", () => {
    const all = { ...drawn, topK: null, shares: { ...shares, outside: 0 } };
    expect(coverage({ ...all, maxima: true })).toBe(
      "All lines drawn: 71% of the sum of the maxima over heads.",
    );
  });

  it("state the share of left-out keys and of keys outside the window", () => {
    expect(
      coverage({
        ...drawn,
        leaveOut: ["special tokens"],
        renormalize: true,
        pinned: ["query “it”"],
      }),
    ).toBe(
      "Top 3 keys per query drawn: 71% of the weight. Left out: special tokens, 20%; the rest is renormalised. 5% outside the window. Pinned: query “it” (Esc clears).",
    );
  });

  it("state the error of the left-out share on a page", () => {
    const leftOut = { ...drawn, leaveOut: ["first token"] };
    const rounded = { ...leftOut, shares: { ...shares, leftOut: 0.4172, leftOutError: 0.0041 } };
    // The error 0.41% plus the rounding of 41.72% to 41.7%, up to 0.05%, is rounded up to 0.5%.
    expect(coverage(rounded)).toContain("Left out: first token, 41.7% ± 0.5%.");
    const close = { ...leftOut, shares: { ...shares, leftOutError: 0.0001 } };
    expect(coverage(close)).toContain("Left out: first token, 20%.");
  });

  it("state that weights outside the window are unknown", () => {
    expect(coverage({ ...drawn, outsideKnown: false, shares: { ...shares, outside: 0 } })).toBe(
      "Top 3 keys per query drawn: 71% of the weight on the keys in sight.",
    );
    const part = { ...drawn, wholeRows: false, leaveOut: ["first token"], renormalize: true };
    expect(coverage(part)).toContain(
      "Left out: first token, 20% within the window; the rest, with all outside the window, is renormalised.",
    );
  });

  it("add and remove left-out tokens", () => {
    expect(toggleLeaveOut(["first"], 3)).toEqual(["first", 3]);
    expect(toggleLeaveOut(["first", 3], "first")).toEqual([3]);
  });
});
