// @vitest-environment node
import { describe, expect, it } from "vitest";
import type { Range, TokenList } from "../../../src/client/protocol";
import { leftOutKeys, pairMembers } from "../../../src/client/requests/strongest";
import {
  type Combine,
  type LineOptions,
  type Lines,
  MAX_LINES,
  type Weights,
} from "../../../src/views/head/lines";
import { clipWindow, defaultWindow } from "../../../src/views/head/state";
import { linesOf, marked, optionsOf, weightsOf } from "./plots";

/** A special token, then a text with two tokens and a text with one token. */
const tokens: TokenList = {
  text: ["[CLS]", "a", "b", "c"],
  special: [0],
  sequence: [null, 0, 0, 1],
};

// Weights of two heads for the four tokens, as [query][key]. Every row sums to 1. The expected
// results below are computed by hand.
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

const lines = (matrices: number[][][], options: Partial<LineOptions>, noneChosen = false): Lines =>
  linesOf(weightsOf(matrices), optionsOf(4, options), noneChosen);

function listed(result: Lines, series = 0): [number, number, number][] {
  const shown = result.series[series];
  if (!shown) return [];
  const rows = Array.from({ length: shown.query.length }, (_, i) => [
    shown.query[i],
    shown.key[i],
    shown.weight[i],
  ]);
  return rows as [number, number, number][];
}

