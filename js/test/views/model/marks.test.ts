import { describe, expect, it } from "vitest";
import { layOut } from "../../../src/views/model/layout";
import { coveredRange, strongestCell } from "../../../src/views/model/maps";
import { cellsOfPixels, paintHeat } from "../../../src/views/model/marks";

it("the layout fits every width, even if the size of a thumbnail changes its gap", () => {
  const options = { gallery: false, maxHeight: 600, size: "fit", longest: 25 } as const;
  for (let width = 400; width < 800; width++) {
    const layout = layOut({ ...options, columns: 4, rows: 2, width });
    expect(layout.width).toBeLessThanOrEqual(width);
  }
});

const map = (values: number[], rows: number, columns: number) => ({
  values: Float32Array.from(values),
  rows,
  columns,
  maximum: 1,
  error: 0,
});

describe("thumbnails", () => {
  it.each([
    [32, 26],
    [7, 5],
    [3, 9],
  ])("show all of %i cells in %i pixels", (count, pixels) => {
    const cells = new Set<number>();
    for (const [first, last] of cellsOfPixels(count, pixels))
      for (let cell = first; cell <= last; cell++) cells.add(cell);
    expect([...cells].sort((a, b) => a - b)).toEqual([...Array(count).keys()]);
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
    // If r cells cover n keys, cell a covers the keys from floor(a n / r) to before
    // floor((a + 1) n / r).
    expect(coveredRange(1, 3, [0, 8])).toEqual([2, 5]);
    expect(coveredRange(2, 3, [10, 18])).toEqual([15, 18]);
  });
});
