/**
 * Running text: tokens in lines, as in the original text. This file computes which tokens are
 * shown, where spaces and line ends are, and how strongly each token is shaded.
 */

import { graphemes } from "./labels";

/** Token of a running text. `text` is what is shown. `special` is true for a special token. */
export interface RunningToken {
  /** Index of the token among all tokens of the text, including those that are not shown. */
  position: number;
  text: string;
  special: boolean;
  /**
   * Text of the token for labels. It differs from `text` only for an image patch, which is shown as
   * a symbol.
   */
  name: string;
  /** Whether a space is shown before the token. */
  gap: boolean;
  /** Whether a line ends after the token. */
  ends: boolean;
  /** Number of tokens between the previous shown token and this one that are not shown. */
  missing: number;
}

/**
 * Maximum number of characters that are shown of one token. Some tokens are a whole line, such as a
 * line of dashes.
 */
const MAX_GRAPHEMES = 60;

/**
 * Symbol for a patch of an image. The name of a patch would need more space than the words around
 * it.
 */
const PATCH = "▪";

function cut(text: string): string {
  if (text.length <= MAX_GRAPHEMES) return text;
  const signs = graphemes(text);
  return signs.length <= MAX_GRAPHEMES ? text : `${signs.slice(0, MAX_GRAPHEMES - 1).join("")}…`;
}

/**
 * Return whether a vocabulary marks the space before a word by a leading "·" in the token. In other
 * vocabularies, tokens contain no spaces, and each token begins a word unless it starts with "##".
 */
export function isDotted(vocabulary: readonly string[]): boolean {
  return vocabulary.some((entry) => entry.startsWith("·"));
}

/**
 * Return the tokens of a running text, with the spaces, the line ends and the numbers of omitted
 * tokens between them.
 *
 * @param tokens shown tokens in order. `name` is the text of the token, or the name of an image
 *   patch. `ends` is true if a line ends after the token. A line also ends after a `name` with "⏎"
 *   at its end.
 * @param dotted result of `isDotted` for the vocabulary. A leading "·" is then not shown.
 */
export function runningText(
  tokens: readonly {
    name: string;
    position: number;
    special: boolean;
    patch?: boolean;
    ends?: boolean;
  }[],
  dotted: boolean,
): RunningToken[] {
  let before = -1;
  let ended = true;
  let afterSpecial = false;
  return tokens.map(({ name, position, special, patch = false, ends = false }) => {
    const bare = dotted && name.length > 1 && name.startsWith("·") ? name.slice(1) : name;
    const begins =
      special || afterSpecial || (dotted ? name.startsWith("·") : !name.startsWith("##"));
    const token: RunningToken = {
      position,
      text: patch ? PATCH : cut(bare),
      name: cut(bare),
      special,
      gap: !ended && !patch && begins,
      ends: ends || name.endsWith("⏎"),
      missing: position - before - 1,
    };
    before = position;
    ended = token.ends;
    afterSpecial = special;
    return token;
  });
}

/** Maximum number of tokens that are shown. Each of them is a button, and many buttons are slow. */
export const MAX_TOKENS = 600;

/**
 * Opacity of the strongest shading. With a larger one, text would be hard to read in VS Code's dark
 * theme, which has the palest text.
 */
const MAX_SHADE = 0.4;

/**
 * Return the opacity of the background of a token. It is proportional to the weight, `MAX_SHADE`
 * for the weight `end` and for larger ones, and 0 if the weight is not positive.
 */
export function shadeOf(weight: number, end: number): number {
  if (!(weight > 0) || !(end > 0)) return 0;
  return MAX_SHADE * Math.min(1, weight / end);
}
