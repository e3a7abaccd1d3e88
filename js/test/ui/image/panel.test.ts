import { describe, expect, it } from "vitest";
import { PALETTES } from "../../../src/ui/colors/palette";
import { headingOf, heatInWords, sharesInWords } from "../../../src/ui/image/captions";
import { type PanelContent, panelMarks } from "../../../src/ui/image/marks";
import type { Heat, HeatQuestion, HeatSeries } from "../../../src/ui/image/state";
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

  it("orders signed numbers by absolute value, without shares", () => {
    const quantity = { name: "difference", signed: true, maximum: 0.5 };
    const input = { question, grid: GRID, queries: TOKENS, keys: TOKENS, quantity };
    const changed = heat([0.4, 0.1, -0.3, 0, 0, 0.2, 0, 0]);
    expect(headingOf(input)).toBe("Differences of “word” on the image");
    expect(heatInWords(changed, input)).toBe("Largest difference: “0,1”, −0.300 (less).");
    expect(headingOf({ ...input, question: { ...question, side: null } })).toBe(
      "Mean difference over all 8 queries (signs may cancel)",
    );
  });

  it("describes where the weight is", () => {
    expect(sharesInWords(heat(row), captionInput)).toBe(
      "61% on the image, 30% on “[CLS]”, 9% elsewhere",
    );
    // The weights of this row sum to 0.5. The shares are shares of this sum.
    expect(sharesInWords(heat(row.map((weight) => weight / 2)), captionInput)).toBe(
      "61% on the image, 30% on “[CLS]”, 9% elsewhere",
    );
    expect(sharesInWords(heat([0, 0, 0, 0, 0, 0, 1, 0]), captionInput)).toBe("100% on the image");
    expect(sharesInWords(heat([1, 0, 0, 0, 0, 0, 0, 0]), captionInput)).toBe(
      "0% on the image, 100% on “[CLS]”",
    );
    expect(sharesInWords(heat(new Array(8).fill(0)), captionInput)).toBe("no weight at all");
  });

  it("has no shares for maxima over heads", () => {
    expect(heatInWords(heat(row, { how: "max" }), captionInput)).toBe("Most on “0,2”, 0.200.");
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
