import { describe, expect, it } from "vitest";
import type { PatchGrid, TokenList } from "../../../src/client/protocol";
import { readImage } from "../../../src/client/requests/images";
import { PALETTES } from "../../../src/ui/colors/palette";
import {
  headingOf,
  heatInWords,
  heatsInWords,
  sharesInWords,
} from "../../../src/ui/image/captions";
import {
  HEAT_OPACITY,
  type PanelContent,
  panelMarks,
  patchUnder,
} from "../../../src/ui/image/marks";
import type { Heat, HeatQuestion, HeatSeries } from "../../../src/ui/image/state";

const GRID: PatchGrid = { image: 0, start: 1, rows: 2, columns: 3 };

const TOKENS: TokenList = {
  text: [
    "[CLS]",
    ...["0,0", "0,1", "0,2", "1,0", "1,1", "1,2"].map((place) => `patch ${place}`),
    "word",
  ],
  special: [0],
  sequence: [null, 0, 0, 0, 0, 0, 0, 0],
  grids: [GRID],
};

const series = (heads: number[], more: Partial<HeatSeries> = {}): HeatSeries => ({
  name: `head ${heads.join()}`,
  color: "#102030",
  textColor: "#102030",
  heads,
  how: "mean",
  ...more,
});

/** Twelve by four pixels, all of one colour. */
const IMAGE = readImage({
  header: { width: 12, height: 4 },
  data: new Uint8Array(144).fill(200),
});

