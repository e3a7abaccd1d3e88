import { describe, expect, it } from "vitest";
import { PALETTES } from "../../../src/ui/colors/palette";
import { axisMarks, type BarScale, barEnd, barMarks } from "../../../src/ui/plot/bars";

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
