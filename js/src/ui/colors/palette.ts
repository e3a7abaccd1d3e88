/**
 * Colours of chosen heads and of all other elements, in the light and the dark theme.
 *
 * The eight head colours come from a search. Any two of them, and each of them and the colour
 * `neutral`, are at least 0.085 apart in OKLab. This holds for normal vision and for simulated
 * protanopia, deuteranopia and tritanopia. The contrast of each head colour with the background of
 * its theme is at least 3 to 1 (js/test/ui/colors/palette.test.ts).
 *
 * The file `colors.json` has all colours, because Python draws pictures with the same ones.
 */

import { palettes } from "../../../../src/attnviz/pages/colors.json";

export type ThemeName = "light" | "dark";

export interface Palette {
  /** Colours of chosen heads. The head that the reader chose first has the first colour. */
  heads: readonly string[];
  /**
   * Variants of `heads` for text, with a contrast of at least 4.5 to 1. Null if `heads` are used
   * for text, too.
   */
  headTexts: readonly string[] | null;
  /** Colour of text. */
  ink: string;
  /** Colour of less important text. */
  muted: string;
  /** Colour of rules and borders. */
  rule: string;
  /** Colour of data that belong to no chosen head, such as a mean over heads. */
  neutral: string;
  background: string;
  /** Background of the element under the pointer or with the keyboard focus. */
  raised: string;
  /** Colour of keys that were not chosen before the softmax. No weight has a similar hue. */
  notChosen: string;
  /** Background of tokens that match a search. */
  searchMatch: string;
  /** Colours of the two ends of a scale for signed numbers. Zero has the background colour. */
  positive: string;
  negative: string;
  /** Colour of error messages. */
  danger: string;
  /** Colour of the outline of the element with the keyboard focus. */
  focus: string;
}

export const PALETTES: Record<ThemeName, Palette> = palettes;

const THEMES = ["light", "dark"] as const;
/** Colours that style sheets use as variables, such as `--av-muted`. */
const CSS_COLORS = [
  "muted",
  "rule",
  "neutral",
  "raised",
  "positive",
  "negative",
  "danger",
  "focus",
] as const;

/** Style sheet that defines the colours of both themes as variables for the other style sheets. */
export const PALETTE_CSS = /* @__PURE__ */ THEMES.map((theme) => {
  const palette = PALETTES[theme];
  return `.attnviz[data-theme="${theme}"] {
  --av-own-ink: ${palette.ink};
  --av-own-background: ${palette.background};
  --av-search-match: ${palette.searchMatch};
  ${CSS_COLORS.map((name) => `--av-${name}: ${palette[name]};`).join(" ")}
}
`;
}).join("");

/** Return the palette of a theme. A figure may replace the background and the head colours. */
export function paletteOf(
  theme: ThemeName,
  overrides?: { background?: string | undefined; colors?: readonly string[] | undefined },
): Palette {
  const palette = PALETTES[theme];
  if (!overrides?.background && !overrides?.colors) return palette;
  const { background, colors } = overrides;
  return {
    ...palette,
    ...(background && background !== "transparent" && { background }),
    ...(colors && { heads: colors, headTexts: null }),
  };
}

/** Number of distinguishable head colours. */
export const MAX_COLOURS = 8;

/** Return how many of `count` chosen heads share a colour: 1 for up to `MAX_COLOURS` heads. */
export function headsPerColor(count: number): number {
  return Math.max(1, Math.ceil(count / MAX_COLOURS));
}

/**
 * Return the colour of the chosen head `index` of `count`. If `count` exceeds `MAX_COLOURS`, heads
 * that were chosen in succession share a colour.
 */
export function headColor(palette: Palette, index: number, count: number): string {
  return palette.heads[Math.floor(index / headsPerColor(count))] ?? palette.neutral;
}

/** Return the colour for text that names the chosen head `index` of `count`. */
export function headTextColor(palette: Palette, index: number, count: number): string {
  const { heads, headTexts, neutral } = palette;
  return (headTexts ?? heads)[Math.floor(index / headsPerColor(count))] ?? neutral;
}

/** Return the colour of pinned tokens. By default it is warm, unlike every weight colour. */
export function pinColor(palette: Palette): string {
  return palette.heads[0] as string;
}

/** Return red, green and blue of "#rrggbb", each from 0 to 255. */
export function rgbOf(color: string): [number, number, number] {
  const value = Number.parseInt(color.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

/** Return "#rrggbb" for red, green and blue, each from 0 to 255. */
export function hexOf([red, green, blue]: readonly number[]): string {
  const two = (value = 0): string => Math.round(value).toString(16).padStart(2, "0");
  return `#${two(red)}${two(green)}${two(blue)}`;
}

/** Return the relative luminance (WCAG 2.1) of red, green and blue from 0 to 255. */
export function luminance(rgb: readonly [number, number, number]): number {
  const [red, green, blue] = rgb.map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** Return black or white, depending on which has the higher contrast with a colour. */
export function inkOn(color: string): string {
  // Black and white have the same contrast with a colour of this luminance.
  return luminance(rgbOf(color)) > 0.179 ? "#000000" : "#ffffff";
}
