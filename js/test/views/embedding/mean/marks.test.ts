// @vitest-environment node
import { describe, expect, it, vi } from "vitest";
import { PALETTES } from "../../../../src/ui/colors/palette";
import { type Aggregate, Corpus } from "../../../../src/views/embedding/client/requests";
import {
  binCaption,
  endOf,
  largestOf,
  layOutMean,
  lengthsOf,
  type MeanMap,
  meanMarks,
  textsAt,
} from "../../../../src/views/embedding/mean/marks";

vi.mock("../../../../src/draw/canvas", () => ({ measureText: (text: string) => text.length * 7 }));

/** Mean weights with a causal mask. The three bins cover the positions 0, 1 to 2, and 3 to 6. */
const MEAN: Aggregate = {
  layer: 1,
  head: 2,
  rows: 3,
  columns: 3,
  queryEdges: [0, 1, 3, 7],
  keyEdges: [0, 1, 3, 7],
  texts: 4,
  ofTexts: 9,
  queries: 7,
  ofQueries: 7,
  weights: Float32Array.of(1, -1, -1, 0.25, 0.75, -1, 0.004, 0, 0.5),
};

function picture(width = 500, changed: Partial<MeanMap> = {}): MeanMap {
  return {
    layout: layOutMean(MEAN, width),
    palette: PALETTES.light,
    theme: "light",
    aggregate: MEAN,
    scale: "linear",
    end: endOf(MEAN),
    hovered: null,
    ...changed,
  };
}

describe("the mean weights by position", () => {
  it("have no colour without allowed pairs, and a stronger colour for larger weights", () => {
    const image = meanMarks(picture()).find((mark) => mark.kind === "image");
    if (image?.kind !== "image") throw new Error("no cells");
    const alphas = Array.from({ length: 9 }, (_, i) => image.pixels[4 * i + 3]);
    expect(alphas).toEqual([255, 0, 0, 255, 255, 0, 255, 255, 255]);
    const light = (i: number): number => image.pixels[4 * i + 1] as number;
    // On a white background, cells with larger weights are darker.
    expect(light(0)).toBeLessThan(light(4));
    expect(light(4)).toBeLessThan(light(8));
    expect(light(8)).toBeLessThan(light(3));
  });

  it("distinguish a weight of 0 from a bin without allowed pairs", () => {
    const weights = new Float32Array(9).fill(-1);
    weights.set([0, 1], 3);
    for (const scale of ["linear", "log"] as const) {
      const image = meanMarks({ ...picture(), aggregate: { ...MEAN, weights }, scale }).find(
        (mark) => mark.kind === "image",
      );
      if (image?.kind !== "image") throw new Error("no cells");
      const alphas = Array.from({ length: 9 }, (_, i) => image.pixels[4 * i + 3]);
      expect(alphas).toEqual([0, 0, 0, 255, 255, 0, 0, 0, 0]);
      // On a white background, the cell with the smallest weight is lightest.
      expect(image.pixels[4 * 3 + 1]).toBeGreaterThan(image.pixels[4 * 4 + 1] as number);
    }
  });

  it("give the largest weight with its positions", () => {
    expect(largestOf(MEAN)).toEqual({ row: 0, column: 0, weight: 1 });
    expect(largestOf({ ...MEAN, weights: new Float32Array(9).fill(-1) })).toBeNull();
    expect(endOf({ ...MEAN, weights: new Float32Array(9).fill(0.03) })).toBeCloseTo(0.05);
    expect(binCaption(MEAN, { row: 2, column: 1 })).toEqual([
      "queries 3 to 6 → keys 1 to 2",
      "mean weight 0",
    ]);
    expect(binCaption(MEAN, { row: 0, column: 2 })[1]).toBe("no query may attend to this");
    expect(binCaption(MEAN, { row: 0, column: 0 })[0]).toBe("query 0 → key 0");
  });
});

describe("texts of different length", () => {
  const lengths: [number, number][] = [
    [7, 7],
    [3, 3],
    [2, 4],
  ];

  it("are counted in the bins that they reach", () => {
    expect(textsAt(lengths, MEAN, { row: 0, column: 0 })).toBe(3);
    // Only the first text has queries at the positions 3 to 6. The first and the last text have
    // keys there.
    expect(textsAt(lengths, MEAN, { row: 2, column: 0 })).toBe(1);
    expect(textsAt(lengths, MEAN, { row: 1, column: 2 })).toBe(2);
  });

  it("are mentioned with the weight", () => {
    expect(binCaption(MEAN, { row: 1, column: 0 }, 2)[1]).toBe("mean weight 0.25 over 2 texts");
    expect(binCaption(MEAN, { row: 1, column: 0 }, 1)[1]).toBe("mean weight 0.25 over 1 text");
    expect(binCaption(MEAN, { row: 0, column: 1 }, 2)[1]).toBe("no query may attend to this");
  });

  it("are as long as their last points", () => {
    const side = (text: number[], position: number[]) => ({
      text,
      position,
      token: text.map(() => 0),
    });
    const corpus = new Corpus("cross", {
      num_queries: 3,
      num_keys: 4,
      total_points: 7,
      total_texts: 2,
      whole: true,
      seed: 0,
      names: ["a", "b"],
      text_tokens: [2, 1],
      vocabulary: ["x"],
      frequency: [7],
      punctuation: [],
      special: [],
      queries: side([0, 0, 1], [0, 1, 0]),
      keys: side([0, 1, 1, 1], [0, 0, 1, 2]),
      columns: [],
      caveats: [],
      images: 0,
    });
    expect(lengthsOf(corpus)).toEqual([
      [2, 1],
      [1, 3],
    ]);
    // Data of older versions lack these fields.
    expect([corpus.numSkipped, corpus.stopped]).toEqual([0, null]);
  });
});
