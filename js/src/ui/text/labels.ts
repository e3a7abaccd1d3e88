/** Tokens as labels: white space is made visible, and long texts are cut. */

import { printable } from "../../draw/marks";

/** The width of a text in a CSS font. */
export type Measure = (text: string, font: string) => number;

/** A label that may have been cut. */
export interface Label {
  text: string;
  cut: boolean;
  width: number;
  /** Of the picture that stands in the text's place. */
  height?: number;
}

/** The signs of a text as a reader sees them. */
export function graphemes(text: string): string[] {
  // Firefox before 125: a letter with its accents, and signs that are joined.
  if (!Intl.Segmenter) return text.match(/\P{M}(?:\p{M}|\u200d\P{M}?)*|\p{M}+/gsu) ?? [];
  // A flag or a letter with its accents must not be cut in two.
  return Array.from(
    new Intl.Segmenter(undefined, { granularity: "grapheme" }).segment(text),
    (each) => each.segment,
  );
}

/** White space and blanks that would leave no trace, as signs. */
function visible(text: string): string {
  const shown = printable(text).replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/\r/g, "␍");
  return shown.trim() === "" ? "␣".repeat(Math.max(1, shown.length)) : shown;
}

/** A text that is no wider than `limit`, cut in its middle where it was. */
export function fitLabel(text: string, limit: number, font: string, measure: Measure): Label {
  const shown = visible(text);
  const width = measure(shown, font);
  if (width <= limit) return { text: shown, cut: false, width };
  const parts = graphemes(shown);
  let low = 1;
  let high = parts.length;
  const cutTo = (count: number): string => {
    // The beginning of a word says more than its end.
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
