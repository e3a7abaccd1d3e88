// @vitest-environment node
import { expect, it } from "vitest";
import { Source } from "../../../src/client/source";
import { cachedMap, loadMaps, strongestCell } from "../../../src/views/model/maps";
import { stackOf, transportOf } from "../../builders";

it("until a map arrives, a map of another resolution is shown", async () => {
  const transport = transportOf(async (_name, args) => {
    const { size, heads } = args as { size: number; heads: number[] };
    const header = { shape: [heads.length, 1, 1], encoding: "float32", maximum: 1, error: 0 };
    return { header, data: new Float32Array(heads.length).fill(size) };
  });
  const source = new Source(transport);
  const stack = stackOf({ name: "self" });
  const set = { stack: "self", size: 16, part: null };
  const finer = { ...set, size: 64 };
  await loadMaps(source, set, stack, [0, [1, 2]]);
  expect(cachedMap(source, finer, 0, 2)?.values[0]).toBe(16);
  await loadMaps(source, finer, stack, [0, [2]]);
  expect([1, 2, 3].map((head) => cachedMap(source, finer, 0, head)?.values[0])).toEqual([
    16,
    64,
    undefined,
  ]);
});

it("the strongest cell of signed numbers can be negative", () => {
  const map = { values: Float32Array.of(0.1, -0.5), rows: 1, columns: 2, maximum: 1, error: 0 };
  expect(strongestCell(map)).toEqual({ row: 0, column: 1, weight: -0.5 });
});
