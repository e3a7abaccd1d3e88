// @vitest-environment node

import { describe, expect, it } from "vitest";
import { reduced, rowsOf } from "../../../src/client/page/reductions";
import type { Range, ReadRequest, Strongest } from "../../../src/client/protocol";
import { strongestIn } from "../../../src/client/requests/strongest";
import { Source } from "../../../src/client/source";
import { transportOf } from "../../builders";

// Weights whose rows sum to 1. The expected results below are computed by hand.
const ROWS = [
  [0.5, 0.25, 0, 0, 0.25, 0],
  [0.125, 0, 0.5, 0.25, 0, 0.125],
  [0, 0, 0, 0, 0, 1],
];
const read = rowsOf(
  { add: (_, row, _left, line) => line.set(ROWS[row] ?? []) },
  [0],
  "separate",
  0,
);

/** Return the two strongest keys of all rows, and their sums. */
function strongest(exclude: Range[] = []) {
  const part = {
    read,
    rows: [0, 3] as Range,
    columns: [0, 6] as Range,
    heads: [0],
    lost: undefined,
  };
  const { values } = reduced(part, { kind: "strongest", k: 2, exclude });
  const matrix = { values, rows: 3, columns: 6, maximum: 1, error: 0 };
  return ROWS.map((_, row) => strongestIn(matrix, row));
}

describe("the strongest keys", () => {
  it("are found in complete rows, with all sums", () => {
    expect(strongest()).toEqual([
      {
        keys: [
          { key: 0, weight: 0.5 },
          { key: 1, weight: 0.25 },
        ],
        ...{ included: 1, total: 1 },
      },
      {
        keys: [
          { key: 2, weight: 0.5 },
          { key: 3, weight: 0.25 },
        ],
        ...{ included: 1, total: 1 },
      },
      { keys: [{ key: 5, weight: 1 }], included: 1, total: 1 },
    ]);
  });

  it("exclude keys, whose sums count for the total", () => {
    const rows = strongest([
      [0, 1],
      [4, 5],
    ]);
    expect(rows.map(({ keys }) => keys.map(({ key }) => key))).toEqual([[1], [2, 3], [5]]);
    expect(rows.map(({ included, total }) => [included, total])).toEqual([
      [0.25, 1],
      [0.875, 1],
      [1, 1],
    ]);
  });

  it.each([
    ["separate", 6, 6],
    ["separate", 131_072, 10],
    ["mean", 5000, 1500],
    ["mean", 131_072, 10],
  ] as const)(
    "are requested in parts of limited size: %s, %i keys, %i",
    async (combine, numKeys, k) => {
      const heads = Array.from({ length: 32 }, (_, head) => head);
      const parts: ReadRequest[] = [];
      const transport = transportOf(async (_, args) => {
        const part = args as ReadRequest;
        parts.push(part);
        const numMatrices = combine === "mean" ? 1 : part.heads.length;
        const shape = [numMatrices, part.rows[1] - part.rows[0], 2 * k + 2];
        const data = new Float32Array(shape.reduce((size, count) => size * count, 1));
        // The reply has at most a megabyte, and a kernel searches a limited number of weights.
        expect(data.byteLength).toBeLessThanOrEqual(1_000_000);
        const numRows = part.heads.length * (part.rows[1] - part.rows[0]);
        expect(numRows * numKeys).toBeLessThanOrEqual(1 << 23);
        data.fill(part.rows[0]);
        return { header: { shape, encoding: "float32", maximum: 1, error: 0 }, data };
      });
      const reduce: Strongest = { kind: "strongest", k };
      const answers = await new Source(transport).read({
        ...{ stack: "self", layer: 0, heads, combine, reduce },
        ...{ rows: [100, 164], columns: [0, numKeys] },
      });
      const pairs = parts.flatMap((part) => {
        // To compute the mean of a row, a request needs all heads.
        if (combine === "mean") expect(part.heads).toEqual(heads);
        const rows = Array.from(
          { length: part.rows[1] - part.rows[0] },
          (_, i) => part.rows[0] + i,
        );
        return part.heads.flatMap((head) => rows.map((row) => `${head} ${row}`));
      });
      expect([new Set(pairs).size, pairs.length]).toEqual([32 * 64, 32 * 64]);
      // The parts are joined in the order of their rows.
      const last = parts.map(({ rows }) => rows[0]).reduce((a, b) => Math.max(a, b));
      for (const { rows, columns, values } of answers) {
        expect([rows, columns, values.length]).toEqual([64, 2 * k + 2, 64 * (2 * k + 2)]);
        expect([values[0], values.at(-1)]).toEqual([100, last]);
      }
    },
  );
});
