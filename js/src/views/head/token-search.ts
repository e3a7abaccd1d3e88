/** Finding tokens of a long text, by what they say or by their number. Pure functions. */

import type { TokenList } from "../../client/source";
import type { Side } from "./layout";

/** Tokens that were found, ascending. */
export interface Matches {
  side: Side;
  indices: number[];
}

// Lower-cased once: a long text is searched again with every letter that is typed.
const lowered = new WeakMap<readonly string[], string[]>();

function lower(texts: readonly string[]): string[] {
  let known = lowered.get(texts);
  if (!known) {
    known = texts.map((text) => text.toLowerCase());
    lowered.set(texts, known);
  }
  return known;
}

function find(tokens: TokenList, wanted: string): number[] {
  const place = /^#(\d+)$/.exec(wanted);
  if (place) return Number(place[1]) < tokens.text.length ? [Number(place[1])] : [];
  const found: number[] = [];
  lower(tokens.text).forEach((text, index) => {
    if (text.includes(wanted)) found.push(index);
  });
  return found;
}

/** Tokens that hold a text, or the one of a number: "#65536"; queries, or keys where no query does. */
export function findTokens(
  { queries, keys }: { queries: TokenList; keys: TokenList },
  wanted: string,
): Matches | null {
  if (wanted === "") return null;
  const indices = find(queries, wanted);
  if (indices.length > 0 || keys === queries) return { side: "query", indices };
  return { side: "key", indices: find(keys, wanted) };
}

/** The place among matches of the next one from a token on, or of the one before it. */
export function nextMatch(indices: readonly number[], from: number, by: number): number {
  const after = indices.findIndex((index) => (by > 0 ? index >= from : index > from));
  const next = after < 0 ? indices.length : after;
  const { length } = indices;
  return length === 0 ? -1 : by > 0 ? next % length : (next - 1 + length) % length;
}
