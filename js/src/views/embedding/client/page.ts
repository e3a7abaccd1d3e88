/**
 * Transport that answers the requests of the embedding view from the data of an exported page.
 *
 * A page contains the first two principal components of each head as 16-bit numbers. Their high
 * bytes are stored separately from their low bytes. The small plots of the overview use only the
 * high bytes. The plot of the enlarged head uses both.
 */

import { fromBase64, inflate } from "../../../client/codec";
import type { Handlers, PageData } from "../../../client/page";
import type {
  AggregateHeader,
  CorpusPoints,
  CorpusRequest,
  CorpusRequests,
  LinesRequest,
  OverviewRequest,
  ProjectionHeader,
} from "../../../client/protocol";
import type { Connection, Reply, Transport } from "../../../client/transport";
import { Corpus } from "./corpus";
import type {
  HeadRequest,
  HeadTrust,
  Placing,
  Projecting,
  ProjectionRequest,
  ProjectionWork,
  TrustRequest,
} from "./requests";

/** Header of one head's plot. */
interface PageHead {
  head: number;
  low: [number, number];
  size: number;
  explained: number[] | null;
  factor: number;
  problem: string | null;
}

/** Data of one layer. Each string is base64 of bytes that are compressed with deflate. */
interface PageLayer {
  layer: number;
  heads: PageHead[];
  /**
   * Four consecutive arrays of shape [heads][points]: the high bytes of x, the high bytes of y, the
   * low bytes of x, and the low bytes of y.
   */
  points: string;
  norms: { low: number[]; high: number[]; data: string };
  trust: (HeadTrust | null)[];
  aggregate: AggregateHeader & {
    /**
     * Largest mean weight of each head. A code c > 0 stands for the mean weight `maximum` * ((c -
     * 1) / 254)². Code 0 stands for -1, which marks a bin without an allowed pair.
     */
    maximum: number[];
    data: string;
  };
  /**
   * Three consecutive byte arrays of shape [heads][rank][queries]. The first array has a code c for
   * each weight, which is (c / 255)². Code 0 means that the query has no further key. The other
   * arrays have the low and the high byte of the key's index among the key points of the query's
   * text. Null if the page contains no strongest keys.
   */
  keys: string | null;
}

interface PageCorpus {
  stack: string;
  corpus: string;
  /** Number of points. */
  count: number;
  layers: PageLayer[];
}

/** A plot that the page contains in addition to the first two principal components of each head. */
interface PageProjection extends Projecting {
  stack: string;
  layer: number;
  head: number;
  header: ProjectionHeader;
  trust: HeadTrust | null;
  data: string;
}

export interface EmbeddingPageData extends PageData {
  embedding: {
    /** Placing of the vectors of all plots in the page: scaling, moving and lift. */
    placing: Placing;
    /** Number of strongest keys that the page contains for each query. */
    top_keys: number;
    /**
     * Bytes that `count` strongest keys per query would add to the page. Null if the page already
     * contains strongest keys.
     */
    top_keys_add: { count: number; bytes: number } | null;
    stacks: PageCorpus[];
    projections: PageProjection[];
  };
}

/** Maximum number of points per head in the overview. */
const MAX_POINTS = 10_000;

/** Return a string that identifies a plot. Settings that the method does not use are omitted. */
function keyOf({ stack, layer, head, ...how }: ProjectionRequest | PageProjection): string {
  const { method, dimensions, perplexity, neighbors, seed } = how;
  const setting = method === "tsne" ? perplexity : method === "umap" ? neighbors : null;
  return JSON.stringify([stack, layer, head, method, dimensions, setting, setting && seed]);
}

function isEmbeddedForAll({ method, dimensions }: Projecting): boolean {
  return method === "pca" && dimensions === 2;
}

/** Return a size: "3.4 MB", "64 kB". */
function sizeOf(bytes: number): string {
  return bytes >= 1e6 ? `${(bytes / 1e6).toFixed(1)} MB` : `${Math.ceil(bytes / 1e3)} kB`;
}

/** Transport that answers from a page's data. */
export class EmbeddingPageTransport implements Transport {
  readonly live = false;
  readonly #data: EmbeddingPageData;
  readonly #answers: Handlers<CorpusRequests>;
  // Cache of inflated data. The key is the base64 text of the compressed data.
  readonly #inflated = new Map<string, Promise<Uint8Array>>();
  readonly #corpora = new Map<string, Promise<Corpus>>();