describe("lines", () => {
  it("are the strongest keys of each query and head, strongest first", () => {
    const result = lines([HEAD_0, HEAD_1], { topK: 1 });
    expect(listed(result, 0)).toEqual([
      [0, 0, 1],
      [1, 0, 0.5],
      [2, 0, 0.75],
      [3, 0, 0.25],
    ]);
    // The largest weights of the rows add up to 1 + .5 + .75 + .25 = 2.5 for head 0 and to 2.75 for
    // head 1. The two heads have 8 rows in total.
    expect(result.shares.drawn).toBeCloseTo(5.25 / 8, 6);
    expect(result.shares.rest).toBeCloseTo(2.75 / 8, 6);
  });

  it("leave out special tokens and state their share, without changing other weights", () => {
    const leftOut = leftOutKeys(tokens, ["special"]);
    expect([...leftOut]).toEqual([1, 0, 0, 0]);
    const result = lines([HEAD_0], { leftOut });
    // The weights on the special token are 1, .5, .75 and .25.
    expect(result.shares.leftOut).toBeCloseTo(2.5 / 4, 6);
    expect(result.shares.drawn).toBeCloseTo(1.5 / 4, 6);
    expect(listed(result)).toContainEqual([1, 1, 0.25]);
  });

  it("bound the error of the left-out share of rounded weights", () => {
    // Pages with one byte per weight store the root of the weight as a code from 0 to 255.
    const rounded = (weight: number): number => (Math.round(255 * Math.sqrt(weight)) / 255) ** 2;
    const error = 0.00393;
    let seed = 1;
    const random = (): number => {
      seed = (seed * 16807) % 2147483647;
      return seed / 2147483647;
    };
    for (let round = 0; round < 40; round++) {
      const matrix = Array.from({ length: 4 }, () => {
        const row = Array.from({ length: 4 }, () => random() ** (1 + (round % 4)));
        const sum = row.reduce((all, weight) => all + weight, 0);
        return row.map((weight) => weight / sum);
      });
      const codes = matrix.map((row) => row.map(rounded));
      for (const out of [[0], [1, 3], [0, 1, 2, 3]]) {
        const leftOut = marked(4, ...out);
        const exact = lines([matrix], { leftOut }).shares;
        expect(exact.leftOutError).toBe(0);
        // The bound holds both for rows that sum to 1 and for rows with any sum.
        for (const normalized of [true, false]) {
          const page = weightsOf([codes], { error, normalized });
          const { shares } = linesOf(page, optionsOf(4, { leftOut }));
          const difference = Math.abs(shares.leftOut - exact.leftOut);
          expect(difference).toBeLessThanOrEqual(shares.leftOutError + 1e-6);
          if (normalized) expect(shares.leftOutError).toBeLessThan((out.length + 4) * error);
        }
      }
    }
    // If no key is left out, the share is exactly 0 and has no error.
    expect(linesOf(weightsOf([HEAD_0], { error }), optionsOf(4)).shares.leftOutError).toBe(0);
  });

  it("renormalise the remaining weights, but not the shares", () => {
    const leftOut = leftOutKeys(tokens, ["first"]);
    const result = lines([HEAD_0], { leftOut, renormalize: true });
    // Without key 0, row 1 keeps .5 of its weight, row 2 keeps .25, and row 0 keeps none.
    expect(listed(result).filter(([query]) => query === 1)).toEqual([
      [1, 1, 0.5],
      [1, 2, 0.25],
      [1, 3, 0.25],
    ]);
    expect(listed(result)).toContainEqual([2, 2, 1]);
    expect(listed(result).some(([query]) => query === 0)).toBe(false);
    expect(result.shares.drawn).toBeCloseTo(1.5 / 4, 6);
    expect(result.shares.leftOut).toBeCloseTo(2.5 / 4, 6);
  });

  it("leave out a key by its index, and ignore an index out of range", () => {
    expect([...leftOutKeys(tokens, [2, 99, -1])]).toEqual([0, 0, 1, 0]);
  });

  it("go from one sentence to the other", () => {
    const pairQueries = pairMembers(tokens, "a-b", "query");
    const pairKeys = pairMembers(tokens, "a-b", "key");
    expect([...pairQueries]).toEqual([0, 1, 1, 0]);
    expect([...pairKeys]).toEqual([0, 0, 0, 1]);
    const result = lines([HEAD_0], { pairQueries, pairKeys });
    expect(listed(result)).toEqual([[1, 3, 0.125]]);
    // The queries are the two tokens of the first text. The total of their weights is 2.
    expect(result.shares.drawn).toBeCloseTo(0.125 / 2, 6);
    expect(result.shares.otherPair).toBeCloseTo(1.875 / 2, 6);
  });

  it("state the weight outside the window", () => {
    const result = lines([HEAD_0], { keyWindow: [0, 2], queryWindow: [2, 4] });
    expect(listed(result)).toEqual([
      [2, 0, 0.75],
      [3, 0, 0.25],
      [3, 1, 0.25],
    ]);
    // Row 2 has .25 of its weight outside the window, and row 3 has .5 outside.
    expect(result.shares.outside).toBeCloseTo(0.75 / 2, 6);
    expect(result.shares.drawn).toBeCloseTo(1.25 / 2, 6);
  });

  it("are none if the mask hides all keys of the window", () => {
    const rows = [
      [1, 0],
      [0.4, 0.6],
    ];
    const hidden = optionsOf(4, { keyWindow: [2, 4] });
    const { total, shares, wholeRows } = linesOf(weightsOf([rows]), hidden);
    expect([total, shares.outside, wholeRows]).toEqual([0, 1, true]);
    // Here, only keys 2 and 3 are loaded, which the mask hides.
    expect(linesOf(weightsOf([rows], { columns: [2, 4] }), hidden).wholeRows).toBe(false);
  });

  it("know the weight outside the window even if only the window is loaded", () => {
    const window = optionsOf(4, { keyWindow: [0, 2], queryWindow: [2, 4] });
    const loaded: Partial<Weights> = { rows: [2, 4], columns: [0, 2], numReached: 4 };
    const linesOfWindow = (row: number[]): Lines =>
      linesOf(weightsOf([[row, [0.25, 0.25]]], loaded), window);
    expect(linesOfWindow([0.75, 0]).shares.outside).toBeCloseTo(0.75 / 2, 6);
    // A row without weight inside the window may have weight outside, so it does not count as
    // masked.
    const empty = linesOfWindow([0, 0]);
    expect(empty.emptyQueries).toBe(0);
    expect(empty.shares.outside).toBeCloseTo(1.5 / 2, 6);
  });

  it("are the strongest keys of each query within the window", () => {
    const { series, shares } = lines([HEAD_0], { topK: 1, keyWindow: [1, 4] });
    expect([...(series[0]?.query ?? [])]).toEqual([1, 2, 3]);
    expect([...(series[0]?.key ?? [])]).toEqual([1, 2, 1]);
    // Key 0 is outside the window. Its weights are 1, .5, .75 and .25.
    expect(shares.outside).toBeCloseTo(2.5 / 4, 6);
    expect(shares.drawn).toBeCloseTo(0.75 / 4, 6);
    expect(shares.rest).toBeCloseTo(0.75 / 4, 6);
  });

  it("do not know the weight outside the window if rows need not sum to 1", () => {
    const inWindow = [HEAD_0.map((row) => row.slice(0, 2))];
    const linesOfWindow = (matrices: number[][][], more: Partial<Weights>, combine: Combine) =>
      linesOf(
        weightsOf(matrices, { columns: [0, 2], ...more }),
        optionsOf(4, { keyWindow: [0, 2], combine }),
      );
    const bounded = linesOfWindow(inWindow, {}, "separate");
    expect(bounded.outsideKnown).toBe(true);
    expect(bounded.shares.outside).toBeCloseTo(1 / 4, 6);
    const unknown = linesOfWindow(inWindow, { normalized: false }, "separate");
    expect(unknown.outsideKnown).toBe(false);
    expect(unknown.shares.outside).toBe(0);
    expect(unknown.shares.drawn).toBeCloseTo(1, 6);
    // Maxima over heads need not sum to 1, so the weight outside the window is unknown, too.
    expect(linesOfWindow([...inWindow, ...inWindow], {}, "max").outsideKnown).toBe(false);
  });

  it("are those of the mean over all heads if no head is chosen", () => {
    const result = lines([HEAD_0, HEAD_1], {}, true);
    expect(result.series).toHaveLength(1);
    expect(result.series[0]).toMatchObject({ head: null, name: "mean of 2 heads" });
    // Means in row 1: (0.5 + 0.5) / 2, (0.25 + 0) / 2, (0.125 + 0.5) / 2, (0.125 + 0) / 2.
    expect(listed(result).filter(([query]) => query === 1)).toEqual([
      [1, 0, 0.5],
      [1, 1, 0.125],
      [1, 2, 0.3125],
      [1, 3, 0.0625],
    ]);
  });

  it("are those of the maximum over heads if the options require it", () => {
    const result = lines([HEAD_0, HEAD_1], { combine: "max" });
    expect(result.series[0]?.name).toBe("maximum of 2 heads");
    expect(listed(result)).toContainEqual([3, 0, 0.75]);
    expect(listed(result)).toContainEqual([1, 2, 0.5]);
  });

  it("count masked rows instead of dividing by 0", () => {
    const masked = [[0, 0, 0, 0], ...HEAD_0.slice(1)];
    const result = lines([masked], { renormalize: true });
    expect(result.emptyQueries).toBe(1);
    expect(listed(result).every(([, , weight]) => Number.isFinite(weight))).toBe(true);
  });

  it("are invisible below a five-hundredth of the maximum, and not counted", () => {
    const faint = [[0.999, 0.001, 0, 0], ...HEAD_0.slice(1)];
    const result = lines([faint], {});
    expect(listed(result)).not.toContainEqual([0, 1, expect.anything()]);
    expect(result.shares.drawn).toBeCloseTo(3.999 / 4, 5);
    expect(result.invisibleShare).toBeCloseTo(0.001 / 4, 5);
    // With two keys per query, the faint line is omitted because it is invisible. With one key, all
    // lines are visible.
    expect(lines([faint], { topK: 2 }).invisibleShare).toBeCloseTo(0.001 / 4, 5);
    expect(lines([faint], { topK: 1 }).invisibleShare).toBe(0);
  });
});

