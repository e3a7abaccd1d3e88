import { describe, expect, it } from "vitest";
import { PALETTES } from "../../../src/ui/colors/palette";
import { headingOf, heatInWords, sharesInWords } from "../../../src/ui/image/captions";
import { type PanelContent, panelMarks } from "../../../src/ui/image/marks";
import type { Heat, HeatQuestion, HeatSeries } from "../../../src/ui/image/state";
import { sentences } from "../../builders";
import { GRID, imageOf, series, TOKENS } from "../../images";

const IMAGE = imageOf(12, 4);

describe("the caption", () => {
  const heat = (values: number[], more: Partial<HeatSeries> = {}): Heat => ({
    series: series([0], more),
    values: Float32Array.from(values),
  });
  const question: HeatQuestion = {
    stack: "self",
    layer: 0,
    side: "query",
    token: 7,
    numQueries: 8,
    numKeys: 8,
    series: [],
  };
  const captionInput = { question, grid: GRID, queries: TOKENS, keys: TOKENS };
  // The row has 0.30 on "[CLS]", 0.61 on the six patches and 0.09 on the word.
  const row = [0.3, 0.01, 0.1, 0.2, 0.1, 0.1, 0.1, 0.09];

  const changed = heat([0.4, 0.1, -0.3, 0, 0, 0.2, 0, 0]);
  const signed = { ...captionInput, quantity: { name: "difference", signed: true, maximum: 0.5 } };
  sentences({
    "Differences of “word” on the image": headingOf(signed),
    "Largest difference: “0,1”, −0.300 (less).": heatInWords(changed, signed),
    "Mean difference over all 8 queries (signs may cancel)": headingOf({
      ...signed,
      question: { ...question, side: null },
    }),
    "61% on the image, 30% on “[CLS]”, 9% elsewhere": sharesInWords(heat(row), captionInput),
    "100% on the image": sharesInWords(heat([0, 0, 0, 0, 0, 0, 1, 0]), captionInput),
    "0% on the image, 100% on “[CLS]”": sharesInWords(heat([1, 0, 0, 0, 0, 0, 0, 0]), captionInput),
    "no weight at all": sharesInWords(heat(new Array(8).fill(0)), captionInput),
    // For maxima over heads, no shares are stated.
    "Most on “0,2”, 0.200.": heatInWords(heat(row, { how: "max" }), captionInput),
  });

  it("has shares of the sum of a row that does not sum to 1", () => {
    const half = heat(row.map((weight) => weight / 2));
    expect(sharesInWords(half, captionInput)).toBe(sharesInWords(heat(row), captionInput));
  });
});

describe("the panel", () => {
  const picture = (count: number, more: Partial<PanelContent> = {}): PanelContent => ({
    width: 314,
    palette: PALETTES.light,
    image: IMAGE,
    grid: GRID,
    heats: Array.from({ length: count }, (_, head) => ({
      series: series([head]),
      values: Float32Array.of(0.3, 0.01, 0.1, 0.2, 0.1, 0.1, 0.1, 0.09),
    })),
    captionInput: null,
    end: 0.2,
    own: null,
    other: null,
    hovered: null,
    notes: [],
    ...more,
  });

  it("has one tile per heat map, with the aspect ratio of the image", () => {
    const one = panelMarks(picture(1));
    expect(one.tiles).toHaveLength(1);
    expect(one.tiles[0]).toMatchObject({ x: 0, width: 314 });
    expect(one.tiles[0]?.height).toBeCloseTo(314 / 3, 6);
    const four = panelMarks(picture(4));
    // The four images are in two rows of two. The gap between them is 14 pixels.
    expect(four.tiles.map((tile) => tile.x)).toEqual([0, 164, 0, 164]);
    expect(four.tiles.every((tile) => tile.width === 150)).toBe(true);
    expect(four.tiles[2]?.y).toBeGreaterThan((four.tiles[0]?.y ?? 0) + 50);
  });
});
