// @vitest-environment node
import { describe, expect, it } from "vitest";
import { pixelsOf } from "../../src/ui/colors/color-scales";
import { PALETTES } from "../../src/ui/colors/palette";
import { computeLines, shownMatrices } from "../../src/views/head/lines";
import { heatMark, strongestCells } from "../../src/views/model/marks";

describe("a weight of exactly 0", () => {
  const values = Float32Array.of(0, 0, 0, 0);
  const all = Uint8Array.of(1, 1);

  it("is no line, also where no weight is larger", () => {
    const weights = {
      heads: [0],
      matrices: [values],
      rows: [0, 2] as [number, number],
      columns: [0, 2] as [number, number],
      numKeys: 2,
      normalized: false,
      maximum: 0,
      error: 0,
    };
    const options = {
      combine: "separate" as const,
      topK: null,
      threshold: 0,
      leftOut: new Uint8Array(2),
      pairQueries: all,
      pairKeys: all,
      renormalize: false,
      queryWindow: [0, 2] as [number, number],
      keyWindow: [0, 2] as [number, number],
    };
    for (const topK of [null, 1]) {
      const lines = computeLines(
        weights,
        { ...options, topK },
        shownMatrices(weights, "separate", false),
      );
      expect(lines.series[0]?.query).toHaveLength(0);
    }
  });

  it("is no colour in a matrix and no ink in a thumbnail", () => {
    const some = Float32Array.of(0, 0.5, 0.5, 0);
    const cells = pixelsOf(some, "light", 1, "linear", "#010203");
    expect([cells[3], cells[7], cells[11], cells[15]]).toEqual([0, 255, 255, 0]);
    const map = { values: some, rows: 2, columns: 2, maximum: 1, error: 0 };
    const { pixels } = heatMark(map, { x: 0, y: 0, side: 20 }, PALETTES.light.neutral);
    expect([pixels[3], pixels[15]]).toEqual([0, 0]);
    expect(pixels[7]).toBeGreaterThan(0);
    expect(strongestCells(map, 4)).toEqual([1, 2]);
  });
});
