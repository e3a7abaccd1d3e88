// @vitest-environment node
import { expect, it } from "vitest";
import type { Source } from "../../../src/client/source";
import { HeadMaps, strongestCell } from "../../../src/views/model/maps";
import { stackOf } from "../../builders";

interface Request {
  stack: string;
  layer: number;
  size: number;
  heads?: number[];
  rows?: number[];
}

/** Return a number that is different for each request and head in these tests. */
function numberOf({ stack, layer, size, rows }: Request, head: number): number {
  return (stack === "one" ? 0 : 1) + 2 * layer + 8 * head + 32 * size + (rows ? 0.5 : 0);
}

const source = {
  maps: async (request: Request) => {
    const numbers = (request.heads ?? [0, 1, 2]).map((head) => numberOf(request, head));
    return {
      ...{ rows: request.size, columns: 1, maximum: 1, error: 0 },
      matrices: numbers.map((number) => Float32Array.of(number)),
      largest: numbers.map((number) => [0, number]),
    };
  },
} as unknown as Source;

it("each stack, layer, head, size and part has its own map", async () => {
  const maps = new HeadMaps(source, (name) =>
    stackOf({ name, layers: [0, 1], heads_per_layer: [3, 3] }),
  );
  const part = { rows: [0, 1], columns: [0, 1] } as { rows: [number, number]; columns: [0, 1] };
  for (const size of [16, 64])
    for (const set of ["one", "two"].flatMap((stack) =>
      [null, part].map((part) => ({ stack, size, part })),
    )) {
      await maps.load({ ...set, layers: [0, 1].map((layer) => [layer, [1, 2]]) });
      for (const layer of [0, 1])
        for (const head of [1, 2]) {
          const { stack } = set;
          const expected = numberOf({ stack, layer, size, ...set.part }, head);
          const map = maps.get(set, layer, head);
          expect([map?.values[0], map?.largest?.[1]]).toEqual([expected, expected]);
        }
    }
});

it("the strongest cell of signed numbers can be negative", () => {
  const map = { values: Float32Array.of(0.1, -0.5), rows: 1, columns: 2, maximum: 1, error: 0 };
  expect(strongestCell(map)).toEqual({ row: 0, column: 1, weight: -0.5 });
});
