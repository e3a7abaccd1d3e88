/**
 * The tokens of a corpus that are points, with their texts and positions.
 *
 * Points are numbered from 0: first all queries, then all keys. Queries are ordered by text and
 * then by position in the text, and so are keys. Values per point are typed arrays, because there
 * may be hundreds of thousands of points.
 */

import type { CorpusPoints } from "../../../client/protocol";

export type Kind = "query" | "key";

/** Return a loaded corpus. `facts` is the reply of the kernel. */
export function createCorpus(stack: string, facts: CorpusPoints) {
  const { queries, vocabulary, num_queries: numQueries } = facts;
  const keys = facts.keys ?? queries;
  const count = numQueries + facts.num_keys;
  const texts = Int32Array.from([...queries.text, ...keys.text]);
  const positions = Int32Array.from([...queries.position, ...keys.position]);
  const tokens = Int32Array.from([...queries.token, ...keys.token]);
  const textOf = (point: number): number => texts[point] ?? -1;
  const positionOf = (point: number): number => positions[point] ?? -1;
  const isKey = (point: number): boolean => point >= numQueries;
  /**
   * Return the first point at or after `position` in `text`, by binary search. It may belong to a
   * later text.
   */
  const firstPoint = (kind: Kind, text: number, position: number): number => {
    let [low, high] = kind === "query" ? [0, numQueries] : [numQueries, count];
    while (low < high) {
      const middle = (low + high) >> 1;
      const away = textOf(middle) - text || positionOf(middle) - position;
      if (away < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  return {
    stack,
    facts,
    numQueries,
    /** Number of points. */
    count,
    /** Number of texts with points. */
    numTexts: new Set(texts).size,
    /**
     * `punctuation` is 1 for each vocabulary entry that is punctuation, `special` for each special
     * token. Other entries are 0.
     */
    punctuation: marked(facts.punctuation, vocabulary.length),
    special: marked(facts.special, vocabulary.length),
    /**
     * Columns of the user's data that can colour points: names of the categories, or null if the
     * values are numbers, and the number or category index of each point, NaN if unknown.
     */
    columns: facts.columns.map(({ name, categories, ...sides }) => ({
      name,
      categories,
      values: Float64Array.from([...sides.queries, ...sides.keys], (value) => value ?? Number.NaN),
    })),
    /** Position in the text and vocabulary index of each point. */
    positions,
    tokens,
    textOf,
    positionOf,
    tokenOf: (point: number): string => vocabulary[tokens[point] ?? -1] ?? "",
    isKey,
    kindOf: (point: number): Kind => (isKey(point) ? "key" : "query"),
    /**
     * Return the range of the queries or keys of a text: the first point, and the last point plus 1.
     */
    pointsOf: (kind: Kind, text: number): [number, number] => [
      firstPoint(kind, text, 0),
      firstPoint(kind, text + 1, 0),
    ],
    /** Return the point that is the query or key of a token, or -1 if it is not among the points. */
    pointOf: (kind: Kind, text: number, position: number): number => {
      const point = firstPoint(kind, text, position);
      const isFound = textOf(point) === text && positionOf(point) === position;
      return isFound && isKey(point) === (kind === "key") ? point : -1;
    },
  };
}

export type Corpus = ReturnType<typeof createCorpus>;

function marked(indices: readonly number[], count: number): Uint8Array {
  const marks = new Uint8Array(count);
  for (const index of indices) marks[index] = 1;
  return marks;
}
