/** Functions for contrasts of colours, and for distances, which depend on a reader's colour vision. */

import { rgbOf } from "../src/ui/colors/palette";

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

/** Return the lightness of a colour in OKLab, from 0 to 1. */
export function lightness(color: string): number {
  return oklab(linear(color))[0];
}

/** Convert linear RGB to OKLab (Björn Ottosson 2020). */
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

/**
 * Matrices on linear RGB that simulate colour blindness at full severity (Machado, Oliveira and
 * Fernandes 2009).
 */
export const SIGHT: Record<string, Matrix> = {
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

/** Return the distance of two colours in OKLab for a reader with the colour vision `sight`. */
export function distance(a: string, b: string, sight: Matrix): number {
  const see = (color: string): Vector =>
    oklab(times(sight, linear(color)).map((value) => Math.min(1, Math.max(0, value))) as Vector);
  const [first, second] = [see(a), see(b)];
  return Math.hypot(...first.map((value, i) => value - (second[i] as number)));
}

/** Return the contrast of two colours, from 1 to 21, as WCAG 2.2 defines it. */
export function contrast(a: string, b: string): number {
  const luminance = (color: string): number => {
    const [red, green, blue] = linear(color);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y) as [number, number];
  return (high + 0.05) / (low + 0.05);
}
