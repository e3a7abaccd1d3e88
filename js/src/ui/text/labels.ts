/**
 * Labels of tokens. Symbols replace line breaks and tabs. They also replace the spaces of a token
 * that consists only of spaces. Texts that are too wide are shortened.
 */

import { printableSentence, tokenText } from "../../draw/marks";

/** Function that returns the width of a text in a CSS font, in pixels. */
export type Measure = (text: string, font: string) => number;

/** Label of a token: its text and the width of this text in pixels. */
export interface Label {
  text: string;
  width: number;
  /**
   * Height in pixels of the picture that is drawn instead of the text. Only patches of an image
   * have it.
   */
  height?: number;
}

/** Return the characters of a text as readers see them (grapheme clusters). */
export function graphemes(text: string): string[] {
  // Firefox before version 125 has no Segmenter. There, do not separate a letter from its accents,
  // and do not separate characters that U+200D joins, as in some emoji.
  if (!Intl.Segmenter) return text.match(/\P{M}(?:\p{M}|\u200d\P{M}?)*|\p{M}+/gsu) ?? [];
  // The Segmenter does not separate the code points of one visible character, such as a flag or a
  // letter with accents.
  return Array.from(
    new Intl.Segmenter(undefined, { granularity: "grapheme" }).segment(text),
    (part) => part.segment,
  );
}

/**
 * Return a text in which symbols replace line breaks and tabs. If the text consists only of spaces,
 * each space becomes "␣". An empty text becomes "␣", too.
 */
function visible(text: string): string {
  const shown = tokenText(text, printableSentence)
    .replace(/\n/g, "⏎")
    .replace(/\t/g, "⇥")
    .replace(/\r/g, "␍");
  return shown.trim() === "" ? "␣".repeat(Math.max(1, shown.length)) : shown;
}

/**
 * Return the label of a token. If its text is wider than `limit` pixels, "…" replaces characters in
 * the middle.
 */
export function fitLabel(text: string, limit: number, font: string, measure: Measure): Label {
  const shown = visible(text);
  const width = measure(shown, font);
  if (width <= limit) return { text: shown, width };
  const parts = graphemes(shown);
  let low = 1;
  let high = parts.length;
  const cutTo = (count: number): string => {
    // Keep twice as many characters of the start as of the end, because the start of a word says
    // more.
    const tail = Math.floor(count / 3);
    const cut = `${parts.slice(0, count - tail).join("")}…${tail ? parts.slice(-tail).join("") : ""}`;
    // An isolate of which only one end is left would show this end.
    return cut.replace(/[\u2068\u2069]/g, "");
  };
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (measure(cutTo(middle), font) <= limit) low = middle;
    else high = middle - 1;
  }
  const cut = cutTo(low);
  return { text: cut, width: measure(cut, font) };
}
