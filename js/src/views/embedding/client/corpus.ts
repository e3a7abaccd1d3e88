/**
 * The tokens of a corpus whose queries and keys are points: what they are and where they stand.
 *
 * Points are numbered, queries first, then keys; of each, text by text and by position in the
 * text. Everything that there is one of for each point is a typed array, because there may be
 * hundreds of thousands.
 */

import { inflate } from "../../../client/codec";
import type { CorpusCaveat, CorpusGrid, CorpusPoints } from "../../../client/protocol";
import type { Source } from "../../../client/source";
import { joined, type Reply } from "../../../client/transport";

export type { CorpusGrid, CorpusPoints };
export type Caveat = CorpusCaveat;

export type Kind = "query" | "key";

/** What points are coloured by that the reader gave. */
export interface CorpusColumn {
  name: string;
  /** null: its values are numbers. */
  categories: string[] | null;
  /** Of each point: a number or the index of a category; NaN where it is not known. */
  values: Float64Array;
}

/** A corpus at hand. */
export class Corpus {
  readonly stack: string;
  readonly numQueries: number;
  readonly numKeys: number;
  /** How many points there are. */
  readonly count: number;
  /** How many there would be without sampling, and of how many texts the corpus was read. */
  readonly inAll: number;
  readonly totalTexts: number;
  /** Whether each text that has points has all its tokens. */
  readonly whole: boolean;
  readonly seed: number;
  /** How many texts could not be read, being empty or too long. */
  readonly numSkipped: number;
  /** Whether texts or tokens are missing because there were points enough; null where not known. */
  readonly stopped: boolean | null;
  /** One for each text. */
  readonly names: readonly string[];
  /** How many tokens each text has, 0 where it has no points. */
  readonly textTokens: readonly number[];
  readonly vocabulary: readonly string[];
  /** How often each entry of the vocabulary occurs in all texts that were read. */
  readonly frequency: readonly number[];
  /** 1 where an entry of the vocabulary is punctuation, and where it is a special token. */
  readonly punctuation: Uint8Array;
  readonly special: Uint8Array;
  readonly columns: readonly CorpusColumn[];
  readonly caveats: readonly Caveat[];
  /** How many images there are whose patches are tokens. */
  readonly images: number;
  readonly grids: readonly CorpusGrid[];
  /** Of each point: its text, its position in it and its entry of the vocabulary. */
  readonly texts: Int32Array;
  readonly positions: Int32Array;
  readonly tokens: Int32Array;

  constructor(stack: string, answer: CorpusPoints) {
    const { queries, keys } = answer;
    this.stack = stack;
    this.numQueries = answer.num_queries;
    this.numKeys = answer.num_keys;
    this.count = answer.num_queries + answer.num_keys;
    this.inAll = answer.total_points;
    this.totalTexts = answer.total_texts;
    this.whole = answer.whole;
    this.seed = answer.seed;
    this.numSkipped = answer.num_skipped ?? 0;
    this.stopped = answer.stopped ?? null;
    this.names = answer.names;
    this.textTokens = answer.text_tokens;
    this.vocabulary = answer.vocabulary;
    this.frequency = answer.frequency;
    this.punctuation = marked(answer.punctuation, answer.vocabulary.length);
    this.special = marked(answer.special, answer.vocabulary.length);
    this.caveats = answer.caveats;
    this.images = answer.images;
    this.grids = answer.grids ?? [];
    const both = keys ?? queries;
    this.texts = together(queries.text, both.text, this.count);
    this.positions = together(queries.position, both.position, this.count);
    this.tokens = together(queries.token, both.token, this.count);
    this.columns = answer.columns.map(({ name, categories, ...sides }) => ({
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
    return this.vocabulary[this.tokens[point] ?? -1] ?? "";
  }

  isKey(point: number): boolean {
    return point >= this.numQueries;
  }

  kindOf(point: number): Kind {
    return this.isKey(point) ? "key" : "query";
  }

  /** The points of a text, one after the other: the first, and the one after the last. */
  pointsOf(kind: Kind, text: number): [number, number] {
    return [this.#first(kind, text, 0), this.#first(kind, text + 1, 0)];
  }

  /** The point of a token, or -1 where it is not among the points. */
  pointOf(kind: Kind, text: number, position: number): number {
    const point = this.#first(kind, text, position);
    const end = kind === "query" ? this.numQueries : this.count;
    const there = point < end && this.texts[point] === text && this.positions[point] === position;
    return there ? point : -1;
  }

  /** The first point that does not come before a place; points are in order, so by halves. */
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

function together(queries: readonly number[], keys: readonly number[], count: number): Int32Array {
  const named = queries.length + keys.length;
  if (named !== count) {
    throw new Error(`The corpus names ${named} points; it says that there are ${count}.`);
  }
  const all = new Int32Array(count);
  all.set(queries);
  all.set(keys, queries.length);
  return all;
}

function marked(indices: readonly number[], count: number): Uint8Array {
  const marks = new Uint8Array(count);
  for (const index of indices) marks[index] = 1;
  return marks;
}

/** Bytes that a corpus takes, about. */
function bytesOfCorpus(corpus: Corpus): number {
  return corpus.count * (12 + 8 * corpus.columns.length) + 40 * corpus.vocabulary.length;
}

/** The points of a stack, and the tokens that they are of. */
export async function corpusOf(
  source: Source,
  stack: string,
  signal?: AbortSignal,
): Promise<Corpus> {
  const more = (part: number): Promise<Reply> =>
    source.transport.request("corpus", { stack, part }, signal);
  const read = async (reply: Reply): Promise<Corpus> => {
    const text = new TextDecoder().decode(await inflate(await joined(reply, more)));
    return new Corpus(stack, JSON.parse(text) as CorpusPoints);
  };
  return source.fetch("corpus", { stack }, read, bytesOfCorpus, signal);
}
