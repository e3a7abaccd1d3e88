// @vitest-environment node
import { describe, expect, it } from "vitest";
import { completeRows, type EmbeddedWeights } from "../../../src/client/page/rows";
import { pieceOf } from "../../builders";

const embeddedOf = (bytes: Uint8Array, overrides: Partial<EmbeddedWeights> = {}): EmbeddedWeights =>
  pieceOf([2, 3, 3], bytes, { layer: 3, reach: 0, ...overrides });

// Codes of two heads. With the causal mask, the three rows of a head have one, two and three codes.
const CODES = [255, 102, 153, 51, 204, 255, 51, 255, 0, 102, 0, 153];
/** Weights of `CODES`, (code / 255)^2, as [head][row][key]. Weights of masked keys are 0. */
const WEIGHTS = [
  [
    [1, 0, 0],
    [0.16, 0.36, 0],
    [0.04, 0.64, 1],
  ],
  [
    [0.04, 0, 0],
    [1, 0, 0],
    [0.16, 0, 0.36],
  ],
];

describe("complete rows of a page", () => {
  it("end at the last stored key, and are added to the line", async () => {
    const rows = await completeRows(embeddedOf(Uint8Array.from(CODES)));
    WEIGHTS.forEach((matrix, head) => {
      matrix.forEach((weights, row) => {
        for (let left = 0; left < 3; left++) {
          const line = new Float32Array(3 - left).fill(2);
          rows.add([head], row, left, line);
          const expected = weights.slice(left).map((weight) => expect.closeTo(2 + weight, 6));
          expect([...line]).toEqual(expected);
        }
      });
    });
    const bothHeads = new Float32Array(3);
    rows.add([0, 1], 2, 0, bothHeads);
    expect([...bothHeads]).toEqual([0.2, 0.64, 1.36].map((sum) => expect.closeTo(sum, 6)));
  });

  it("are read without decoding if they are float32", async () => {
    const bytes = new Uint8Array(Float32Array.of(1, 0.25, 0.75, 1, 0.5, 0.5).buffer);
    const layer = embeddedOf(bytes, { shape: [2, 2, 2], encoding: "float32", error: 0 });
    const rows = await completeRows(layer);
    const line = new Float32Array(2);
    rows.add([0], 1, 0, line);
    expect([...line]).toEqual([0.25, 0.75]);
  });

  it.each([11, 13])("are rejected with %i bytes instead of 12", async (length) => {
    const bytes = new Uint8Array(length);
    await expect(completeRows(embeddedOf(bytes))).rejects.toThrow(
      `Layer 3 has ${length} bytes, but its shape 2 x 3 x 3 needs 12`,
    );
  });
});