/** Return random causal weights in float32. Each row sums to 1. */
function causal(size: number, heads: number): Weights {
  let seed = 7;
  const random = (): number => {
    seed = (seed * 16807) % 2147483647;
    return seed / 2147483647;
  };
  const matrices = Array.from({ length: heads }, () =>
    Array.from({ length: size }, (_, query) => {
      const row = Array.from({ length: size }, (_, key) =>
        key > query ? 0 : Math.exp(8 * random()),
      );
      const sum = row.reduce((a, b) => a + b, 0);
      return row.map((weight) => weight / sum);
    }),
  );
  return weightsOf(matrices, { error: 1e-3 });
}

describe("all lines", () => {
  const SIZE = 40;

  it.each([
    ["all", -1, SIZE, 0],
    ["above a threshold", -1, SIZE, 0.05],
    ["without a left-out key", 4, SIZE, 0],
    ["in a window", -1, 30, 0.01],
  ])("are the weights of every row in order: %s", (_, out, last, threshold) => {
    const weights = causal(SIZE, 2);
    const options = { leftOut: marked(SIZE, out), threshold, keyWindow: [0, last] as Range };
    const result = linesOf(weights, optionsOf(SIZE, options));
    let [drawn, faint, total, outside, leftOut] = [0, 0, 0, 0, 0];
    weights.matrices.forEach((matrix, index) => {
      const expected: [number, number, number][] = [];
      for (let query = 0; query < SIZE; query++) {
        for (let key = 0; key < SIZE; key++) {
          const weight = matrix[query * SIZE + key] as number;
          total += weight;
          if (key === out) leftOut += weight;
          else if (key >= last) outside += weight;
          else if (weight > 0 && weight >= threshold) {
            if (weight < 0.002) faint += weight;
            else {
              expected.push([query, key, weight]);
              drawn += weight;
            }
          }
        }
      }
      expect(listed(result, index)).toEqual(expected);
    });
    expect(result.shares.drawn).toBeCloseTo(drawn / total, 6);
    expect(result.invisibleShare).toBeCloseTo(faint / total, 6);
    expect(result.shares.outside).toBeCloseTo(outside / total, 6);
    expect(result.shares.leftOut).toBeCloseTo(leftOut / total, 6);
  });
});

