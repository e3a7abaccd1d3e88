import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { ColumnValues } from "../../../src/client/protocol";
import type { Reply } from "../../../src/client/transport";
import type { Scene } from "../../../src/draw/marks";
import { toSvg } from "../../../src/draw/svg";
import { PALETTES } from "../../../src/ui/colors/palette";
import { coloring } from "../../../src/views/embedding/colors";
import { embeddingExports, legendBox } from "../../../src/views/embedding/figure";
import type { EmbeddingState } from "../../../src/views/embedding/state";
import { createEmbeddingStore, type EmbeddingStore } from "../../../src/views/embedding/store";
import { until } from "../../builders";
import { ANSWER, corpusWith, Kernel, type Room, roomWith } from "./kernel";

class MeanKernel extends Kernel {
  override async request(name: string, args: object, ended?: AbortSignal): Promise<Reply> {
    if (name !== "aggregate") return super.request(name, args, ended);
    const edges = { query_edges: [0, 2, 4], key_edges: [0, 2, 4] };
    const of = { texts: 2, of_texts: 2, queries: 6, of_queries: 6 };
    const header = { rows: 2, columns: 2, ...edges, ...of };
    return { header, data: Float32Array.of(0.5, -1, 0.25, 0.125) };
  }
}

const SCENE: Scene = {
  width: 300,
  height: 200,
  background: null,
  back: [],
  backOpacity: 1,
  front: [{ kind: "rect", x: 0, y: 0, width: 300, height: 200, stroke: "#000000" }],
};
const drawn: string[] = [];
const drawnScenes = {
  figures: () => "words" as const,
  overview: () => {
    drawn.push("overview");
    return SCENE;
  },
  plot: () => {
    drawn.push("plot");
    return SCENE;
  },
};

let rooms: Room[] = [];

async function make(
  changed: Partial<EmbeddingState> = {},
  kernel = new MeanKernel(),
): Promise<Room & { store: EmbeddingStore }> {
  const room = roomWith(changed, kernel);
  rooms.push(room);
  const store = createEmbeddingStore(room.context);
  await until(() => expect(store.corpus.value).not.toBeNull());
  if (changed.content !== "aggregate") await until(() => expect(store.current.value).toBe(true));
  return { ...room, store };
}

const wordsOf = (svg: string): string =>
  Array.from(svg.matchAll(/<text[^>]*>([^<]*)<\/text>/g), ([, text]) => text).join(" ");

const rowsOf = (csv: string): string[][] => csv.split("\r\n").map((line) => line.split(","));

beforeEach(() => {
  drawn.length = 0;
});
afterEach(() => {
  for (const { controller } of rooms) controller.abort();
  rooms = [];
});

describe("the figure", () => {
  it("of the mean weights has cells, axes and a scale, but no points", async () => {
    const { context, store } = await make({ enlarged: true, content: "aggregate" });
    const exports = embeddingExports(context, store, drawnScenes);
    // The first call only sends the request for the mean weights.
    await expect(async () => exports.figure()).rejects.toThrow("Nothing is drawn yet");
    await until(async () => exports.figure());
    const { scene, title } = await exports.figure();
    expect(drawn).toEqual([]);
    const words = wordsOf(toSvg(scene, title));
    expect(words).toContain("Largest, queries 0 to 1 → keys 0 to 1: 0.50.");
    expect(words).toContain("mean weight");
    expect(words).toContain("key position →");
    expect(words).not.toContain("keys 6");
    expect(rowsOf(await exports.csv())).toEqual([
      [
        "stack",
        "layer",
        "head",
        "query",
        "query_stop",
        "key",
        "key_stop",
        "mean_weight",
        "largest_error",
      ],
      ['"self"', "0", "0", "0", "2", "0", "2", "0.5", "0"],
      ['"self"', "0", "0", "2", "4", "0", "2", "0.25", "0"],
      ['"self"', "0", "0", "2", "4", "2", "4", "0.125", "0"],
    ]);
  });

  it("explains shapes and colours in a legend that fits the width", () => {
    const corpus = corpusWith();
    const room = { palette: PALETTES.light, theme: "light" as const, norms: null, head: "" };
    const colors = coloring(corpus, "tag", room);
    if (!colors) throw new Error("no colours");
    const box = legendBox(colors, "keys", PALETTES.light, 120);
    const texts = box.marks.flatMap((mark) => (mark.kind === "text" ? [mark.text] : []));
    expect(texts).toEqual(["keys", "other", "8", "noun", "2", "unknown", "2"]);
    expect(box.height).toBeGreaterThan(20);
    const swatches = box.marks.filter((mark) => mark.kind === "rect");
    expect(swatches.every((mark) => mark.x + mark.width <= 120)).toBe(true);
  });
});

describe("the tables", () => {
  it("contain a third coordinate, and norms if points are coloured by them", async () => {
    const { context, store } = await make({ enlarged: true, dimensions: 3, color: "norm" });
    const rows = rowsOf(await embeddingExports(context, store, drawnScenes).csv());
    expect(rows[0]?.slice(10)).toEqual(["x", "y", "z", "norm"]);
    expect(rows[3]?.at(-1)).toBe(String(Number((10000 / 65535).toPrecision(5))));
  });

  it("escape the names of columns", async () => {
    const name = '=HYPERLINK("http://a")';
    const kernel = new MeanKernel();
    const [, score] = ANSWER.columns;
    kernel.points = { ...ANSWER, columns: [{ ...score, name } as ColumnValues] };
    const { context, store } = await make({ enlarged: true, color: name }, kernel);
    const [names] = rowsOf(await embeddingExports(context, store, drawnScenes).csv());
    expect(names?.at(-1)).toBe(`"'=HYPERLINK(""http://a"")"`);
  });
});
