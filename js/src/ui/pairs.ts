/**
 * Choice between the texts of a record that consists of two texts, A and B. A pair such as "a-b"
 * means that only queries of text A and only keys of text B are shown. "all" shows all queries and
 * keys. All functions are pure.
 */

import type { Range, TokenList } from "../client/protocol";

export type Pair = "all" | "a-a" | "a-b" | "b-a" | "b-b";

const PAIRS: readonly Pair[] = ["all", "a-a", "a-b", "b-a", "b-b"];

/**
 * Return the names of the two texts: "prompt" and "answer" if the second text is a generated text
 * or a target text, else "A" and "B".
 */
function namesOf(queries: TokenList | undefined): Record<string, string> {
  return queries?.predictions?.length ? { a: "prompt", b: "answer" } : { a: "A", b: "B" };
}

function fromTo(pair: Pair, queries: TokenList | undefined): string {
  const names = namesOf(queries);
  return pair === "all" ? "all" : `${names[pair[0] as string]} to ${names[pair[2] as string]}`;
}

/** Return the pairs that a reader can choose, with their labels. */
export function pairChoices(queries: TokenList): [Pair, string][] {
  return PAIRS.map((pair) => [pair, fromTo(pair, queries)]);
}

/** Describe a pair, queries first: "sentence A to B", "answer to prompt", or "" for "all". */
export function pairInWords(pair: Pair, queries?: TokenList): string {
  if (pair === "all") return "";
  return `${queries?.predictions?.length ? "" : "sentence "}${fromTo(pair, queries)}`;
}

/** Describe the text of the keys of a pair: "sentence B", "the answer", or "" for "all". */
export function keysInWords(pair: Pair, queries?: TokenList): string {
  if (pair === "all") return "";
  const name = namesOf(queries)[pair[2] as string];
  return `${queries?.predictions?.length ? "the" : "sentence"} ${name}`;
}

interface Sides {
  queries: TokenList;
  keys: TokenList;
}

/** Return whether the queries as well as the keys contain tokens of both texts. */
export function hasPair({ queries, keys }: Sides): boolean {
  return [queries, keys].every(({ sequence }) => sequence.includes(0) && sequence.includes(1));
}

/** Return `pair`, or "all" if the tokens do not belong to two texts. */
export function pairOf(sides: Sides, pair: Pair): Pair {
  return pair === "all" || hasPair(sides) ? pair : "all";
}

/**
 * Return the range of the query tokens or key tokens that a pair shows. Return the range of all
 * tokens for "all", or if the text of the pair has no tokens.
 */
export function pairRange(tokens: TokenList, pair: Pair, side: "query" | "key"): Range {
  const whole: Range = [0, tokens.text.length];
  if (pair === "all") return whole;
  const sequence = pair[side === "query" ? 0 : 2] === "a" ? 0 : 1;
  const first = tokens.sequence.indexOf(sequence);
  return first < 0 ? whole : [first, tokens.sequence.lastIndexOf(sequence) + 1];
}
