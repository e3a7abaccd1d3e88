/**
 * Colour scales for attention weights, for signed numbers, and for the numbers by which the
 * embedding plot colours its points. This file also chooses the value at which a scale ends. All
 * functions are pure. Along a scale for weights or points, lightness changes monotonically and in
 * equal steps. Along a scale for signed numbers, opacity changes.
 *
 * An argument `end` is the number at the upper end of a scale. An argument `share` is a position on
 * a scale: from 0 to 1 or, for signed numbers, from -1 to 1.
 */

import { numberStops, weightStops } from "../../../../src/attnviz/pages/colors.json";
import { hexOf, type Palette, rgbOf, type ThemeName } from "./palette";

/** Linear or logarithmic relation between a weight and its position on the colour scale. */
export type ColorScale = "linear" | "log";

/**
 * Colour stops for weights, from a colour close to the background to the colour with the strongest
 * contrast, in equal steps of lightness (OKLab, Ottosson 2020). The colours follow "mako" of
 * seaborn (Waskom 2021). Readers with any type of colour vision can distinguish these blue-green
 * hues. Only the weight 0 has the background colour, so a masked pair does not look like a small
 * weight.
 */
const WEIGHT_STOPS: Record<ThemeName, readonly string[]> = weightStops;

/**
 * Colour stops for points of the embedding plot, from low to high numbers, in equal steps of
 * lightness.
 *
 * They are the colours of matplotlib's "inferno" (van der Walt and Smith 2015) that have a contrast
 * of at least 3 to 1 with the background, because a point is only a few pixels wide. In both
 * themes, the contrast increases from low to high numbers, so the light theme has the colours in
 * reverse order. Compared with plasma, viridis and mako, the remaining colours of inferno have the
 * longest range for every type of colour vision.
 */
const NUMBER_STOPS: Record<ThemeName, readonly string[]> = numberStops;

/** Number of different colours on the scale for weights. */
const COLORS = 256;

/**
 * Lower end of a logarithmic scale as a share of its upper end. All smaller weights have the colour
 * of this end.
 */
export const LOG_FLOOR = 1e-4;

type Rgb = [number, number, number];
/** Red, green, blue and opacity, 0 to 255. */
type Rgba = [number, number, number, number];

/** Return `count` colours, interpolated between colour stops, from the first stop to the last. */
function mapOf(stops: readonly string[], count: number): Rgba[] {
  return Array.from({ length: count }, (_, i) => {
    const position = (i / (count - 1)) * (stops.length - 1);
    const index = Math.min(Math.floor(position), stops.length - 2);
    const [from, to] = stops.slice(index, index + 2).map(rgbOf) as [Rgb, Rgb];
    const mixed = from.map((start, channel) =>
      Math.round(start + ((to[channel] as number) - start) * (position - index)),
    ) as Rgb;
    return [...mixed, 255];
  });
}

/** Weight colours of each theme, from weak to strong. */
const WEIGHT_MAPS = {
  light: /* @__PURE__ */ mapOf(WEIGHT_STOPS.light, COLORS),
  dark: /* @__PURE__ */ mapOf(WEIGHT_STOPS.dark, COLORS),
};

/** Number of colours that `numberColors` returns. */
export const NUMBER_STEPS = 64;

/** Return the colours for numbers of the embedding plot as "#rrggbb", from low to high. */
export function numberColors(theme: ThemeName): string[] {
  return mapOf(NUMBER_STOPS[theme], NUMBER_STEPS).map(hexOf);
}

/** Colours of positive and negative numbers. The colour of 0 is the background. */
export type SignColors = Pick<Palette, "positive" | "negative">;

/** One colour for weights, or one colour per sign for signed numbers. */
export type Ink = string | SignColors;

/**
 * Return the opaque colour for a number: the only colour of `ink`, or its colour for the number's
 * sign.
 */
export function inkColor(ink: Ink, value: number): string {
  if (typeof ink === "string") return ink;
  return value < 0 ? ink.negative : ink.positive;
}

/**
 * Return the RGBA colour at a position of a scale. Its sign chooses the colour if `ink` has one
 * colour per sign. `opacityOf` maps its absolute value to an opacity from 0 to 1.
 */
export function inkAt(share: number, ink: Ink, opacityOf = (size: number) => size): Rgba {
  return [...rgbOf(inkColor(ink, share)), 255 * opacityOf(Math.min(1, Math.abs(share)))];
}

/**
 * Return a function for the gradient of a legend. It returns the colour at a position from 0 (left)
 * to 1 (right). For signed numbers, the middle stands for 0.
 */
export function rampOf(ink: Ink, opacityOf?: (size: number) => number) {
  const isSigned = typeof ink !== "string";
  return (position: number): Rgba => inkAt(isSigned ? 2 * position - 1 : position, ink, opacityOf);
}

/** Return the position of a number on a signed scale, from -1 to 1, or null for 0 and NaN. */
export function signedShareOf(value: number, end: number, scale: ColorScale): number | null {
  const share = shareOf(Math.abs(value), end, scale);
  return share === null ? null : value < 0 ? -share : share;
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

/** Return the opaque RGBA colour at a position of the weight scale. */
export function colorAt(theme: ThemeName, share: number): Rgba {
  return WEIGHT_MAPS[theme][Math.round(share * (COLORS - 1))] as Rgba;
}

/**
 * Return one RGBA pixel per value. Zeros are transparent. Values that are not loaded yet (NaN) have
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
  const packed = ([red, green, blue, opacity]: Rgba): number =>
    red | (green << 8) | (blue << 16) | (Math.round(opacity) << 24);
  const colors = WEIGHT_MAPS[theme].map(packed);
  const waiting = packed([...rgbOf(unknown), 255]);
  const pixels = new Uint8ClampedArray(values.length * 4);
  // One number per pixel is written much faster than four bytes.
  const words = new Int32Array(pixels.buffer);
  for (let i = 0; i < values.length; i++) {
    const value = values[i] as number;
    if (value === 0) continue;
    const share = (signs ? signedShareOf : shareOf)(value, end, scale);
    if (share === null) words[i] = waiting;
    else if (signs) words[i] = packed(inkAt(share, signs));
    else words[i] = colors[Math.round(share * (COLORS - 1))] as number;
  }
  return pixels;
}

/** Round up to 1, 2, 2.5 or 5 times a power of ten. Return 1 if the value is not positive. */
export function niceMaximum(value: number): number {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  for (const factor of [1, 2, 2.5, 5, 10])
    if (value <= factor * power * 1.0001) return factor * power;
  return 10 * power;
}

/**
 * If the largest visible weight is below this share of the largest possible weight, a weight scale
 * with "auto" ends at about the largest visible weight.
 */
const SMALL_SHARE = 0.4;

/**
 * Smallest end of a signed scale with "auto", as a share of the largest possible number. Without
 * this limit, tiny numbers would look large.
 */
const MIN_END_SHARE = 0.02;

/**
 * Return the end of a weight scale: the largest possible weight or, if all weights are small, a round
 * number near the largest weight. Scales of signed numbers always end near the largest number.
 *
 * @param largest largest absolute value of the visible numbers.
 * @param maximum largest possible absolute value.
 */
export function scaleEnd(largest: number, maximum: number, signed = false): number {
  if (signed) return Math.min(maximum, niceMaximum(Math.max(largest, MIN_END_SHARE * maximum)));
  // If all weights are small, they would be invisible on a scale up to the maximum.
  const isFitted = largest > 0 && largest < SMALL_SHARE * maximum;
  return isFitted ? niceMaximum(largest) : maximum;
}
