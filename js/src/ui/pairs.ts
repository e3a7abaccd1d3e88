/** A pair of texts: whose queries and whose keys are shown. Pure functions. */

import type { Range, TokenList } from "../channel/source";

export type Pair = "all" | "a-a" | "a-b" | "b-a" | "b-b";

/** The choices in words. */
export const PAIRS: readonly (readonly [Pair, string])[] = [
  ["all", "all"],
  ["a-a", "A to A"],
  ["a-b", "A to B"],
  ["b-a", "B to A"],
  ["b-b", "B to B"],
];

/** A pair in words: "sentence A to B"; "" for all. */
export function pairInWords(pair: Pair): string {
  const found = PAIRS.find(([each]) => each === pair);
  return pair === "all" || !found ? "" : `sentence ${found[1]}`;
}

/** Whose keys a pair shows: "sentence B"; "" for all. */
export function keysInWords(pair: Pair): string {
  return pair === "all" ? "" : `sentence ${pair[2]?.toUpperCase()}`;
}

/** Both sides of a stack. */
interface Sides {
  queries: TokenList;
  keys: TokenList;
}

/** Whether tokens of both texts of a pair are there, on both sides. */
export function hasPair({ queries, keys }: Sides): boolean {
  return [queries, keys].every(({ sequence }) => sequence.includes(0) && sequence.includes(1));
}

/** The pair that is shown: all where the tokens are not of two texts. */
export function pairOf(sides: Sides, pair: Pair): Pair {
  return pair === "all" || hasPair(sides) ? pair : "all";
}

function wantedText(pair: Pair, side: "query" | "key"): number {
  return pair[side === "query" ? 0 : 2] === "a" ? 0 : 1;
}

/** For each token, whether it is of the text that `side` of the pair names. */
export function pairMembers(tokens: TokenList, pair: Pair, side: "query" | "key"): Uint8Array {
  const out = new Uint8Array(tokens.text.length).fill(1);
  if (pair === "all") return out;
  const wanted = wantedText(pair, side);
  for (let i = 0; i < out.length; i++) out[i] = tokens.sequence[i] === wanted ? 1 : 0;
  return out;
}

/** The tokens, from first to last, of the text that `side` of the pair names; all for "all". */
export function pairRange(tokens: TokenList, pair: Pair, side: "query" | "key"): Range {
  const whole: Range = [0, tokens.text.length];
  if (pair === "all") return whole;
  const wanted = wantedText(pair, side);
  const first = tokens.sequence.indexOf(wanted);
  return first < 0 ? whole : [first, tokens.sequence.lastIndexOf(wanted) + 1];
}
