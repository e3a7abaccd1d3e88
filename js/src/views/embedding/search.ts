/** Finding tokens among the points of a corpus. Pure functions. */

import { tokenMatcher } from "../../ui/text/token-search";
import type { Corpus } from "./client/requests";

/** What a search found. */
export interface Found {
  /** 1 for each point whose token matches. */
  points: Uint8Array;
  /** How many points do, and how many of them are queries. */
  count: number;
  queries: number;
  /** How many different tokens match, and how often they occur in all texts that were read. */
  tokens: number;
  occurrences: number;
}

/** The points whose tokens hold a text; null without one. */
export function findPoints(corpus: Corpus, wanted: string, matchCase: boolean): Found | null {
  const matches = tokenMatcher(wanted, matchCase);
  if (!matches) return null;
  // Of each different token once, however many points it has.
  const entries = Uint8Array.from(corpus.vocabulary, (token) => (matches(token) ? 1 : 0));
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
    occurrences += corpus.frequency[entry] ?? 0;
  });
  return { points, count, queries, tokens, occurrences };
}
