/** Tests of pages with signed numbers. Expected replies are computed from the complete matrices. */
// @vitest-environment node

import { describe, expect, it } from "vitest";
import { PageTransport } from "../../../src/client/page";
import type { StrongestHeader } from "../../../src/client/protocol";
import { readStrongest } from "../../../src/client/requests/strongest";
import { Source } from "../../../src/client/source";
import type { Reply } from "../../../src/client/transport";
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
const [FIRST, SECOND] = HEADS as [number[][], number[][]];
const LAYER = { stack: "self", layer: 0 };

/** Return the transport of a page that contains both heads. */
function transport(): PageTransport {
  const stack = stackOf({
    ...{ query_tokens: tokensOf(["a", "b", "c"]), key_tokens: tokensOf(["a", "b", "c", "d"]) },
    ...{ normalized: false, signed: true, measure: "difference", maximum: MAXIMUM },
  });
  const codes = CODES.flat(2).map((code) => code & 255);
  const block = pieceOf([2, 3, 4], codes, { signed: true, maximum: MAXIMUM, error: 0.016 });
  return new PageTransport(pageOf({ blocks: [block], description: described(stack) }));
}

/** Combine each number of the first head with the number of the second head at the same pair. */
const combined = (combine: (a: number, b: number) => number): number[][] =>
  FIRST.map((row, r) => row.map((a, key) => combine(a, SECOND[r]?.[key] as number)));

/**
 * Pool the numbers of a cell twice: with negative numbers replaced by 0, and with positive numbers
 * replaced by 0. Return the result with the larger absolute value.
 */
function pooledByHand(numbers: number[], pooled: "mean" | "max"): number {
  const [above, below] = [1, -1].map((sign) => {
    const sizes = numbers.map((value) => Math.max(0, sign * value));
    if (pooled === "max") return Math.max(...sizes);
    return sizes.reduce((sum, size) => sum + size, 0) / numbers.length;
  }) as [number, number];
  return above >= below ? above : -below;
}

const closeTo = (numbers: number[]) => numbers.map((value) => expect.closeTo(value, 5));

describe("signed numbers of a page", () => {
  it.each(["mean", "max"] as const)("do not cancel in a cell's %s", async (pooled) => {
    const source = new Source(transport());
    // First the mean over the heads is computed, and then a cell is pooled by mean or maximum.
    const mean = combined((a, b) => (a + b) / 2);
    for (const [heads, matrix] of [
      [[0], FIRST],
      [[1], SECOND],
      [[0, 1], mean],
    ] as const) {
      const tile = await source.tile({
        ...LAYER,
        heads: [...heads],
        level: 1,
        row: 0,
        column: 0,
        pooled,
      });
      expect([tile.rows, tile.columns]).toEqual([2, 2]);
      // A cell pools 2 x 2 numbers. In the last row it pools 1 x 2, because there are three
      // queries.
      const cells = [matrix.slice(0, 2), matrix.slice(2)].flatMap((rows) =>
        [0, 2].map((left) =>
          pooledByHand(
            rows.flatMap((row) => row.slice(left, left + 2)),
            pooled,
          ),
        ),
      );
      expect([...(tile.matrices[0] as Float32Array)]).toEqual(closeTo(cells));
    }
  });

  it.each([
    ["separate", HEADS],
    ["mean", [combined((a, b) => (a + b) / 2)]],
    ["max", [combined((a, b) => (Math.abs(b) > Math.abs(a) ? b : a))]],
  ] as const)("are sorted by absolute value: %s", async (combine, matrices) => {
    const k = 3;
    const request = {
      ...{ ...LAYER, heads: [0, 1], rows: [0, 3] as [number, number], k },
      ...{ combine, leave_out: [], pair: "all" as const },
    };
    const reply = await transport().request("strongest", request);
    const results = readStrongest(reply as Reply<StrongestHeader>);
    expect(results.length).toBe(matrices.length);
    results.forEach(({ keys, weights, sums }, m) => {
      matrices[m]?.forEach((row, r) => {
        const sorted = row.filter((value) => value !== 0).sort((a, b) => Math.abs(b) - Math.abs(a));
        const strongest = [...sorted, 0, 0, 0].slice(0, k);
        const range = [k * r, k * (r + 1)] as const;
        expect([...weights.slice(...range)]).toEqual(closeTo(strongest));
        // A row with fewer than k nonzero numbers is filled with the key -1.
        const numbers = [...keys.slice(...range)].map((key) => (key === -1 ? 0 : row[key]));
        expect(numbers).toEqual(closeTo(strongest));
        expect(sums[k * r]).toBeCloseTo(
          row.reduce((sum, value) => sum + Math.abs(value), 0),
          5,
        );
      });
    });
  });
});