describe("what is said", () => {
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
  const said = { question, grid: GRID, queries: TOKENS, keys: TOKENS };
  // 0.30 on [CLS], 0.61 on patches, 0.09 on the word.
  const row = [0.3, 0.01, 0.1, 0.2, 0.1, 0.1, 0.1, 0.09];

  it("is signed numbers by their size, as no shares of a row", () => {
    const quantity = { name: "difference", signed: true, maximum: 0.5 };
    const input = { question, grid: GRID, queries: TOKENS, keys: TOKENS, quantity };
    const changed = heat([0.4, 0.1, -0.3, 0, 0, 0.2, 0, 0]);
    expect(headingOf(input)).toBe("Differences of “word” on the image");
    expect(heatInWords(changed, input)).toBe("Largest difference: “patch 0,1”, −0.300 (less).");
    expect(headingOf({ ...input, question: { ...question, side: null } })).toBe(
      "Mean difference over all 8 queries, where signs may cancel",
    );
  });

  it("is where the weight lies", () => {
    expect(sharesInWords(heat(row), said)).toBe("61% on the image, 30% on “[CLS]”, 9% elsewhere");
    // A row whose weights sum to a half: shares are of what there is.
    expect(sharesInWords(heat(row.map((weight) => weight / 2)), said)).toBe(
      "61% on the image, 30% on “[CLS]”, 9% elsewhere",
    );
    expect(sharesInWords(heat([0, 0, 0, 0, 0, 0, 1, 0]), said)).toBe("100% on the image");
    expect(sharesInWords(heat([1, 0, 0, 0, 0, 0, 0, 0]), said)).toBe(
      "0% on the image, 100% on “[CLS]”",
    );
    expect(sharesInWords(heat(new Array(8).fill(0)), said)).toBe("no weight at all");
  });

  it("names each image where there are several", () => {
    const grids = [
      { image: 0, start: 0, rows: 1, columns: 2 },
      { image: 1, start: 3, rows: 1, columns: 2 },
    ];
    const keys = { ...TOKENS, text: ["p", "p", ":", "q", "q"], grids };
    const of = { ...said, grid: grids[1] as PatchGrid, queries: keys, keys };
    expect(sharesInWords(heat([0.1, 0.2, 0.3, 0.15, 0.25]), of)).toBe(
      "40% on image 1, 30% on image 0, 30% on “:”",
    );
    expect(headingOf({ ...of, question: { ...question, token: 2 } })).toBe(
      "Weights of “:” on image 1",
    );
  });

  it("names the token, its side and the strongest patch", () => {
    expect(headingOf(said)).toBe("Weights of “word” on the image");
    expect(heatInWords(heat(row), said)).toBe(
      "61% on the image, 30% on “[CLS]”, 9% elsewhere. Most on “patch 0,2”, 0.200.",
    );
    const toKey = { ...said, question: { ...question, side: "key" as const, token: 0 } };
    expect(headingOf(toKey)).toBe("Weights on “[CLS]” from each patch");
    expect(heatInWords(heat(row), toKey)).toBe("Most from “patch 0,2”, 0.200.");
    const received = { ...said, question: { ...question, side: null } };
    expect(heatsInWords([heat(row)], received)).toBe(
      "Attention received: the mean over all 8 queries. head 0: 61% on the image, 30% on “[CLS]”, 9% elsewhere. Most on “patch 0,2”, 0.200.",
    );
  });

  it("gives no shares of maxima over heads", () => {
    expect(heatInWords(heat(row, { how: "max" }), said)).toBe("Most on “patch 0,2”, 0.200.");
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

  it("has a tile for each heat-map, in the image's proportions", () => {
    const one = panelMarks(picture(1));
    expect(one.tiles).toHaveLength(1);
    expect(one.tiles[0]).toMatchObject({ x: 0, width: 314 });
    expect(one.tiles[0]?.height).toBeCloseTo(314 / 3, 6);
    const four = panelMarks(picture(4));
    // Two in a row, 14 pixels apart.
    expect(four.tiles.map((tile) => tile.x)).toEqual([0, 164, 0, 164]);
    expect(four.tiles.every((tile) => tile.width === 150)).toBe(true);
    expect(four.tiles[2]?.y).toBeGreaterThan((four.tiles[0]?.y ?? 0) + 50);
  });

  it("shows the image in its colours where no weights are asked for", () => {
    const { marks, tiles } = panelMarks(picture(0));
    const images = marks.filter((mark) => mark.kind === "image");
    expect(images).toHaveLength(1);
    expect(images[0]).toMatchObject({ picture: true, columns: 12, rows: 4 });
    expect(images[0]?.pixels[2]).toBe(200);
    expect(tiles).toHaveLength(1);
  });

  it("lays the grid's own weights over a grey picture, and frames what stands out", () => {
    const { marks } = panelMarks(picture(1, { own: 4, hovered: 0 }));
    const [grey, heat] = marks.filter((mark) => mark.kind === "image");
    expect(grey).toMatchObject({ picture: true, columns: 12, rows: 4 });
    expect(heat).toMatchObject({ columns: 3, rows: 2 });
    // The third patch has the largest weight, and the image's end.
    expect(heat?.pixels[4 * 2 + 3]).toBe(Math.round(255 * HEAT_OPACITY));
    const frames = marks.filter((mark) => mark.kind === "rect" && mark.strokeWidth === 1.8);
    expect(frames).toHaveLength(1);
    // Patch 1,1: a third of the way across, the lower half.
    const top = (grey as { y: number }).y;
    expect(frames[0]).toMatchObject({ x: 314 / 3, y: top + 314 / 6 });
  });

  it("finds the patch under a point, and none beside the tiles", () => {
    const drawn = panelMarks(picture(4));
    const second = drawn.tiles[1] as { x: number; y: number };
    expect(patchUnder(drawn, GRID, second.x + 149, second.y + 1)).toEqual({ patch: 2, tile: 1 });
    expect(patchUnder(drawn, GRID, second.x + 1, second.y + 49)).toEqual({ patch: 3, tile: 1 });
    expect(patchUnder(drawn, GRID, 155, second.y + 1)).toBeNull();
  });

  it("ends its scale at the largest weight, in words", () => {
    const texts = panelMarks(picture(1, { end: 0.1449, notes: ["Know this."] })).marks.flatMap(
      (mark) => (mark.kind === "text" ? [mark.text] : []),
    );
    expect(texts).toEqual(expect.arrayContaining(["0", "weight", "0.145", "Know this."]));
  });
});
