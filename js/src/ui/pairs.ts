/**
 * Pairs of texts: which queries and which keys a view shows if the tokens consist of two texts, A
 * and B. The pair "a-b" shows only queries of text A and only keys of text B. The pair "all" shows
 * all queries and keys.
 */

import type { Range, TokenList } from "../client/protocol";

export type Pair = "all" | "a-a" | "a-b" | "b-a" | "b-b";

const PAIRS: readonly Pair[] = ["all", "a-a", "a-b", "b-a", "b-b"];

/**
 * Return names of the two texts: "prompt" and "answer" if the model generated the second text or
 * the user passed it as a target, otherwise "A" and "B".
 */
function namesOf(queries: TokenList | undefined): Record<string, string> {
  return queries?.predictions?.length ? { a: "prompt", b: "answer" } : { a: "A", b: "B" };
}

function fromTo(pair: Pair, queries: TokenList | undefined): string {
  const names = namesOf(queries);
  return pair === "all" ? "all" : `${names[pair[0] as string]} to ${names[pair[2] as string]}`;
}

/** Return the pairs from which a reader can choose, each with its label. */
export function pairChoices(queries: TokenList): [Pair, string][] {
  return PAIRS.map((pair) => [pair, fromTo(pair, queries)]);
}

/**
 * Describe a pair, with the text of the queries first: "sentence A to B", "answer to prompt".
 * Return "" for "all".
 */
export function pairInWords(pair: Pair, queries?: TokenList): string {
  if (pair === "all") return "";
  return `${queries?.predictions?.length ? "" : "sentence "}${fromTo(pair, queries)}`;
}

/**
 * Describe the text from which the keys of a pair come: "sentence B", "the answer". Return "" for
 * "all".
 */
export function keysInWords(pair: Pair, queries?: TokenList): string {
  if (pair === "all") return "";
  const name = namesOf(queries)[pair[2] as string];
  return `${queries?.predictions?.length ? "the" : "sentence"} ${name}`;
}

/** Return the number of the text of a side: 0 for text A, and 1 for text B. The pair is not "all". */
export function textOf(pair: Pair, side: "query" | "key"): number {
  return pair[side === "query" ? 0 : 2] === "a" ? 0 : 1;
}

interface Sides {
  queries: TokenList;
  keys: TokenList;
}

/** Return whether the queries as well as the keys contain tokens of both texts. */
export function hasPair({ queries, keys }: Sides): boolean {
  return [queries, keys].every(({ sequence }) => sequence.includes(0) && sequence.includes(1));
}

/** Return `pair`, or "all" if the queries or the keys lack one of the two texts (see `hasPair`). */
export function pairOf(sides: Sides, pair: Pair): Pair {
  return pair === "all" || hasPair(sides) ? pair : "all";
}

/**
 * Return the range of `tokens` that a pair shows: from the first to the last token of its text. It
 * is the range of all tokens if the pair is "all", or if no token belongs to this text.
 *
 * @param tokens the queries or the keys, as `side` says.
 */
export function pairRange(tokens: TokenList, pair: Pair, side: "query" | "key"): Range {
  const whole: Range = [0, tokens.text.length];
  if (pair === "all") return whole;
  const sequence = textOf(pair, side);
  const first = tokens.sequence.indexOf(sequence);
  return first < 0 ? whole : [first, tokens.sequence.lastIndexOf(sequence) + 1];
}
