/**
 * Search for edges by query token, key token and offset. Pure functions.
 *
 * An edge is the weight from one query to one key. Its offset is the position of the key minus the
 * position of the query. A sampled edge is a query drawn uniformly and one of its keys drawn in
 * proportion to its weight. Therefore the share of matching edges among a head's sampled edges
 * estimates the share of the head's attention on matching pairs.
 */

import type { AtlasClasses, AtlasStack } from "../../client/protocol";
import type { HeadIndex } from "../../ui/head-grid/grid";
import { quoted } from "../../ui/text/captions";
import { tokenMatcher } from "../../ui/text/token-search";
import type { Edges, Texts, Tokens } from "./client/atlas";

/** Parsed content of a search field. */
export type SearchTerm =
  | { kind: "any" }
  | { kind: "class"; system: number; value: number }
  | { kind: "position"; position: number }
  | { kind: "token"; matches: (token: string) => boolean };

/** Parsed content of a search field, which is null if the field is empty, or an error message. */
type Parsed = { term: SearchTerm | null; problem: null } | { term: null; problem: string };

/**
 * Parse the content of a search field: "*" for any token, "#3" for a position, "system:class" for a
 * class of tokens, or a part of a token. Report a class that does not exist in its system.
 */
export function parseSearch(typed: string, classes: AtlasClasses[]): Parsed {
  const text = typed.trim();
  const parsed = (term: SearchTerm | null): Parsed => ({ term, problem: null });
  if (text === "") return parsed(null);
  if (text === "*") return parsed({ kind: "any" });
  const number = /^#(\d+)$/.exec(text);
  if (number) return parsed({ kind: "position", position: Number(number[1]) });
  const [name = "", ...rest] = text.toLowerCase().split(":");
  const system = classes.findIndex((candidate) => candidate.name.toLowerCase() === name);
  // Any other text is compared with the tokens.
  if (system < 0 || rest.length === 0)
    return parsed({ kind: "token", matches: tokenMatcher(text) as (token: string) => boolean });
  const { values } = classes[system] as AtlasClasses;
  const value = rest.join(":").trim();
  const index = values.findIndex((candidate) => candidate.toLowerCase() === value);
  if (index >= 0) return parsed({ kind: "class", system, value: index });
  const more = values.length - MAX_NAMED;
  const valid = values.slice(0, MAX_NAMED).join(", ") + (more > 0 ? ` and ${more} more` : "");
  const problem =
    value === ""
      ? `${name} must be one of ${valid}.`
      : `No ${name} is ${quoted(text.slice(name.length + 1).trim())}. Choose one of ${valid}.`;
  return { term: null, problem };
}

/** Maximum number of class names in an error message. */
const MAX_NAMED = 8;

/**
 * Return an array with 1 for each matching token and 0 for each other token, or null if every token
 * matches.
 */
function matchingTokens(
  sought: SearchTerm | null,
  texts: Texts,
  side: Tokens,
): ArrayLike<number> | null {
  if (!sought || sought.kind === "any") return null;
  if (sought.kind === "token") {
    // The vocabulary is smaller than the texts, so each of its entries is compared once.
    const matching = Uint8Array.from(texts.vocabulary, (token) => (sought.matches(token) ? 1 : 0));
    return side.entries.map((entry) => matching[entry] as number);
  }
  const isClass = sought.kind === "class";
  const values = isClass ? side.classes[sought.system] : side.positions;
  const target = isClass ? sought.value : sought.position;
  return values?.map((value) => (value === target ? 1 : 0)) ?? [];
}

/** Function that returns whether edge `i` of `edges` matches a search. */
export type Search = (edges: Edges, i: number) => boolean;

/**
 * Return the search for the given terms, which are compared with each stored token only once. A
 * term that is null matches every token.
 *
 * @param offsets smallest and largest offset of the matching edges, or null for all offsets.
 */
export function searchOf(
  texts: Texts,
  query: SearchTerm | null,
  key: SearchTerm | null,
  offsets: readonly [number, number] | null,
): Search {
  const queries = matchingTokens(query, texts, texts.queries);
  const keys = matchingTokens(key, texts, texts.keys);
  return (edges, i) => {
    if (queries && queries[edges.queryToken[i] as number] !== 1) return false;
    if (keys && keys[edges.keyToken[i] as number] !== 1) return false;
    if (!offsets) return true;
    const offset = (edges.key[i] as number) - (edges.query[i] as number);
    return offset >= offsets[0] && offset <= offsets[1];
  };
}

/** Number of matching edges of a head (`numFound`) and number of all its edges (`numTotal`). */
export interface Count {
  numFound: number;
  numTotal: number;
}

/** Return the share of matching edges, or null without edges. */
export function shareOf({ numFound, numTotal }: Count): number | null {
  return numTotal > 0 ? numFound / numTotal : null;
}

/** Count the matching edges of each head of a layer. */
export function countMatches(edges: Edges, heads: number, search: Search): Count[] {
  return Array.from({ length: heads }, (_, head) => {
    const all = edges.of(head);
    return { numFound: all.filter((i) => search(edges, i)).length, numTotal: all.length };
  });
}

/** The 97.5% quantile of the standard normal distribution, for a 95% confidence interval. */
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

/** Head with its number of matching edges. */
export interface MatchedHead extends HeadIndex {
  count: Count;
}

/** Result of a search over all heads. It is incomplete while the search runs. */
export interface SearchResult {
  /** Return the count of a head, or null if the head's edges are not counted yet. */
  of: (head: HeadIndex) => Count | null;
  /** Number of layers whose edges are counted. */
  done: number;
  /** Number of all layers. */
  layers: number;
  /** Heads whose edges are counted, ordered by decreasing share of matching edges. */
  ranked: MatchedHead[];
  /** Heads with at least one matching edge, in the order of `ranked`. */
  matching: MatchedHead[];
}

/**
 * Return the result of a search over all heads of a stack, from the counts of the searched layers.
 *
 * Heads are ranked by their share of matching edges. Among equal shares, the head with the larger
 * lower end of the confidence interval comes first.
 */
export function searchResult(
  stack: AtlasStack,
  counts: ReadonlyMap<number, readonly Count[]>,
): SearchResult {
  const ranked = stack.layers.flatMap((layer) =>
    (counts.get(layer) ?? []).map((count, head) => ({ layer, head, count })),
  );
  const key = ({ count }: MatchedHead): number => shareOf(count) ?? -1;
  ranked.sort((a, b) => key(b) - key(a) || wilson(b.count)[0] - wilson(a.count)[0]);
  return {
    of: ({ layer, head }) => counts.get(layer)?.[head] ?? null,
    ...{ done: counts.size, layers: stack.layers.length, ranked },
    matching: ranked.filter(({ count }) => count.numFound > 0),
  };
}
