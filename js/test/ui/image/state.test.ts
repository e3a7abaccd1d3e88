// @vitest-environment node
import { describe, expect, it } from "vitest";
import type { BlockRequest } from "../../../src/client/protocol";
import type { Source } from "../../../src/client/source";
import { PALETTES, rgbOf } from "../../../src/ui/colors/palette";
import { HEAT_OPACITY, heatPixels } from "../../../src/ui/image/marks";
import {
  fewSeries,
  type HeatQuestion,
  heatQuestion,
  loadHeat,
  queryGridOf,
} from "../../../src/ui/image/state";
import { RECORD_DEFAULTS, selectionOf } from "../../../src/ui/view/record";
import { described, GRID, series, TOKENS } from "../../images";

const placed = (description = described()) => selectionOf(description, RECORD_DEFAULTS);

describe("the request", () => {
  const selection = placed();
  const ask = (query: number | null, key: number | null, of = selection): HeatQuestion | null =>
    heatQuestion(of, GRID, { query, key }, [series([0])]);

  it("is for the query's weights, else those on the key, else the mean over queries", () => {
    expect(ask(3, null)).toMatchObject({ side: "query", token: 3 });
    expect(ask(3, 5)).toMatchObject({ side: "query", token: 3 });
    expect(ask(null, 5)).toMatchObject({ side: "key", token: 5 });
    expect(ask(null, null)).toMatchObject({ side: null });
  });

  it("is for the mean over queries if queries are not patches of the image", () => {
    const text = { text: ["a", "b"], special: [], sequence: [0, 0] };
    const cross = placed(described(text, TOKENS));
    expect(queryGridOf(cross, GRID)).toBeNull();
    expect(ask(null, 5, cross)).toMatchObject({ side: null, numQueries: 2, numKeys: 8 });
    expect(queryGridOf(selection, GRID)).toBe(GRID);
  });

  it("is absent if a mean needs too many weights", () => {
    const text = Array.from({ length: 1500 }, (_, i) => `t${i}`);
    const long = { ...TOKENS, text, sequence: text.map(() => 0) };
    const large = placed(described(long));
    expect(ask(null, null, large)).toBeNull();
    expect(ask(1400, null, large)).not.toBeNull();
  });

  it("is for one mean if there are too many heads", () => {
    const many = Array.from({ length: 17 }, (_, head) => series([head]));
    expect(fewSeries(many.slice(1))).toHaveLength(16);
    const [all, ...more] = fewSeries(many);
    expect(more).toEqual([]);
    expect(all).toMatchObject({ name: "mean of 17 heads", how: "mean" });
    expect(all?.heads).toHaveLength(17);
  });
});

describe("heat maps", () => {
  // Source in which the weight of head h from query i to key j is 100 h + 10 i + j.
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
  const heatRequest: HeatQuestion = {
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

  it("are rows of a query, for one head, and for the mean and the maximum of two", async () => {
    expect(await values(heatRequest)).toEqual([
      [120, 121, 122, 123],
      [70, 71, 72, 73],
      [120, 121, 122, 123],
    ]);
  });

  it("are columns of a key", async () => {
    expect((await values({ ...heatRequest, side: "key", token: 3 }))[1]).toEqual([53, 63, 73]);
  });

  it("are means over all queries if none is chosen", async () => {
    expect((await values({ ...heatRequest, side: null, token: 0 }))[0]).toEqual([
      110, 111, 112, 113,
    ]);
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