describe("very many lines", () => {
  const SIZE = 240;

  it.each<[string, Partial<LineOptions>]>([
    ["all", {}],
    ["the strongest keys of each query", { topK: 200 }],
    ["renormalised", { renormalize: true, leftOut: marked(SIZE, 0) }],
  ])("are the strongest over all heads, in the order of each head: %s", (_, more) => {
    const weights = { ...causal(SIZE, 3), maximum: 1e-6 };
    const options = optionsOf(SIZE, more);
    const result = linesOf(weights, options);
    const all = weights.matrices.flatMap((matrix, series) =>
      Array.from({ length: SIZE }, (_, query) => {
        const row = [...matrix.subarray(query * SIZE, (query + 1) * SIZE)];
        const rowSum = row.reduce(
          (sum, weight, key) => sum + (options.leftOut[key] ? 0 : weight),
          0,
        );
        const kept = row
          .map((share, key) => ({ series, query, key, share, weight: share }))
          .filter(({ key, share }) => share > 0 && !options.leftOut[key])
          .map((item) => ({
            ...item,
            weight: more.renormalize ? item.share / rowSum : item.share,
          }));
        return kept.sort((a, b) => b.weight - a.weight).slice(0, options.topK ?? SIZE);
      }).flat(),
    );
    expect(result.total).toBe(all.length);
    expect(all.length).toBeGreaterThan(2 * MAX_LINES);
    const strongest = all.sort((a, b) => b.weight - a.weight).slice(0, MAX_LINES);
    expect(result.series.reduce((sum, { query }) => sum + query.length, 0)).toBe(MAX_LINES);
    result.series.forEach((_, series) => {
      const named = (of: readonly [number, number][]) => new Set(of.map(([q, k]) => q * SIZE + k));
      const expected = strongest.filter((item) => item.series === series);
      const lineList = listed(result, series);
      expect(named(lineList.map(([query, key]) => [query, key]))).toEqual(
        named(expected.map(({ query, key }) => [query, key])),
      );
      const queries = lineList.map(([query]) => query);
      expect(queries).toEqual([...queries].sort((a, b) => a - b));
    });
    const sum = (of: typeof all) => of.reduce((total, { share }) => total + share, 0);
    expect(result.shares.drawn).toBeCloseTo(sum(strongest) / (3 * SIZE), 5);
    expect(result.largest).toBeCloseTo(strongest[0]?.weight ?? 0, 6);
  });

  it("are the first among equal weights", () => {
    const even = new Float32Array(SIZE * SIZE).fill(1 / SIZE);
    even[SIZE * SIZE - 1] = 0.5;
    const weights = { ...causal(SIZE, 1), matrices: [even] };
    const lineList = listed(linesOf(weights, optionsOf(SIZE)));
    expect(lineList).toHaveLength(MAX_LINES);
    expect(lineList.at(-1)).toEqual([SIZE - 1, SIZE - 1, 0.5]);
    const first = lineList.slice(0, -1).map(([query, key]) => query * SIZE + key);
    expect(first).toEqual(Array.from({ length: MAX_LINES - 1 }, (_, index) => index));
  });

  it("are all drawn up to the limit", () => {
    const even = new Float32Array(SIZE * SIZE).fill(1 / SIZE, 0, MAX_LINES);
    const result = linesOf({ ...causal(SIZE, 1), matrices: [even] }, optionsOf(SIZE));
    expect(result.total).toBe(MAX_LINES);
    expect(listed(result)).toHaveLength(MAX_LINES);
  });
});

describe("windows", () => {
  it("show all of up to 100 tokens, or the first 64", () => {
    expect(defaultWindow(100)).toEqual([0, 100]);
    expect(defaultWindow(101)).toEqual([0, 64]);
  });

  it("are clipped to the list", () => {
    expect(clipWindow([90, 300], 200)).toEqual([90, 200]);
    expect(clipWindow([-5, 10], 200)).toEqual([0, 10]);
    expect(clipWindow([500, 600], 200)).toEqual([199, 200]);
    expect(clipWindow(null, 12)).toEqual([0, 12]);
  });
});
