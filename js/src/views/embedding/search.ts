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
  let count = 0;
  corpus.tokens.forEach((entry, point) => {
    if (entries[entry] !== 1) return;
    points[point] = 1;
    count++;
  });
  return {
    /** 1 for each point whose token matches. */
    points,
    /** Number of matching points. */
    count,
  };
}
