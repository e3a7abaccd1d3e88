/**
 * Data of one stack of an atlas: statistics and roles of its heads, edges, and the tokens around
 * these edges. An edge is the weight from one query to one key of a text.
 *
 * Edges and tokens are stored in typed arrays, because an atlas may have millions of them.
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
} from "../../../client/protocol";
import { countHeads, headsOf, type Scores, type Source } from "../../../client/source";
import { dataOf, joinParts, type Reply, type Requests } from "../../../client/transport";
import type { HeadIndex } from "../../../ui/head-grid/grid";
import { isDotted } from "../../../ui/text/running-text";

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

  /** Return the index in `stack.statistics` of the statistic with a name, or -1. */
  indexOf(name: string): number {
    return this.stack.statistics.findIndex((statistic) => statistic.name === name);
  }

  /** Return the means of a statistic, given by its index, for all heads. */
  means(statistic: number): Scores {
    return this.#answer.means[statistic] ?? [];
  }

  /** Return the value of a statistic, given by its index, for one head. */
  figure(statistic: number, { layer, head }: HeadIndex): Figure {
    const at = this.stack.layers.indexOf(layer);
    const { means, standard_errors, baselines, texts } = this.#answer;
    return {
      mean: means[statistic]?.[at]?.[head] ?? null,
      error: standard_errors[statistic]?.[at]?.[head] ?? null,
      baseline: baselines[statistic]?.[at]?.[head] ?? null,
      texts: texts[statistic]?.[at]?.[head] ?? 0,
    };
  }

  /** Return the name of the strongest role of a head, or null without a role. */
  roleName(head: HeadIndex): string | null {
    const [first] = this.roles(head);
    return (first && this.stack.roles[first.role]?.name) ?? null;
  }

  /** Return the roles of a head, the strongest first. */
  roles({ layer, head }: HeadIndex): readonly AtlasRole[] {
    const at = this.stack.layers.indexOf(layer);
    return this.#answer.roles[at]?.[head] ?? [];
  }
}

/** Return the table of a head's stack. It is the only table if heads have no `stack`. */
export function tableFor(tables: readonly Table[], { stack }: HeadIndex): Table {
  return tables.find((table) => table.stack.name === stack) ?? (tables[0] as Table);
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
    this.entries = new Int32Array(side.tokens.flat());
    this.positions = new Int32Array(side.positions.flat());
    if (this.entries.length !== this.positions.length) {
      throw new Error("The texts of the atlas have tokens without a position.");
    }
  }

  get count(): number {
    return this.positions.length;
  }

  /** Return the indices of a text's stored tokens. */
  of(text: number): number[] {
    return indicesOf(this.#starts, this.#indices.get(text) ?? -1);
  }

  /** Return the index of the token at a position of a text, or -1 if it is not stored. */
  at(text: number, position: number): number {
    const index = this.#indices.get(text) ?? -1;
    const end = this.#starts[index + 1] as number;
    let [low, high] = [this.#starts[index] ?? end, end];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.positions[middle] as number) < position) low = middle + 1;
      else high = middle;
    }
    return low < end && this.positions[low] === position ? low : -1;
  }
}

/** Return the indices from `starts[group]` up to `starts[group + 1]`. The group -1 has none. */
function indicesOf(starts: Int32Array, group: number): number[] {
  const [first, stop] = [starts[group] ?? 0, starts[group + 1] ?? 0];
  return Array.from({ length: stop - first }, (_, i) => first + i);
}

/**
 * Stored tokens of all texts. If queries and keys are the same tokens, `queries` and `keys` are the
 * same object.
 */
export class Texts {
  readonly vocabulary: readonly string[];
  readonly queries: Tokens;
  readonly keys: Tokens;
  /** Whether tokens contain their leading space. */
  readonly dotted: boolean;

  constructor({ numbers, vocabulary, queries, keys }: AtlasTexts) {
    this.vocabulary = vocabulary;
    this.queries = new Tokens(numbers, queries);
    this.keys = keys ? new Tokens(numbers, keys) : this.queries;
    this.dotted = isDotted(vocabulary);
  }

  nameOf(side: Tokens, token: number): string {
    return this.vocabulary[side.entries[token] ?? -1] ?? "";
  }
}

