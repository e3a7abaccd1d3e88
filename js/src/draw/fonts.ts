/** Installed font families, for files that other programs open. */

import { measureText } from "./canvas";
import { FONTS, type TextFont } from "./marks";

const GENERIC = { text: "sans-serif", token: "monospace" } as const;
const GENERIC_NAMES = new Set(["serif", "sans-serif", "monospace", "cursive", "fantasy"]);
/** Families that only browsers resolve. */
const BROWSERS_OWN = /^(system-ui|ui-\w+|-apple-system)$/;
const PROBE = "mmmmwwwwiiiillll1234,.;";

/** Return the family names of a CSS list, without quotes. */
function familiesOf(list: string): string[] {
  return list.split(",").map((family) => family.trim().replace(/^["']|["']$/g, ""));
}

/** Return a family name as CSS writes it. */
export function quotedFamily(family: string): string {
  return GENERIC_NAMES.has(family) ? family : `"${family}"`;
}

/** Return whether a family is installed: the fallback after it then does not change a text's width. */
export function isFontInstalled(family: string): boolean {
  if (GENERIC_NAMES.has(family)) return true;
  const familyWidth = (fallback: string): number =>
    measureText(PROBE, `72px ${quotedFamily(family)}, ${fallback}`);
  const fallbackWidth = (fallback: string): number => measureText(PROBE, `72px ${fallback}`);
  const fallbacks = ["monospace", "sans-serif", "serif"];
  const widths = fallbacks.map(familyWidth);
  // The family may be the same font as one fallback, but not as all of them.
  return (
    widths.every((width) => width === widths[0]) &&
    fallbacks.some((fallback, i) => fallbackWidth(fallback) !== widths[i])
  );
}

const cssByList = new Map<string, string>();

/**
 * Return the families for a file: the first that is installed, and the generic one.
 *
 * Other programs use only the first name. If they do not know it, as with "ui-monospace", they
 * substitute a proportional font.
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
