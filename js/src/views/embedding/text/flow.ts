/** Conversion of a text's tokens to running text. */

import { isDotted, type RunningToken, runningText } from "../../../ui/text/running-text";
import type { Corpus, Kind } from "../client/requests";

const dots = new WeakMap<Corpus, boolean>();

function dottedIn(corpus: Corpus): boolean {
  const dotted = dots.get(corpus) ?? isDotted(corpus.vocabulary);
  dots.set(corpus, dotted);
  return dotted;
}

/**
 * Return the queries or keys of a text that are points, with the spaces and line breaks of running
 * text.
 */
export function runningTokens(corpus: Corpus, kind: Kind, text: number): RunningToken[] {
  const [first, stop] = corpus.pointsOf(kind, text);
  const tokens = Array.from({ length: stop - first }, (_, i) => {
    const point = first + i;
    const name = corpus.tokenOf(point);
    return {
      name,
      position: corpus.positionOf(point),
      special: corpus.special[corpus.tokens[point] ?? -1] === 1,
      patch: corpus.images > 0 && name.startsWith("patch "),
    };
  });
  return runningText(tokens, dottedIn(corpus));
}