  /** @throws Error if the format of the data is not supported. */
  constructor(data: EmbeddingPageData) {
    if (data.format !== 2) {
      throw new Error(
        `The page’s data have format ${String(data.format)}, but only format 2 is supported.`,
      );
    }
    this.#data = data;
    this.#answers = {
      describe: () => ({ header: data.description, data: null }),
      corpus: (args) => this.#corpus(args),
      overview: (args) => this.#overview(args),
      projection: (args) => this.#projection(args as ProjectionRequest),
      cancel: () => ({ header: {}, data: null }),
      trust: (args) => this.#trust(args as TrustRequest),
      norms: (args) => this.#norms(args),
      aggregate: (args) => this.#aggregate(args),
      lines: (args) => this.#lines(args),
    };
  }

  async request(name: string, args: object): Promise<Reply> {
    const answer = (this.#answers as Handlers<Record<string, object>>)[name];
    if (!answer) throw new Error(`An exported page cannot answer “${name}”.`);
    return answer(args);
  }

  retry(): void {}

  watch(listener: (connection: Connection) => void): void {
    listener("ready");
  }

  #bytes(text: string): Promise<Uint8Array> {
    const promise = this.#inflated.get(text) ?? inflate(fromBase64(text));
    this.#inflated.set(text, promise);
    return promise;
  }

  #stack(name: string): PageCorpus {
    const pageCorpus = this.#data.embedding.stacks.find((candidate) => candidate.stack === name);
    if (!pageCorpus) throw new Error(`This page contains no points of “${name}”.`);
    return pageCorpus;
  }

  #layer(stack: string, layer: number): PageLayer {
    const pageLayer = this.#stack(stack).layers.find((candidate) => candidate.layer === layer);
    if (!pageLayer)
      throw new Error(`This page contains no points of layer ${layer} of “${stack}”.`);
    return pageLayer;
  }

  /** Return the data of a layer, and the index of a head in these data. */
  #head({ stack, layer, head }: HeadRequest): [PageLayer, number] {
    const pageLayer = this.#layer(stack, layer);
    const headIndex = pageLayer.heads.findIndex((candidate) => candidate.head === head);
    if (headIndex < 0) throw new Error(`This page contains no head ${head} of layer ${layer}.`);
    return [pageLayer, headIndex];
  }

  /**
   * Check that the plots of the page have the placing `placing`.
   *
   * @throws Error if they have another placing.
   */
  #expectPlacing(placing: Placing): void {
    const { scaling, translate, lift } = this.#data.embedding.placing;
    if (placing.scaling === scaling && placing.translate === translate && placing.lift === lift)
      return;
    const [moved, lifted] = [translate ? "moved" : "not moved", lift ? "lifted" : "not lifted"];
    throw new Error(
      `This page contains plots of one placing: scaling “${scaling}”, keys ${moved}, ${lifted}. ` +
        "Other plots need the notebook that made this page.",
    );
  }

  #corpus({ stack }: CorpusRequest): Reply {
    return { header: { parts: 1 }, data: fromBase64(this.#stack(stack).corpus) };
  }

  async #overview({ stack, layers, placing }: OverviewRequest): Promise<Reply> {
    this.#expectPlacing(placing);
    const { count } = this.#stack(stack);
    const stride = Math.max(1, Math.ceil(count / MAX_POINTS));
    const points = Math.ceil(count / stride);
    const pageLayers = layers.map((layer) => this.#layer(stack, layer));
    const heads = pageLayers.flatMap(({ layer, heads }) =>
      heads.map(({ head, problem }) => ({ layer, head, problem })),
    );
    const data = new Uint8Array(2 * points * heads.length);
    let at = 0;
    for (const layer of pageLayers) {
      const planes = await this.#bytes(layer.points);
      const plane = layer.heads.length * count;
      for (let headIndex = 0; headIndex < layer.heads.length; headIndex++) {
        for (let point = 0; point < count; point += stride) {
          data[at++] = planes[headIndex * count + point] as number;
          data[at++] = planes[plane + headIndex * count + point] as number;
        }
      }
    }
    return { header: { stride, points, heads }, data };
  }

  async #projection(request: ProjectionRequest): Promise<Reply> {
    this.#expectPlacing(request.placing);
    const plot = this.#embedded(request);
    if (plot) return { header: plot.header, data: await this.#bytes(plot.data) };
    // Return the principal components, and the reason in `work`, as the kernel does for a method
    // that cannot run.
    const work = isEmbeddedForAll(request) ? null : this.#notEmbedded(request);
    const [layer, headIndex] = this.#head(request);
    const { count } = this.#stack(request.stack);
    const planes = await this.#bytes(layer.points);
    const plane = layer.heads.length * count;
    const data = new Uint8Array(4 * count);
    for (let point = 0, at = 0; point < count; point++) {
      const from = headIndex * count + point;
      data[at++] = planes[2 * plane + from] as number;
      data[at++] = planes[from] as number;
      data[at++] = planes[3 * plane + from] as number;
      data[at++] = planes[plane + from] as number;
    }
    const { head: _, ...header } = layer.heads[headIndex] as PageHead;
    return { header: { dimensions: 2, count, ...header, work }, data };
  }

  #embedded(request: ProjectionRequest): PageProjection | undefined {
    return this.#data.embedding.projections.find(
      (projection) => keyOf(projection) === keyOf(request),
    );
  }

  #notEmbedded(request: ProjectionRequest): ProjectionWork {
    const others = this.#data.embedding.projections
      .filter(
        (projection) =>
          keyOf(projection) ===
          keyOf({ ...request, layer: projection.layer, head: projection.head }),
      )
      .map(({ layer, head }) => `layer ${layer}, head ${head}`);
    const of = others.length > 0 ? ` (only that of ${others.join("; ")})` : "";
    const words =
      `This page does not contain this plot${of}. The principal components are shown instead. ` +
      "Save the page while the plot is shown to include it.";
    return { state: "failed", done: 0, num_total: 0, words };
  }

  #trust(request: TrustRequest): Reply {
    this.#expectPlacing(request.placing);
    const { heads, ...rest } = request;
    const trust = heads.map((head) => {
      const plot = this.#embedded({ ...rest, head });
      if (plot) return plot.trust;
      const [layer, headIndex] = this.#head({ ...rest, head });
      return layer.trust[headIndex] ?? null;
    });
    return { header: { heads: trust }, data: null };
  }

  async #norms(request: HeadRequest): Promise<Reply> {
    const [{ norms }, headIndex] = this.#head(request);
    const { count } = this.#stack(request.stack);
    const codes = (await this.#bytes(norms.data)).subarray(
      headIndex * count,
      (headIndex + 1) * count,
    );
    // The page has one byte per norm, but the reply has two. Repeating the byte maps 255, the
    // highest byte, to 65535, the highest 16-bit code.
    const data = new Uint8Array(2 * count);
    codes.forEach((code, point) => {
      data.fill(code, 2 * point, 2 * point + 2);
    });
    return { header: { low: norms.low[headIndex], high: norms.high[headIndex] }, data };
  }

  async #aggregate(request: HeadRequest): Promise<Reply> {
    const [{ aggregate }, headIndex] = this.#head(request);
    const { maximum, data, ...header } = aggregate;
    const cells = header.rows * header.columns;
    const codes = (await this.#bytes(data)).subarray(headIndex * cells, (headIndex + 1) * cells);
    const largest = maximum[headIndex] ?? 0;
    const weights = Float32Array.from(codes, (code) =>
      code === 0 ? -1 : largest * ((code - 1) / 254) ** 2,
    );
    return { header: { ...header, coded: largest }, data: weights };
  }

  /** Return the parsed corpus of a stack. */
  #parsed(stack: string): Promise<Corpus> {
    const parse = async (): Promise<Corpus> => {
      const bytes = await inflate(fromBase64(this.#stack(stack).corpus));
      return new Corpus(stack, JSON.parse(new TextDecoder().decode(bytes)) as CorpusPoints);
    };
    const corpus = this.#corpora.get(stack) ?? parse();
    this.#corpora.set(stack, corpus);
    return corpus;
  }

  async #lines({ point, ...request }: LinesRequest): Promise<Reply> {
    const [{ keys, heads }, headIndex] = this.#head(request);
    const { top_keys: ranks, top_keys_add: add } = this.#data.embedding;
    if (keys === null) {
      const cost = add && ` Pass top_keys=${add.count} to add them (about ${sizeOf(add.bytes)}).`;
      throw new Error(`This page does not contain the strongest keys of its queries.${cost ?? ""}`);
    }
    const corpus = await this.#parsed(request.stack);
    const { numQueries } = corpus;
    if (corpus.isKey(point)) {
      throw new Error("This page contains lines of queries, but no lines of keys.");
    }
    const planes = await this.#bytes(keys);
    const plane = heads.length * ranks * numQueries;
    const [first, last] = corpus.pointsOf("key", corpus.textOf(point));
    const points: number[] = [];
    const weights: number[] = [];
    for (let rank = 0; rank < ranks; rank++) {
      const at = (headIndex * ranks + rank) * numQueries + point;
      const code = planes[at] as number;
      if (code === 0) continue;
      const key = (planes[plane + at] as number) + 256 * (planes[2 * plane + at] as number);
      points.push(first + key);
      weights.push((code / 255) ** 2);
    }
    const covered = weights.reduce((sum, weight) => sum + weight, 0);
    // A code is 255 times the square root of a weight, rounded to an integer. This is the error of
    // the weight if the code is off by 0.5.
    const errors = weights.map((weight) => (Math.sqrt(weight) * 255 + 0.25) / 255 ** 2);
    const error = {
      weight: Math.max(0, ...errors),
      covered: errors.reduce((sum, bound) => sum + bound, 0),
    };
    const stacks = this.#data.description.stacks;
    const causal = stacks.find((stack) => stack.name === request.stack)?.causal;
    let numTotal = last - first;
    // With a causal mask, do not count keys after the query, because it cannot attend to them.
    while (
      causal &&
      numTotal > 0 &&
      corpus.positionOf(first + numTotal - 1) > corpus.positionOf(point)
    )
      numTotal--;
    return { header: { points, weights, covered, num_total: numTotal, error }, data: null };
  }
}

declare const BUNDLE_FOR: "widget" | "page" | undefined;

/** Function that creates the transport of an exported page. Undefined in a widget's bundle. */
export const embeddingPageTransport =
  typeof BUNDLE_FOR === "string" && BUNDLE_FOR === "widget"
    ? undefined
    : (data: PageData): Transport => new EmbeddingPageTransport(data as EmbeddingPageData);
