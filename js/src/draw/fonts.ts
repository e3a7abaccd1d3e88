/** Names of installed font families, for files that other programs open. */

import { measureText } from "./canvas";
import { FONTS, type TextFont } from "./marks";

const GENERIC = ["serif", "sans-serif", "monospace", "cursive", "fantasy"];
/** Family names that only browsers understand. */
const BROWSERS_OWN = /^(system-ui|ui-\w+|-apple-system)$/;
const PROBE = "mmmmwwwwiiiillll1234,.;";

/** Return whether a family is installed. Generic families, such as "serif", always are. */
export function isFontInstalled(family: string): boolean {
  if (GENERIC.includes(family)) return true;
  const widthOf = (families: string): number => measureText(PROBE, `72px ${families}`);
  const fallbacks = ["monospace", "sans-serif", "serif"];
  const widths = fallbacks.map((fallback) => widthOf(`"${family}", ${fallback}`));
  // An installed family makes the fallback irrelevant, so all widths are equal. For a missing
  // family, they are equal only if all fallbacks are the same font, and then each fallback alone
  // has this width. So a family counts as installed only if at least one fallback alone has another
  // width.
  return (
    widths.every((width) => width === widths[0]) &&
    fallbacks.some((fallback) => widthOf(fallback) !== widths[0])
  );
}

const cssByList = new Map<string, string>();

/**
 * Return the CSS font families to write into a file: the first installed family of the list for
 * `font`, and a generic family.
 *
 * Other programs use only the first name in a file. If they do not know this name, such as
 * "ui-monospace", they use a proportional font instead.
 */
export function fileFonts(font: TextFont): string {
  const list = FONTS[font];
  let css = cssByList.get(list);
  if (css === undefined) {
    const families = list.split(",").map((family) => family.trim().replace(/["']/g, ""));
    const generic = font === "text" ? "sans-serif" : "monospace";
    const first =
      families.find((family) => !BROWSERS_OWN.test(family) && isFontInstalled(family)) ?? generic;
    css = GENERIC.includes(first) ? first : `"${first}", ${generic}`;
    cssByList.set(list, css);
  }
  return css;
}
