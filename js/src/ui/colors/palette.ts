/**
 * Colours of chosen heads and of all other elements, in the light and the dark theme.
 *
 * The eight head colours come from a search. Any two of them, and each of them and the colour
 * `neutral`, are at least 0.085 apart in OKLab. This holds for normal vision and for simulated
 * protanopia, deuteranopia and tritanopia. The contrast of each head colour with the background of
 * its theme is at least 3 to 1 (js/test/ui/colors/palette.test.ts).
 */

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

export const PALETTES: Record<ThemeName, Palette> = {
  light: {
    heads: ["#b84812", "#143eca", "#178270", "#f1259a", "#c4890e", "#5790f3", "#630489", "#7a2101"],
    headTexts: [
      "#b84812",
      "#143eca",
      "#177d6c",
      "#cd2486",
      "#906815",
      "#456eb6",
      "#630489",
      "#7a2101",
    ],
    ink: "#1c1f26",
    muted: "#656c7a",
    rule: "#dfe2e8",
    neutral: "#3b4150",
    background: "#ffffff",
    raised: "#f1f3f7",
    notChosen: "#b08a52",
    searchMatch: "#ffe9a8",
    positive: "#1b6ab3",
    negative: "#d96f0e",
    danger: "#a4262c",
    focus: "#1442cc",
  },
  dark: {
    heads: ["#ffb70f", "#5a95ff", "#45e586", "#fa63a7", "#f9ff21", "#aeffd7", "#a4b1ff", "#9e9b34"],
    headTexts: null,
    ink: "#eceef2",
    muted: "#9ba2b0",
    rule: "#343842",
    neutral: "#c9ced8",
    background: "#17191e",
    raised: "#262a32",
    notChosen: "#a88d5f",
    searchMatch: "#5c4a12",
    positive: "#59a9ff",
    negative: "#ff9838",
    danger: "#ff8a80",
    focus: "#8fb0ff",
  },
};

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
