/**
 * Transport that answers requests from the data of an exported page. Its replies have the same form
 * as those of a kernel. Data that the page contains are called embedded. A small map is the
 * attention matrix of a head, pooled to few cells at the export.
 */

import { LruCache } from "../lru-cache";
import type {
  Cells,
  CellsHeader,
  Description,
  EmbeddedShare,
  ImageHeader,
  ImageRequest,
  LiveRequest,
  ReadRequest,
  RecordReplies,
  RecordRequests,
  ScoresRequest,
  VectorsRequest,
} from "../protocol";
import type { Scores } from "../source";
import type { Reply, Transport } from "../transport";
import { blockOf, reduced, rowsOf } from "./reductions";
import { type EmbeddedRows, joinParts, type LayerKey, readRows, type WeightRows } from "./rows";
import { checkFormat, inflatedText } from "./texts";
import {
  ALL_SCORED,
  type ChosenKeys,
  computedWeights,
  type LayerVectors,
  readChosen,
  readHeader,
  readVectors,
  type SavedRecord,
  shapeOfVectors,
  type VectorErrors,
  vectorsReply,
  withKindsOfZeros,
} from "./vectors";

/**
 * Data of an exported page. Deflated bytes are stored as strings: base64, or "#id" of an element of
 * the page that contains base64 (see `texts.ts`).
 */
export interface PageData {
  format: 1;
  view: string;
  /** Values of the view's traits (its settings and selections) at the time of the export. */
  state: Record<string, unknown>;
  description: Description;
  /**
   * Weights of layers, in parts with consecutive rows, from the first to the last row. Layers whose
   * queries and keys are embedded instead have no parts.
   */
  blocks: EmbeddedRows[];
  /** Form of the embedded weights of each stack, and the share of all weights that they cover. */
  embedded?: Record<string, EmbeddedShare>;
  /**
   * Small maps of all heads, with one entry for each layer. Empty if the page has all weights and
   * few of them, because pooling them is fast. A layer with a short text may also have no entry,
   * because its maps would be copies of its weights.
   */
  maps: EmbeddedRows[];
  /** Scores of all heads, with one entry for each stack and each measure (`pattern`). */
  scores?: { stack: string; pattern: string; scores: Scores }[];
  /**
   * Saved record, whose `arrays` have the queries and keys. Omitted if the page contains weights
   * instead.
   */
  saved?: SavedRecord;
  /**
   * Masks of the layers of stacks that choose keys, as a saved record whose queries and keys have no
   * dimensions, and the lost weight of each head and query. Omitted if no stack chooses keys.
   */
  chosen?: SavedRecord;
  /**
   * Errors of weights and logits that result from rounding queries and keys, with one entry for
   * each layer.
   */
  errors?: VectorErrors[];
  /** Images that the model received, as deflated bytes with three bytes per pixel. */
  images?: (ImageHeader & { data: string })[];
}

/**
 * If a layer has more weights than this, pooling would take too long. Requests for maps with more
 * cells are then answered with the embedded small maps, unless they are for a part of the text.
 */
const MAX_POOLED_WEIGHTS = 4_000_000;

/** Maximum size of the cache in bytes. A layer that was dropped is inflated again on request. */
const CACHE_BYTES = 64_000_000;

/** Requests that a page answers: all that need no kernel. */
type PageRequest = Exclude<keyof RecordRequests, LiveRequest>;
type PageReply<N extends PageRequest> = Reply<RecordReplies[N]>;
type Handlers = {
  [N in PageRequest]: (args: RecordRequests[N]) => PageReply<N> | Promise<PageReply<N>>;
};

