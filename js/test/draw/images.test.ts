// @vitest-environment node
import { deflateSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { PageCarrier, type PageData } from "../../src/client/page";
import { type RecordImage, readImage } from "../../src/client/requests/images";
import {
  type BlockRequest,
  type Description,
  type PatchGrid,
  Source,
  type StackDescription,
  type TokenList,
} from "../../src/client/source";
import { cropOf, greyOf, patchOf, shapesOf, withPatchNames } from "../../src/draw/patches";
import { HEAT_OPACITY, heatPixels } from "../../src/ui/image/marks";
import {
  fewSeries,
  type HeatQuestion,
  type HeatSeries,
  heatQuestion,
  loadHeat,
  queryGridOf,
} from "../../src/ui/image/state";
import { placeOf, RECORD_DEFAULTS } from "../../src/ui/record";

const GRID: PatchGrid = { image: 0, start: 1, rows: 2, columns: 3 };

/** [CLS], six patches, a word. */
const TOKENS: TokenList = {
  text: ["[CLS]", "0,0", "0,1", "0,2", "1,0", "1,1", "1,2", "word"],
  special: [0],
  sequence: [null, 0, 0, 0, 0, 0, 0, 0],
  grids: [GRID],
};

function described(queries = TOKENS, keys: TokenList | null = null): Description {
  const stack: StackDescription = {
    name: "self",
    layers: [0],
    heads_per_layer: [2],
    query_tokens: queries,
    key_tokens: keys,
    normalized: true,
    maximum: 1,
    causal: false,
    vectors: false,
    patterns: [],
  };
  return { model: "m", notes: [], images: [{ height: 4, width: 12 }], stacks: [stack] };
}

const placed = (description = described()) => placeOf(description, RECORD_DEFAULTS);

/** Each pixel's red is its column, its green its row. */
function imageOf(width: number, height: number): RecordImage {
  const bytes = new Uint8Array(3 * width * height);
  for (let i = 0; i < width * height; i++)
    bytes.set([i % width, Math.floor(i / width), 200], 3 * i);
  return readImage({ header: { width, height }, data: bytes });
}

describe("an image on its way", () => {
  it("becomes opaque pixels, and says when bytes are missing", () => {
    const image = imageOf(3, 2);
    expect([...image.pixels.subarray(16, 24)]).toEqual([1, 1, 200, 255, 2, 1, 200, 255]);
    expect(() => readImage({ header: { width: 2, height: 2 }, data: new Uint8Array(9) })).toThrow(
      "The reply holds 9 bytes; an image of 2 x 2 needs 12.",
    );
  });

  it("comes from the page that carries it, once", async () => {
    const data = {
      format: 2,
      view: "head",
      state: {},
      description: described(),
      blocks: [],
      maps: [],
      images: [
        {
          width: 1,
          height: 2,
          data: deflateSync(Buffer.from([1, 2, 3, 4, 5, 6])).toString("base64"),
        },
      ],
    } satisfies PageData;
    const source = new Source(new PageCarrier(data));
    const image = await source.image(0);
    expect(image).toMatchObject({ width: 1, height: 2 });
    expect([...image.pixels]).toEqual([1, 2, 3, 255, 4, 5, 6, 255]);
    expect(await source.image(0)).toBe(image);
    await expect(source.image(1)).rejects.toThrow("This page does not carry image 1.");
  });
});

describe("patches", () => {
  it("are found by their tokens and called by their places", () => {
    expect(patchOf(TOKENS, 0)).toBeNull();
    expect(patchOf(TOKENS, 6)).toEqual({ grid: GRID, row: 1, column: 2 });
    expect(patchOf(TOKENS, 7)).toBeNull();
    const [stack] = withPatchNames(described()).stacks;
    expect(stack?.query_tokens.text.slice(0, 3)).toEqual(["[CLS]", "patch 0,0", "patch 0,1"]);
    expect(stack?.query_tokens.text[7]).toBe("word");
  });

  it("are called by their image too, where there are several; text stays where there is none", () => {
    const two = { ...described(), images: [1, 2].map(() => ({ height: 4, width: 12 })) };
    expect(withPatchNames(two).stacks[0]?.query_tokens.text[6]).toBe("patch 1,2 of image 0");
    const { images: _, ...none } = described();
    expect(withPatchNames(none)).toBe(none);
  });

  it("have the shape that the image leaves them", () => {
    // 12 x 4 pixels in 3 x 2 patches: 4 wide, 2 high.
    const shape = shapesOf(TOKENS, described());
    expect([0, 1, 6, 7].map((token) => shape?.(token))).toEqual([null, 2, 2, null]);
    expect(shapesOf({ ...TOKENS, grids: [] }, { ...described(), images: [] })?.(1)).toBeNull();
  });

  it("are cut out of the image, the same pixels every time", () => {
    const image = imageOf(12, 4);
    const crop = cropOf(image, { grid: GRID, row: 1, column: 2 });
    expect([crop.columns, crop.rows]).toEqual([4, 2]);
    expect([...crop.pixels.subarray(0, 4)]).toEqual([8, 2, 200, 255]);
    expect([...crop.pixels.subarray(-4)]).toEqual([11, 3, 200, 255]);
    expect(cropOf(image, { grid: GRID, row: 1, column: 2 })).toBe(crop);
  });

  it("are averaged where they have more pixels than can be seen", () => {
    const crop = cropOf(imageOf(160, 80), {
      grid: { rows: 1, columns: 2 },
      row: 0,
      column: 1,
    });
    expect([crop.columns, crop.rows]).toEqual([40, 40]);
    // The mean of columns 80 and 81 and of rows 0 and 1, as bytes are rounded.
    expect([80, 81]).toContain(crop.pixels[0]);
    expect(crop.pixels[2]).toBe(200);
    expect([158, 159]).toContain(crop.pixels[4 * 39]);
  });

  it("have at least a pixel where the grid is finer than the image", () => {
    const crop = cropOf(imageOf(2, 2), { grid: { rows: 8, columns: 8 }, row: 7, column: 7 });
    expect([crop.columns, crop.rows]).toEqual([1, 1]);
    expect([...crop.pixels]).toEqual([1, 1, 200, 255]);
  });

  it("step back to grey beside the ground", () => {
    const pixels = new Uint8ClampedArray([255, 0, 0, 255]);
    const grey = greyOf({ width: 1, height: 1, pixels }, [100, 110, 120]);
    // 0.2126 of 255 is 54.2; of that 0.45, and 0.55 of the ground.
    const expected = [100, 110, 120].map((ground) => Math.round(0.45 * 54.213 + 0.55 * ground));
    expect([...grey.pixels.subarray(0, 3)]).toEqual(expected);
    expect(grey.pixels[3]).toBe(255);
  });
});

const series = (heads: number[], more: Partial<HeatSeries> = {}): HeatSeries => ({
  name: heads.length === 1 ? `head ${heads[0]}` : `mean of ${heads.length} heads`,
  color: "#102030",
  textColor: "#102030",
  heads,
  how: "mean",
  ...more,
});

describe("what is asked for", () => {
  const place = placed();
  const ask = (query: number | null, key: number | null, of = place): HeatQuestion | null =>
    heatQuestion(of, GRID, { query, key }, [series([0])]);

  it("is the query's weights, else those to the key, else what keys receive", () => {
    expect(ask(3, null)).toMatchObject({ side: "query", token: 3 });
    expect(ask(3, 5)).toMatchObject({ side: "query", token: 3 });
    expect(ask(null, 5)).toMatchObject({ side: "key", token: 5 });
    expect(ask(null, null)).toMatchObject({ side: null });
  });

  it("is what keys receive where queries are no patches of the image", () => {
    const text = { text: ["a", "b"], special: [], sequence: [0, 0] };
    const cross = placed(described(text, TOKENS));
    expect(queryGridOf(cross, GRID)).toBeNull();
    expect(ask(null, 5, cross)).toMatchObject({ side: null, numQueries: 2, numKeys: 8 });
    expect(queryGridOf(place, GRID)).toBe(GRID);
  });

  it("is nothing where a mean would take too many weights", () => {
    const text = Array.from({ length: 1500 }, (_, i) => `t${i}`);
    const long = { ...TOKENS, text, sequence: text.map(() => 0) };
    const large = placed(described(long));
    expect(ask(null, null, large)).toBeNull();
    expect(ask(1400, null, large)).not.toBeNull();
  });

  it("is one mean where there are more heads than pictures that can be read", () => {
    const many = Array.from({ length: 17 }, (_, head) => series([head]));
    expect(fewSeries(many.slice(1))).toHaveLength(16);
    const [all, ...more] = fewSeries(many);
    expect(more).toEqual([]);
    expect(all).toMatchObject({ name: "mean of 17 heads", how: "mean" });
    expect(all?.heads).toHaveLength(17);
  });
});

describe("heat-maps", () => {
  // Head h, query i, key j: 100 h + 10 i + j.
  const source = {
    block: async ({ heads, rows, columns }: BlockRequest) => ({
      matrices: heads.map((head) => {
        const values: number[] = [];
        for (let row = rows[0]; row < rows[1]; row++)
          for (let column = columns[0]; column < columns[1]; column++)
            values.push(100 * head + 10 * row + column);
        return Float32Array.from(values);
      }),
      rows: rows[1] - rows[0],
      columns: columns[1] - columns[0],
      maximum: 1000,
      error: 0,
    }),
  } as unknown as Source;
  const asked: HeatQuestion = {
    stack: "self",
    layer: 0,
    side: "query",
    token: 2,
    numQueries: 3,
    numKeys: 4,
    series: [series([1]), series([0, 1]), series([0, 1], { how: "max" })],
  };
  const values = async (question: HeatQuestion): Promise<number[][]> =>
    (await loadHeat(source, question, new AbortController().signal)).map((heat) => [
      ...heat.values,
    ]);

  it("are rows of a query: of a head, the mean and the maximum of two", async () => {
    expect(await values(asked)).toEqual([
      [120, 121, 122, 123],
      [70, 71, 72, 73],
      [120, 121, 122, 123],
    ]);
  });

  it("are columns of a key", async () => {
    expect((await values({ ...asked, side: "key", token: 3 }))[1]).toEqual([53, 63, 73]);
  });

  it("are means over all queries where none is chosen", async () => {
    expect((await values({ ...asked, side: null, token: 0 }))[0]).toEqual([110, 111, 112, 113]);
  });

  it("are more opaque for more weight, in one colour", () => {
    const pixels = heatPixels(Float32Array.of(0, 0.1, 0.2, 0.4), 0.2, "#102030");
    expect([...pixels.subarray(0, 4)]).toEqual([16, 32, 48, 0]);
    const opacities = [7, 11, 15].map((at) => pixels[at]);
    const whole = Math.round(255 * HEAT_OPACITY);
    expect(opacities[1]).toBe(whole);
    expect(opacities[2]).toBe(whole);
    expect(Math.abs((opacities[0] ?? 0) - whole / 2)).toBeLessThanOrEqual(1);
  });
});
