/**
 * Requests of a view to a running kernel or an exported page.
 *
 * A transport sends one request and returns its reply. `Source` splits requests that are too large
 * for one reply, decodes replies, and caches recent answers. An answer is the decoded content of
 * one or more replies.
 *
 * The weights of a head are a matrix, whose rows are queries and whose columns are keys. A block is
 * a part of this matrix. A map is the matrix, pooled to few cells. A tile is a square part of the
 * matrix, pooled to cells.
 */

import { type ReadonlySignal, signal } from "@preact/signals";
import { decodeReply, inflate } from "./codec";
import { LruCache } from "./lru-cache";
import type {
  BlockRequest,
  Description,
  EncodedHeader,
  MapsHeader,
  MapsRequest,
  PageHeader,
  Range,
  ReplyProgress,
  ScoresHeader,
  StackDescription,
  TileHeader,
  TileRequest,
  TokenList,
} from "./protocol";
import { withNumber } from "./record-number";
import { type RecordImage, readImage } from "./requests/images";
import {
  dataOf,
  joinParts,
  MAX_REPLY_BYTES,
  type Replies,
  type Reply,
  type Requests,
  type Transport,
} from "./transport";

/**
 * Scores of the heads of a stack for one measure (`pattern`), such as "previous token", by layer
 * and head. A score is null if it is undefined.
 */
export type Scores = ScoresHeader["scores"];

/** Return the indices of the heads in a layer: 0, 1, and so on. */
export function headsOf(
  stack: Pick<StackDescription, "layers" | "heads_per_layer">,
  layer: number,
): number[] {
  const count = stack.heads_per_layer[stack.layers.indexOf(layer)] ?? 0;
  return Array.from({ length: count }, (_, head) => head);
}

/** Return the number of heads in all layers of a stack. */
export function countHeads({ heads_per_layer }: Pick<StackDescription, "heads_per_layer">): number {
  return heads_per_layer.reduce((sum, count) => sum + count, 0);
}

/** Size and precision of matrices of decoded weights. */
interface WeightProperties {
  rows: number;
  columns: number;
  /** Upper bound of the values, or of their absolute values if some are negative. */
  maximum: number;
  /** Largest absolute error of a value. */
  error: number;
  /** Query of each row. Undefined unless the rows are a sample of the queries. */
  sampled?: readonly number[] | undefined;
}

/**
 * Decoded weights of a block, of maps or of a tile. A block and maps have one matrix for each
 * requested head. A tile has one matrix: the mean of the requested heads.
 */
export interface WeightBlock extends WeightProperties {
  /** Matrices in row-major order, with `rows * columns` values each. */
  matrices: Float32Array[];
  /** Sampling interval n, if only every n-th query was used. Undefined if all were used. */
  samplingInterval?: number;
}

/** Map of one head: its attention matrix, pooled to few cells. */
export interface HeadMap extends WeightProperties {
  /** Cells in row-major order. */
  values: Float32Array;
  /**
   * Index of the largest cell in `values`, and its weight without the rounding of `values`. Signed
   * numbers are compared by absolute value. Undefined if only rounded weights are known.
   */
  largest?: [number, number] | undefined;
}

export interface ExportedFile {
  name: string;
  bytes: Uint8Array<ArrayBuffer>;
}

/**
 * Default maximum size of the cache in bytes. It is enough for the weights of 40 layers with 12
 * heads at 256 tokens.
 */
const CACHE_BYTES = 128_000_000;

/**
 * Maximum number of weights that one request pools to maps. A kernel needs a few tenths of a second
 * for this.
 */
const MAX_POOLED_WEIGHTS = 1 << 24;

/** Maximum number of row ranges that are cached for one head and one range of columns. */
const MAX_RANGES = 8;

/** Weights of some rows of one head. */
interface HeadRows {
  rows: Range;
  matrix: Float32Array;
  maximum: number;
  error: number;
}

/**
 * Heads whose data (rows of weights or a map) are needed, and functions that look these data up in
 * the cache or request them.
 */
