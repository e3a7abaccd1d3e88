/**
 * The tokens of a corpus that are points, with their texts and positions.
 *
 * Points are numbered from 0: first all queries, then all keys. Queries are ordered by text and
 * then by position in the text, and so are keys. Values per point are typed arrays, because there
 * may be hundreds of thousands of points.
 */

import type { CorpusPoints } from "../../../client/protocol";

export type Kind = "query" | "key";

/** A loaded corpus. */
export class Corpus {
  readonly stack: string;
  /** Reply of the kernel. */
  readonly facts: CorpusPoints;
  readonly numQueries: number;
  /** Number of points. */
  readonly count: number;
  /** Number of texts with points. */
  readonly numTexts: number;
  /**
   * `punctuation` is 1 for each vocabulary entry that is punctuation, `special` for each special
   * token. Other entries are 0.
   */
  readonly punctuation: Uint8Array;
  readonly special: Uint8Array;
  /**
   * Columns of the user's data that can colour points: names of the categories, or null if the
   * values are numbers, and the number or category index of each point, NaN if unknown.
   */
  readonly columns: readonly { name: string; categories: string[] | null; values: Float64Array }[];
  /** Text index, position in the text and vocabulary index of each point. */
  readonly texts: Int32Array;
  readonly positions: Int32Array;
  readonly tokens: Int32Array;

  constructor(stack: string, facts: CorpusPoints) {
    const { queries, vocabulary } = facts;
    const keys = facts.keys ?? queries;
    this.stack = stack;
    this.facts = facts;
    this.numQueries = facts.num_queries;
    this.count = facts.num_queries + facts.num_keys;
    this.numTexts = facts.text_tokens.filter((count) => count > 0).length;
    this.punctuation = marked(facts.punctuation, vocabulary.length);
    this.special = marked(facts.special, vocabulary.length);
    this.texts = Int32Array.from([...queries.text, ...keys.text]);
    this.positions = Int32Array.from([...queries.position, ...keys.position]);
    this.tokens = Int32Array.from([...queries.token, ...keys.token]);
    this.columns = facts.columns.map(({ name, categories, ...sides }) => ({
      name,
      categories,
      values: Float64Array.from([...sides.queries, ...sides.keys], (value) => value ?? Number.NaN),
    }));
  }

  textOf(point: number): number {
    return this.texts[point] ?? -1;
  }

  positionOf(point: number): number {
    return this.positions[point] ?? -1;
  }

  tokenOf(point: number): string {
    return this.facts.vocabulary[this.tokens[point] ?? -1] ?? "";
  }

  isKey(point: number): boolean {
    return point >= this.numQueries;
  }

  kindOf(point: number): Kind {
    return this.isKey(point) ? "key" : "query";
  }

  /**
   * Return the range of the queries or keys of a text: the first point, and the last point plus 1.
   */
  pointsOf(kind: Kind, text: number): [number, number] {
    return [this.#first(kind, text, 0), this.#first(kind, text + 1, 0)];
  }

  /** Return the point that is the query or key of a token, or -1 if it is not among the points. */
  pointOf(kind: Kind, text: number, position: number): number {
    const point = this.#first(kind, text, position);
    const end = kind === "query" ? this.numQueries : this.count;
    const exists = point < end && this.texts[point] === text && this.positions[point] === position;
    return exists ? point : -1;
  }

  /**
   * Return the first point at or after `position` in `text`, by binary search. It may belong to a
   * later text.
   */
  #first(kind: Kind, text: number, position: number): number {
    let low = kind === "query" ? 0 : this.numQueries;
    let high = kind === "query" ? this.numQueries : this.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      const away = this.textOf(middle) - text || this.positionOf(middle) - position;
      if (away < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

function marked(indices: readonly number[], count: number): Uint8Array {
  const marks = new Uint8Array(count);
  for (const index of indices) marks[index] = 1;
  return marks;
}
