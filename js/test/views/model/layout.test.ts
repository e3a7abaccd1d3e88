import { describe, expect, it } from "vitest";
import { BETWEEN, detailWidth, layOut, sideFor } from "../../../src/views/model/layout";

const OPTIONS = { rows: 6, gallery: false, mostHeight: 640, size: "fit", longest: 16 } as const;

describe("the detail beside the grid", () => {
  // Widths from where it stands beside on, and heads of real models.
  for (let width = 740; width <= 2400; width += 60)
    for (const columns of [1, 2, 8, 12, 16, 32, 64])
      it(`leaves every one of ${columns} heads in sight at ${width}`, () => {
        const whole = layOut({ ...OPTIONS, columns, width });
        const detail = detailWidth(whole, width);
        expect(detail).toBeGreaterThanOrEqual(260);
        for (let column = 0; column < columns; column++) {
          const x = whole.left + column * whole.across;
          const right = x + whole.cell;
          // Only what is in sight can be clicked.
          if (right > whole.boxWidth) continue;
          if (sideFor(right, detail, width) === "right") {
            expect(right).toBeLessThanOrEqual(width - detail - BETWEEN);
          } else {
            // Right of the detail and of the labels, which move there with the grid's left edge.
            expect(x).toBeGreaterThanOrEqual(detail + BETWEEN + whole.left);
          }
        }
      });

  it("narrows the box and not the cells", () => {
    const whole = layOut({ ...OPTIONS, columns: 12, width: 864 });
    const half = layOut({ ...OPTIONS, columns: 12, width: 864, mostWidth: 480 });
    expect([half.cell, half.across, half.down]).toEqual([whole.cell, whole.across, whole.down]);
    expect(half.boxWidth).toBe(480);
    // The scroll bar below the cells takes none of their height.
    expect(half.boxHeight).toBeGreaterThan(whole.boxHeight);
  });
});

describe("the grid among other views", () => {
  for (const columns of [8, 12, 16])
    it(`shows all ${columns} heads in a column of 323 pixels`, () => {
      const layout = layOut({ ...OPTIONS, columns, width: 323, mostHeight: 420, embedded: true });
      expect(layout.width).toBeLessThanOrEqual(323);
      expect(layout.boxHeight).toBe(layout.height);
    });

  it("is no higher than its room where it is wide", () => {
    const layout = layOut({ ...OPTIONS, columns: 12, width: 720, mostHeight: 250, embedded: true });
    expect(layout.height).toBeLessThanOrEqual(250);
    expect(layout.cell).toBeGreaterThanOrEqual(24);
  });

  it("keeps cells that a finger meets where it stands alone", () => {
    expect(layOut({ ...OPTIONS, columns: 16, width: 323 }).cell).toBeGreaterThanOrEqual(24);
  });
});
