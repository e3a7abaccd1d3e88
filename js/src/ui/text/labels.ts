/** Token labels: white space is made visible, and long texts are shortened. */

import { printable } from "../../draw/marks";

/** Return the width of a text in a CSS font. */
export type Measure = (text: string, font: string) => number;

/** Label, which may be shortened. */
export interface Label {
  text: string;
  cut: boolean;
  width: number;
  /** Height of the picture that replaces the text. */
  height?: number;
}

/** Return the grapheme clusters of a text. */
export function graphemes(text: string): string[] {
  // Firefox before 125 has no Segmenter: match a letter with its accents, and joined characters.
  if (!Intl.Segmenter) return text.match(/\P{M}(?:\p{M}|\u200d\P{M}?)*|\p{M}+/gsu) ?? [];
  // A flag or a letter with accents must not be split.
  return Array.from(
    new Intl.Segmenter(undefined, { granularity: "grapheme" }).segment(text),
    (part) => part.segment,
  );
}

/** Return a text in which white space is visible. */
function visible(text: string): string {
  const shown = printable(text).replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/\r/g, "␍");
  return shown.trim() === "" ? "␣".repeat(Math.max(1, shown.length)) : shown;
}

/** Return a label of at most `limit` width. Longer texts are shortened in the middle. */
export function fitLabel(text: string, limit: number, font: string, measure: Measure): Label {
  const shown = visible(text);
  const width = measure(shown, font);
  if (width <= limit) return { text: shown, cut: false, width };
  const parts = graphemes(shown);
  let low = 1;
  let high = parts.length;
  const cutTo = (count: number): string => {
    // The start of a word has more information than its end.
    const tail = Math.floor(count / 3);
    return `${parts.slice(0, count - tail).join("")}…${tail ? parts.slice(-tail).join("") : ""}`;
  };
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (measure(cutTo(middle), font) <= limit) low = middle;
    else high = middle - 1;
  }
  const cut = cutTo(low);
  return { text: cut, cut: true, width: measure(cut, font) };
}
