// @vitest-environment node
import { describe, expect, it } from "vitest";
import type { ReadRequest, TokenList } from "../../../src/client/protocol";
import { combineHeads } from "../../../src/client/signs";
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
  type MapKind,
  mapKinds,
  mapsOf,
} from "../../../src/ui/image/state";
import { type Selection, selectionOf } from "../../../src/ui/view/record";
import { RECORD_DEFAULTS } from "../../defaults";
import { described, series, TOKENS } from "../../images";
import { distance, SIGHT } from "../../sight";

/** Return axes that show all tokens. */
const axesOf = ({ queries, keys }: Selection) => ({
  query: tokenAxis("query", queries, [0, queries.text.length]),
  key: tokenAxis("key", keys, [0, keys.text.length]),
});

/** Return the first grid of each side. */
const by = ({ queries, keys }: Selection) => ({
  query: queries.grids?.[0] ?? null,
  key: keys.grids?.[0] ?? null,
});

const text = { text: ["[CLS]", "cat", "hat"], special: [0], sequence: [null, 0, 0] };
/** A stack whose queries are patches and whose keys are words, as in diffusion models. */
const ofWords = selectionOf(described(TOKENS, text), RECORD_DEFAULTS);

describe("the request", () => {
  const selection = selectionOf(described(), RECORD_DEFAULTS);
  const ask = (query: number | null, key: number | null, of = selection): HeatQuestion | null =>
    heatQuestion(of, by(of), { query, key }, [series([0])], axesOf(of));

  it("is for the query's weights, else those on the key, else the mean over queries", () => {
    expect(ask(3, 5)).toMatchObject({ side: "query", token: 3 });
    expect(ask(null, 5)).toMatchObject({ side: "key", token: 5 });
    expect(ask(null, null)).toMatchObject({ side: null });
    // The queries of this stack are no patches, so an image cannot show their weights on a key.
    const cross = selectionOf(described(text, TOKENS), RECORD_DEFAULTS);
    expect(ask(null, 5, cross)).toMatchObject({ side: null, rows: [0, 3], columns: [0, 8] });
  });

  it("is for the weights of patches on a key if only queries are patches", () => {
    expect(ask(3, 1, ofWords)).toMatchObject({ side: "key", token: 1, columns: [1, 2] });
    expect(ask(3, null, ofWords)).toBeNull();
  });

  it("is absent if a mean needs too many weights", () => {
    const text = Array.from({ length: 2100 }, (_, i) => `t${i}`);
    const long = { ...TOKENS, text, sequence: text.map(() => 0) };
    const large = selectionOf(described(long), RECORD_DEFAULTS);
    expect(ask(null, null, large)).toBeNull();
    expect(ask(1400, null, large)).not.toBeNull();
  });

  it("is for one mean if there are too many heads", () => {
    const many = Array.from({ length: 17 }, (_, head) => series([head]));
    const seriesOf = (all: HeatSeries[]) =>
      heatQuestion(selection, by(selection), { query: 3, key: null }, all, axesOf(selection))
        ?.series;
    expect(seriesOf(many.slice(1))).toHaveLength(16);
    const heads = many.map((_, head) => head);
    expect(seriesOf(many)).toMatchObject([{ name: "mean of 17 heads", how: "mean", heads }]);
  });
});

const candidate = (name: string) => ({ id: 0, text: name, probability: 1 });
const ANSWER: TokenList = {
  ...TOKENS,
  predictions: [
    { query: 5, row: 6, token: candidate("a"), candidates: [] },
    { query: 6, row: null, token: candidate("b"), candidates: [] },
  ],
};