export class PageTransport implements Transport {
  readonly live = false;
  readonly #data: PageData;
  readonly #saved: SavedRecord;
  #savedHeader: ReturnType<typeof readHeader> | null = null;
  /** Cache of the weights, small maps and vectors of layers, which are inflated on request. */
  readonly #layers = new LruCache<Promise<{ bytes: number }>>(CACHE_BYTES);
  readonly #handlers: Handlers = {
    describe: () => ({ header: this.#description(), data: null }),
    read: (args) => this.#read(args),
    scores: (args) => this.#scores(args),
    vectors: (args) => this.#vectorsOfRow(args),
    image: (args) => this.#image(args),
  };

  constructor(data: PageData) {
    checkFormat(data);
    this.#data = data;
    this.#saved = data.saved ?? { header: "", arrays: {} };
  }

  async request(name: string, args: object, signal?: AbortSignal): Promise<Reply> {
    const handler = this.#handlers[name as PageRequest];
    if (!handler) throw new Error(`An exported page cannot answer “${name}”.`);
    const reply = await handler(args as never);
    signal?.throwIfAborted();
    return reply;
  }

  #cached<V extends { bytes: number }>(
    kind: "weights" | "maps" | "vectors" | "chosen",
    { stack, layer }: LayerKey,
    read: () => Promise<V>,
    start = 0,
  ): Promise<V> {
    const key = JSON.stringify([kind, stack, layer, start]);
    const cached = this.#layers.get(key) as Promise<V> | undefined;
    if (cached) return cached;
    const pending = read();
    // The size is unknown until the layer is read, so enter it as 0 first.
    this.#layers.set(key, pending, 0);
    pending.then(
      ({ bytes }) => this.#layers.set(key, pending, bytes),
      () => this.#layers.delete(key),
    );
    return pending;
  }

