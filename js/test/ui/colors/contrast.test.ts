/** Contrast of at least 4.5 to 1 for text on canvases, which axe-core cannot check. */
// @vitest-environment node
import { describe, expect, it } from "vitest";
import {
  headTextColor,
  MAX_COLOURS,
  PALETTES,
  type ThemeName,
} from "../../../src/ui/colors/palette";
import frameCss from "../../../src/ui/frame/frame.css";
import { contrast } from "../../sight";

/** Contrast that WCAG 2.1 requires in success criterion 1.4.3. */
const MIN_CONTRAST = 4.5;

/**
 * Backgrounds that views take from their host: JupyterLab, marimo, and themes of VS Code, which
 * include high contrast.
 */
const HOSTS: Record<ThemeName, Record<string, string>> = {
  light: { jupyterlab: "#ffffff", marimo: "#ffffff", vscode: "#ffffff", solarized: "#fdf6e3" },
  dark: {
    jupyterlab: "#111111",
    marimo: "#181c1a",
    vscode: "#1e1e1e",
    "vscode modern": "#1f1f1f",
    "vscode high contrast": "#000000",
    monokai: "#272822",
    solarized: "#002b36",
  },
};

/**
 * Return the colours of a CSS rule that apply if the notebook application sets no colours. These
 * are the last `#rrggbb` of each `--av-` property.
 */
function cssColors(selector: string): Record<string, string> {
  const start = frameCss.indexOf(`${selector} {`);
  const body = frameCss.slice(start, frameCss.indexOf("}", start));
  const colors: Record<string, string> = {};
  for (const [, name, value] of body.matchAll(/--av-([a-z-]+):([^;]+);/g)) {
    colors[name as string] = value?.match(/#[0-9a-f]{6}/g)?.at(-1) ?? "";
  }
  return colors;
}

const RULES: Record<ThemeName, string> = { light: ".attnviz", dark: '.attnviz[data-theme="dark"]' };

it("measures contrast like the standard", () => {
  expect(contrast("#000000", "#ffffff")).toBeCloseTo(21, 5);
  // WCAG technique G18 names this colour as the lightest grey that is allowed on white.
  expect(contrast("#767676", "#ffffff")).toBeCloseTo(4.54, 2);
});

describe.each(Object.keys(PALETTES) as ThemeName[])("text in the %s theme", (theme) => {
  const palette = PALETTES[theme];

  it("contrasts with its background", () => {
    const faint: string[] = [];
    const hold = (text: string, behind: string, what: string): void => {
      const ratio = contrast(text, behind);
      if (ratio < MIN_CONTRAST) faint.push(`${what}: ${text} on ${behind} is ${ratio.toFixed(2)}`);
    };
    const own = { background: palette.background, raised: palette.raised };
    for (const [name, behind] of Object.entries({ ...own, ...HOSTS[theme] })) {
      hold(palette.ink, behind, `ink on ${name}`);
      hold(palette.muted, behind, `muted on ${name}`);
      hold(palette.neutral, behind, `neutral on ${name}`);
    }
    // Text on the background of search matches has the colour `ink`.
    hold(palette.ink, palette.searchMatch, "ink on found");
    for (let index = 0; index < MAX_COLOURS; index++) {
      for (const [name, behind] of Object.entries(own)) {
        hold(headTextColor(palette, index, MAX_COLOURS), behind, `head ${index} on ${name}`);
      }
    }
    expect(faint).toEqual([]);
  });

  it("has the hue of its head's lines", () => {
    expect(headTextColor(palette, 1, 2 * MAX_COLOURS)).toBe(palette.headTexts[0]);
    palette.heads.forEach((color, index) => {
      const text = palette.headTexts[index] as string;
      // If the colour of a head's lines has enough contrast, the text of the head has the same
      // colour. If not, the text has more contrast.
      const [near, far] = [contrast(color, palette.background), contrast(text, palette.background)];
      expect(far).toBeGreaterThanOrEqual(near - 0.01);
      if (near >= MIN_CONTRAST && contrast(color, palette.raised) >= MIN_CONTRAST)
        expect(text).toBe(color);
    });
  });

  it("is the same in the style sheet", () => {
    const css = cssColors(RULES[theme]);
    expect(css.ink).toBe(palette.ink);
    expect(css.muted).toBe(palette.muted);
    expect(css.raised).toBe(palette.raised);
    expect(css.background).toBe(palette.background);
    const pairs: [string, string][] = [
      ["danger", "raised"],
      ["danger", "background"],
      ["strong-ink", "strong"],
    ];
    for (const [text, behind] of pairs) {
      const ratio = contrast(css[text] as string, css[behind] as string);
      expect(ratio, `${text} on ${behind}`).toBeGreaterThanOrEqual(MIN_CONTRAST);
    }
  });
});