describe("the maps", () => {
  const together = series([0, 1]);
  const namesOf = (kind: MapKind, of: Selection, all = [together]) =>
    mapsOf(kind, of, all, PALETTES.light).map(({ name }) => name.replaceAll("\u00a0", " "));
  const twoLayers = { layers: [0, 1], heads_per_layer: [2, 2] };
  const answer = described(ANSWER, null, { ...twoLayers, causal: true });
  const selection = selectionOf(answer, RECORD_DEFAULTS);

  it("are those of layers, of heads, or of the words of an answer", () => {
    expect(namesOf("chosen", selection)).toEqual(["mean of 2 heads"]);
    expect(namesOf("layers", selection)).toEqual(["layer 0", "layer 1"]);
    expect(namesOf("layers", selection, [series([1]), series([0])])).toEqual([
      ...["layer 0, head 1", "layer 1, head 1"],
      ...["layer 0, head 0", "layer 1, head 0"],
    ]);
    expect(namesOf("heads", selection)).toEqual(["head 0", "head 1"]);
    expect(namesOf("words", selection)).toEqual(["a", "b"]);
    // Without layers to choose from, they are those of the chosen heads.
    expect(mapKinds(selectionOf(described(), RECORD_DEFAULTS))).not.toContain("layers");
    expect(namesOf("layers", selectionOf(described(), RECORD_DEFAULTS))).toEqual([together.name]);
  });

  it("are those of words that are keys if only queries are patches", () => {
    const maps = mapsOf("words", ofWords, [together], PALETTES.light);
    expect(maps.map(({ name, choice }) => [name, choice])).toEqual([
      ["cat", { key: 1 }],
      ["hat", { key: 2 }],
    ]);
  });

  it("are those of words that read patches, or that patches read, without an answer", () => {
    const choicesOf = (of: Selection) =>
      mapsOf("words", of, [together], PALETTES.light).map(({ choice }) => choice);
    const selectionIn = (causal: boolean) =>
      selectionOf(described(TOKENS, null, { causal }), RECORD_DEFAULTS);
    expect(choicesOf(selectionIn(true))).toEqual([{ token: 7 }]);
    expect(choicesOf(selectionIn(false))).toEqual([{ key: 7 }]);
    // Queries that are words read keys that are patches.
    const reading = selectionOf(described(text, TOKENS), RECORD_DEFAULTS);
    expect(choicesOf(reading)).toEqual([{ token: 1 }, { token: 2 }]);
    const maps = mapsOf("words", selectionIn(false), [together], PALETTES.light);
    const question = (of: Selection) =>
      heatQuestion(of, by(of), { query: 3, key: null }, maps, axesOf(of));
    expect(question(selectionIn(false))).toMatchObject({ side: "key", columns: [7, 8] });
  });

  it.each<[MapKind, Selection, number, number[]]>([
    ["heads", selection, 1, [0, 1]],
    ["words", selection, 1, [0, 1]],
    ["words", ofWords, 1, [0, 1]],
    ["layers", selection, 2, [0, 1]],
  ])("%s need one read for all maps of a layer", async (kind, of, numReads, heads) => {
    const reads: ReadRequest[] = [];
    const counting = {
      block: async (read: ReadRequest) => {
        reads.push(read);
        return source.block(read, new AbortController().signal);
      },
    } as unknown as Source;
    const maps = mapsOf(kind, of, [together], PALETTES.light);
    const question = heatQuestion(of, by(of), { query: 3, key: 1 }, maps, axesOf(of));
    const heats = await loadHeat(counting, question as HeatQuestion, new AbortController().signal);
    expect(reads).toHaveLength(numReads);
    expect(new Set(reads.map(({ layer }) => layer)).size).toBe(numReads);
    expect(reads[0]?.heads).toEqual(heads);
    // The kernel combines the heads if all maps are of the same heads.
    expect(reads[0]?.combine).toBe(kind === "heads" ? "separate" : "mean");
    expect(heats).toHaveLength(maps.length);
  });

  it("have the numbers of one head, layer or word each", async () => {
    const numbersOf = async (kind: MapKind, of: Selection): Promise<(number | undefined)[]> => {
      const maps = mapsOf(kind, of, [together], PALETTES.light);
      const question = heatQuestion(of, by(of), { query: 3, key: 1 }, maps, axesOf(of));
      const heats = await loadHeat(source, question as HeatQuestion, new AbortController().signal);
      return heats.map(({ values }) => values[2]);
    };
    // 1000 for each layer, 100 for each head (50 for the mean), 10 for the query, 1 for the key.
    expect(await numbersOf("heads", selection)).toEqual([32, 132]);
    expect(await numbersOf("layers", selection)).toEqual([82, 1082]);
    expect(await numbersOf("words", selection)).toEqual([102, 112]);
    expect(await numbersOf("words", ofWords)).toEqual([71, 72]);
  });
});

// Source in which the weight of query i on key j in head h of layer l is 1000 l + 100 h + 10 i + j.
const source = {
  block: async ({ layer, heads, rows, columns, combine }: ReadRequest) => {
    const width = columns[1] - columns[0];
    const length = (rows[1] - rows[0]) * width;
    const weight = (head: number, i: number): number =>
      1000 * layer + 100 * head + 10 * (rows[0] + Math.floor(i / width)) + columns[0] + (i % width);
    const all = heads.map((head) => Float32Array.from({ length }, (_, i) => weight(head, i)));
    return {
      matrices: combine === "separate" ? all : [combineHeads(all, combine ?? "mean")],
      ...{ rows: rows[1] - rows[0], columns: width, maximum: 1000, error: 0 },
    };
  },
} as unknown as Source;

describe("heat maps", () => {
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
