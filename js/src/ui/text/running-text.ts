/** A text as running tokens: which are in sight, how they stand, how strongly they are shaded. */

import { graphemes } from "./labels";

/** A token of a running text. */
export interface RunningToken {
  /** Its place in its text. */
  position: number;
  text: string;
  special: boolean;
  /** What it is called where it is a patch of an image, of which only a sign is seen. */
  name: string;
  /** Whether white space goes before it. */
  gap: boolean;
  ends: boolean;
  /** Tokens that are not points, between the one before and this. */
  missing: number;
}

/** Longer tokens are cut: one may be a whole line of characters. */
const MOST_SIGNS = 60;

/** In a running text an image's patches are signs: their names would drown the words. */
const PATCH = "▪";

function cut(text: string): string {
  if (text.length <= MOST_SIGNS) return text;
  const signs = graphemes(text);
  return signs.length <= MOST_SIGNS ? text : `${signs.slice(0, MOST_SIGNS - 1).join("")}…`;
}

/** Whether a space before a word is a part of its token, written as a dot; else it is left out. */
export function isDotted(vocabulary: readonly string[]): boolean {
  return vocabulary.some((entry) => entry.startsWith("·"));
}

/**
 * Tokens of a text, in order, with what stands between them.
 *
 * @param names as they are shown in lists.
 * @param first the position before the first that there might be, so that what is missing is counted.
 */
export function runningText(
  tokens: readonly { name: string; position: number; special: boolean; patch?: boolean }[],
  dotted: boolean,
  first = 0,
): RunningToken[] {
  let before = first - 1;
  let ended = true;
  let afterSpecial = false;
  return tokens.map(({ name, position, special, patch = false }) => {
    const bare = dotted && name.length > 1 && name.startsWith("·") ? name.slice(1) : name;
    const begins =
      special || afterSpecial || (dotted ? name.startsWith("·") : !name.startsWith("##"));
    const token: RunningToken = {
      position,
      text: patch ? PATCH : cut(bare),
      name: cut(bare),
      special,
      gap: !ended && !patch && begins,
      ends: name.endsWith("⏎"),
      missing: position - before - 1,
    };
    before = position;
    ended = token.ends;
    afterSpecial = special;
    return token;
  });
}

/** So many tokens are in sight at once: each is a button. */
export const MOST_TOKENS = 600;

/** The part of a long text that is in sight, with a token near its middle. */
export function windowOf(count: number, around: number, most = MOST_TOKENS): [number, number] {
  if (count <= most) return [0, count];
  const start = Math.max(0, Math.min(count - most, around - Math.floor(most / 2)));
  return [start, start + most];
}

/** Below this opacity text stays readable in VS Code's dark theme, whose ink is the palest. */
const DARKEST_SHADE = 0.4;

/** Opacity of a shade below text. */
export function shadeOf(weight: number, end: number): number {
  if (!(weight > 0) || !(end > 0)) return 0;
  return DARKEST_SHADE * Math.min(1, weight / end);
}

/** Pixels that tokens of one line may stand apart, which have different heights. */
const SAME_LINE = 6;

/** The token above or below another, by where they stand; itself where there is none. */
export function acrossLines(
  boxes: readonly { left: number; right: number; top: number }[],
  from: number,
  down: boolean,
): number {
  const here = boxes[from];
  if (!here) return from;
  const middle = (here.left + here.right) / 2;
  const rises = boxes.map((box) => (down ? box.top - here.top : here.top - box.top));
  const next = Math.min(...rises.filter((rise) => rise >= SAME_LINE));
  let best = from;
  let nearest = Number.POSITIVE_INFINITY;
  boxes.forEach((box, i) => {
    const rise = rises[i] as number;
    if (rise < next || rise >= next + SAME_LINE) return;
    const aside = Math.max(0, box.left - middle, middle - box.right);
    if (aside < nearest) [best, nearest] = [i, aside];
  });
  return best;
}