interface HeadAnswers<T> {
  heads: readonly number[];
  /**
   * Return the key of a head in `Source.#pending`, by which another caller finds its pending
   * answer.
   */
  keyOf: (head: number) => string;
  /** Return the cached data of a head, or undefined if none are cached. */
  cached: (head: number) => T | undefined;
  /** Request the data of some heads and cache them. `ended` cancels the request. */
  request: (heads: number[], ended: AbortSignal) => Promise<Map<number, T>>;
  maxHeadsPerRequest?: number;
}

/** Answer that was requested and has not arrived. */
interface Pending<T> {
  answer: Promise<T>;
  /** Number of callers that wait for the answer. */
  callers: number;
  cancel: () => void;
}

/**
 * Split a request into parts with fewer heads and, if necessary, fewer rows. A part has at most
 * `maxRows` rows, counted for each of its heads, but at least one row of each head.
 *
 * @param combined whether a part must contain all heads, because their rows are combined.
 */
export function splitRequest<R extends { heads: number[]; rows: Range }>(
  request: R,
  maxRows: number,
  combined = false,
): R[] {
  const { heads } = request;
  const [start, stop] = request.rows;
  const fittingHeads = combined ? heads.length : Math.floor(maxRows / (stop - start));
  const headsPerPart = Math.max(1, Math.min(heads.length, fittingHeads));
  const rowsPerPart = Math.max(1, Math.floor(maxRows / headsPerPart));
  const parts: R[] = [];
  for (const headsOfPart of chunksOf(heads, headsPerPart)) {
    for (let row = start; row < stop; row += rowsPerPart) {
      const rows: Range = [row, Math.min(row + rowsPerPart, stop)];
      parts.push({ ...request, heads: headsOfPart, rows });
    }
  }
  return parts;
}

function chunksOf(heads: readonly number[], size: number): number[][] {
  const count = Math.ceil(heads.length / size);
  return Array.from({ length: count }, (_, i) => heads.slice(i * size, (i + 1) * size));
}

async function readBlock(reply: Reply): Promise<WeightBlock> {
  const header = reply.header as MapsHeader & TileHeader;
  const values = await decodeReply(header, dataOf(reply));
  const [count, rows, columns] = header.shape;
  const matrices = Array.from({ length: count }, (_, i) =>
    values.subarray(i * rows * columns, (i + 1) * rows * columns),
  );
  const { maximum, error, sampled, sampling_interval: samplingInterval } = header;
  const optional = {
    ...(sampled && { sampled }),
    ...(samplingInterval !== undefined && { samplingInterval }),
  };
  return { matrices, rows, columns, maximum, error, ...optional };
}

/** Return the number of weights that are pooled to the map of one head. */
function pooledWeights(
  { query_tokens, key_tokens, sampled }: StackDescription,
  { size, rows, columns }: MapsRequest,
): number {
  const lengthOf = (range: Range | undefined, tokens: TokenList): number =>
    range ? range[1] - range[0] : tokens.text.length;
  const numRows = lengthOf(rows, query_tokens);
  const numPooled = sampled === undefined ? numRows : Math.min(numRows, size);
  return numPooled * lengthOf(columns, key_tokens ?? query_tokens);
}

/**
 * Requests of a view about its record (or its corpus or atlas), sent over a transport, with a cache
 * of decoded answers.
 */
export class Source {
  readonly transport: Transport;
  /** Number of the record, which changes when another record replaces it. */
  readonly record: ReadonlySignal<number>;
  readonly #cache: LruCache<unknown>;
  /**
   * Pending answers, by the keys of their requests. A second caller that needs the same answer
   * waits for it instead of sending another request.
   */
  readonly #pending = new Map<string, Pending<unknown>>();
  readonly #toDescription: (answer: unknown) => Description;

  /** @param toDescription converts the answer to a Description if the transport sends another format. */
  constructor(
    transport: Transport,
    cacheBytes = CACHE_BYTES,
    toDescription = (answer: unknown) => answer as Description,
  ) {
    this.transport = transport;
    this.record = transport.record ?? signal(0);
    this.#toDescription = toDescription;
    this.#cache = new LruCache(cacheBytes);
  }

