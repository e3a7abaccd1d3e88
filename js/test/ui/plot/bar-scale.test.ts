import { describe, expect, it } from "vitest";
import { PALETTES } from "../../../src/ui/colors/palette";
import { axisMarks, barEnd, barLength, breakMarks } from "../../../src/ui/plot/bar-scale";

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
    const bar = { zero: 0, length: 60, from: 0, thick: 8 };
    expect(barLength(0.87, 0.25, 60)).toBe(60);
    expect(breakMarks(bar, 0.87, 0.25, palette)).toHaveLength(1);
    expect(breakMarks(bar, -0.25, 0.25, palette)).toEqual([]);
  });

  it("has numbers at its ends", () => {
    const labels = (axis: Partial<Parameters<typeof axisMarks>[0]>) =>
      axisMarks({ x: 100, y: 0, reach: 60, ...axis }, 0.25, palette).flatMap((mark) =>
        mark.kind === "text" ? [[mark.text, mark.x, mark.y]] : [],
      );
    expect(labels({})).toEqual([
      ["0", 100, 8],
      ["0.25", 160, 8],
    ]);
    expect(labels({ reach: -60 })[1]).toEqual(["0.25", 40, 8]);
    expect(labels({ signs: "both" }).map(([text]) => text)).toEqual(["0", "−0.25", "+0.25"]);
    // The axis is vertical, with positive numbers at the top.
    expect(labels({ signs: "both", standing: true })).toEqual([
      ["0", 96, 0],
      ["+0.25", 96, -60],
      ["−0.25", 96, 60],
    ]);
  });
});
