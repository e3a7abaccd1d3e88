import { describe, expect, it } from "vitest";
import type { Range, StackDescription } from "../../../src/client/protocol";
import { type Exclusion, tokenAxis } from "../../../src/ui/axis";
import { PALETTES } from "../../../src/ui/colors/palette";
import { headingOf, heatInWords, mapsInWords, sharesInWords } from "../../../src/ui/image/captions";
import { panelMarks, smallImages } from "../../../src/ui/image/marks";
import type { Heat, HeatSeries } from "../../../src/ui/image/state";
import { sentences, stackOf } from "../../builders";
import { GRID, imageOf, series, TOKENS } from "../../images";

const heatOf = (values: number[], more: Partial<HeatSeries> = {}): Heat => ({
  series: series([0], more),
  values: Float32Array.from(values),
});

const question = {
  ...{ stack: "self", layer: 0, side: "query" as const, token: 7 },
  ...{ rows: [7, 8] as Range, columns: [0, 8] as Range, excluded: [], series: [] },
};
const inputOf = (more: Partial<StackDescription> = {}, exclusions: Exclusion[] = []) => {
  const axis = tokenAxis("key", TOKENS, [0, 8], exclusions);
  const axes = { query: axis, key: axis };
  return { question, grid: GRID, stack: stackOf(more), axes };
};
const input = inputOf();
const signed = inputOf({ measure: "difference", signed: true, maximum: 0.5 });
const withoutSpecial = inputOf({}, [
  { words: "special tokens", look: "hidden", flags: Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0) },
]);
const mean = { ...signed, question: { ...question, side: null } };
const changed = heatOf([0.4, 0.1, -0.3, 0, 0, 0.2, 0, 0]);
// The row has 0.30 on "[CLS]", 0.61 on the six patches and 0.09 on the word. `half` has the same
// shares.
const row = [0.3, 0.01, 0.1, 0.2, 0.1, 0.1, 0.1, 0.09];
const half = heatOf(row.map((weight) => weight / 2));

sentences({
  "Differences of “word” on the image": headingOf(signed),
  "Largest difference: “0,1”, −0.300 (less).": heatInWords(changed, signed),
  "Mean difference over all 8 queries (signs may cancel)": headingOf(mean),
  "61% on the image, 30% on “[CLS]”, 9% elsewhere": sharesInWords(half, input),
  "61% on the image, 9% on “word”, 30% on keys left out": sharesInWords(half, withoutSpecial),
  "Attention received: the mean over 6 of 8 queries": headingOf({
    ...input,
    question: { ...question, side: null, excluded: [[0, 2]] },
  }),
  "no weight at all": sharesInWords(heatOf([0, 0, 0, 0, 0, 0, 0, 0]), input),
  "Weights of each word on the image": headingOf({
    ...input,
    question: { ...question, series: [series([0], { token: 7 })] },
  }),
  "Between 61% (“a”) and 70% (“b”) of the weight is on the image. Largest weight: “b”, “0,2”, 0.300.":
    mapsInWords(
      [
        heatOf(row, { name: "a", token: 1 }),
        heatOf([0.3, 0, 0.1, 0.3, 0.1, 0.1, 0.1, 0], { name: "b", token: 2 }),
      ],
      input,
    ),
  "61% on the image, 30% on “[CLS]”, 9% elsewhere. Most on “0,2”, 0.200.": heatInWords(
    heatOf(row),
    { ...input, question: { ...question, side: null } },
  ),
  "100% on the image. Most on “0,2”, 0.310. Framed: sinks, patches with a mean weight above 0.3.":
    heatInWords(heatOf([0, 0.01, 0.1, 0.31, 0.3, 0.1, 0.18, 0]), {
      ...input,
      question: { ...question, side: null },
    }),
  // Maxima over heads do not sum to 1, so the sentence names no shares.
  "Most on “0,2”, 0.200.": heatInWords(heatOf(row, { how: "max" }), input),
});

const contentOf = (count: number, width: number, image = imageOf(12, 4)) => ({
  ...{ width, palette: PALETTES.light, image, grid: GRID, end: 0.2 },
  ...{ ...input, question: null, frames: [], note: "" },
  heats: Array.from({ length: count }, () => heatOf(row)),
});