  /**
   * Return the description of the record. Its stack names contain the number of the record (see
   * `record-number.ts`).
   */
  async describe(signal?: AbortSignal): Promise<Description> {
    const number = this.record.peek();
    const reply = await this.transport.request("describe", {}, signal);
    let answer = reply.header;
    if (reply.data !== null) {
      // The description of a long text is deflated and comes in parts.
      const requestPart = (part: number) => this.transport.request("describe", { part }, signal);
      const bytes = await inflate(await joinParts(reply, requestPart));
      answer = JSON.parse(new TextDecoder().decode(bytes));
    }
    const description = this.#toDescription(answer);
    const stacks = description.stacks.map((stack) => ({
      ...stack,
      name: withNumber(stack.name, number),
    }));
    return { ...description, stacks };
  }

  /** Return the weights of the requested heads, rows and columns of a layer. */
  async block(request: BlockRequest, signal?: AbortSignal): Promise<WeightBlock> {
    const results = await this.#byHead<HeadRows>(
      {
        heads: request.heads,
        keyOf: (head) => `${blockKey(request, head)} ${request.rows}`,
        cached: (head) => this.#cachedRows(request, head),
        request: (heads, ended) => this.#requestBlock({ ...request, heads }, ended),
      },
      signal,
    );
    return {
      matrices: results.map((result) => result.matrix),
      rows: request.rows[1] - request.rows[0],
      columns: request.columns[1] - request.columns[0],
      maximum: Math.max(0, ...results.map((result) => result.maximum)),
      error: Math.max(0, ...results.map((result) => result.error)),
    };
  }

  /**
   * Return one answer for each head: from the cache, from a pending request, or from a new request.
   *
   * @param onArrival called whenever the answers of one request have arrived.
   */
  async #byHead<T>(
    { heads, keyOf, cached, request, maxHeadsPerRequest = heads.length }: HeadAnswers<T>,
    signal?: AbortSignal,
    onArrival = () => {},
  ): Promise<T[]> {
    const answers = new Map<number, T>();
    const waits = new Set<Pending<Map<number, T>>>();
    const missing = heads.filter((head) => {
      const answer = cached(head);
      const pending = this.#pending.get(keyOf(head)) as Pending<Map<number, T>> | undefined;
      if (answer) answers.set(head, answer);
      else if (pending) waits.add(pending);
      return !answer && !pending;
    });
    for (const chunk of chunksOf(missing, maxHeadsPerRequest))
      waits.add(this.#send(chunk.map(keyOf), (ended) => request(chunk, ended)));
    const arrivals = [...waits].map(async (pending) => {
      for (const [head, answer] of await this.#join(pending, signal)) answers.set(head, answer);
      onArrival();
    });
    await Promise.all(arrivals);
    return heads.map((head) => answers.get(head) as T);
  }

  /** Send a request, and register it under `keys`, so that other callers can wait for its answer. */
  #send<T>(keys: readonly string[], request: (ended: AbortSignal) => Promise<T>): Pending<T> {
    const controller = new AbortController();
    const remove = (): void => {
      for (const key of keys) if (this.#pending.get(key) === pending) this.#pending.delete(key);
    };
    const pending: Pending<T> = {
      answer: request(controller.signal).finally(remove),
      callers: 0,
      cancel: () => {
        remove();
        controller.abort();
      },
    };
    for (const key of keys) this.#pending.set(key, pending);
    return pending;
  }

  /** Wait for a pending answer. Its request is cancelled when all of its callers have cancelled. */
  async #join<T>(pending: Pending<T>, signal?: AbortSignal): Promise<T> {
    pending.callers++;
    const leave = (): void => {
      pending.callers--;
      // A view often cancels a request and at once sends another one that needs the same answer.
      // Therefore check whether callers remain only after the current code has run.
      queueMicrotask(() => {
        if (pending.callers === 0) pending.cancel();
      });
    };
    if (signal?.aborted) leave();
    else signal?.addEventListener("abort", leave);
    try {
      const answer = await pending.answer;
      signal?.throwIfAborted();
      return answer;
    } finally {
      signal?.removeEventListener("abort", leave);
    }
  }

  /** Request weights, in several requests if they are too large for one reply, and cache them. */
  async #requestBlock(request: BlockRequest, signal: AbortSignal): Promise<Map<number, HeadRows>> {
    const columns = request.columns[1] - request.columns[0];
    const length = (request.rows[1] - request.rows[0]) * columns;
    const rowBytes = Math.max(1, 4 * columns);
    // Without a limit, the rows of a head are not split.
    const largest = this.transport.maxReplyBytes ?? Math.max(MAX_REPLY_BYTES, 4 * length);
    const received = new Map<number, HeadRows>();
    await Promise.all(
      splitRequest(request, largest / rowBytes).map(async (part) => {
        const reply = await this.transport.request("block", part, signal);
        const { maximum, error } = reply.header as EncodedHeader;
        const values = await decodeReply(reply.header as EncodedHeader, dataOf(reply));
        const size = (part.rows[1] - part.rows[0]) * columns;
        part.heads.forEach((head, i) => {
          const weights = values.subarray(i * size, (i + 1) * size);
          const matrix =
            size === length ? weights : (received.get(head)?.matrix ?? new Float32Array(length));
          received.set(head, { rows: request.rows, matrix, maximum, error });
          if (size < length) matrix.set(weights, (part.rows[0] - request.rows[0]) * columns);
        });
      }),
    );
    for (const [head, rows] of received) this.#cacheRows(blockKey(request, head), rows);
    return received;
  }

  /**
   * Return the requested rows of a head from the cache. Return undefined unless one of the cached
   * ranges of rows, for the same columns, contains all of them.
   */
  #cachedRows(request: BlockRequest, head: number): HeadRows | undefined {
    const [start, stop] = request.rows;
    const columns = request.columns[1] - request.columns[0];
    const all = this.#cache.get(blockKey(request, head)) as HeadRows[] | undefined;
    const containing = all?.find(({ rows }) => rows[0] <= start && rows[1] >= stop);
    if (!containing) return undefined;
    const bounds = [start, stop].map((row) => (row - containing.rows[0]) * columns);
    return { ...containing, rows: request.rows, matrix: containing.matrix.subarray(...bounds) };
  }

  /**
   * Cache a range of rows of a head. The cache has at most `MAX_RANGES` ranges for the same head
   * and columns. The oldest ranges are dropped.
   */
  #cacheRows(key: string, newest: HeadRows): void {
    const others = (this.#cache.get(key) as HeadRows[] | undefined) ?? [];
    const kept = [newest, ...others].slice(0, MAX_RANGES);
    const bytes = kept.reduce((sum, { matrix }) => sum + matrix.byteLength, 0);
    this.#cache.set(key, kept, bytes);
  }

  /**
   * Return the maps of heads of a layer. A map is an attention matrix that is pooled to few cells.
   * The value of a cell is the largest weight in it or, for signed numbers, the number with the
   * largest absolute value.
   *
   * @param onArrival called whenever the maps of some heads have arrived.
   */
  async maps(
    stack: StackDescription,
    request: MapsRequest & { heads: number[] },
    signal?: AbortSignal,
    onArrival?: () => void,
  ): Promise<HeadMap[]> {
    const { size } = request;
    const maxHeads = Math.min(
      MAX_REPLY_BYTES / size ** 2,
      MAX_POOLED_WEIGHTS / pooledWeights(stack, request),
    );
    return this.#byHead<HeadMap>(
      {
        heads: request.heads,
        keyOf: (head) => mapKey(request, head),
        cached: (head) => this.cachedMap(request, head),
        request: (heads, ended) => this.#requestMaps({ ...request, heads }, ended),
        maxHeadsPerRequest: Math.max(1, Math.floor(maxHeads)),
      },
      signal,
      onArrival,
    );
  }

  async #requestMaps(
    request: MapsRequest & { heads: number[] },
    signal: AbortSignal,
  ): Promise<Map<number, HeadMap>> {
    const reply = await this.transport.request("maps", request, signal);
    const { largest } = reply.header as MapsHeader;
    const { matrices, ...properties } = await readBlock(reply);
    const maps = new Map<number, HeadMap>();
    request.heads.forEach((head, i) => {
      const values = matrices[i] as Float32Array;
      maps.set(head, { values, ...properties, largest: largest?.[i] });
      this.#cache.set(mapKey(request, head), maps.get(head), values.byteLength);
    });
    return maps;
  }

  /** Return the map of a head if it is cached. */
  cachedMap(request: Omit<MapsRequest, "heads">, head: number): HeadMap | undefined {
    return this.#cache.get(mapKey(request, head)) as HeadMap | undefined;
  }

  /**
   * Return one tile of a matrix: a square of pooled cells. The cells may be computed from a sample
   * of the queries.
   */
  async tile(request: TileRequest, signal?: AbortSignal): Promise<WeightBlock> {
    const bytesOf = ({ rows, columns }: WeightBlock): number => 4 * rows * columns;
    return this.fetch("tile", request, readBlock, bytesOf, signal);
  }

  /**
   * Return a tile if it is cached. The fields of `request` must have the same order as in the call
   * of `tile`, because the cache key is the JSON of the request.
   */
  cachedTile(request: TileRequest): WeightBlock | undefined {
    return this.#cache.get(this.#keyOf("tile", request)) as WeightBlock | undefined;
  }

  /** Return the scores of all heads of a stack for the measure `pattern`, by layer. */
  async scores(stack: string, pattern: string, signal?: AbortSignal): Promise<Scores> {
    const bytesOf = (scores: Scores): number => 8 * scores.flat().length;
    return this.fetch("scores", { stack, pattern }, ({ header }) => header.scores, bytesOf, signal);
  }

  /** Return one image of the record. The kernel scales it down if it is too large for a reply. */
  async image(index: number, signal?: AbortSignal): Promise<RecordImage> {
    return this.fetch("image", { index }, readImage, () => MAX_REPLY_BYTES, signal);
  }

  /**
   * Send a request and return its decoded answer, or return the cached answer.
   *
   * @param read decodes the reply. It may request further parts of the answer.
   * @param bytesOf returns the size of the answer in bytes, or null if it must not be cached.
   */
  async fetch<N extends keyof Requests, T>(
    name: N,
    request: Requests[N],
    read: (reply: Reply<Replies[N]>) => T | Promise<T>,
    bytesOf: (answer: T) => number | null,
    signal?: AbortSignal,
  ): Promise<T> {
    const key = this.#keyOf(name, request);
    const cached = this.#cache.get(key) as T | undefined;
    if (cached !== undefined) return cached;
    const pending = this.#pending.get(key) as Pending<T> | undefined;
    const send = async (ended: AbortSignal): Promise<T> => {
      const reply = await this.transport.request(name, request, ended);
      const answer = await read(reply as Reply<Replies[N]>);
      const bytes = bytesOf(answer);
      if (bytes !== null) this.#cache.set(key, answer, bytes);
      return answer;
    };
    return this.#join(pending ?? this.#send([key], send), signal);
  }

  #keyOf(name: string, request: object): string {
    return JSON.stringify([name, request, this.record.peek()]);
  }

  /**
   * Return the HTML page that the kernel exports for a view in the given state.
   *
   * @param report called with the progress of the export.
   */
  async page(
    state: object,
    signal?: AbortSignal,
    report?: (progress: ReplyProgress) => void,
  ): Promise<ExportedFile> {
    const requestPart = (part: number) =>
      this.transport.request("page", { part, state }, signal, report);
    const first = await requestPart(0);
    return { name: (first.header as PageHeader).name, bytes: await joinParts(first, requestPart) };
  }
}

/**
 * Return the cache key of the weights of a head in a range of columns. The rows are not part of the
 * key, because one entry has several ranges of rows.
 */
function blockKey({ stack, layer, columns }: Omit<BlockRequest, "heads">, head: number): string {
  return JSON.stringify(["block", stack, layer, head, columns]);
}

function mapKey({ stack, layer, size, rows, columns }: MapsRequest, head: number): string {
  return JSON.stringify(["maps", stack, layer, head, size, rows, columns]);
}
