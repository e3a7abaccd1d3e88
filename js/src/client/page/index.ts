/**
 * Transport that answers requests from the data of an exported page. Its replies have the same form
 * as those of a kernel. Data that the page contains are called embedded. A small map is the
 * attention matrix of a head, pooled to few cells at the export.
 */

import { LruCache } from "../lru-cache";
import type {
  BlockRequest,
  Combine,
  Description,
  EmbeddedShare,
  ImageHeader,
  ImageRequest,
  LiveRequest,
  LostRequest,
  MapsHeader,
  MapsRequest,
  Pooled,
  RecordReplies,
  RecordRequests,
  ScoresRequest,
  StackDescription,
  StrongestRequest,
  TileRequest,
  VectorsRequest,
} from "../protocol";
import { strongestOf, strongestReply, tokenFilter } from "../requests/strongest";
import { larger } from "../signs";
import type { Scores } from "../source";
import type { Reply, Transport } from "../transport";
import { type EmbeddedRows, type LayerKey, readRows, type WeightRows } from "./rows";
import { checkFormat, inflatedText } from "./texts";
import { parts, pooledMean, runs, type Starts, tileRange } from "./tiles";
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
  format: 2;
  view: string;
  /** Values of the view's traits (its settings and selections) at the time of the export. */
  state: Record<string, unknown>;
  description: Description;
  /** Weights of layers, except layers whose queries and keys are embedded instead. */
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
   * Saved record, with which `attnviz.load` restores the record from the page. Its `arrays` have the
   * queries and keys, or are empty if the page contains weights instead. Omitted if the page contains
   * only the strongest weights.
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
    block: async (args) => blockReply(await this.#rows(args), args),
    maps: (args) => this.#maps(args),
    tile: (args) => this.#tile(args),
    lost: (args) => this.#lost(args),
    scores: (args) => this.#scores(args),
    strongest: (args) => this.#strongest(args),
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
  ): Promise<V> {
    const key = JSON.stringify([kind, stack, layer]);
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

  /** Return the weights of a layer. @throws Error if the page does not contain the layer. */
  #rows(key: LayerKey): Promise<WeightRows> {
    return this.#cached("weights", key, async () => {
      const [weights, chosen] = [await this.#weights(key), await this.#chosen(key)];
      return chosen ? withKindsOfZeros(weights, chosen) : weights;
    });
  }

  async #weights(key: LayerKey): Promise<WeightRows> {
    const block = findLayer(this.#data.blocks, key);
    if (block) return readRows(block);
    if (shapeOfVectors(this.#saved, key)[0] === 0) {
      throw new Error(`This page does not contain layer ${key.layer} of “${key.stack}”.`);
    }
    return computedWeights(await this.#vectors(key), this.#errors(key).error);
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

  async #lost({ heads, query, ...key }: LostRequest): Promise<PageReply<"lost">> {
    const chosen = await this.#chosen(key);
    const lost = chosen ? heads.map((head) => chosen.lost(head, query)) : [];
    return { header: { lost }, data: null };
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

  async #maps(request: MapsRequest): Promise<PageReply<"maps">> {
    const { blocks, maps, embedded } = this.#data;
    const block = findLayer(blocks, request);
    const [numHeads, numRows, numColumns] = block?.shape ?? shapeOfVectors(this.#saved, request);
    const numWeights = numHeads * numRows * numColumns;
    const smallMaps = findLayer(maps, request);
    const isPart = request.rows !== undefined || request.columns !== undefined;
    // If the page has only the strongest weights of each row, maps that are pooled from them would
    // show which keys were chosen, and not the small weights. The embedded maps were pooled from
    // all weights.
    const canPool =
      embedded?.[request.stack]?.form !== "strongest" && numWeights <= MAX_POOLED_WEIGHTS;
    const isFiner = smallMaps && request.size > Math.max(smallMaps.shape[1], smallMaps.shape[2]);
    // The embedded maps cover the whole text. To show a part of the text, they are too coarse.
    const needsPooling = !smallMaps || (numWeights > 0 && (isPart || (isFiner && canPool)));
    const weights = needsPooling
      ? await this.#rows(request)
      : await this.#cached("maps", request, () => readRows(smallMaps));
    const [count, rows, columns] = weights.shape;
    const heads = request.heads ?? Array.from({ length: count }, (_, head) => head);
    if (!needsPooling)
      return blockReply(weights, { heads, rows: [0, rows], columns: [0, columns] });
    const starts = {
      rows: parts(request.rows ?? [0, rows], request.size),
      columns: parts(request.columns ?? [0, columns], request.size),
    };
    const groups = heads.map((head) => [head]);
    return pooledReply(weights, groups, starts, "max");
  }

  async #tile(request: TileRequest): Promise<PageReply<"tile">> {
    const weights = await this.#rows(request);
    const cellSize = 2 ** request.level;
    const starts = {
      rows: runs(tileRange(request.row, request.level, weights.shape[1]), cellSize),
      columns: runs(tileRange(request.column, request.level, weights.shape[2]), cellSize),
    };
    return pooledReply(weights, [request.heads], starts, request.pooled);
  }

  #scores(request: ScoresRequest): PageReply<"scores"> {
    const patternScores = this.#data.scores?.find(
      (entry) => entry.stack === request.stack && entry.pattern === request.pattern,
    );
    if (!patternScores)
      throw new Error(`This page does not contain scores for “${request.pattern}”.`);
    return { header: patternScores, data: null };
  }

  async #strongest(request: StrongestRequest): Promise<PageReply<"strongest">> {
    const { stacks } = this.#data.description;
    const stack = stacks.find((entry) => entry.name === request.stack) as StackDescription;
    const queries = stack.query_tokens;
    const sides = { queries, keys: stack.key_tokens ?? queries };
    const filter = tokenFilter(sides, request.leave_out, request.pair);
    const weights = await this.#rows(request);
    const numKeys = weights.shape[2];
    const groups =
      request.combine === "separate" ? request.heads.map((head) => [head]) : [request.heads];
    const matrices = groups.map((heads) => {
      const rowAt = combinedRows(weights, heads, request.combine);
      return strongestOf(rowAt, request, numKeys, filter);
    });
    return strongestReply(matrices, request.rows, Math.min(request.k, numKeys));
  }

  async #image({ index }: ImageRequest): Promise<PageReply<"image">> {
    const image = this.#data.images?.[index];
    if (!image) throw new Error(`This page does not contain image ${index}.`);
    return { header: image, data: await inflatedText(image.data) };
  }
}

