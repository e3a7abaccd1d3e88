/**
 * Colour scales for attention weights, for signed numbers and for the numbers that the embedding
 * plot shows, one per point. This file also chooses the value at which a scale ends. All functions
 * are pure. Along a scale, lightness changes monotonically and in equal steps.
 */

import { type Palette, rgbOf, type ThemeName } from "./palette";

/** Linear or logarithmic relation between a weight and its position on the colour scale. */
export type ColorScale = "linear" | "log";

/**
 * Colour stops for weights, from a colour close to the background to the colour with the strongest
 * contrast. They follow "mako" of seaborn (Waskom 2021). Readers with any type of colour vision can
 * distinguish the blue-green hues (js/test/ui/colors/color-scales.test.ts). Only the weight 0 has
 * the background colour, so a masked pair does not look like a small weight.
 */
const WEIGHT_STOPS: Record<ThemeName, readonly string[]> = {
  light: [
    "#edf4f1",
    "#c2e6d6",
    "#86d0ba",
    "#49b0ac",
    "#3789a5",
    "#3c6394",
    "#40406f",
    "#2a1f3f",
    "#120a1a",
  ],
  dark: [
    "#24232e",
    "#383150",
    "#404a80",
    "#386b9b",
    "#368ca6",
    "#44adab",
    "#7cccb6",
    "#bbe5d2",
    "#f4fbf7",
  ],
};

/**
 * Colour stops for the numbers of the embedding plot, from low to high, after matplotlib's
 * "inferno" (van der Walt and Smith 2015). The map ends where its contrast with the background
 * falls below 3 to 1, because a point is only a few pixels wide. Compared with plasma, viridis and
 * mako, inferno has the longest remaining range for every type of colour vision.
 */
const NUMBER_STOPS: Record<ThemeName, readonly string[]> = {
  light: ["#e8672b", "#dd513a", "#bc3754", "#932667", "#6a176e", "#420a68", "#160b39", "#000004"],
  dark: ["#bc3754", "#dd513a", "#f37819", "#fca50a", "#f6d746", "#fcffa4"],
};

/** Number of colours in a colour map. */
const COLORS = 256;

/**
 * Lower end of a logarithmic scale, as a share of its upper end. Smaller weights have the same
 * colour as the lower end.
 */
export const LOG_FLOOR = 1e-4;

function linear(value: number): number {
  const share = value / 255;
  return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
}

function gamma(value: number): number {
  const share = value <= 0.0031308 ? 12.92 * value : 1.055 * value ** (1 / 2.4) - 0.055;
  return Math.max(0, Math.min(255, Math.round(share * 255)));
}

type Three = [number, number, number];

/**
 * Return the OKLab coordinates (Ottosson 2020) of a colour whose red, green and blue are from 0 to
 * 255. Equal steps in OKLab look equal.
 */
