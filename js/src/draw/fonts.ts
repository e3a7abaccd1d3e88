/** Names of installed font families, for files that other programs open. */

import { measureText } from "./canvas";
import { FONTS, type TextFont } from "./marks";

const GENERIC = { text: "sans-serif", token: "monospace" } as const;
const GENERIC_NAMES = new Set(["serif", "sans-serif", "monospace", "cursive", "fantasy"]);
/** Names of families that only browsers can resolve. */
const BROWSERS_OWN = /^(system-ui|ui-\w+|-apple-system)$/;
const PROBE = "mmmmwwwwiiiillll1234,.;";

/** Return the family names of a CSS list, without quotes. */
function familiesOf(list: string): string[] {
  return list.split(",").map((family) => family.trim().replace(/^["']|["']$/g, ""));
}

/** Return a family name in the form for CSS: in quotes, unless it is generic. */
export function quotedFamily(family: string): string {
  return GENERIC_NAMES.has(family) ? family : `"${family}"`;
}

/**
 * Return whether a family is installed. The fallback after an installed family does not change the
 * width of a text.
 */
export function isFontInstalled(family: string): boolean {
  if (GENERIC_NAMES.has(family)) return true;
  const familyWidth = (fallback: string): number =>
    measureText(PROBE, `72px ${quotedFamily(family)}, ${fallback}`);
  const fallbackWidth = (fallback: string): number => measureText(PROBE, `72px ${fallback}`);
  const fallbacks = ["monospace", "sans-serif", "serif"];
  const widths = fallbacks.map(familyWidth);
  // An installed family has the same width with all fallbacks. This width may be that of one
  // fallback font, but not of all three.
  return (
    widths.every((width) => width === widths[0]) &&
    fallbacks.some((fallback, i) => fallbackWidth(fallback) !== widths[i])
  );
}

const cssByList = new Map<string, string>();

/**
 * Return the font families for a file: the first that is installed, and the generic family.
 *
 * Other programs use only the first name. If they do not know this name, such as "ui-monospace",
 * they use a proportional font instead.
 */
export function fileFonts(font: TextFont): string {
  const list = FONTS[font];
  let css = cssByList.get(list);
  if (css === undefined) {
    const candidates = familiesOf(list).filter((family) => !BROWSERS_OWN.test(family));
    const generic = GENERIC_NAMES.has(candidates[0] ?? "") ? [] : [GENERIC[font]];
    const first = candidates.find(isFontInstalled) ?? GENERIC[font];
    css = [...new Set([first, ...generic])].map(quotedFamily).join(", ");
    cssByList.set(list, css);
  }
  return css;
}
