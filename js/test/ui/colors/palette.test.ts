/** Tests of the contrast and distance of colours, also on canvases, which axe-core cannot check. */
// @vitest-environment node
import { describe, expect, it } from "vitest";
import {
  headTextColor,
  MAX_COLOURS,
  PALETTES,
  type ThemeName,
} from "../../../src/ui/colors/palette";
import { contrast, distance, SIGHT } from "../../sight";

/** Contrast that success criterion 1.4.3 of WCAG 2.1 requires for text. */
const MIN_TEXT_CONTRAST = 4.5;
/** Contrast that success criterion 1.4.11 of WCAG 2.1 requires for graphics. */
const MIN_MARK_CONTRAST = 3;

/** Backgrounds of notebook applications (JupyterLab, marimo, VS Code), which views adopt. */
const HOSTS: Record<ThemeName, string[]> = {
  light: ["#ffffff", "#fdf6e3"],
  dark: ["#111111", "#181c1a", "#1e1e1e", "#1f1f1f", "#000000", "#272822", "#002b36"],
};

it("contrast is measured like the standard", () => {
  expect(contrast("#000000", "#ffffff")).toBeCloseTo(21, 5);
  // WCAG technique G18 names this colour as the lightest grey that is allowed on white.
  expect(contrast("#767676", "#ffffff")).toBeCloseTo(4.54, 2);
});

describe.each(Object.keys(PALETTES) as ThemeName[])("the %s palette", (theme) => {
  const palette = PALETTES[theme];
  const { background, raised, ink, muted, neutral, positive, negative, danger, heads } = palette;

  it.each(Object.entries(SIGHT))("has distinct colours for %s vision", (_name, sight) => {
    const colors = [...heads, neutral];
    const pairs = colors.flatMap((a, i) => colors.slice(i + 1).map((b) => [a, b] as const));
    expect(pairs.filter(([a, b]) => distance(a, b, sight) < 0.085)).toEqual([]);
    // The colours of signs are also used in cells of a few pixels, so their distance must be larger
    // than that of head colours.
    expect(distance(positive, negative, sight)).toBeGreaterThan(0.2);
    expect(distance(positive, background, sight)).toBeGreaterThan(0.2);
    expect(distance(negative, background, sight)).toBeGreaterThan(0.2);
  });

  it("has marks that contrast with the background", () => {
    for (const color of [...heads, positive, negative])
      expect(contrast(color, background), color).toBeGreaterThanOrEqual(MIN_MARK_CONTRAST);
  });

  it("has texts that contrast with the background", () => {
    const headTexts = heads.map((_, index) => headTextColor(palette, index, MAX_COLOURS));
    const pairs: [string, string][] = [
      ...HOSTS[theme].flatMap((behind) =>
        [ink, muted, neutral].map((text) => [text, behind] as [string, string]),
      ),
      ...[background, raised].flatMap((behind) =>
        [ink, muted, neutral, ...headTexts].map((text) => [text, behind] as [string, string]),
      ),
      [ink, palette.searchMatch],
      ...[raised, background].map((behind) => [danger, behind] as [string, string]),
    ];
    const faint = pairs.filter(([text, behind]) => {
      return contrast(text, behind) < MIN_TEXT_CONTRAST;
    });
    expect(faint).toEqual([]);
  });
});
