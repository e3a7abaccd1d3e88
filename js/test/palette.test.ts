// @vitest-environment node
import { describe, expect, it } from "vitest";
import { headColor, MOST_COLOURS, PALETTES, rgbOf } from "../src/ui/palette";

type Vector = [number, number, number];
type Matrix = [Vector, Vector, Vector];

function times(matrix: Matrix, vector: Vector): Vector {
  return matrix.map(
    (row) => row[0] * vector[0] + row[1] * vector[1] + row[2] * vector[2],
  ) as Vector;
}

function linear(color: string): Vector {
  return rgbOf(color).map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  }) as Vector;
}

/** OKLab, as Björn Ottosson gives it (2020). */
function oklab(rgb: Vector): Vector {
  const cones = times(
    [
      [0.4122214708, 0.5363325363, 0.0514459929],
      [0.2119034982, 0.6806995451, 0.1073969566],
      [0.0883024619, 0.2817188376, 0.6299787005],
    ],
    rgb,
  ).map((value) => Math.cbrt(Math.max(0, value))) as Vector;
  return times(
    [
      [0.2104542553, 0.793617785, -0.0040720468],
      [1.9779984951, -2.428592205, 0.4505937099],
      [0.0259040371, 0.7827717662, -0.808675766],
    ],
    cones,
  );
}

/** Simulations at full severity, Machado, Oliveira and Fernandes (2009). */
const SIGHT: Record<string, Matrix> = {
  normal: [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ],
  protanopia: [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  deuteranopia: [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
  tritanopia: [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039],
  ],
};

function distance(a: string, b: string, sight: Matrix): number {
  const see = (color: string): Vector =>
    oklab(times(sight, linear(color)).map((value) => Math.min(1, Math.max(0, value))) as Vector);
  const [first, second] = [see(a), see(b)];
  return Math.hypot(...first.map((value, i) => value - (second[i] as number)));
}

/** WCAG 2.2. */
function contrast(a: string, b: string): number {
  const luminance = (color: string): number => {
    const [red, green, blue] = linear(color);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y) as [number, number];
  return (high + 0.05) / (low + 0.05);
}

describe.each(Object.entries(PALETTES))("the %s palette", (_name, palette) => {
  it.each(Object.entries(SIGHT))(
    "tells heads and neutral ink apart to %s sight",
    (_sight, sight) => {
      const colors = [...palette.heads, palette.neutral];
      const near: string[] = [];
      colors.forEach((a, i) => {
        for (const b of colors.slice(i + 1)) {
          const apart = distance(a, b, sight);
          if (apart < 0.085) near.push(`${a} ${b} ${apart.toFixed(3)}`);
        }
      });
      expect(near).toEqual([]);
    },
  );

  it("stands out from its background", () => {
    for (const color of palette.heads) {
      expect(contrast(color, palette.background), color).toBeGreaterThanOrEqual(3);
    }
    for (const color of [palette.ink, palette.muted]) {
      expect(contrast(color, palette.background), color).toBeGreaterThanOrEqual(4.5);
      expect(contrast(color, palette.raised), color).toBeGreaterThanOrEqual(4.5);
    }
    expect(contrast(palette.ink, palette.found)).toBeGreaterThanOrEqual(4.5);
  });

  it.each(Object.entries(SIGHT))("tells below from above zero to %s sight", (_sight, sight) => {
    const { positive, negative, background } = palette;
    // Three times what tells heads apart: a sign is read from cells a few pixels wide.
    expect(distance(positive, negative, sight)).toBeGreaterThan(0.2);
    for (const color of [positive, negative]) {
      expect(distance(color, background, sight)).toBeGreaterThan(0.2);
      expect(contrast(color, background)).toBeGreaterThanOrEqual(3);
    }
  });

  it("gives its colours in order of choice, and neutral ink to all beyond eight", () => {
    expect(headColor(palette, 0, 3)).toBe(palette.heads[0]);
    expect(headColor(palette, 7, MOST_COLOURS)).toBe(palette.heads[7]);
    expect(headColor(palette, 0, MOST_COLOURS + 1)).toBe(palette.neutral);
  });
});
