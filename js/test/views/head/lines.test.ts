// @vitest-environment node
import { describe, expect, it } from "vitest";
import { SIDES } from "../../../src/ui/axis";
import { selectionOf } from "../../../src/ui/view/record";
import { type Lines, MAX_LINES } from "../../../src/views/head/lines";
import { type Combine, type HeadState, planOf } from "../../../src/views/head/state";
import { described, randomNumbers, stackOf, tokensOf } from "../../builders";
import { HEAD_DEFAULTS } from "../../defaults";
import { linesOf, marked, type Options, optionsOf, type Weights, weightsOf } from "./plots";

// Weights of two heads for four tokens, as [query][key]. Every row sums to 1.
const HEAD_0 = [
  [1, 0, 0, 0],
  [0.5, 0.25, 0.125, 0.125],
  [0.75, 0, 0.25, 0],
  [0.25, 0.25, 0.25, 0.25],
];
const HEAD_1 = [
  [0, 1, 0, 0],
  [0.5, 0, 0.5, 0],
  [0.25, 0.25, 0.5, 0],
  [0.75, 0.25, 0, 0],
];

const lines = (matrices: number[][][], options: Partial<Options>, noneChosen = false): Lines =>
  linesOf(weightsOf(matrices), optionsOf(4, options), noneChosen);

type Line = [query: number, key: number, weight: number];

function listed({ drawn }: Lines, series = 0): Line[] {
  return drawn
    .filter((line) => line.series === series)
    .map(({ query, key, weight }): Line => [query, key, weight]);
}

/** Return random causal weights. Each row sums to 1. */
function causal(size: number, heads: number): Weights {
  const random = randomNumbers(7);
  const matrices = Array.from({ length: heads }, () =>
    Array.from({ length: size }, (_, query) => {
      const row = Array.from({ length: size }, (_, key) =>
        key > query ? 0 : Math.exp(8 * random()),
      );
      const sum = row.reduce((a, b) => a + b, 0);
      return row.map((weight) => weight / sum);
    }),
  );
  return weightsOf(matrices);
}

/**
 * Compute the lines of each matrix with plain loops. Also compute sums of weights: in each category
 * of `shares`, in all pairs (`total`), and in lines that are too weak to be visible (`faint`).
 */
function expectedLines({ matrices, rows, maximum }: Weights, options: Options) {
  const size = rows[1];
  const shares = { drawn: 0, leftOut: 0, otherPair: 0, outside: 0 };
  let [total, faint] = [0, 0];
  const all: { series: number; line: Line; share: number }[] = [];
  matrices.forEach((matrix, series) => {
    for (let query = options.queryWindow[0]; query < options.queryWindow[1]; query++) {
      if (!options.pairQueries[query]) continue;
      const inWindow: { key: number; share: number }[] = [];
      let included = 0;
      for (let key = 0; key < size; key++) {
        const share = matrix[query * size + key] as number;
        total += share;
        if (options.leftOut[key]) shares.leftOut += share;
        else if (!options.pairKeys[key]) shares.otherPair += share;
        else {
          included += share;
          if (key < options.keyWindow[0] || key >= options.keyWindow[1]) shares.outside += share;
          else if (share > 0) inWindow.push({ key, share });
        }
      }
      const { top_k } = options;
      if (top_k !== null) inWindow.sort((a, b) => b.share - a.share).splice(top_k);
      for (const { key, share } of inWindow) {
        const weight = options.renormalize ? share / included : share;
        if (weight < options.threshold) continue;
        // Lines below a five-hundredth of the maximum are invisible, so they are not drawn.
        if (weight < maximum / 500) faint += share;
        else all.push({ series, line: [query, key, weight], share });
      }
    }
  });
  // Among equal weights, the first lines are drawn, because `sort` keeps their order.
  const strongest = new Set([...all].sort((a, b) => b.line[2] - a.line[2]).slice(0, MAX_LINES));
  const drawn = all.filter((item) => strongest.has(item));
  shares.drawn = drawn.reduce((sum, { share }) => sum + share, 0);
  const series = matrices.map((_, index) =>
    drawn.filter((item) => item.series === index).map(({ line }) => line),
  );
  return { series, shares, faint, total, numLines: all.length };
}

function expectLines(weights: Weights, options: Options): void {
  const result = linesOf(weights, options);
  const expected = expectedLines(weights, options);
  expected.series.forEach((expectedSeries, series) => {
    const shown = listed(result, series);
    const pairs = (of: Line[]): string[] => of.map(([query, key]) => `${query} ${key}`);
    expect(pairs(shown)).toEqual(pairs(expectedSeries));
    const differences = shown.map(([, , weight], i) => weight - (expectedSeries[i]?.[2] ?? NaN));
    expect(Math.max(...differences.map(Math.abs))).toBeLessThan(1e-6);
  });
  const { drawn, outside, excluded } = result.shares;
  const { leftOut, otherPair, ...shares } = expected.shares;
  const all = [shares.drawn, shares.outside, leftOut, otherPair].map((sum) =>
    expect.closeTo(sum / expected.total, 5),
  );
  expect([drawn, outside, ...excluded]).toEqual(all);
  expect(result.invisibleShare).toBeCloseTo(expected.faint / expected.total, 6);
  expect(result.total).toBe(expected.numLines);
}