export function oklabOf([red, green, blue]: Three): Three {
  const [r, g, b] = [linear(red), linear(green), linear(blue)];
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

function rgbOfOklab([lightness, a, b]: Three): Three {
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    gamma(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
    gamma(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
    gamma(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s),
  ];
}

/**
 * Return the red, green and blue of 256 colours from the first stop to the last, in equal steps of
 * lightness.
 */
function mapOf(stops: readonly string[]): Uint8ClampedArray {
  const points = stops.map((color) => oklabOf(rgbOf(color)));
  const first = (points[0] as Three)[0];
  const last = (points.at(-1) as Three)[0];
  const out = new Uint8ClampedArray(COLORS * 3);
  for (let i = 0; i < COLORS; i++) {
    // Interpolate by lightness instead of stop index, because the stops are not equally far apart
    // in lightness.
    const lightness = first + ((last - first) * i) / (COLORS - 1);
    const rising = last > first;
    let at = 0;
    while (at < points.length - 2) {
      const next = (points[at + 1] as Three)[0];
      if (rising ? next >= lightness : next <= lightness) break;
      at++;
    }
    const [from, to] = [points[at] as Three, points[at + 1] as Three];
    const fraction = (lightness - from[0]) / (to[0] - from[0]);
    const mixed = from.map((value, c) => value + (to[c as 0] - value) * fraction) as Three;
    out.set(rgbOfOklab(mixed), i * 3);
  }
  return out;
}

const MAPS: Partial<Record<ThemeName, Uint8ClampedArray>> = {};

/** Return the weight colours of a theme from weak to strong: red, green and blue of 256 colours. */
export function colorMap(theme: ThemeName): Uint8ClampedArray {
  MAPS[theme] ??= mapOf(WEIGHT_STOPS[theme]);
  return MAPS[theme];
}

/** Number of colours that `numberColors` returns. */
export const NUMBER_STEPS = 64;

/** Return the colours for numbers of the embedding plot as "#rrggbb", from low to high. */
export function numberColors(theme: ThemeName): string[] {
  const map = mapOf(NUMBER_STOPS[theme]);
  return Array.from({ length: NUMBER_STEPS }, (_, i) => {
    const at = 3 * Math.round((i * 255) / (NUMBER_STEPS - 1));
    const hex = Array.from(map.subarray(at, at + 3), (value) =>
      value.toString(16).padStart(2, "0"),
    );
    return `#${hex.join("")}`;
  });
}

/** Return the opaque colour that stands for the sign of a number. */
export function signColor(value: number, palette: SignColors): string {
  return value < 0 ? palette.negative : palette.positive;
}

/** Colours of positive and negative numbers. The colour of 0 is the background. */
export type SignColors = Pick<Palette, "positive" | "negative">;

/**
 * Return the RGBA colour of a signed number. `share` is its position on the scale, from -1 to 1:
 * the sign sets the hue and the absolute value sets the opacity.
 */
export function signColorAt(share: number, colors: SignColors): [number, number, number, number] {
  return [...rgbOf(signColor(share, colors)), 255 * Math.min(1, Math.abs(share))];
}

/** Return the position of a number on a signed scale, from -1 to 1, or null for 0 and NaN. */
export function signedShareOf(value: number, end: number, scale: ColorScale): number | null {
  const share = shareOf(Math.abs(value), end, scale);
  return share === null ? null : value < 0 ? -share : share;
}

/** Colour of small maps: one colour for weights, or one colour per sign for signed numbers. */
export type Ink = string | SignColors;

export function inkColor(ink: Ink, value: number): string {
  return typeof ink === "string" ? ink : signColor(value, ink);
}

/** Return the position of a weight on its scale, from 0 to 1, or null if the weight is 0 or NaN. */
export function shareOf(weight: number, end: number, scale: ColorScale): number | null {
  if (!(weight > 0)) return null;
  const share = Math.min(1, weight / end);
  if (scale === "linear") return share;
  return Math.max(0, 1 - Math.log10(share) / Math.log10(LOG_FLOOR));
}

/** Return the weight at a position of the scale, from 0 to 1. This is the inverse of `shareOf`. */
export function weightAt(share: number, end: number, scale: ColorScale): number {
  return scale === "linear" ? share * end : end * LOG_FLOOR ** (1 - share);
}

/** Return the opaque RGBA colour at a position of the weight scale, from 0 to 1. */
export function colorAt(theme: ThemeName, share: number): [number, number, number, number] {
  const map = colorMap(theme);
  const at = 3 * Math.round(share * (COLORS - 1));
  return [map[at] as number, map[at + 1] as number, map[at + 2] as number, 255];
}

/**
 * Return RGBA pixels for `values`. Zeros are transparent. Values that are not loaded yet (NaN) have
 * the colour `unknown`.
 *
 * @param signs colours of signed numbers, which vary in opacity instead of lightness. Default:
 *   `values` are weights.
 */
export function pixelsOf(
  values: Float32Array,
  theme: ThemeName,
  end: number,
  scale: ColorScale,
  unknown: string,
  signs?: SignColors,
): Uint8ClampedArray<ArrayBuffer> {
  const pixels = new Uint8ClampedArray(values.length * 4);
  const map = colorMap(theme);
  const waiting = rgbOf(unknown);
  for (let i = 0; i < values.length; i++) {
    const weight = values[i] as number;
    if (weight === 0) continue;
    const at = i * 4;
    pixels[at + 3] = 255;
    const share = (signs ? signedShareOf : shareOf)(weight, end, scale);
    if (share === null) {
      pixels.set(waiting, at);
      continue;
    }
    if (signs) {
      pixels.set(signColorAt(share, signs), at);
      continue;
    }
    const from = 3 * Math.round(share * (COLORS - 1));
    pixels[at] = map[from] as number;
    pixels[at + 1] = map[from + 1] as number;
    pixels[at + 2] = map[from + 2] as number;
  }
  return pixels;
}

/**
 * Return the smallest round number that is at least `value`: 0.1, 0.2, 0.25, 0.5 or 1 times a power
 * of ten.
 */
export function niceMaximum(value: number): number {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  for (const factor of [1, 2, 2.5, 5, 10])
    if (value <= factor * power * 1.0001) return factor * power;
  return 10 * power;
}

/**
 * End of a scale: the largest possible weight ("whole"), about the largest visible weight
 * ("largest"), or one of these two, depending on the visible weights ("auto").
 */
export type Scaling = "auto" | "whole" | "largest";

/**
 * With "auto", a scale of weights ends at about the largest visible weight if that weight is below
 * this share of the largest possible weight.
 */
const SMALL_SHARE = 0.4;

/**
 * Smallest end of a signed scale with "auto", as a share of the largest possible number. It keeps
 * tiny numbers from looking large.
 */
const MIN_END_SHARE = 0.02;

/**
 * Return the weight at which the scale ends.
 *
 * With "auto", the end of a signed scale follows the largest visible number. The largest possible
 * weight is usually 1, but readers do not know the largest possible signed number.
 */
export function scaleEnd(
  largest: number,
  maximum: number,
  scaling: Scaling,
  signed = false,
): number {
  if (signed && scaling === "auto")
    return Math.min(maximum, niceMaximum(Math.max(largest, MIN_END_SHARE * maximum)));
  // If all weights are small, they would be invisible on a scale up to the maximum.
  const small = largest < SMALL_SHARE * maximum;
  const fitted = scaling === "largest" || (scaling === "auto" && small);
  return fitted && largest > 0 ? Math.min(niceMaximum(largest), maximum) : maximum;
}
