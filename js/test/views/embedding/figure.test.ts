import { computed } from "@preact/signals";
import { expect, it, vi } from "vitest";
import type { Scene } from "../../../src/draw/marks";
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
  await until(() => expect(store.settled.value).toBe(true));
  const plot = vi.fn(() => SCENE);
  const still = computed(plot);
  return { exports: embeddingExports(context, store, {} as never, { still } as never), plot };
}

const rowsOf = (csv: string): string[][] => csv.split("\r\n").map((line) => line.split(","));

useFakeClock();

it("the table contains a third coordinate, and norms if points are coloured by them", async () => {
  const { exports } = await exportsOf({ dimensions: 3, color: "norm" });
  await until(async () => expect(rowsOf(await exports.csv())[0]).toContain("norm"));
  const rows = rowsOf(await exports.csv());
  expect(rows[0]?.slice(10)).toEqual(["x", "y", "z", "norm"]);
  expect(rows[3]?.at(-1)).toBe(String(Number((10000 / 65535).toPrecision(5))));
});
