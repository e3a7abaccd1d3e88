/**
 * Labels of tokens. Symbols replace line breaks and tabs. In a token of spaces only, symbols
 * replace the spaces. Long texts are shortened.
 */

import { printable } from "../../draw/marks";

/** Function that returns the width of a text in a CSS font, in pixels. */
export type Measure = (text: string, font: string) => number;

/** Label of a token. `cut` says whether it is shortened. */
export interface Label {
  text: string;
  cut: boolean;
  width: number;
  /** Height of the picture that replaces the text, if the token is an image patch. */
  height?: number;
}

/** Return the grapheme clusters of a text: the characters as readers see them. */
export function graphemes(text: string): string[] {
  // Firefox before 125 has no Segmenter. In this case, match a letter with its accents, and
  // characters that are joined by U+200D.
  if (!Intl.Segmenter) return text.match(/\P{M}(?:\p{M}|\u200d\P{M}?)*|\p{M}+/gsu) ?? [];
  // A flag, or a letter with accents, consists of several code points that must stay together.
  return Array.from(
    new Intl.Segmenter(undefined, { granularity: "grapheme" }).segment(text),
    (part) => part.segment,
  );
}

/**
 * Return a text in which symbols replace line breaks and tabs. A text of spaces only becomes one
 * "␣" per space, and an empty text one "␣".
 */
function visible(text: string): string {
  const shown = printable(text).replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/\r/g, "␍");
  return shown.trim() === "" ? "␣".repeat(Math.max(1, shown.length)) : shown;
}

/**
 * Return the label of a token. If it is wider than `limit` pixels, characters in the middle are
 * omitted.
 */
export function fitLabel(text: string, limit: number, font: string, measure: Measure): Label {
  const shown = visible(text);
  const width = measure(shown, font);
  if (width <= limit) return { text: shown, cut: false, width };
  const parts = graphemes(shown);
  let low = 1;
  let high = parts.length;
  const cutTo = (count: number): string => {
    // Keep two thirds from the start, because the start of a word has more information than its
    // end.
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
