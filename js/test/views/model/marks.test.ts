import { expect, it } from "vitest";
import { layerGrid } from "../../../src/ui/head-grid/grid";
import { heatPixels } from "../../../src/ui/head-grid/heat-pixels";
import { layersOf } from "../../../src/ui/view/model-layers";
import { layOut } from "../../../src/views/model/layout";
import { stackOf } from "../../builders";

const FIT = { longest: 25 };

function gridOf(columns: number, rows: number) {
  const layers = Array.from({ length: rows }, (_, layer) => layer);
  const stack = stackOf({ layers, heads_per_layer: layers.map(() => columns) });
  return layerGrid(layersOf({}, [stack]));
}

it("the layout fits every width, even if the size of a thumbnail changes its gap", () => {
  for (let width = 400; width < 800; width++) {
    const layout = layOut(gridOf(4, 2), { width, maxHeight: 600 }, FIT);
    expect(layout.width).toBeLessThanOrEqual(width);
  }
});

it.each([
  [4, 3, 785],
  [12, 6, 1280],
  [12, 12, 785],
])("thumbnails of %i x %i heads fill %i pixels or the height", (columns, rows, width) => {
  const layout = layOut(gridOf(columns, rows), { width, maxHeight: 600 }, FIT);
  // Sides are rounded down, so that cells have whole pixels, to at least 80%.
  const share = Math.max(layout.width / width, layout.height / 600);
  expect(share).toBeGreaterThan(0.75);
  expect(layout.width).toBeLessThanOrEqual(width);
  expect(layout.height).toBeLessThanOrEqual(600);
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
