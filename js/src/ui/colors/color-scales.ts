/**
 * All colour scales: of weights, of numbers of points, and of signed numbers; and the weights that
 * they end at. Pure functions. Lightness goes one way only, by equal steps.
 */

import { type Palette, rgbOf, type ThemeName } from "./palette";

/** How colours follow weights. */
export type ColorScale = "linear" | "log";

/**
 * Weights: from next to the background to what stands out from it most, after "mako" of seaborn
 * (Waskom 2021), whose blue-green hues differ for every kind of sight
 * (js/test/ui/colors/color-scales.test.ts). Only zero has the background itself, so that a masked pair
 * does not look like a small weight.
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
 * Numbers, from low to high, after matplotlib's "inferno" (van der Walt and Smith 2015), as far as it stands
 * out from the background by 3 to 1: a point is a few pixels wide. Of inferno, plasma,
 * viridis and mako it has the longest way left to every kind of sight.
 */
const NUMBER_STOPS: Record<ThemeName, readonly string[]> = {
  light: ["#e8672b", "#dd513a", "#bc3754", "#932667", "#6a176e", "#420a68", "#160b39", "#000004"],
  dark: ["#bc3754", "#dd513a", "#f37819", "#fca50a", "#f6d746", "#fcffa4"],
};

/** Colours of a map; a byte says which. */
const COLORS = 256;

/** Where a logarithmic scale begins, as a share of its end. */
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

/** Red, green and blue, 0 to 255, in OKLab (Ottosson 2020), where equal steps look equal. */
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

/** Red, green and blue of 256 colours from the first stop to the last, by equal steps of lightness. */
function mapOf(stops: readonly string[]): Uint8ClampedArray {
  const points = stops.map((color) => oklabOf(rgbOf(color)));
  const first = (points[0] as Three)[0];
  const last = (points.at(-1) as Three)[0];
  const out = new Uint8ClampedArray(COLORS * 3);
  for (let i = 0; i < COLORS; i++) {
    // By lightness and not by stop, so that equal steps of weight are equal steps of lightness.
    const wanted = first + ((last - first) * i) / (COLORS - 1);
    const rising = last > first;
    let at = 0;
    while (at < points.length - 2) {
      const next = (points[at + 1] as Three)[0];
      if (rising ? next >= wanted : next <= wanted) break;
      at++;
    }
    const [from, to] = [points[at] as Three, points[at + 1] as Three];
    const way = (wanted - from[0]) / (to[0] - from[0]);
    const mixed = from.map((value, c) => value + (to[c as 0] - value) * way) as Three;
    out.set(rgbOfOklab(mixed), i * 3);
  }
  return out;
}

const MAPS: Partial<Record<ThemeName, Uint8ClampedArray>> = {};

/** The colours of a theme, from weak to strong: red, green and blue of 256 of them. */
export function colorMap(theme: ThemeName): Uint8ClampedArray {
  MAPS[theme] ??= mapOf(WEIGHT_STOPS[theme]);
  return MAPS[theme];
}

/** Colours of the scale of numbers. */
export const NUMBER_STEPS = 64;

/** A theme's colours of numbers, from low to high. */
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

/** The hue of a signed number; its opacity says how far it is from zero. */
export function signColor(value: number, palette: SignColors): string {
  return value < 0 ? palette.negative : palette.positive;
}

/** The two hues of signed numbers, around a zero that is the background. */
export type SignColors = Pick<Palette, "positive" | "negative">;

/** The colour of a signed number: its hue, and how opaque it is by its share of the scale's end. */
export function signColorAt(share: number, colors: SignColors): [number, number, number, number] {
  return [...rgbOf(signColor(share, colors)), 255 * Math.min(1, Math.abs(share))];
}

/** The share of a signed scale that a number is at, -1 to 1; null for 0 and for no number. */
export function signedShareOf(value: number, end: number, scale: ColorScale): number | null {
  const share = shareOf(Math.abs(value), end, scale);
  return share === null ? null : value < 0 ? -share : share;
}

/** The ink of small maps: one colour for weights, two for signed numbers. */
export type Ink = string | SignColors;

export function inkColor(ink: Ink, value: number): string {
  return typeof ink === "string" ? ink : signColor(value, ink);
}

/** How far along its map a weight is, 0 to 1; null for no weight. */
export function shareOf(weight: number, end: number, scale: ColorScale): number | null {
  if (!(weight > 0)) return null;
  const share = Math.min(1, weight / end);
  if (scale === "linear") return share;
  return Math.max(0, 1 - Math.log10(share) / Math.log10(LOG_FLOOR));
}

/** The weight at a share of the way. */
export function weightAt(share: number, end: number, scale: ColorScale): number {
  return scale === "linear" ? share * end : end * LOG_FLOOR ** (1 - share);
}

/** The colour of a share of the way, opaque. */
export function colorAt(theme: ThemeName, share: number): [number, number, number, number] {
  const map = colorMap(theme);
  const at = 3 * Math.round(share * (COLORS - 1));
  return [map[at] as number, map[at + 1] as number, map[at + 2] as number, 255];
}

/**
 * Pixels of cells: without weight transparent, and where nothing has come yet `unknown`.
 *
 * @param signs of signed numbers, which then have opacity in place of lightness.
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

/** The round number that a scale ends at: 0.1, 0.2, 0.25, 0.5 or 1 times a power of ten. */
export function niceMaximum(value: number): number {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  for (const factor of [1, 2, 2.5, 5, 10])
    if (value <= factor * power * 1.0001) return factor * power;
  return 10 * power;
}

/** How a scale's end is set: to the largest weight there can be, or to the largest shown. */
export type Scaling = "auto" | "whole" | "largest";

/** Weights are called small where none shown reaches this share of the maximum. */
const SMALL_SHARE = 0.4;

/** Of signed numbers a scale is fitted, but no finer: what hardly changes must not look like much. */
const FINEST_SHARE = 0.02;

/**
 * The weight that a scale ends at. The maximum of signed numbers is not a number that a reader knows,
 * as 1 is of weights: by itself a scale is fitted to those that are shown.
 */
export function scaleEnd(
  largest: number,
  maximum: number,
  scaling: Scaling,
  signed = false,
): number {
  if (signed && scaling === "auto")
    return Math.min(maximum, niceMaximum(Math.max(largest, FINEST_SHARE * maximum)));
  // Where all weights are small, nothing would be seen on the whole scale.
  const small = largest < SMALL_SHARE * maximum;
  const fitted = scaling === "largest" || (scaling === "auto" && small);
  return fitted && largest > 0 ? Math.min(niceMaximum(largest), maximum) : maximum;
}
