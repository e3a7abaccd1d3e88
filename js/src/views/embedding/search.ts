/** Search for tokens among the points of a corpus. Pure functions. */

import { tokenMatcher } from "../../ui/text/token-search";
import type { Corpus } from "./client/requests";

/** Result of a search. */
export interface PointMatches {
  /** 1 for each point whose token matches. */
  points: Uint8Array;
  /** Number of matching points, and number of queries among them. */
  count: number;
  queries: number;
  /**
   * Number of different tokens of matching points, and number of occurrences of these tokens in all
   * texts that were read.
   */
  tokens: number;
  occurrences: number;
}

/** Find the points whose token matches the search text. Return null if the text is empty. */
export function findPoints(
  corpus: Corpus,
  searchText: string,
  matchCase: boolean,
): PointMatches | null {
  const matches = tokenMatcher(searchText, matchCase);
  if (!matches) return null;
  // Match each vocabulary entry once instead of each point.
  const entries = Uint8Array.from(corpus.facts.vocabulary, (token) => (matches(token) ? 1 : 0));
  const points = new Uint8Array(corpus.count);
  const seen = new Uint8Array(entries.length);
  let [count, queries] = [0, 0];
  corpus.tokens.forEach((entry, point) => {
    if (entries[entry] !== 1) return;
    points[point] = 1;
    seen[entry] = 1;
    count++;
    if (!corpus.isKey(point)) queries++;
  });
  let [tokens, occurrences] = [0, 0];
  seen.forEach((one, entry) => {
    if (one === 0) return;
    tokens++;
    occurrences += corpus.facts.frequency[entry] ?? 0;
  });
  return { points, count, queries, tokens, occurrences };
}
