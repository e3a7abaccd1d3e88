/**
 * Data of one stack of an atlas: statistics and roles of its heads, edges, and the tokens around
 * these edges.
 *
 * Edges and tokens are stored in typed arrays, because an atlas may have millions of them. A class
 * system assigns a class to each token, for example its kind ("word", "punctuation").
 */

import { asBytes, inflate } from "../../../client/codec";
import type {
  AtlasEdgeColumns,
  AtlasEdges,
  AtlasRole,
  AtlasStack,
  AtlasTable,
  AtlasTexts,
  AtlasTokens,
  ClassesHeader,
  ClassesRequest,
} from "../../../client/protocol";
import { countHeads, type Source } from "../../../client/source";
import { joinParts, type Reply } from "../../../client/transport";

/** Value of a statistic for one head. */
export interface Figure {
  /** Mean over texts, or null if the statistic is not defined for this head. */
  mean: number | null;
  /** Standard error of the mean, or null if it is not defined. */
  error: number | null;
  /** Mean of the baseline, or null if the statistic has none. */
  baseline: number | null;
  /** Number of texts for which the statistic is defined. */
  texts: number;
}

/** Statistics and roles of all heads of a stack. */
export class Table {
  readonly stack: AtlasStack;
  readonly #answer: AtlasTable;

  constructor(stack: AtlasStack, answer: AtlasTable) {
    this.stack = stack;
    this.#answer = answer;
  }

  /**
   * Return the value of a statistic for one head.
   *
   * @param statistic index in `stack.statistics`.
   */
  figure(statistic: number, layer: number, head: number): Figure {
    const at = this.stack.layers.indexOf(layer);
    const { means, standard_errors, baselines, texts } = this.#answer;
    return {
      mean: means[statistic]?.[at]?.[head] ?? null,
      error: standard_errors[statistic]?.[at]?.[head] ?? null,
      baseline: baselines[statistic]?.[at]?.[head] ?? null,
      texts: texts[statistic]?.[at]?.[head] ?? 0,
    };
  }

  /** Return the roles of a head, the strongest first. */
  roles(layer: number, head: number): readonly AtlasRole[] {
    const at = this.stack.layers.indexOf(layer);
    return this.#answer.roles[at]?.[head] ?? [];
  }
}

/**
 * Stored query tokens or stored key tokens of all texts, text after text. Tokens far from all
 * stored edges are not stored. A token's index counts the stored tokens of all texts.
 */
export class Tokens {
  /** Index in `Texts.vocabulary` of each token. */
  readonly entries: Int32Array;
  /** Position of each token in its text. */
  readonly positions: Int32Array;
  /** One array per class system with the class of each token, or -1 if it has none. */
  readonly classes: readonly Int16Array[];
  /** Index of the first token of each text, followed by the number of all tokens. */
  readonly #starts: Int32Array;
  /** Index in `#starts` of a text, by the number of the text in the corpus. */
  readonly #indices: ReadonlyMap<number, number>;

  constructor(numbers: readonly number[], side: AtlasTokens) {
    const lengths = side.positions.map((positions) => positions.length);
    this.#starts = new Int32Array(lengths.length + 1);
    lengths.forEach((length, i) => {
      this.#starts[i + 1] = (this.#starts[i] as number) + length;
    });
    this.#indices = new Map(numbers.map((number, index) => [number, index]));
    this.entries = flat(Int32Array, side.tokens);
    this.positions = flat(Int32Array, side.positions);
    this.classes = side.classes.map((texts) => flat(Int16Array, texts));
    const counts = [this.entries, ...this.classes].map((column) => column.length);
    if (counts.some((count) => count !== this.positions.length)) {
      throw new Error("The texts of the atlas have tokens without a position, or without a class.");
    }
  }

  get count(): number {
    return this.positions.length;
  }

