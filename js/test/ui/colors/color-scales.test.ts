// @vitest-environment node
import { describe, expect, it } from "vitest";
import {
  colorAt,
  LOG_FLOOR,
  niceMaximum,
  pixelsOf,
  scaleEnd,
  shareOf,
  weightAt,
} from "../../../src/ui/colors/color-scales";
import { PALETTES, type ThemeName } from "../../../src/ui/colors/palette";
import { lightness } from "../../sight";

describe.each(["light", "dark"] as ThemeName[])("colours in the %s theme", (theme) => {
  it("have monotonic lightness in equal steps, starting at the background", () => {
    const steps = Array.from({ length: 256 }, (_, i) => {
      const bytes = colorAt(theme, i / 255).slice(0, 3);
      return lightness(`#${bytes.map((byte) => byte.toString(16).padStart(2, "0")).join("")}`);
    });
    const [first, last] = [steps[0] as number, steps[255] as number];
    expect((last - first) * (theme === "light" ? -1 : 1)).toBeGreaterThan(0.65);
    steps.forEach((value, i) => {
      expect(Math.abs(value - (first + ((last - first) * i) / 255))).toBeLessThan(0.006);
    });
    const step = Math.abs(first - lightness(PALETTES[theme].background));
    // The lightness of the first colour differs from that of the background visibly, but little.
    expect(step).toBeGreaterThan(0.02);
    expect(step).toBeLessThan(0.08);
  });

  it("give zero the background colour, and mark unknown cells", () => {
    const values = Float32Array.of(0, 1e-9, 1, Number.NaN);
    const pixels = pixelsOf(values, theme, 1, "linear", "#010203");
    expect([...pixels.subarray(0, 4)]).toEqual([0, 0, 0, 0]);
    expect([...pixels.subarray(4, 8)]).toEqual(colorAt(theme, 0));
    expect([...pixels.subarray(8, 12)]).toEqual(colorAt(theme, 1));
    expect([...pixels.subarray(12, 16)]).toEqual([1, 2, 3, 255]);
  });
});

describe("scales", () => {
  it("are linear, or logarithmic above a floor", () => {
    expect(shareOf(2, 0.5, "linear")).toBe(1);
    expect(shareOf(0, 1, "log")).toBeNull();
    expect(shareOf(0.01, 1, "log")).toBeCloseTo(0.5, 6);
    expect(shareOf(LOG_FLOOR / 10, 1, "log")).toBe(0);
    expect(weightAt(0.5, 2, "linear")).toBe(1);
    expect(weightAt(0.5, 1, "log")).toBeCloseTo(0.01, 6);
    expect(weightAt(0.5, 0.1, "log")).toBeCloseTo(0.001, 6);
  });

  it("end at a round number if all weights are small", () => {
    expect([0.03, 0.17, 0.21, 0.25].map(niceMaximum)).toEqual([0.05, 0.2, 0.25, 0.25]);
    expect(scaleEnd(0.17, 1)).toBe(0.2);
    expect(scaleEnd(0.7, 1)).toBe(1);
    expect(scaleEnd(0, 5)).toBe(5);
  });
});