function findLayer<T extends LayerKey>(entries: T[], { stack, layer }: LayerKey): T | undefined {
  return entries.find((entry) => entry.stack === stack && entry.layer === layer);
}

/**
 * Return a function that returns a row of weights: those of one head, or the mean or maximum of
 * several heads. The next call may overwrite the returned row.
 */
function combinedRows(
  weights: WeightRows,
  heads: readonly number[],
  combine: Combine,
): (row: number) => Float32Array {
  const combined = new Float32Array(weights.shape[2]);
  const headRow = new Float32Array(weights.shape[2]);
  return (row) => {
    combined.fill(0);
    if (combine !== "max") {
      weights.add(heads, row, 0, combined);
      return heads.length > 1 ? combined.map((value) => value / heads.length) : combined;
    }
    for (const head of heads) {
      weights.add([head], row, 0, headRow.fill(0));
      headRow.forEach((value, key) => {
        combined[key] = larger(combined[key] as number, value);
      });
    }
    return combined;
  };
}

/** Return a reply with float32 values. Its maximum and error are those of the embedded weights. */
function replyOf(
  weights: WeightRows,
  values: Float32Array,
  shape: [number, number, number],
): Reply<MapsHeader> {
  const { maximum, error, sampled } = weights;
  const header: MapsHeader = { shape, encoding: "float32", maximum, error };
  return { header: { ...header, ...(sampled && { sampled }) }, data: values };
}

/** Return a reply with the weights of heads for a range of queries and of keys. */
function blockReply(
  weights: WeightRows,
  { heads, rows, columns }: Pick<BlockRequest, "heads" | "rows" | "columns">,
): Reply<MapsHeader> {
  const [top, bottom] = rows;
  const [left, right] = columns;
  const width = right - left;
  const values = new Float32Array(heads.length * (bottom - top) * width);
  let offset = 0;
  for (const head of heads) {
    for (let row = top; row < bottom; row++) {
      weights.add([head], row, left, values.subarray(offset, offset + width));
      offset += width;
    }
  }
  return replyOf(weights, values, [heads.length, bottom - top, width]);
}

/**
 * Return a reply with one pooled matrix for each group of heads: the mean of the heads, pooled to
 * cells.
 */
function pooledReply(
  weights: WeightRows,
  groups: readonly (readonly number[])[],
  starts: Starts,
  pooled: Pooled,
): Reply<MapsHeader> {
  const [numRows, numColumns] = [starts.rows.length - 1, starts.columns.length - 1];
  const values = new Float32Array(groups.length * numRows * numColumns);
  groups.forEach((heads, i) => {
    values.set(pooledMean(weights, heads, starts, pooled), i * numRows * numColumns);
  });
  return replyOf(weights, values, [groups.length, numRows, numColumns]);
}

/**
 * Function that creates the transport of a record's page. Undefined in the bundle for widgets,
 * which never read an exported page.
 */
export const recordTransport =
  BUNDLE_FOR === "widget" ? undefined : (data: PageData): Transport => new PageTransport(data);
