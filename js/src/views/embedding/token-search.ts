/** Finding tokens among the points of a corpus. Pure functions. */

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

/** Signs that a token begins a word or goes on with one, as tokens are shown. */
const JOINTS = /^(##| )+| +$/g;

/** Whether a token matches, as the reader typed it. */
function matcher(wanted: string, matchCase: boolean): (token: string) => boolean {
  // Spaces are shown as a dot in the middle, which few keyboards have.
  const fold = (text: string): string =>
    (matchCase ? text : text.toLowerCase()).replaceAll("·", " ");
  const whole = /^"(.+)"$/.exec(wanted)?.[1];
  if (whole !== undefined) {
    const word = fold(whole).replace(JOINTS, "");
    return (token) => fold(token).replace(JOINTS, "") === word;
  }
  const part = fold(wanted);
  return (token) => fold(token).includes(part);
}

/** The points whose tokens hold a text; null without one. */
export function findPoints(corpus: Corpus, wanted: string, matchCase: boolean): Found | null {
  if (wanted === "") return null;
  const matches = matcher(wanted, matchCase);
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
