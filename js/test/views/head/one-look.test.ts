import { describe, expect, it } from "vitest";
import {
  computeLines,
  type LineOptions,
  lookAhead,
  shownMatrices,
  type Weights,
} from "../../../src/views/head/lines";

const SIZE = 40;

/** Causal rows that sum to one, as float32. */
function causal(): Weights {
  let seed = 7;
  const random = (): number => {
    seed = (seed * 16807) % 2147483647;
    return seed / 2147483647;
  };
  const matrices = [0, 1].map(() => {
    const matrix = new Float32Array(SIZE * SIZE);
    for (let query = 0; query < SIZE; query++) {
      const row = Array.from({ length: query + 1 }, () => Math.exp(8 * random()));
      const sum = row.reduce((a, b) => a + b, 0);
      row.forEach((each, key) => {
        matrix[query * SIZE + key] = each / sum;
      });
    }
    return matrix;
  });
  const range = [0, SIZE] as [number, number];
  const error = 1e-3;
  return {
    ...{ heads: [3, 5], matrices, rows: range, columns: range, numKeys: SIZE, error },
    ...{ normalized: true, maximum: 1 },
  };
}

describe("all lines", () => {
  // Each in turn: nothing is left out, a key is, and a part of the keys is in sight.
  it.each([
    ["all", -1, SIZE, 0],
    ["all that reach a threshold", -1, SIZE, 0.05],
    ["all but of a key", 4, SIZE, 0],
    ["all in a window", -1, 30, 0.01],
  ])("are the weights of every row in turn: %s", (_, out, last, threshold) => {
    const weights = causal();
    const leftOut = new Uint8Array(SIZE);
    if (out >= 0) leftOut[out] = 1;
    const pairQueries = new Uint8Array(SIZE).fill(1);
    const options = {
      ...{ combine: "separate" as const, topK: null, threshold, leftOut, renormalize: false },
      ...{ pairQueries, pairKeys: pairQueries },
      ...{ queryWindow: [0, SIZE] as [number, number], keyWindow: [0, last] as [number, number] },
    };
    const lines = computeLines(weights, options, shownMatrices(weights, "separate", false));
    let [drawn, faint, total, outside, gone] = [0, 0, 0, 0, 0];
    lines.series.forEach((series, place) => {
      const matrix = weights.matrices[place] as Float32Array;
      const expected: [number, number, number][] = [];
      for (let query = 0; query < SIZE; query++) {
        for (let key = 0; key < SIZE; key++) {
          const weight = matrix[query * SIZE + key] as number;
          total += weight;
          if (key === out) gone += weight;
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
      expect(series.count).toBe(expected.length);
      expect([...series.query]).toEqual(expected.map(([query]) => query));
      expect([...series.key]).toEqual(expected.map(([, key]) => key));
      expect([...series.weight]).toEqual(expected.map(([, , weight]) => weight));
      expect(new Set(series.error)).toEqual(new Set([1e-3]));
    });
    expect(lines.shares.drawn).toBeCloseTo(drawn / total, 6);
    expect(lines.faint).toBeCloseTo(faint / total, 6);
    expect(lines.shares.outside).toBeCloseTo(outside / total, 6);
    expect(lines.shares.leftOut).toBeCloseTo(gone / total, 6);
  });

  const all = (more: Partial<LineOptions> = {}): LineOptions => ({
    ...{ combine: "separate", topK: null, threshold: 0, renormalize: false },
    ...{ leftOut: new Uint8Array(SIZE), pairQueries: new Uint8Array(SIZE).fill(1) },
    ...{ pairKeys: new Uint8Array(SIZE).fill(1), queryWindow: [0, SIZE], keyWindow: [0, SIZE] },
    ...more,
  });
  const linesOf = (weights: Weights, options: LineOptions) =>
    computeLines(weights, options, shownMatrices(weights, "separate", false));

  it("are found ahead, one matrix at a step, and not looked for again", () => {
    const weights = causal();
    const steps = [...lookAhead(weights, all(), weights.matrices)].length;
    expect(steps).toBe(weights.matrices.length);
    // What is written into the matrices now is not seen: they are not gone through.
    const emptied = weights.matrices.map((matrix) => matrix.slice());
    for (const matrix of weights.matrices) matrix.fill(0);
    const found = linesOf(weights, all());
    const expected = linesOf({ ...weights, matrices: emptied }, all());
    const numbers = (of: typeof found) =>
      of.series.map(({ query, key, weight, error }) => [query, key, weight, error]);
    expect(numbers(found)).toEqual(numbers(expected));
    expect(found.series[0]?.count).toBeGreaterThan(SIZE);
    expect({ ...found, series: [] }).toEqual({ ...expected, series: [] });
  });

  it("are looked for again where something else is asked for", () => {
    const weights = causal();
    const first = linesOf(weights, all());
    const fewer = linesOf(weights, all({ threshold: 0.1 }));
    expect(Math.min(...(fewer.series[0]?.weight ?? []))).toBeGreaterThanOrEqual(0.1);
    const upper = linesOf(weights, all({ queryWindow: [0, 10] }));
    expect(Math.max(...(upper.series[0]?.query ?? []))).toBe(9);
    const faint = linesOf({ ...weights, maximum: 100 }, all());
    expect(Math.min(...(faint.series[0]?.weight ?? []))).toBeGreaterThanOrEqual(0.2);
    expect(linesOf(weights, all())).toEqual(first);
  });

  it("are those of the queries of a pair alone, without a look at all", () => {
    const weights = causal();
    const pairQueries = new Uint8Array(SIZE).fill(1, 20);
    expect([...lookAhead(weights, all({ pairQueries }), weights.matrices)]).toEqual([]);
    const { series } = linesOf(weights, all({ pairQueries }));
    expect(Math.min(...(series[0]?.query ?? []))).toBe(20);
  });
});
