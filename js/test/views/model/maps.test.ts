// @vitest-environment node
import { describe, expect, it } from "vitest";
import type { Range } from "../../../src/client/protocol";
import { type MapsRead, mapsRead, Source } from "../../../src/client/source";
import { cachedMap, type MapSet, strongestOf } from "../../../src/views/model/maps";
import { stackOf, transportOf } from "../../builders";

const requestOf = (set: MapSet, heads: number[]) => mapsRead({ ...set, layer: 0, heads });

it("until a map arrives, a map of another resolution is shown", async () => {
  const transport = transportOf(async (_name, args) => {
    const { reduce, heads } = args as MapsRead;
    const header = { shape: [heads.length, 1, 1], encoding: "float32", maximum: 1, error: 0 };
    return { header, data: new Float32Array(heads.length).fill(reduce.max_cells as number) };
  });
  const source = new Source(transport);
  const stack = stackOf({ name: "self" });
  const set: MapSet = { stack: "self", size: 16, rows: [0, 9], columns: [0, 9] };
  const finer = { ...set, size: 64 };
  const shown = (head: number) => cachedMap(source, finer, { layer: 0, head })?.values[0];
  await source.maps(stack, requestOf(set, [1, 2]));
  expect(shown(2)).toBe(16);
  await source.maps(stack, requestOf(finer, [2]));
  expect([1, 2, 3].map(shown)).toEqual([16, 64, undefined]);
});

const map = (values: number[], rows: number, columns: number) => ({
  ...{ values: Float32Array.from(values), rows, columns },
  ...{ maximum: 1, error: 0 },
});

describe("the strongest weight of a map", () => {
  it("can be negative, and is null if all weights are 0", () => {
    const part = { rows: [0, 1] as Range, columns: [0, 2] as Range };
    const best = { rows: [0, 1], columns: [1, 2], weight: -0.5, isSingle: true };
    expect(strongestOf(map([0.1, -0.5], 1, 2), part, {})).toEqual(best);
    expect(strongestOf(map([0, 0], 1, 2), part, {})).toBeNull();
  });

  it("is not that of a query with a single key", () => {
    const part = { rows: [0, 4] as Range, columns: [0, 2] as Range };
    const pooled = map([1, 0, 0.2, 0.6], 2, 2);
    const forced = { forced_queries: [0] };
    expect(strongestOf(pooled, part, {})?.rows).toEqual([0, 2]);
    expect(strongestOf(pooled, part, forced)).toMatchObject({ rows: [2, 4], columns: [1, 2] });
    expect(strongestOf(pooled, part, { forced_queries: [1, 2] })).toBeNull();
  });

  it("has the queries and keys that its cell covers", () => {
    // If r cells cover n keys, cell a covers the keys from floor(a n / r) to before
    // floor((a + 1) n / r).
    const columnsOf = (values: number[], columns: Range) =>
      strongestOf(map(values, 1, 3), { rows: [0, 1], columns }, {})?.columns;
    expect(columnsOf([0, 1, 0], [0, 8])).toEqual([2, 5]);
    expect(columnsOf([0, 0, 1], [10, 18])).toEqual([15, 18]);
  });
});