describe("lines and shares equal those of plain loops", () => {
  const SIZE = 40;
  const half = Uint8Array.from({ length: SIZE }, (_, token) => Number(token < SIZE / 2));
  const leftOut = marked(SIZE, 0, 4);
  it.each<[string, Partial<Options>]>([
    ["all lines", {}],
    ["lines above a threshold", { threshold: 0.05 }],
    ["the strongest keys of each query", { top_k: 3 }],
    ["without left-out keys", { leftOut }],
    ["renormalised", { leftOut, renormalize: true }],
    [
      "from one text to the other",
      { leftOut, pairQueries: half.map((a) => 1 - a), pairKeys: half },
    ],
    ["in a window", { queryWindow: [10, 30], keyWindow: [5, 25] }],
    [
      "the strongest, renormalised in a window",
      { leftOut, renormalize: true, top_k: 2, keyWindow: [2, 20] },
    ],
  ])("%s", (_, options) => expectLines(causal(SIZE, 2), optionsOf(SIZE, options)));
});

describe("of more than 20,000 lines, the strongest over all heads are drawn", () => {
  const SIZE = 240;
  it.each<[string, Partial<Options>]>([
    ["all", {}],
    ["the strongest keys of each query", { top_k: 200 }],
    ["renormalised", { renormalize: true, leftOut: marked(SIZE, 0) }],
  ])("%s", (_, options) => {
    // Weights below `maximum` / 500 are not drawn, so a tiny `maximum` makes all lines visible.
    expectLines({ ...causal(SIZE, 3), maximum: 1e-6 }, optionsOf(SIZE, options));
  });

  it("equal weights", () => {
    const even = new Float32Array(SIZE * SIZE).fill(1 / SIZE);
    even[SIZE * SIZE - 1] = 0.5;
    expectLines({ ...causal(SIZE, 1), matrices: [even] }, optionsOf(SIZE));
  });
});

it("left-out keys and texts of a pair are found by token", () => {
  // A special token, then a text with two tokens and a text with one token.
  const tokens = tokensOf(["[CLS]", "a", "b", "c"], { special: [0], sequence: [null, 0, 0, 1] });
  const stack = stackOf({ query_tokens: tokens });
  const excluded = (changes: Partial<HeadState>) => {
    const state = { ...HEAD_DEFAULTS, ...changes };
    const { axes } = planOf(selectionOf(described(stack), state), state);
    return SIDES.map((side) =>
      axes[side].exclusions.map(({ words, flags }) => `${words} ${flags.join("")}`),
    );
  };
  expect(excluded({ leave_out: ["special"] })).toEqual([[], ["special tokens 1000"]]);
  expect(excluded({ leave_out: ["first"] })).toEqual([[], ["first token 1000"]]);
  expect(excluded({ leave_out: [2, 99] })).toEqual([[], ["“b”, “#99” 0010"]]);
  expect(excluded({ pair: "a-b", leave_out: [2] })).toEqual([
    ["tokens outside sentence B 1001"],
    ["“b” 0010", "tokens outside sentence B 1110"],
  ]);
});

describe("the weight outside the window", () => {
  const window = optionsOf(4, { keyWindow: [0, 2], queryWindow: [2, 4] });

  it("is known if only the window is loaded, because rows sum to 1", () => {
    const loaded: Partial<Weights> = { rows: [2, 4], columns: [0, 2], numReached: 4 };
    const ofRow = (row: number[]): Lines =>
      linesOf(weightsOf([[row, [0.25, 0.25]]], loaded), window);
    expect(ofRow([0.75, 0]).shares.outside).toBeCloseTo(0.75 / 2, 6);
    // A row without weight in the window may have weight outside, so the query is not empty.
    expect(ofRow([0, 0]).emptyQueries).toBe(0);
    expect(ofRow([0, 0]).shares.outside).toBeCloseTo(1.5 / 2, 6);
  });

  it("is unknown if rows need not sum to 1", () => {
    const inWindow = HEAD_0.map((row) => row.slice(0, 2));
    const ofWindow = (more: Partial<Weights>, combine: Combine): Lines =>
      linesOf(
        weightsOf([inWindow, inWindow], { columns: [0, 2], ...more }),
        optionsOf(4, { keyWindow: [0, 2], combine }),
      );
    expect(ofWindow({}, "separate").outsideKnown).toBe(true);
    const unknown = ofWindow({ normalized: false }, "separate");
    expect([unknown.outsideKnown, unknown.shares.outside]).toEqual([false, 0]);
    // Maxima over heads need not sum to 1, so the weight outside the window is unknown.
    expect(ofWindow({}, "max").outsideKnown).toBe(false);
  });
});

it("lines are those of the mean if no head is chosen, or of the maximum on request", () => {
  const mean = lines([HEAD_0, HEAD_1], {}, true);
  expect(mean.series).toHaveLength(1);
  expect(mean.series[0]).toMatchObject({ head: null, name: "mean of 2 heads" });
  // Means in row 1: (0.5 + 0.5) / 2, (0.25 + 0) / 2, (0.125 + 0.5) / 2, (0.125 + 0) / 2.
  expect(listed(mean).filter(([query]) => query === 1)).toEqual([
    [1, 0, 0.5],
    [1, 1, 0.125],
    [1, 2, 0.3125],
    [1, 3, 0.0625],
  ]);
  const maximum = lines([HEAD_0, HEAD_1], { combine: "max" });
  expect(maximum.series[0]?.name).toBe("maximum of 2 heads");
  expect(listed(maximum)).toContainEqual([3, 0, 0.75]);
  expect(listed(maximum)).toContainEqual([1, 2, 0.5]);
});

it("masked rows are counted, and not divided by 0", () => {
  const masked = [[0, 0, 0, 0], ...HEAD_0.slice(1)];
  const result = lines([masked], { renormalize: true });
  expect(result.emptyQueries).toBe(1);
  expect(listed(result).every(([, , weight]) => Number.isFinite(weight))).toBe(true);
});
