/** Search for tokens among the points of a corpus. Pure functions. */

import { tokenMatcher } from "../../ui/text/token-search";
import type { Corpus } from "./client/requests";

/** Find the points whose token matches the search text. Return null if the text is empty. */
export function findPoints(corpus: Corpus, searchText: string) {
  const matches = tokenMatcher(searchText);
  if (!matches) return null;
  // Match each vocabulary entry once instead of each point.
  const entries = Uint8Array.from(corpus.facts.vocabulary, (token) => (matches(token) ? 1 : 0));
  const points = new Uint8Array(corpus.count);
  const seen = new Set<number>();
  let count = 0;
  corpus.tokens.forEach((entry, point) => {
    if (entries[entry] !== 1) return;
    points[point] = 1;
    seen.add(entry);
    count++;
  });
  let occurrences = 0;
  for (const entry of seen) occurrences += corpus.facts.frequency[entry] ?? 0;
  return {
    /** 1 for each point whose token matches. */
    points,
    /** Number of matching points. */
    count,
    /** Number of occurrences of the matching tokens in all texts that were read. */
    occurrences,
  };
}