  /** Return the index of a text's first stored token, and the index after its last. */
  of(text: number): [number, number] {
    const index = this.#indices.get(text);
    if (index === undefined) return [0, 0];
    return [this.#starts[index] as number, this.#starts[index + 1] as number];
  }

  /** Return the index of the token at a position of a text, or -1 if it is not stored. */
  at(text: number, position: number): number {
    let [low, high] = this.of(text);
    const end = high;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.positions[middle] as number) < position) low = middle + 1;
      else high = middle;
    }
    return low < end && this.positions[low] === position ? low : -1;
  }
}

function flat<T extends Int32Array | Int16Array>(
  kind: new (length: number) => T,
  texts: readonly (readonly number[])[],
): T {
  const all = new kind(texts.reduce((sum, entries) => sum + entries.length, 0));
  let at = 0;
  for (const block of texts) {
    all.set(block, at);
    at += block.length;
  }
  return all;
}

/**
 * Stored tokens of all texts. If queries and keys are the same tokens, `queries` and `keys` are the
 * same object.
 */
export class Texts {
  readonly vocabulary: readonly string[];
  readonly queries: Tokens;
  readonly keys: Tokens;

  constructor({ numbers, vocabulary, queries, keys }: AtlasTexts) {
    this.vocabulary = vocabulary;
    this.queries = new Tokens(numbers, queries);
    this.keys = keys ? new Tokens(numbers, keys) : this.queries;
  }

  nameOf(side: Tokens, token: number): string {
    return this.vocabulary[side.entries[token] ?? -1] ?? "";
  }
}

/** Weight from a query to a key of one text. */
export interface Edge {
  weight: number;
  /** Number of the text in the corpus. */
  text: number;
  /** Position of the query in the text. */
  query: number;
  /** Position of the key in the text. */
  key: number;
}

/** Edges of a layer. The edges of head 0 come first, then those of head 1, and so on. */
export class Edges {
  readonly weight: Float32Array;
  readonly text: Int32Array;
  readonly query: Int32Array;
  readonly key: Int32Array;
  /** Index in `Texts.queries` of each edge's query, or -1 if the token is not stored. */
  readonly queryToken: Int32Array;
  /** Index in `Texts.keys` of each edge's key, or -1 if the token is not stored. */
  readonly keyToken: Int32Array;
  readonly #starts: Int32Array;

  /** @param heads number of heads of the layer, including heads without edges. */
  constructor(columns: AtlasEdgeColumns, heads: number, texts: Texts) {
    this.weight = Float32Array.from(columns.weight);
    this.text = Int32Array.from(columns.text);
    this.query = Int32Array.from(columns.query);
    this.key = Int32Array.from(columns.key);
    const at = (side: Tokens, positions: Int32Array): Int32Array =>
      positions.map((position, i) => side.at(this.text[i] as number, position));
    this.queryToken = at(texts.queries, this.query);
    this.keyToken = at(texts.keys, this.key);
    this.#starts = new Int32Array(heads + 1);
    let head = 0;
    columns.head.forEach((edgeHead, i) => {
      while (head < edgeHead) this.#starts[++head] = i;
    });
    while (head < heads) this.#starts[++head] = columns.head.length;
  }

