/**
 * The colours of chosen heads and of everything else, in both themes.
 *
 * The eight were searched for: any two, and any one and the neutral ink, are at least 0.085 apart
 * in OKLab to normal sight and to simulated protanopia, deuteranopia and tritanopia, and each
 * stands out from its background by 3 to 1 or more (js/test/ui/colors/palette.test.ts).
 */

export type ThemeName = "light" | "dark";

/** The colours of one theme. */
export interface Palette {
  /** Given to chosen heads in order of choice. */
  heads: readonly string[];
  /** The same hues for text, which has to stand out by 4.5 to 1 (js/test/ui/colors/contrast.test.ts). */
  headTexts: readonly string[];
  /** Text. */
  ink: string;
  /** Text that steps back. */
  muted: string;
  /** Rules and borders. */
  rule: string;
  /** Lines that belong to no chosen head. */
  neutral: string;
  background: string;
  /** Behind what the pointer or the keyboard is on. */
  raised: string;
  /** Behind tokens that a search found. */
  found: string;
  /** Numbers above and below zero, which is the background: the ends of a diverging scale. */
  positive: string;
  negative: string;
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
    found: "#ffe9a8",
    positive: "#1b6ab3",
    negative: "#d96f0e",
  },
  dark: {
    heads: ["#ffb70f", "#5a95ff", "#45e586", "#fa63a7", "#f9ff21", "#aeffd7", "#a4b1ff", "#9e9b34"],
    headTexts: [
      "#ffb70f",
      "#5a95ff",
      "#45e586",
      "#fa63a7",
      "#f9ff21",
      "#aeffd7",
      "#a4b1ff",
      "#9e9b34",
    ],
    ink: "#eceef2",
    muted: "#9ba2b0",
    rule: "#343842",
    neutral: "#c9ced8",
    background: "#17191e",
    raised: "#262a32",
    found: "#5c4a12",
    positive: "#59a9ff",
    negative: "#ff9838",
  },
};

/** A theme's colours, with those that a figure was asked to have. */
export function paletteOf(
  theme: ThemeName,
  asked?: { background?: string | undefined; colors?: readonly string[] | undefined },
): Palette {
  const palette = PALETTES[theme];
  if (!asked?.background && !asked?.colors) return palette;
  const { background, colors } = asked;
  return {
    ...palette,
    ...(background && background !== "transparent" && { background }),
    ...(colors && { heads: colors, headTexts: colors }),
  };
}

/** More colours than these look alike. */
export const MOST_COLOURS = 8;

/** How many heads share a colour: one, or, of more than eight, as many as eight colours need. */
export function headsPerColor(count: number): number {
  return Math.max(1, Math.ceil(count / MOST_COLOURS));
}

/** The colour of the `place`-th of `count` chosen heads; neighbours share one where they are many. */
export function headColor(palette: Palette, place: number, count: number): string {
  return palette.heads[Math.floor(place / headsPerColor(count))] ?? palette.neutral;
}

/** The colour of text that names the `place`-th of `count` chosen heads. */
export function headTextColor(palette: Palette, place: number, count: number): string {
  return palette.headTexts[Math.floor(place / headsPerColor(count))] ?? palette.neutral;
}

/** The colour of pins: a warm one, which no weight has. */
export function pinColor(palette: Palette): string {
  return palette.heads[0] as string;
}

/** Red, green and blue, 0 to 255, of "#rrggbb". */
export function rgbOf(color: string): [number, number, number] {
  const value = Number.parseInt(color.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

function luminance(color: string): number {
  const [red, green, blue] = rgbOf(color).map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** Black or white, whichever is read better on a colour. */
export function inkOn(color: string): string {
  // At this luminance both have the same contrast.
  return luminance(color) > 0.179 ? "#000000" : "#ffffff";
}
