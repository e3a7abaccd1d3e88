/**
 * Data of one stack of an atlas: statistics and roles of its heads, edges, and the tokens around
 * them.
 *
 * Edges and tokens are typed arrays, because there may be millions.
 */

import { asBytes, inflate } from "../../../client/codec";
import type {
  AtlasEdges,
  AtlasRole,
  AtlasStack,
  AtlasTable,
  AtlasTexts,
  AtlasTokens,
  ClassesHeader,
  ClassesRequest,
  EdgeColumns,
} from "../../../client/protocol";
import { countHeads, type Source } from "../../../client/source";
import { joinParts, type Reply } from "../../../client/transport";

/** A statistic of one head. */
export interface Figure {
  /** Mean over texts, or null if it is not defined. */
  mean: number | null;
  /** Standard error of the mean. */
  error: number | null;
  baseline: number | null;
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

  /** @param statistic index in `stack.statistics`. */
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

/** The stored queries or keys of all texts, text by text. */
export class Tokens {
  /** Vocabulary index and position in the text of each token. */
  readonly entries: Int32Array;
  readonly positions: Int32Array;
  /** Class of each token for each system of classes. -1 if unknown. */
  readonly classes: readonly Int16Array[];
  /** Start of each text, followed by the end of the last. */
  readonly #starts: Int32Array;
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

  /** Return the range of a text's stored tokens: the first, and the one after the last. */
  of(text: number): [number, number] {
    const index = this.#indices.get(text);
    if (index === undefined) return [0, 0];
    return [this.#starts[index] as number, this.#starts[index + 1] as number];
  }

  /** Return the token at a position of a text, or -1 if it is not stored. */
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

/** Stored tokens of the texts with edges. */
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

/** One edge. */
export interface Edge {
  weight: number;
  /** Index of the text, and positions in it. */
  text: number;
  query: number;
  key: number;
}

/** Edges of a layer's heads, head by head. */
export class Edges {
  readonly weight: Float32Array;
  readonly text: Int32Array;
  readonly query: Int32Array;
  readonly key: Int32Array;
  /** Indices of both ends in `Texts.queries` and `Texts.keys`. -1 if a token is not stored. */
  readonly queryToken: Int32Array;
  readonly keyToken: Int32Array;
  readonly #starts: Int32Array;

  /** @param heads number of heads of the layer. */
  constructor(columns: EdgeColumns, heads: number, texts: Texts) {
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

  /** Return the range of a head's edges: the first, and the one after the last. */
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

/** Mean weight by offset of each head of a layer. */
export interface Offsets {
  layer: number;
  bins: number;
  /** Weights head by head. NaN if no pair has the offset. */
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

/** Load the edges of a layer's heads and find their tokens in `texts`. */
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

/** Mean weights of one head between classes of tokens. */
export interface ClassWeights {
  layer: number;
  head: number;
  system: string;
  classes: number;
  /** Weights in row-major order by class of query. NaN if no query has the class. */
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
