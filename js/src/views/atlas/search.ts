/**
 * Search for edges by query token, key token and offset. Pure functions.
 *
 * A sampled edge is a query drawn uniformly and one of its keys drawn in proportion to its weight.
 * Therefore the share of matching edges among a head's sampled edges estimates the share of the
 * head's attention on matching pairs.
 */

import type { AtlasStack } from "../../client/protocol";
import { quoted } from "../../ui/text/captions";
import { tokenMatcher } from "../../ui/text/token-search";
import type { Edges, Texts, Tokens } from "./client/atlas";

/** Parsed content of a search field. */
export type SearchTerm =
  | { kind: "any" }
  | { kind: "class"; system: number; value: number }
  | { kind: "position"; position: number }
  | { kind: "token"; matches: (token: string) => boolean };

/** Search text that matches any token. */
const ANY = "*";

/**
 * Parse the content of a search field. Return null if the field is empty.
 *
 * @throws Error if the content is "system:class" and the class does not exist in this system.
 */
export function parseSearch(typed: string, classes: AtlasStack["classes"]): SearchTerm | null {
  const term = typed.trim();
  if (term === "") return null;
  if (term === ANY) return { kind: "any" };
  const number = /^#(\d+)$/.exec(term);
  if (number) return { kind: "position", position: Number(number[1]) };
  const colon = term.indexOf(":");
  const name = term.slice(0, colon).toLowerCase();
  const system =
    colon < 0 ? -1 : classes.findIndex((candidate) => candidate.name.toLowerCase() === name);
  if (system >= 0) {
    const { values } = classes[system] as AtlasStack["classes"][0];
    const value = term.slice(colon + 1).trim();
    const index = values.findIndex((candidate) => candidate.toLowerCase() === value.toLowerCase());
    if (index < 0) {
      const [first, more] = [values.slice(0, MAX_NAMED), values.length - MAX_NAMED];
      const valid = `${first.join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
      throw new Error(
        value === ""
          ? `${name} must be one of ${valid}.`
          : `No ${name} is ${quoted(value)}. Choose one of ${valid}.`,
      );
    }
    return { kind: "class", system, value: index };
  }
  // Any other text is compared with the tokens.
  const matches = tokenMatcher(term) as (token: string) => boolean;
  return { kind: "token", matches };
}

/** Maximum number of class names in an error message. */
const MAX_NAMED = 8;

/** Return 1 for each matching token and 0 for others, or null if every token matches. */
function matchingTokens(sought: SearchTerm | null, texts: Texts, side: Tokens): Uint8Array | null {
  if (!sought || sought.kind === "any") return null;
  const { count, entries, positions } = side;
  const marks = new Uint8Array(count);
  if (sought.kind === "token") {
    // The vocabulary is smaller than the texts, so each of its entries is compared once.
    const matching = Uint8Array.from(texts.vocabulary, (token) => (sought.matches(token) ? 1 : 0));
    for (let i = 0; i < count; i++) marks[i] = matching[entries[i] as number] as number;
    return marks;
  }
  const values = sought.kind === "class" ? side.classes[sought.system] : positions;
  const target = sought.kind === "class" ? sought.value : sought.position;
  for (let i = 0; i < count; i++) marks[i] = values?.[i] === target ? 1 : 0;
  return marks;
}

/**
 * Search terms applied to all stored tokens. `queries` and `keys` have 1 for matching tokens, in
 * the order of `Texts.queries` and `Texts.keys`, and are null if every token matches. `offsets` is
 * an inclusive range, or null for all offsets.
 */
export interface Search {
  queries: Uint8Array | null;
  keys: Uint8Array | null;
  offsets: readonly [number, number] | null;
}

export function searchOf(
  texts: Texts,
  query: SearchTerm | null,
  key: SearchTerm | null,
  offsets: readonly [number, number] | null,
): Search {
  return {
    queries: matchingTokens(query, texts, texts.queries),
    keys: matchingTokens(key, texts, texts.keys),
    offsets,
  };
}

/** Return whether edge `i` of `edges` matches a search. */
export function matchesSearch(
  edges: Edges,
  i: number,
  { queries, keys, offsets }: Search,
): boolean {
  if (queries && queries[edges.queryToken[i] as number] !== 1) return false;
  if (keys && keys[edges.keyToken[i] as number] !== 1) return false;
  if (!offsets) return true;
  const offset = (edges.key[i] as number) - (edges.query[i] as number);
  return offset >= offsets[0] && offset <= offsets[1];
}

/** Number of matching edges of a head, and number of all its edges. */
export interface Count {
  numFound: number;
  numTotal: number;
}

/** Count the matching edges of each head of a layer. */
export function countMatches(edges: Edges, heads: number, search: Search): Count[] {
  return Array.from({ length: heads }, (_, head) => {
    const [first, stop] = edges.of(head);
    let numFound = 0;
    for (let i = first; i < stop; i++) if (matchesSearch(edges, i, search)) numFound++;
    return { numFound, numTotal: stop - first };
  });
}

/** The 97.5% point of the normal distribution. */
const Z = 1.959964;

/** Return the 95% confidence interval (Wilson, 1927) of the share of matching edges. */
export function wilson({ numFound, numTotal }: Count): [number, number] {
  if (numTotal === 0) return [0, 1];
  const [share, square] = [numFound / numTotal, Z * Z];
  const middle = (share + square / (2 * numTotal)) / (1 + square / numTotal);
  const half =
    (Z / (1 + square / numTotal)) *
    Math.sqrt((share * (1 - share)) / numTotal + square / (4 * numTotal * numTotal));
  return [numFound === 0 ? 0 : middle - half, numFound === numTotal ? 1 : middle + half];
}