/** Edge: the weight from a query to a key of one text. */
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
  readonly #starts: Int32Array;

  /** @param heads number of heads of the layer, including heads without edges. */
  constructor(columns: AtlasEdgeColumns, heads: number) {
    this.weight = Float32Array.from(columns.weight);
    this.text = Int32Array.from(columns.text);
    this.query = Int32Array.from(columns.query);
    this.key = Int32Array.from(columns.key);
    this.#starts = new Int32Array(heads + 1);
    let head = 0;
    columns.head.forEach((edgeHead, i) => {
      while (head < edgeHead) this.#starts[++head] = i;
    });
    while (head < heads) this.#starts[++head] = columns.head.length;
  }

  /** Return the indices of a head's edges. */
  of(head: number): number[] {
    return indicesOf(this.#starts, head);
  }

  edge(i: number): Edge {
    return {
      weight: this.weight[i] as number,
      text: this.text[i] as number,
      query: this.query[i] as number,
      key: this.key[i] as number,
    };
  }
}

export interface LayerEdges {
  strongest: Edges;
  sampled: Edges;
}

/**
 * Request all parts of a compressed JSON reply, and return the result of `read` for the decoded
 * reply. `bytesOf` returns the size of the result for the cache.
 */
function fetchJson<N extends "statistics" | "texts" | "edges", A, T>(
  source: Source,
  name: N,
  request: Requests[N],
  read: (answer: A) => T,
  bytesOf: (result: T) => number,
  signal?: AbortSignal,
): Promise<T> {
  const join = async (first: Reply): Promise<T> => {
    const parts = await joinParts(first, (part) =>
      source.transport.request(name, { ...request, part }, signal),
    );
    return read(JSON.parse(new TextDecoder().decode(await inflate(parts))) as A);
  };
  return source.fetch(name, request, join, bytesOf, signal);
}

export function tableOf(source: Source, stack: AtlasStack, signal?: AbortSignal): Promise<Table> {
  const read = (answer: AtlasTable): Table => new Table(stack, answer);
  const bytes = 32 * countHeads(stack) * stack.statistics.length;
  return fetchJson(source, "statistics", { stack: stack.name }, read, () => bytes, signal);
}

export function textsOf(source: Source, stack: string, signal?: AbortSignal): Promise<Texts> {
  const read = (answer: AtlasTexts): Texts => new Texts(answer);
  const bytes = ({ queries, vocabulary }: Texts): number =>
    8 * queries.count + 40 * vocabulary.length;
  return fetchJson(source, "texts", { stack }, read, bytes, signal);
}

/** Load the edges of a layer. */
export function edgesOf(
  source: Source,
  stack: AtlasStack,
  layer: number,
  signal?: AbortSignal,
): Promise<LayerEdges> {
  const heads = headsOf(stack, layer).length;
  const read = ({ strongest, sampled }: AtlasEdges): LayerEdges => ({
    strongest: new Edges(strongest, heads),
    sampled: new Edges(sampled, heads),
  });
  const bytes = ({ strongest, sampled }: LayerEdges): number =>
    16 * (strongest.weight.length + sampled.weight.length);
  return fetchJson(source, "edges", { stack: stack.name, layer }, read, bytes, signal);
}

/**
 * Load the mean weights of a layer by offset. The array of a head has one weight per bin of
 * `stack.offsets`, which is NaN if no query-key pair is in the bin.
 */
export function offsetsOf(
  source: Source,
  stack: AtlasStack,
  layer: number,
  signal?: AbortSignal,
): Promise<Float32Array[]> {
  const heads = headsOf(stack, layer);
  const bins = stack.offsets.length;
  const read = (reply: Reply): Float32Array[] => {
    const data = asBytes(dataOf(reply));
    const count = bins * heads.length;
    if (data.length !== 4 * count) {
      throw new Error(
        `The reply has ${data.length} bytes, but ${count} weights need ${4 * count} bytes.`,
      );
    }
    const weights = new Float32Array(data.slice().buffer);
    return heads.map((head) => weights.subarray(head * bins, (head + 1) * bins));
  };
  const bytes = 4 * bins * heads.length;
  return source.fetch("offsets", { stack: stack.name, layer }, read, () => bytes, signal);
}
