/** Names of installed font families, for files that other programs open. */

import { measureText } from "./canvas";
import { FONTS, type TextFont } from "./marks";

const GENERIC = ["serif", "sans-serif", "monospace", "cursive", "fantasy"];
/** Names of families that only browsers can resolve. */
const BROWSERS_OWN = /^(system-ui|ui-\w+|-apple-system)$/;
const PROBE = "mmmmwwwwiiiillll1234,.;";

/** Return whether a family is installed. Generic families always are. */
export function isFontInstalled(family: string): boolean {
  if (GENERIC.includes(family)) return true;
  const widthOf = (families: string): number => measureText(PROBE, `72px ${families}`);
  const fallbacks = ["monospace", "sans-serif", "serif"];
  const widths = fallbacks.map((fallback) => widthOf(`"${family}", ${fallback}`));
  // With an installed family, the fallback has no effect, so all widths are equal. They are also
  // equal if all fallbacks are the same font. Then each fallback alone has this width, too.
  return (
    widths.every((width) => width === widths[0]) &&
    fallbacks.some((fallback) => widthOf(fallback) !== widths[0])
  );
}

const cssByList = new Map<string, string>();

/**
 * Return the font families that a file names: the first installed one, and a generic family.
 *
 * Other programs use only the first name. If they do not know this name, such as "ui-monospace",
 * they use a proportional font instead.
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