  /**
   * Return the requested rows of a layer, and perhaps others.
   *
   * @throws Error if the page does not contain the layer.
   */
  async #rows(request: ReadRequest): Promise<WeightRows> {
    const weights = await this.#weights(request);
    const chosen = await this.#chosen(request);
    return chosen ? withKindsOfZeros(weights, chosen) : weights;
  }

  async #weights(request: ReadRequest): Promise<WeightRows> {
    const parts = this.#data.blocks.filter((part) => isOfLayer(part, request));
    if (parts.length > 0) {
      const [top, bottom] = request.rows;
      const requested = parts.filter(
        ({ start = 0, shape }) => start < bottom && start + shape[1] > top,
      );
      const read = (part: EmbeddedRows) =>
        this.#cached("weights", request, () => readRows(part), part.start);
      return joinParts(await Promise.all(requested.map(read)));
    }
    if (shapeOfVectors(this.#saved, request)[0] === 0) {
      throw new Error(`This page does not contain layer ${request.layer} of “${request.stack}”.`);
    }
    return this.#cached("weights", request, async () =>
      computedWeights(await this.#vectors(request), this.#errors(request).error),
    );
  }

  /** Return which keys a layer has chosen, or null if its stack chooses no keys. */
  async #chosen(key: LayerKey): Promise<ChosenKeys | null> {
    const { chosen, description } = this.#data;
    if (!description.stacks.find(({ name }) => name === key.stack)?.chooses_keys) return null;
    if (!chosen || !(`${key.stack}/${key.layer}/lost` in chosen.arrays)) return ALL_SCORED;
    return this.#cached("chosen", key, async () =>
      readChosen(chosen, await readHeader(chosen), key),
    );
  }

  #vectors(key: LayerKey): Promise<LayerVectors> {
    return this.#cached("vectors", key, async () => {
      this.#savedHeader ??= readHeader(this.#saved);
      return readVectors(this.#saved, await this.#savedHeader, key);
    });
  }

  #errors(key: LayerKey): VectorErrors {
    return findLayer(this.#data.errors ?? [], key) as VectorErrors;
  }

  async #vectorsOfRow(request: VectorsRequest): Promise<PageReply<"vectors">> {
    const vectors = await this.#vectors(request);
    const lost = (await this.#chosen(request))?.lost(request.head, request.token);
    return vectorsReply(vectors, request, this.#errors(request), lost);
  }

  /**
   * Return the description of the record. To each of its stacks, add in which form this page stores
   * weights, which share of them it stores, and how large their error is (`EmbeddedShare`).
   */
  #description(): Description {
    const { description, embedded } = this.#data;
    if (!embedded) return description;
    const stacks = description.stacks.map((stack) => {
      const share = embedded[stack.name];
      return share ? { ...stack, embedded: share } : stack;
    });
    return { ...description, stacks };
  }

  async #read(request: ReadRequest): Promise<PageReply<"read">> {
    const { heads, rows, columns, reduce, combine = "separate" } = request;
    const small = reduce?.kind === "cells" ? this.#smallMaps(request, reduce) : undefined;
    if (small) {
      const maps = await this.#cached("maps", request, () => readRows(small));
      const [, numRows, numColumns] = maps.shape;
      const cells = heads.map((head) =>
        blockOf(rowsOf(maps, [head], "separate", 0), [0, numRows], numColumns),
      );
      return replyOf(maps, cells, [numRows, numColumns]);
    }
    const weights = await this.#rows(request);
    const groups = combine === "separate" ? heads.map((head) => [head]) : [heads];
    const matrices = groups.map((group) => {
      const read = rowsOf(weights, group, combine, columns[0]);
      return reduced({ rows, columns, read, heads: group, lost: weights.lost }, reduce);
    });
    const { size = [0, 0] } = matrices[0] ?? {};
    return replyOf(
      weights,
      matrices.map(({ values }) => values),
      size,
    );
  }

  /** Return the small maps of a layer if they answer a request, or undefined if others do. */
  #smallMaps(request: ReadRequest, { max_cells: maxCells }: Cells): EmbeddedRows | undefined {
    const { blocks, maps, embedded } = this.#data;
    const small = findLayer(maps, request);
    if (!small || maxCells === undefined) return undefined;
    const last = blocks.filter((part) => isOfLayer(part, request)).at(-1);
    const { start = 0, shape = shapeOfVectors(this.#saved, request) } = last ?? {};
    const [numHeads, , numColumns] = shape;
    const numRows = start + shape[1];
    const numWeights = numHeads * numRows * numColumns;
    // The embedded maps cover the whole text. To show a part of the text, they are too coarse.
    const { rows, columns } = request;
    const isPart = rows[1] - rows[0] < numRows || columns[1] - columns[0] < numColumns;
    // If the page has only the strongest weights of each row, maps that are pooled from them would
    // show which keys were chosen, and not the small weights. The embedded maps were pooled from
    // all weights.
    const canPool =
      embedded?.[request.stack]?.form !== "strongest" && numWeights <= MAX_POOLED_WEIGHTS;
    const isFiner = maxCells > Math.max(small.shape[1], small.shape[2]);
    return numWeights > 0 && (isPart || (isFiner && canPool)) ? undefined : small;
  }

  #scores(request: ScoresRequest): PageReply<"scores"> {
    const patternScores = this.#data.scores?.find(
      (entry) => entry.stack === request.stack && entry.pattern === request.pattern,
    );
    if (!patternScores)
      throw new Error(`This page does not contain scores for “${request.pattern}”.`);
    return { header: patternScores, data: null };
  }

  async #image({ index }: ImageRequest): Promise<PageReply<"image">> {
    const image = this.#data.images?.[index];
    if (!image) throw new Error(`This page does not contain image ${index}.`);
    return { header: image, data: await inflatedText(image.data) };
  }
}

function isOfLayer(entry: LayerKey, { stack, layer }: LayerKey): boolean {
  return entry.stack === stack && entry.layer === layer;
}

function findLayer<T extends LayerKey>(entries: T[], key: LayerKey): T | undefined {
  return entries.find((entry) => isOfLayer(entry, key));
}

/** Return a reply with matrices of one size. Their maximum and error are those of `weights`. */
function replyOf(
  { maximum, error, sampled }: Pick<WeightRows, "maximum" | "error" | "sampled">,
  matrices: readonly Float32Array[],
  size: [number, number],
): Reply<CellsHeader> {
  const header: CellsHeader = {
    ...{ shape: [matrices.length, ...size], encoding: "float32", maximum, error },
    ...(sampled && { sampled }),
  };
  const values = new Float32Array(matrices.length * size[0] * size[1]);
  matrices.forEach((matrix, i) => {
    values.set(matrix, i * matrix.length);
  });
  return { header, data: values };
}

/**
 * Function that creates the transport of a record's page. Undefined in the bundle for widgets,
 * which never read an exported page.
 */
export const recordTransport =
  BUNDLE_FOR === "widget" ? undefined : (data: PageData): Transport => new PageTransport(data);
