/** A pair of texts: whose queries and whose keys are shown. Pure functions. */

import type { Range, TokenList } from "../client/protocol";

export type Pair = "all" | "a-a" | "a-b" | "b-a" | "b-b";

const PAIRS: readonly Pair[] = ["all", "a-a", "a-b", "b-a", "b-b"];

/** What the two texts are called, of those that tokens are of: a pair, or a prompt and its answer. */
function namesOf(queries: TokenList | undefined): Record<string, string> {
  return queries?.predictions?.length ? { a: "prompt", b: "answer" } : { a: "A", b: "B" };
}

function fromTo(pair: Pair, queries: TokenList | undefined): string {
  const names = namesOf(queries);
  return pair === "all" ? "all" : `${names[pair[0] as string]} to ${names[pair[2] as string]}`;
}

/** The choices in words. */
export function pairChoices(queries: TokenList): [Pair, string][] {
  return PAIRS.map((pair) => [pair, fromTo(pair, queries)]);
}

/** A pair in words: "sentence A to B", "answer to prompt"; "" for all. */
export function pairInWords(pair: Pair, queries?: TokenList): string {
  if (pair === "all") return "";
  return `${queries?.predictions?.length ? "" : "sentence "}${fromTo(pair, queries)}`;
}

/** Whose keys a pair shows: "sentence B", "the answer"; "" for all. */
export function keysInWords(pair: Pair, queries?: TokenList): string {
  if (pair === "all") return "";
  const name = namesOf(queries)[pair[2] as string];
  return `${queries?.predictions?.length ? "the" : "sentence"} ${name}`;
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

/** The tokens, from first to last, of the text that `side` of the pair names; all for "all". */
export function pairRange(tokens: TokenList, pair: Pair, side: "query" | "key"): Range {
  const whole: Range = [0, tokens.text.length];
  if (pair === "all") return whole;
  const wanted = pair[side === "query" ? 0 : 2] === "a" ? 0 : 1;
  const first = tokens.sequence.indexOf(wanted);
  return first < 0 ? whole : [first, tokens.sequence.lastIndexOf(wanted) + 1];
}
