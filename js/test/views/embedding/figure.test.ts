import { computed } from "@preact/signals";
import { expect, it, vi } from "vitest";
import type { Scene } from "../../../src/draw/marks";
import { toSvg } from "../../../src/draw/svg";
import { embeddingExports } from "../../../src/views/embedding/figure";
import type { EmbeddingState } from "../../../src/views/embedding/state";
import { until, useFakeClock } from "../../dom";
import { Kernel, setUp } from "./kernel";

const SCENE: Scene = {
  ...{ width: 300, height: 200, background: null, back: [], backOpacity: 1 },
  front: [{ kind: "rect", x: 0, y: 0, width: 300, height: 200, stroke: "#000000" }],
};

/** Return the functions that export a view as a figure or as CSV, and the mock that draws it. */
async function exportsOf(changed: Partial<EmbeddingState>, kernel = new Kernel()) {
  const { context, store } = setUp({ enlarged: true, ...changed }, kernel);
  await until(() => expect(store.corpus.value).not.toBeNull());
  if (changed.content !== "aggregate") await until(() => expect(store.settled.value).toBe(true));
  const plot = vi.fn(() => SCENE);
  const still = computed(plot);
  return { exports: embeddingExports(context, store, {} as never, { still } as never), plot };
}

const rowsOf = (csv: string): string[][] => csv.split("\r\n").map((line) => line.split(","));

useFakeClock();

it("the figure of the mean weights has cells, axes and a scale, but no points", async () => {
  const kernel = new Kernel();
  kernel.means = { bins: [0, 2, 4], weights: [0.5, Number.NaN, 0.25, 0.125] };
  const { exports, plot } = await exportsOf({ content: "aggregate" }, kernel);
  await until(async () => exports.figure());
  const { scene, title } = await exports.figure();
  expect(plot).not.toHaveBeenCalled();
  const svg = toSvg(scene, title);
  const words = Array.from(svg.matchAll(/<text[^>]*>([^<]*)<\/text>/g), ([, text]) => text).join(
    " ",
  );
  expect(words).toContain("Largest, queries 0 to 1 → keys 0 to 1: 0.50.");
  expect(words).toContain("mean weight");
  expect(words).toContain("key position →");
  expect(words).not.toContain("keys 6");
  const [names, ...rows] = (await exports.csv()).split("\r\n");
  expect(names).toBe("stack,layer,head,query,query_stop,key,key_stop,mean_weight,largest_error");
  expect(rows).toEqual([
    '"self",0,0,0,2,0,2,0.5,0',
    '"self",0,0,2,4,0,2,0.25,0',
    '"self",0,0,2,4,2,4,0.125,0',
  ]);
});

it("the table contains a third coordinate, and norms if points are coloured by them", async () => {
  const { exports } = await exportsOf({ dimensions: 3, color: "norm" });
  await until(async () => expect(rowsOf(await exports.csv())[0]).toContain("norm"));
  const rows = rowsOf(await exports.csv());
  expect(rows[0]?.slice(10)).toEqual(["x", "y", "z", "norm"]);
  expect(rows[3]?.at(-1)).toBe(String(Number((10000 / 65535).toPrecision(5))));
});
