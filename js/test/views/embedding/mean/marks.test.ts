// @vitest-environment node
import { describe, expect, it, vi } from "vitest";
import { PALETTES } from "../../../../src/ui/colors/palette";
import type { Aggregate } from "../../../../src/views/embedding/client/requests";
import {
  binCaption,
  largestOf,
  type MeanMap,
  meanMapOf,
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

function pictureOn(scale: "linear" | "log"): MeanMap {
  return meanMapOf(MEAN, { width: 500, palette: PALETTES.light, theme: "light", scale });
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
      const { alphas, lightness } = imageOf(pictureOn(scale));
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

it("a bin counts the texts that are long enough to have a pair in it", () => {
  const texts = [
    { queries: 7, keys: 7 },
    { queries: 3, keys: 3 },
    { queries: 2, keys: 4 },
  ];
  const side = (lengths: number[]) => ({
    text: lengths.flatMap((length, text) => new Array<number>(length).fill(text)),
    position: lengths.flatMap((length) => Array.from({ length }, (_, position) => position)),
    token: lengths.flatMap((length) => new Array<number>(length).fill(0)),
  });
  const corpus = corpusWith({
    ...{ num_queries: 12, num_keys: 14, columns: [] },
    queries: side(texts.map(({ queries }) => queries)),
    keys: side(texts.map(({ keys }) => keys)),
  });
  expect(textsAt(corpus, MEAN, { row: 0, column: 0 })).toBe(3);
  // Only the first text has queries at the positions 3 to 6. The first and the last text have
  // keys at these positions.
  expect(textsAt(corpus, MEAN, { row: 2, column: 0 })).toBe(1);
  expect(textsAt(corpus, MEAN, { row: 1, column: 2 })).toBe(2);
});
