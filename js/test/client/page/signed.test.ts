/**
 * Replies of a page with signed numbers. The tests compute the expected values from the complete
 * matrices.
 */
// @vitest-environment node

import { describe, expect, it } from "vitest";
import { PageTransport } from "../../../src/client/page";
import { readStrongest } from "../../../src/client/requests/strongest";
import { Source } from "../../../src/client/source";
import { described, pageOf, pieceOf, stackOf, tokensOf } from "../../builders";

// A code stands for the number sign(code) * MAXIMUM * (code / 127)^2.
const MAXIMUM = 2;
const numberOf = (code: number): number => (Math.sign(code) * MAXIMUM * code ** 2) / 127 ** 2;

/** Codes of two heads, each with three queries and four keys. */
const CODES = [
  [
    [127, -40, 0, 90],
    [-127, 60, 60, -60],
    [0, 0, 0, 0],
  ],
  [
    [-100, -40, 20, 90],
    [127, -90, 10, -70],
    [0, 0, -5, 0],
  ],
];
const HEADS = CODES.map((rows) => rows.map((row) => row.map(numberOf)));

const tokens = (count: number) => tokensOf(Array.from({ length: count }, (_, i) => `t${i}`));

const STACK = stackOf({
  query_tokens: tokens(3),
  key_tokens: tokens(4),
  normalized: false,
  signed: true,
  measure: "difference",
  maximum: MAXIMUM,
});

function transport(): PageTransport {
  const codes = CODES.flat(2).map((code) => code & 255);
  const block = pieceOf([2, 3, 4], codes, {
    encoding: "int8-sqrt",
    maximum: MAXIMUM,
    error: 0.016,
  });
  return new PageTransport(pageOf({ blocks: [block], description: described(STACK) }));
}

/**
 * Pool the positive and the negative numbers of a cell separately. Return the result with the
 * larger absolute value.
 */
function pooledByHand(numbers: number[], pooled: "mean" | "max"): number {
  const sides = [1, -1].map((sign) => {
    const sizes = numbers.filter((value) => value * sign > 0).map(Math.abs);
    const most = pooled === "max" ? Math.max(0, ...sizes) : 0;
    const mean = sizes.reduce((sum, value) => sum + value, 0) / numbers.length;
    return sign * (pooled === "max" ? most : mean);
  });
  const [above = 0, below = 0] = sides;
  return above >= -below ? above : below;
}

describe("signed numbers of a page", () => {
  it("are read from the embedded codes", async () => {
    const { matrices } = await new Source(transport()).block({
      stack: "self",
      layer: 0,
      heads: [1],
      rows: [0, 3],
      columns: [0, 4],
    });
    (HEADS[1] as number[][]).flat().forEach((value, i) => {
      expect(matrices[0]?.[i]).toBeCloseTo(value, 6);
    });
  });

  it.each(["mean", "max"] as const)("do not cancel in a cell's %s", async (pooled) => {
    const source = new Source(transport());
    for (const heads of [[0], [1], [0, 1]]) {
      const request = { stack: "self", layer: 0, heads, level: 1, row: 0, column: 0, pooled };
      const { matrices, rows, columns } = await source.tile({ ...request });
      expect([rows, columns]).toEqual([2, 2]);
      // Heads are combined by their mean, even if a cell is the maximum of the combined numbers.
      const mean = (row: number, key: number): number =>
        heads.reduce((sum, head) => sum + (HEADS[head]?.[row]?.[key] ?? 0), 0) / heads.length;
      const cells = [
        [0, 1],
        [2, 2],
      ].flatMap(([top = 0, bottom = 0]) =>
        [0, 2].map((left) => {
          const rows = top === bottom ? [top] : [top, bottom];
          return pooledByHand(
            rows.flatMap((row) => [mean(row, left), mean(row, left + 1)]),
            pooled,
          );
        }),
      );
      cells.forEach((cell, i) => {
        expect(matrices[0]?.[i], `heads ${heads}, cell ${i}`).toBeCloseTo(cell, 5);
      });
    }
  });

  it.each(["separate", "mean", "max"] as const)(
    "are sorted by absolute value: %s",
    async (combine) => {
      const request = {
        ...{ stack: "self", layer: 0, heads: [0, 1], rows: [0, 3] as [number, number], k: 3 },
        ...{ combine, leave_out: [], pair: "all" as const },
      };
      const results = readStrongest(await transport().request("strongest", request));
      const combined = (a: number, b: number): number => {
        if (combine === "mean") return (a + b) / 2;
        return Math.abs(b) > Math.abs(a) ? b : a;
      };
      const [first, second] = HEADS as [number[][], number[][]];
      const both = first.map((row, r) => row.map((a, key) => combined(a, second[r]?.[key] ?? 0)));
      const matrices = combine === "separate" ? HEADS : [both];
      expect(results.length).toBe(matrices.length);
      matrices.forEach((matrix, m) => {
        const { keys, weights, sums } = results[m] as (typeof results)[0];
        matrix.forEach((row, r) => {
          const sorted = row
            .filter((value) => value !== 0)
            .sort((a, b) => Math.abs(b) - Math.abs(a));
          const strongest = [...sorted, 0, 0, 0].slice(0, 3);
          strongest.forEach((value, i) => {
            const key = keys[3 * r + i] as number;
            expect(weights[3 * r + i]).toBeCloseTo(value, 5);
            if (value === 0) expect(key).toBe(-1);
            else expect(row[key]).toBeCloseTo(value, 5);
          });
          const sum = row.reduce((all, value) => all + Math.abs(value), 0);
          expect(sums[3 * r]).toBeCloseTo(sum, 5);
        });
      });
    },
  );
});
