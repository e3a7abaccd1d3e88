/**
 * Tokens of a saved record, as views know them (`attnviz/record/tokens.py`).
 *
 * What is invisible in their texts is made visible again: a file is data, and its text must not
 * mislead a reader. `tests/fixtures/records.json` holds both sides to the same texts.
 */

import type { Candidate, PatchGrid, Prediction, TokenList } from "../protocol";
import {
  damaged,
  fieldsOf,
  finiteOf,
  flagOf,
  listOf,
  orNull,
  quoted,
  textOf,
  wholeOf,
} from "./fields";

/** Tokens, with what tells which of them are the same. */
export interface SavedTokens {
  list: TokenList;
  /** Vocabulary ids, where they are known. */
  ids: number[] | null;
}

const SHOWN_AS: Readonly<Record<string, string>> = { " ": "·", "\n": "⏎", "\t": "⇥" };
/** Spaces, signs of direction and joiners, control characters, and what has no glyph. */
const INVISIBLE = /[\p{Zs}\p{Zl}\p{Zp}\p{Cf}\p{Cc}\p{Cs}\p{Co}\p{Cn}]/u;
/** Inside of an emoji or an Indic word they belong to the glyph. */
const JOINERS = ["\u200c", "\u200d"];

/** A token's text with every character visible: others by their number, as ‹U+202E›. */
export function visible(text: string): string {
  if (text === "") return "∅";
  const characters = [...text];
  const joinsNothing = (character = " "): boolean =>
    character === " " || JOINERS.includes(character);
  const shown = characters.map((character, i) => {
    const known = SHOWN_AS[character];
    if (known !== undefined) return known;
    const around = [characters[i - 1], characters[i + 1]];
    if (JOINERS.includes(character) && !around.some(joinsNothing)) return character;
    if (!INVISIBLE.test(character)) return character;
    const code = (character.codePointAt(0) as number).toString(16).toUpperCase();
    return `‹U+${code.padStart(4, "0")}›`;
  });
  return shown.join("");
}

/** A part of a character, as in "é 1/2", or of many tokens: their spaces stay. */
const PART = /( [1-4]\/[1-4](?: (?=\S))?| … | \(\d+(?:–\d+)?\)$|(?<=^projection) (?=\d+$))/u;

/** The same, but for the spaces around a part of a character. */
export function visibleWithParts(text: string): string {
  const pieces = text.split(PART);
  return pieces.map((each, i) => (i % 2 || !each ? each : visible(each))).join("") || visible("");
}

function columnOf<T>(value: unknown, name: string, count: number, read: (v: unknown) => T): T[] {
  const column = listOf(value, name);
  if (column.length !== count) {
    return damaged(`${name} has ${column.length} entries and there are ${count} tokens`);
  }
  return column.map(read);
}

function candidateOf(value: unknown): Candidate {
  const fields = fieldsOf(value, "a candidate");
  const probability = finiteOf(fields.probability, "a probability");
  if (probability < 0 || probability > 1 + 1e-6) {
    return damaged(`a probability is ${probability}`);
  }
  const id = wholeOf(fields.id, "a token's id", Number.MIN_SAFE_INTEGER);
  return { text: visibleWithParts(textOf(fields.text, "a candidate")), id, probability };
}

function predictionOf(value: unknown, count: number): Prediction {
  const fields = fieldsOf(value, "a prediction");
  const found = {
    query: wholeOf(fields.query, "the query of a prediction"),
    token: candidateOf(fields.token),
    candidates: listOf(fields.candidates, "candidates").map(candidateOf),
    row: orNull(fields.row, (row) => wholeOf(row, "the row of a prediction")),
  };
  if (Math.max(found.query, found.row ?? 0) >= count) {
    return damaged(`a prediction is of token ${found.query}, and there are ${count}`);
  }
  return found;
}

function gridsOf(value: unknown, count: number, images: number): PatchGrid[] {
  let end = 0;
  return listOf(value, "grids of patches").map((each) => {
    const fields = fieldsOf(each, "a grid of patches");
    const grid = {
      image: wholeOf(fields.image, "the image of a grid"),
      start: wholeOf(fields.start, "the start of a grid"),
      rows: wholeOf(fields.rows, "the rows of a grid", 1),
      columns: wholeOf(fields.columns, "the columns of a grid", 1),
    };
    const stop = grid.start + grid.rows * grid.columns;
    if (grid.start < end || stop > count || grid.image >= images) {
      return damaged(`a grid of patches lies outside of the ${count} tokens or ${images} images`);
    }
    end = stop;
    return grid;
  });
}

/** @param images how many images the record has. */
export function tokensOf(value: unknown, images: number): SavedTokens {
  const fields = fieldsOf(value, "tokens");
  const text = listOf(fields.text, "tokens").map((each) => textOf(each, "a token"));
  const count = text.length;
  const special = columnOf(fields.special, "special", count, (each) => flagOf(each, "special"));
  const sequence = columnOf(fields.sequence, "sequence", count, (each) =>
    orNull(each, (number) => wholeOf(number, "the text of a token")),
  );
  const id = (each: unknown): number => wholeOf(each, "an id", Number.MIN_SAFE_INTEGER);
  const ids = orNull(fields.ids, (given) => columnOf(given, "ids", count, id));
  orNull(fields.words, (given) =>
    columnOf(given, "words", count, (each) =>
      orNull(each, (number) => wholeOf(number, "a word", Number.MIN_SAFE_INTEGER)),
    ),
  );
  const grids = gridsOf(fields.grids, count, images);
  const predictions = listOf(fields.predictions, "predictions").map((each) =>
    predictionOf(each, count),
  );
  const list: TokenList = {
    text: text.map(visibleWithParts),
    special: special.flatMap((flag, i) => (flag ? [i] : [])),
    sequence,
    ...(grids.length > 0 && { grids }),
    ...(predictions.length > 0 && { predictions }),
  };
  return { list, ids };
}

/** A word or two for what numbers are: one line. */
export function measureOf(value: unknown): string {
  const word = textOf(value, "what the numbers are").trim();
  const plain = word.replaceAll(" ", "");
  if (word === "" || [...word].length > 40 || INVISIBLE.test(plain)) {
    return damaged(`its numbers are called ${quoted(word)}`);
  }
  return word;
}
