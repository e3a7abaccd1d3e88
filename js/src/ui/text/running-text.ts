/**
 * Running text: tokens in lines as in the original text. This file computes the visible tokens, the
 * spaces between them and their shading.
 */

import { graphemes } from "./labels";

/** Token as it is shown in a running text. */
export interface RunningToken {
  /** Index of the token among all tokens. */
  position: number;
  text: string;
  special: boolean;
  /** Text of the token for labels, also for an image patch, whose `text` is only a symbol. */
  name: string;
  /** Whether a space is shown before the token. */
  gap: boolean;
  /** Whether a line ends after the token. */
  ends: boolean;
  /** Number of omitted tokens between the previous token and this one. */
  missing: number;
}

/** Maximum number of visible characters of a token. Some tokens are a whole line of characters. */
const MAX_GRAPHEMES = 60;

/** Symbol of an image patch. Names of patches would take more space than the words. */
const PATCH = "▪";

function cut(text: string): string {
  if (text.length <= MAX_GRAPHEMES) return text;
  const signs = graphemes(text);
  return signs.length <= MAX_GRAPHEMES ? text : `${signs.slice(0, MAX_GRAPHEMES - 1).join("")}…`;
}

/**
 * Return whether the tokens of a vocabulary contain the space before a word. Such tokens begin with
 * "·". In other vocabularies, no token contains a space.
 */
export function isDotted(vocabulary: readonly string[]): boolean {
  return vocabulary.some((entry) => entry.startsWith("·"));
}

/**
 * Return the tokens of a running text.
 *
 * @param tokens tokens in order, some of which may be omitted. `name` is the text of the token in
 *   lists. `ends` is whether a line ends after the token.
 * @param dotted result of `isDotted`.
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

/** Maximum number of visible tokens. Each token is a button, so more would be slow. */
export const MAX_TOKENS = 600;

/**
 * Return the visible range of a long text: `maxTokens` tokens with the token `around` near the
 * middle.
 */
export function windowOf(count: number, around: number, maxTokens = MAX_TOKENS): [number, number] {
  if (count <= maxTokens) return [0, count];
  const start = Math.max(0, Math.min(count - maxTokens, around - Math.floor(maxTokens / 2)));
  return [start, start + maxTokens];
}

/**
 * Opacity of the strongest shading. Text remains readable on it in VS Code's dark theme, which has
 * the palest text.
 */
const MAX_SHADE = 0.4;

/** Return the opacity of a token's background. It is proportional to the weight up to `end`. */
export function shadeOf(weight: number, end: number): number {
  if (!(weight > 0) || !(end > 0)) return 0;
  return MAX_SHADE * Math.min(1, weight / end);
}

/** Largest difference between the `top` of two tokens on the same line, in pixels. */
const MAX_TOP_DIFFERENCE = 6;

/**
 * Return the index of the nearest token on the line below (`down`) or above a token. If the token
 * is on the last or first line, return its own index.
 */
export function acrossLines(
  boxes: readonly { left: number; right: number; top: number }[],
  from: number,
  down: boolean,
): number {
  const current = boxes[from];
  if (!current) return from;
  const middle = (current.left + current.right) / 2;
  const rises = boxes.map((box) => (down ? box.top - current.top : current.top - box.top));
  const next = Math.min(...rises.filter((rise) => rise >= MAX_TOP_DIFFERENCE));
  let best = from;
  let nearest = Number.POSITIVE_INFINITY;
  boxes.forEach((box, i) => {
    const rise = rises[i] as number;
    if (rise < next || rise >= next + MAX_TOP_DIFFERENCE) return;
    const aside = Math.max(0, box.left - middle, middle - box.right);
    if (aside < nearest) [best, nearest] = [i, aside];
  });
  return best;
}
