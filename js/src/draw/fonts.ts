/** Which font families this machine has, for files that other programs open. */

import { measureText } from "./canvas";
import { FONTS, type TextFont } from "./marks";

const GENERIC = { text: "sans-serif", token: "monospace" } as const;
const GENERIC_NAMES = new Set(["serif", "sans-serif", "monospace", "cursive", "fantasy"]);
/** Families that only browsers know. */
const BROWSERS_OWN = /^(system-ui|ui-\w+|-apple-system)$/;
const PROBE = "mmmmwwwwiiiillll1234,.;";

/** The families of a list, without their quotes. */
function familiesOf(list: string): string[] {
  return list.split(",").map((family) => family.trim().replace(/^["']|["']$/g, ""));
}

/** A family as it is written in CSS. */
export function quotedFamily(family: string): string {
  return GENERIC_NAMES.has(family) ? family : `"${family}"`;
}

/** Whether the machine has a family: then no fallback behind it changes a text's width. */
export function isFontInstalled(family: string): boolean {
  if (GENERIC_NAMES.has(family)) return true;
  const width = (fallback: string): number =>
    measureText(PROBE, `72px ${quotedFamily(family)}, ${fallback}`);
  const alone = (fallback: string): number => measureText(PROBE, `72px ${fallback}`);
  const fallbacks = ["monospace", "sans-serif", "serif"];
  const widths = fallbacks.map(width);
  // It may be what a fallback stands for, but it is not what all of them do.
  return (
    widths.every((each) => each === widths[0]) && fallbacks.some((f, i) => alone(f) !== widths[i])
  );
}

const written = new Map<string, string>();

/**
 * The families of a file: the first that this machine has, and the generic one.
 *
 * Programs other than browsers take the first name alone, and something without fixed width where
 * it is unknown to them, as "ui-monospace" is.
 */
export function fileFonts(font: TextFont): string {
  const list = FONTS[font];
  let families = written.get(list);
  if (families === undefined) {
    const known = familiesOf(list).filter((family) => !BROWSERS_OWN.test(family));
    const generic = GENERIC_NAMES.has(known[0] ?? "") ? [] : [GENERIC[font]];
    const first = known.find(isFontInstalled) ?? GENERIC[font];
    families = [...new Set([first, ...generic])].map(quotedFamily).join(", ");
    written.set(list, families);
  }
  return families;
}
