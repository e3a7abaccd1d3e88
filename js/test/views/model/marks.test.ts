import { expect, it } from "vitest";
import { heatPixels } from "../../../src/ui/head-grid/heat-pixels";
import { layOut } from "../../../src/views/model/layout";

it("the layout fits every width, even if the size of a thumbnail changes its gap", () => {
  const options = { gallery: false, maxHeight: 600, size: "fit", longest: 25 } as const;
  for (let width = 400; width < 800; width++) {
    const layout = layOut({ ...options, columns: 4, rows: 2, width });
    expect(layout.width).toBeLessThanOrEqual(width);
  }
});

it.each([
  [4, 3, 785],
  [12, 6, 1280],
  [12, 12, 785],
])("thumbnails of %i x %i heads fill %i pixels or the height", (columns, rows, width) => {
  const options = { gallery: false, maxHeight: 600, size: "fit", longest: 25 } as const;
  const layout = layOut({ ...options, columns, rows, width });
  // Sides are rounded down, so that cells have whole pixels, to at least 80%.
  const share = Math.max(layout.width / width, layout.height / options.maxHeight);
  expect(share).toBeGreaterThan(0.75);
  expect(layout.width).toBeLessThanOrEqual(width);
  expect(layout.height).toBeLessThanOrEqual(options.maxHeight);
});

it.each([
  [40, 24],
  [32, 26],
  [7, 5],
  [3, 9],
])("a thumbnail of %i cells in %i pixels shows a single strong weight", (count, side) => {
  for (let at = 0; at < count; at++) {
    const values = new Float32Array(count);
    values[at] = 1;
    const map = { values, rows: 1, columns: count, maximum: 1, error: 0 };
    const pixels = heatPixels(map, side, side, "#102030");
    expect(Math.max(...pixels.filter((_, i) => i % 4 === 3))).toBe(255);
  }
});
