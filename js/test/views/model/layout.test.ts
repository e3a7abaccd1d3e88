import { describe, expect, it } from "vitest";
import { BETWEEN, detailWidth, layOut } from "../../../src/views/model/layout";

const OPTIONS = { rows: 12, gallery: false, maxHeight: 640, size: "fit", longest: 16 } as const;

describe("thumbnails that fit", () => {
  // Numbers of heads of real models, with window widths from a phone to a wide screen.
  for (const [columns, narrowest] of [
    [1, 240],
    [12, 240],
    [16, 300],
    [32, 1240],
  ] as const)
    it(`shows all ${columns} heads of a layer, with and without the detail`, () => {
      for (let width: number = narrowest; width <= 2400; width += 60) {
        const room = width < 740 ? width : width - detailWidth(width) - BETWEEN;
        const layout = layOut({ ...OPTIONS, columns, width: room });
        expect(layout.boxWidth).toBeLessThanOrEqual(room);
        expect(layout.boxWidth).toBeGreaterThanOrEqual(layout.width);
      }
    });

  it("shows all of 12 layers at once", () => {
    const layout = layOut({ ...OPTIONS, columns: 12, width: 1200 });
    expect(layout.boxHeight).toBe(layout.height);
    expect(layout.cell).toBeGreaterThanOrEqual(40);
  });

  it("scrolls instead of being lower than 24 pixels", () => {
    const layout = layOut({ ...OPTIONS, rows: 80, columns: 12, width: 1200 });
    expect(layout.cell).toBeGreaterThanOrEqual(24);
    expect(layout.boxHeight).toBe(640);
  });
});
