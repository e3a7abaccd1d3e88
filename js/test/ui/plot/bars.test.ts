import { describe, expect, it } from "vitest";
import { measureText } from "../../../src/draw/canvas";
import { PALETTES } from "../../../src/ui/colors/palette";
import {
  axisMarks,
  type BarScale,
  barEnd,
  barGroupMarks,
  barMarks,
} from "../../../src/ui/plot/bars";
import { quantityOf } from "../../../src/ui/text/captions";

const palette = PALETTES.light;

describe("the scale of bars", () => {
  it("ends at the largest number, or at 100 times the uniform weight for many keys", () => {
    expect([1, 16, 100, 200, 1000, 100_000].map((keys) => barEnd(1, keys))).toEqual([
      1, 1, 1, 0.5, 0.1, 0.001,
    ]);
    // The end of a scale is rounded up. A scale for zeros ends at 1.
    expect([barEnd(0.21, 16), barEnd(0, 16)]).toEqual([0.3, 1]);
  });

  it("breaks exactly the bars that exceed it", () => {
    const bar = { from: 0, thick: 8, color: palette.neutral };
    const marks = (value: number) =>
      barMarks({ zero: 0, reach: 60, end: 0.25 }, { ...bar, value }, palette);
    expect([marks(0.87)[0].width, marks(0.87).length]).toEqual([60, 2]);
    expect([marks(-0.25)[0].width, marks(-0.25).length]).toEqual([60, 1]);
  });

  it("names the largest numbers that do not touch, inside the plot", () => {
    const numbers = (values: number[], step: number) =>
      barGroupMarks({
        scale: { zero: 0, reach: 30, end: 1, standing: true },
        bars: values.map((value, position) => {
          const middle = (position + 0.5) * step;
          return { value, position, middle, from: middle - 1, thick: 2, color: "#000000" };
        }),
        ...{ line: [0, values.length * step], axisAt: -16, step, minProminent: 0.005, palette },
        quantity: quantityOf({ maximum: 1 }),
      }).flatMap((mark) => (mark.kind === "text" && mark.x > 0 ? [mark] : []));
    const many = Array.from({ length: 100 }, (_, i) => (i + 1) / 1000);
    const drawn = numbers([...many, 0.004], 3);
    // The largest number has a smaller neighbour in the last column, which would touch it.
    expect(drawn[0]?.text).toBe("0.10");
    for (const { text, x } of drawn) {
      const half = measureText(text, "") / 2;
      expect(x + half).toBeLessThanOrEqual(101 * 3 + 8);
      const others = drawn.filter((other) => other.x !== x);
      expect(others.every((other) => Math.abs(other.x - x) >= half)).toBe(true);
    }
    const [last] = numbers([...new Array<number>(19).fill(0), 0.001], 3);
    expect(last?.text).toBe("<0.01");
    expect((last?.x ?? 0) + measureText("<0.01", "") / 2).toBeLessThanOrEqual(20 * 3 + 8);
  });

  it("has numbers at its ends", () => {
    const labels = (scale: Partial<BarScale>) =>
      axisMarks({ zero: 100, reach: 60, end: 0.25, ...scale }, 0, palette).flatMap((mark) =>
        mark.kind === "text" ? [[mark.text, mark.x, mark.y]] : [],
      );
    expect(labels({})).toEqual([
      ["0", 100, 8],
      ["0.25", 160, 8],
    ]);
    expect(labels({ reach: -60 })[1]).toEqual(["0.25", 40, 8]);
    expect(labels({ signs: "both" }).map(([text]) => text)).toEqual(["0", "−0.25", "+0.25"]);
    // The axis is vertical, with positive numbers at the top, because its reach is negative.
    expect(labels({ signs: "both", standing: true, reach: -60 })).toEqual([
      ["0", -4, 100],
      ["+0.25", -4, 40],
      ["−0.25", -4, 160],
    ]);
  });
});
