// @vitest-environment node
import { describe, expect, it, vi } from "vitest";
import { PALETTES } from "../../../../src/ui/colors/palette";
import type { Aggregate } from "../../../../src/views/embedding/client/requests";
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
import { corpusWith } from "../kernel";

vi.mock("../../../../src/draw/canvas", () => ({ measureText: (text: string) => text.length * 7 }));

/** Mean weights for the positions 0, 1 to 2, and 3 to 6. Masked bins are NaN. */
const MEAN: Aggregate = {
  layer: 1,
  head: 2,
  rows: 3,
  columns: 3,
  query_edges: [0, 1, 3, 7],
  key_edges: [0, 1, 3, 7],
  texts: 4,
  of_texts: 9,
  queries: 7,
  of_queries: 7,
  weights: Float32Array.of(1, Number.NaN, Number.NaN, 0.25, 0.75, Number.NaN, 0.004, 0, 0.5),
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
  const imageOf = (map: MeanMap) => {
    const image = meanMarks(map).find((mark) => mark.kind === "image");
    if (image?.kind !== "image") throw new Error("no cells");
    const channel = (offset: number) => (i: number) => image.pixels[4 * i + offset] as number;
    const cells = Array.from({ length: 9 }, (_, i) => i);
    return { alphas: cells.map(channel(3)), lightness: cells.map(channel(1)) };
  };

  it.each(["linear", "log"] as const)(
    "distinguish a weight of 0 from a bin without allowed pairs on a %s scale",
    (scale) => {
      const { alphas, lightness } = imageOf(picture(500, { scale }));
      expect(alphas).toEqual([255, 0, 0, 255, 255, 0, 255, 255, 255]);
      // Cell 7 has the weight 0, cell 0 has the weight 1.
      expect(lightness[7]).toBeGreaterThan(lightness[0] as number);
    },
  );

  it("give the largest weight with its positions", () => {
    expect(largestOf(MEAN)).toEqual({ row: 0, column: 0, weight: 1 });
    const wide = { ...MEAN, rows: 1, weights: Float32Array.of(-1, -1, 0.5) };
    expect(largestOf(wide)).toEqual({ row: 0, column: 2, weight: 0.5 });
    expect(largestOf({ ...MEAN, weights: new Float32Array(9).fill(-1) })).toBeNull();
    expect(binCaption(MEAN, { row: 2, column: 1 })).toEqual([
      "queries 3 to 6 → keys 1 to 2",
      "mean weight 0",
    ]);
    expect(binCaption(MEAN, { row: 0, column: 2 })[1]).toBe("no query may attend to this");
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
    // keys at these positions.
    expect(textsAt(lengths, MEAN, { row: 2, column: 0 })).toBe(1);
    expect(textsAt(lengths, MEAN, { row: 1, column: 2 })).toBe(2);
  });

  it("are as long as their last points", () => {
    const side = (text: number[], position: number[]) => ({
      text,
      position,
      token: text.map(() => 0),
    });
    const points = { num_queries: 3, num_keys: 4, columns: [] };
    const corpus = corpusWith({
      ...points,
      queries: side([0, 0, 1], [0, 1, 0]),
      keys: side([0, 1, 1, 1], [0, 0, 1, 2]),
      ...{ names: ["a", "b"], text_tokens: [2, 1] },
    });
    expect(lengthsOf(corpus)).toEqual([
      [2, 1],
      [1, 3],
    ]);
  });
});
