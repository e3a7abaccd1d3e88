// @vitest-environment node
import { describe, expect, it } from "vitest";
import type { ReadRequest } from "../../../src/client/protocol";
import type { Source } from "../../../src/client/source";
import { GREY_CONTRAST } from "../../../src/draw/patches";
import { tokenAxis } from "../../../src/ui/axis";
import { hexOf, PALETTES, rgbOf, type ThemeName } from "../../../src/ui/colors/palette";
import { HEAT_OPACITY, heatPixels } from "../../../src/ui/image/marks";
import {
  type HeatQuestion,
  type HeatSeries,
  heatQuestion,
  loadHeat,
} from "../../../src/ui/image/state";
import { type Selection, selectionOf } from "../../../src/ui/view/record";
import { RECORD_DEFAULTS } from "../../defaults";
import { described, GRID, series, TOKENS } from "../../images";
import { distance, SIGHT } from "../../sight";

/** Return axes that show all tokens. */
const axesOf = ({ queries, keys }: Selection) => ({
  query: tokenAxis("query", queries, [0, queries.text.length]),
  key: tokenAxis("key", keys, [0, keys.text.length]),
});

describe("the request", () => {
  const selection = selectionOf(described(), RECORD_DEFAULTS);
  const ask = (query: number | null, key: number | null, of = selection): HeatQuestion | null =>
    heatQuestion(of, GRID, { query, key }, [series([0])], axesOf(of));

  it("is for the query's weights, else those on the key, else the mean over queries", () => {
    expect(ask(3, 5)).toMatchObject({ side: "query", token: 3 });
    expect(ask(null, 5)).toMatchObject({ side: "key", token: 5 });
    expect(ask(null, null)).toMatchObject({ side: null });
    // The queries of this stack are no patches, so an image cannot show their weights on a key.
    const text = { text: ["a", "b"], special: [], sequence: [0, 0] };
    const cross = selectionOf(described(text, TOKENS), RECORD_DEFAULTS);
    expect(ask(null, 5, cross)).toMatchObject({ side: null, rows: [0, 2], columns: [0, 8] });
  });

  it("is absent if a mean needs too many weights", () => {
    const text = Array.from({ length: 1500 }, (_, i) => `t${i}`);
    const long = { ...TOKENS, text, sequence: text.map(() => 0) };
    const large = selectionOf(described(long), RECORD_DEFAULTS);
    expect(ask(null, null, large)).toBeNull();
    expect(ask(1400, null, large)).not.toBeNull();
  });

  it("is for one mean if there are too many heads", () => {
    const many = Array.from({ length: 17 }, (_, head) => series([head]));
    const seriesOf = (all: HeatSeries[]) =>
      heatQuestion(selection, GRID, { query: 3, key: null }, all, axesOf(selection))?.series;
    expect(seriesOf(many.slice(1))).toHaveLength(16);
    const heads = many.map((_, head) => head);
    expect(seriesOf(many)).toMatchObject([{ name: "mean of 17 heads", how: "mean", heads }]);
  });
});

describe("heat maps", () => {
  // Source in which the weight of query i on key j in head h is 100 h + 10 i + j.
  const source = {
    block: async ({ heads, rows, columns }: ReadRequest) => {
      const width = columns[1] - columns[0];
      const length = (rows[1] - rows[0]) * width;
      const weight = (head: number, i: number): number =>
        100 * head + 10 * (rows[0] + Math.floor(i / width)) + columns[0] + (i % width);
      return {
        matrices: heads.map((head) => Float32Array.from({ length }, (_, i) => weight(head, i))),
        ...{ rows: rows[1] - rows[0], columns: width, maximum: 1000, error: 0 },
      };
    },
  } as unknown as Source;

  it.each([
    ["rows of a query", "query", 2, ["120,121,122,123", "70,71,72,73", "120,121,122,123"]],
    ["columns of a key", "key", 3, ["103,113,123", "53,63,73", "103,113,123"]],
    ["means over all queries", null, 0, ["110,111,112,113", "60,61,62,63", "110,111,112,113"]],
  ] as const)(
    "are %s, for one head, and for the mean and the maximum of two",
    async (_, side, token, expected) => {
      const question: HeatQuestion = {
        ...{ stack: "self", layer: 0, side, token },
        rows: side === "query" ? [token, token + 1] : [0, 3],
        columns: side === "key" ? [token, token + 1] : [0, 4],
        excluded: [],
        series: [series([1]), series([0, 1]), series([0, 1], { how: "max" })],
      };
      const heats = await loadHeat(source, question, new AbortController().signal);
      expect(heats.map(({ values }) => values.join())).toEqual(expected);
    },
  );

  it("are means over the queries that count", async () => {
    const question: HeatQuestion = {
      ...{ stack: "self", layer: 0, side: null, token: 0, series: [series([1])] },
      ...{ rows: [0, 3], columns: [0, 4], excluded: [] },
    };
    const valuesOf = async (asked: HeatQuestion): Promise<string | undefined> =>
      (await loadHeat(source, asked, new AbortController().signal))[0]?.values.join();
    expect(await valuesOf({ ...question, excluded: [[2, 3]] })).toBe("105,106,107,108");
    expect(await valuesOf({ ...question, excluded: [[0, 2]] })).toBe("120,121,122,123");
  });

  it("have one colour per sign", () => {
    const { positive, negative } = PALETTES.light;
    const pixels = heatPixels(Float32Array.of(0.2, -0.1), 0.2, { positive, negative });
    expect([...pixels]).toEqual([
      ...[...rgbOf(positive), Math.round(255 * HEAT_OPACITY)],
      ...[...rgbOf(negative), Math.round(127.5 * HEAT_OPACITY)],
    ]);
  });
});

describe.each(Object.keys(PALETTES) as ThemeName[])(
  "weights on a photo in the %s theme",
  (theme) => {
    const { heads, headTexts, positive, negative, background } = PALETTES[theme];
    const ground = rgbOf(background);
    const greys = Array.from({ length: 256 }, (_, grey) =>
      ground.map((color) => grey * GREY_CONTRAST + color * (1 - GREY_CONTRAST)),
    );

    it.each(Object.entries(SIGHT))("show on every grey for %s vision", (_name, sight) => {
      // Smallest distance between a grey with and without a weight in any colour.
      const least = (weight: number): number => {
        const distances = [...(headTexts ?? heads), positive, negative].flatMap((ink) => {
          const [red = 0, green = 0, blue = 0, alpha = 0] = heatPixels(
            Float32Array.of(weight),
            1,
            ink,
          );
          const over = (grey: number[]): number[] =>
            [red, green, blue].map((color, i) => {
              return (color * alpha + (grey[i] as number) * (255 - alpha)) / 255;
            });
          return greys.map((grey) => distance(hexOf(over(grey)), hexOf(grey), sight));
        });
        return Math.min(...distances);
      };
      // 0.085 is the smallest distance of the colours of two heads. The strongest weight has twice
      // this distance, and half of it nearly the simple one.
      expect(least(1)).toBeGreaterThan(2 * 0.085);
      expect(least(0.5)).toBeGreaterThan(0.085);
    });
  },
);