it("the panel has one tile per heat map, with the aspect ratio of the image", () => {
  const tilesOf = (count: number) => panelMarks(contentOf(count, 314)).tiles;
  const [tile] = tilesOf(1);
  expect(tile).toMatchObject({ x: 0, width: 314, height: expect.closeTo(314 / 3, 6) });
  // Two rows of two tiles fit into 314 pixels: 150 + 14 (gap) + 150.
  const four = tilesOf(4);
  expect(four.map(({ x, width }) => [x, width]).join(" ")).toBe("0,150 164,150 0,150 164,150");
  expect(four[2]?.y).toBeGreaterThan((four[0]?.y ?? 0) + 50);
});

it("up to three images of the panel have its width, and none is higher than 600 pixels", () => {
  expect(panelMarks(contentOf(3, 400)).tiles.map(({ x, width }) => [x, width])).toEqual([
    [0, 400],
    [0, 400],
    [0, 400],
  ]);
  const [tall] = panelMarks(contentOf(1, 400, imageOf(4, 12))).tiles;
  expect(tall).toMatchObject({ width: 200, height: 600 });
});

it("small maps are in a row after the image in its own colours, and the chosen one has a frame", () => {
  const heats = [0, 1].map((layer) => heatOf(row, { choice: { layer } }));
  const panel = panelMarks({ ...contentOf(1, 400), heats, chosen: heats.slice(1) });
  const pictures = panel.marks.flatMap((mark) =>
    mark.kind === "image" && mark.picture ? [mark] : [],
  );
  expect(pictures).toHaveLength(3);
  // Blue is 200 in the image itself, and the maps have its grey.
  expect(pictures.map(({ pixels }) => pixels[2] === 200)).toEqual([true, false, false]);
  // The image is not a tile.
  expect(panel.tiles.map(({ x }) => x)).toEqual(pictures.slice(1).map(({ x }) => x));
  const framed = panel.marks.filter((mark) => mark.kind === "rect" && mark.strokeWidth === 2);
  expect(framed).toMatchObject([{ x: panel.tiles[1]?.x }]);
});

it("the image in its own colours is beside the colour scale, or below it in a narrow panel", () => {
  const photoIn = (width: number) =>
    panelMarks(contentOf(1, width)).marks.filter(
      (mark) => mark.kind === "image" && mark.picture,
    )[1];
  expect(photoIn(400)).toMatchObject({ x: 400 - 96, width: 96, height: 32 });
  expect(photoIn(220)).toMatchObject({ x: 0, width: 96, height: 32 });
});

describe("a figure", () => {
  /** Return the left edge, width and row of each image, for groups of `counts` images. */
  const imagesOf = (counts: number[], width: number) => {
    const heats = counts.flatMap((count, row) =>
      Array.from({ length: count }, () => heatOf([], { row })),
    );
    const { marks } = smallImages({ ...contentOf(1, width), heats });
    const images = marks.flatMap((mark) => (mark.kind === "image" && mark.picture ? [mark] : []));
    const tops = [...new Set(images.map(({ y }) => y))].sort((a, b) => a - b);
    return images.map(({ x, y, width: wide }) => ({ x, width: wide, row: tops.indexOf(y) }));
  };
  const rowsOf = (counts: number[], width: number): string =>
    imagesOf(counts, width)
      .map(({ row }) => row)
      .join("");
  // An image has at least 60 pixels, and there are 14 between two images.
  const four = 4 * 60 + 3 * 14;

  it("has the images in one row, or in equal rows if they do not fit", () => {
    expect(rowsOf([4], four)).toEqual("0000");
    expect(rowsOf([4], four - 1)).toEqual("0011");
    const last = imagesOf([3], 314).at(-1);
    expect(last).toMatchObject({ x: expect.closeTo(219, 0), width: expect.closeTo(95, 0) });
  });

  it("begins a row for each group, and all images have the same size", () => {
    expect(rowsOf([4, 3], four)).toEqual("0000111");
    expect(rowsOf([4, 3], four - 1)).toEqual("0011223");
    expect(new Set(imagesOf([4, 3, 1], 400).map(({ width }) => width)).size).toBe(1);
  });
});
