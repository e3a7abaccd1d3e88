// @vitest-environment node
import { describe, expect, it } from "vitest";
import { completeRows, type EmbeddedWeights } from "../../../src/client/page/rows";
import { pieceOf } from "../../builders";

/**
 * One array of codes per head, for three queries and three keys. With the causal mask, rows 0, 1
 * and 2 have one, two and three codes.
 */
const CODES = [
  [255, 102, 153, 51, 204, 255],
  [51, 255, 0, 102, 0, 153],
];
// Weight for each code: (code / 255) squared.
const WEIGHTS: Record<number, number> = { 0: 0, 51: 0.04, 102: 0.16, 153: 0.36, 204: 0.64, 255: 1 };

const embeddedOf = (bytes: Uint8Array, overrides: Partial<EmbeddedWeights> = {}): EmbeddedWeights =>
  pieceOf([2, 3, 3], bytes, { layer: 3, reach: 0, ...overrides });

describe("complete rows of a page", () => {
  it("end at the last stored key, and are added to the line", async () => {
    const rows = await completeRows(embeddedOf(Uint8Array.from(CODES.flat())));
    let start = 0;
    for (let row = 0; row < 3; row++) {
      for (let left = 0; left < 3; left++) {
        for (const [head, codes] of CODES.entries()) {
          const line = new Float32Array(3 - left).fill(2);
          rows.add([head], row, left, line);
          const expected = [0, 1, 2].map((key) =>
            key <= row ? WEIGHTS[codes[start + key] ?? 0] : 0,
          );
          expected.slice(left).forEach((weight, x) => {
            expect(line[x], `head ${head}, row ${row}, key ${left + x}`).toBeCloseTo(
              2 + (weight ?? 0),
              6,
            );
          });
        }
      }
      start += row + 1;
    }
    const both = new Float32Array(3);
    rows.add([0, 1], 2, 0, both);
    // The sum of the last rows of both heads, whose codes are 51, 204, 255 and 102, 0, 153.
    [0.04 + 0.16, 0.64, 1 + 0.36].forEach((sum, x) => {
      expect(both[x]).toBeCloseTo(sum, 6);
    });
  });

  it("are read without decoding if they are float32", async () => {
    const weights = Float32Array.from([1, 0.25, 0.75, 1, 0.5, 0.5]);
    const bytes = new Uint8Array(weights.buffer);
    const rows = await completeRows(
      embeddedOf(bytes, { shape: [2, 2, 2], encoding: "float32", error: 0 }),
    );
    const line = new Float32Array(2);
    rows.add([1], 0, 0, line);
    rows.add([0], 1, 0, line);
    expect([...line]).toEqual([1.25, 0.75]);
  });

  it.each([11, 13])("are rejected with %i bytes instead of 12", async (length) => {
    const bytes = new Uint8Array(length);
    await expect(completeRows(embeddedOf(bytes))).rejects.toThrow(
      `Layer 3 has ${length} bytes, but its shape 2 x 3 x 3 needs 12`,
    );
  });
});