  /** Return the index of a head's first edge, and the index after its last edge. */
  of(head: number): [number, number] {
    return [this.#starts[head] ?? 0, this.#starts[head + 1] ?? 0];
  }

  edge(i: number): Edge {
    return {
      weight: this.weight[i] as number,
      text: this.text[i] as number,
      query: this.query[i] as number,
      key: this.key[i] as number,
    };
  }

  get bytes(): number {
    return 24 * this.weight.length;
  }
}

export interface LayerEdges {
  strongest: Edges;
  sampled: Edges;
}

/** Mean weights by offset of all heads in a layer. */
export interface Offsets {
  layer: number;
  /** Number of bins: one per offset, and the bins "first" and "rest". */
  bins: number;
  /** Weights of shape [heads][bins]. NaN if no query-key pair is in the bin. */
  weights: Float32Array;
}

async function parsed<T>(first: Reply, more: (part: number) => Promise<Reply>): Promise<T> {
  const bytes = await inflate(await joinParts(first, more));
  return JSON.parse(new TextDecoder().decode(bytes)) as T;
}

export async function tableOf(
  source: Source,
  stack: AtlasStack,
  signal?: AbortSignal,
): Promise<Table> {
  const request = { stack: stack.name };
  const read = async (reply: Reply): Promise<Table> =>
    new Table(
      stack,
      await parsed<AtlasTable>(reply, (part) =>
        source.transport.request("statistics", { ...request, part }, signal),
      ),
    );
  const bytes = 32 * countHeads(stack) * stack.statistics.length;
  return source.fetch("statistics", request, read, () => bytes, signal);
}

export async function textsOf(source: Source, stack: string, signal?: AbortSignal): Promise<Texts> {
  const read = async (reply: Reply): Promise<Texts> =>
    new Texts(
      await parsed<AtlasTexts>(reply, (part) =>
        source.transport.request("texts", { stack, part }, signal),
      ),
    );
  const bytes = ({ queries, vocabulary }: Texts): number =>
    queries.count * (8 + 2 * queries.classes.length) + 40 * vocabulary.length;
  return source.fetch("texts", { stack }, read, bytes, signal);
}

/** Load the edges of a layer and look up their tokens in `texts`. */
export async function edgesOf(
  source: Source,
  stack: AtlasStack,
  layer: number,
  texts: Texts,
  signal?: AbortSignal,
): Promise<LayerEdges> {
  const request = { stack: stack.name, layer };
  const heads = stack.heads_per_layer[stack.layers.indexOf(layer)] ?? 0;
  const read = async (reply: Reply): Promise<LayerEdges> => {
    const answer = await parsed<AtlasEdges>(reply, (part) =>
      source.transport.request("edges", { ...request, part }, signal),
    );
    return {
      strongest: new Edges(answer.strongest, heads, texts),
      sampled: new Edges(answer.sampled, heads, texts),
    };
  };
  const bytes = ({ strongest, sampled }: LayerEdges): number => strongest.bytes + sampled.bytes;
  return source.fetch("edges", request, read, bytes, signal);
}

export async function offsetsOf(
  source: Source,
  stack: AtlasStack,
  layer: number,
  signal?: AbortSignal,
): Promise<Offsets> {
  const read = ({ header, data }: Reply): Offsets => {
    const { bins } = header as { bins: number };
    const bytes = asBytes(data ?? new ArrayBuffer(0));
    const heads = stack.heads_per_layer[stack.layers.indexOf(layer)] ?? 0;
    if (bytes.length !== 4 * bins * heads || bins !== stack.offsets.length) {
      throw new Error(
        `The reply has ${bytes.length} bytes for ${bins} offsets, but ${heads} heads need ${stack.offsets.length} offsets each.`,
      );
    }
    return { layer, bins, weights: new Float32Array(bytes.slice().buffer) };
  };
  const request = { stack: stack.name, layer };
  return source.fetch("offsets", request, read, (o) => o.weights.byteLength, signal);
}

/** Mean weights of one head from each class of query tokens to each class of key tokens. */
export interface ClassWeights {
  layer: number;
  head: number;
  /** Name of the class system. */
  system: string;
  /** Number of classes in the system. */
  classes: number;
  /** Weights of shape [query classes][key classes]. NaN if no query has the class. */
  weights: Float32Array;
}

export async function classWeightsOf(
  source: Source,
  request: ClassesRequest,
  signal?: AbortSignal,
): Promise<ClassWeights> {
  const { layer, head, system } = request;
  const read = ({ header, data }: Reply): ClassWeights => {
    const { classes } = header as ClassesHeader;
    const bytes = asBytes(data ?? new ArrayBuffer(0));
    if (bytes.length !== 4 * classes ** 2) {
      throw new Error(
        `The reply has ${bytes.length} bytes, but ${classes} classes need ${4 * classes ** 2}.`,
      );
    }
    return { layer, head, system, classes, weights: new Float32Array(bytes.slice().buffer) };
  };
  return source.fetch("classes", request, read, (w) => w.weights.byteLength, signal);
}
