import { describe, expect, it } from "vitest";
import { groupByLayer, layOut } from "../../../src/views/model/layout";
import { coveredRange, strongestCell } from "../../../src/views/model/maps";
import { cellsOfPixels, paintHeat } from "../../../src/views/model/marks";

describe("requests of maps", () => {
  it("are grouped by layer", () => {
    const cells = [{ layer: 3, head: 1 }, null, { layer: 0, head: 2 }, { layer: 3, head: 0 }];
    expect(groupByLayer(cells)).toEqual([
      [3, [0, 1]],
      [0, [2]],
    ]);
  });
});

describe("the layout", () => {
  const options = { gallery: false, maxHeight: 600, size: "fit", longest: 64 } as const;

  it("fits every width, even if the size of a thumbnail changes its gap", () => {
    for (let width = 400; width < 800; width++) {
      const layout = layOut({ ...options, columns: 4, rows: 2, width, longest: 25 });
      expect(layout.width).toBeLessThanOrEqual(width);
    }
  });

  it("gives all cells of a small matrix the same number of pixels", () => {
    const layout = layOut({ ...options, columns: 12, rows: 6, width: 1000, longest: 16 });
    expect(layout.cell % 16).toBe(0);
  });
});

const map = (values: number[], rows: number, columns: number) => ({
  values: Float32Array.from(values),
  rows,
  columns,
  maximum: 1,
  error: 0,
});

describe("thumbnails", () => {
  it("lose no cell if there are fewer pixels than cells", () => {
    for (const [count, pixels] of [
      [32, 26],
      [64, 24],
      [7, 5],
      [3, 9],
      [1, 4],
    ] as const) {
      const seen = new Set<number>();
      for (const [first, last] of cellsOfPixels(count, pixels))
        for (let cell = first; cell <= last; cell++) seen.add(cell);
      expect([...seen].sort((a, b) => a - b)).toEqual(Array.from({ length: count }, (_, i) => i));
    }
  });

  it("show a single strong weight at any size", () => {
    for (let at = 0; at < 40; at++) {
      const values = new Array(40).fill(0);
      values[at] = 1;
      const pixels = new Uint8ClampedArray(24 * 24 * 4);
      paintHeat(pixels, 24, map(values, 1, 40), { x: 0, y: 0, side: 24 }, "#102030");
      const opacities = pixels.filter((_, i) => i % 4 === 3);
      expect(Math.max(...opacities)).toBe(255);
    }
  });

  it("know their strongest weight, and what a pooled cell covers", () => {
    expect(strongestCell(map([0.1, 0.2, 0.7, 0.7], 2, 2))).toEqual({
      row: 1,
      column: 0,
      weight: expect.closeTo(0.7),
    });
    expect(strongestCell(map([0, 0], 1, 2))).toBeNull();
    // Cell a of r cells covers floor(a n / r) to floor((a + 1) n / r), exclusive, of n keys. The
    // kernel uses the same ranges.
    expect(coveredRange(1, 3, [0, 8])).toEqual([2, 5]);
    expect(coveredRange(2, 3, [10, 18])).toEqual([15, 18]);
  });
});
