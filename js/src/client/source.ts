/**
 * Requests of a view to a running kernel or an exported page.
 *
 * A transport sends one request and returns its reply. `Source` splits requests that are too large
 * for one reply, decodes replies, and caches recent answers.
 */

import { type ReadonlySignal, signal } from "@preact/signals";
import { bytesPerValue, decodeReply, inflate } from "./codec";
import { isAbort } from "./kernel";
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
} from "./protocol";
import { withNumber } from "./record-number";
import { type RecordImage, readImage } from "./requests/images";
import {
  dataOf,
  joinParts,
  MAX_REPLY_BYTES,
  type Reply,
  type Requests,
  type Transport,
} from "./transport";

/** Scores of one pattern, by layer and head of a stack. A score is null if it is undefined. */
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

/** Decoded weights, with one matrix for each requested head. */
export interface WeightBlock {
  /** Matrices in row-major order, with `rows * columns` values each. */
  matrices: Float32Array[];
  rows: number;
  columns: number;
  /** Upper bound of the values, or of their absolute values if some are negative. */
  maximum: number;
  /** Largest absolute error of a value. */
  error: number;
  /** Query of each row. Undefined unless the rows are a sample of the queries. */
  sampled?: readonly number[];
  /** Flat index and value of the largest cell of each map. Defined only for maps from a kernel. */
  largest?: [number, number][];
  /** Sampling interval n, if only every n-th query was used. Undefined if all were used. */
  samplingInterval?: number;
}

export interface ExportedFile {
  name: string;
  bytes: Uint8Array<ArrayBuffer>;
}

/**
 * Default maximum size of each cache in bytes. It is enough for more than 20 layers of 12 heads at
 * 256 tokens.
 */
const CACHE_BYTES = 64_000_000;

/** Maximum number of row ranges that are remembered for one head and one range of columns. */
const MAX_RANGES = 8;

interface CachedWeights {
  matrix: Float32Array;
  maximum: number;
  error: number;
}

/** Weights that were requested together, by head. */
type PendingWeights = Promise<Map<number, CachedWeights>>;

/**
 * Split a request by heads, so that each reply has at most `largest` bytes with four bytes per
 * weight. If the rows of one head have more bytes, split by rows as well, with at least one row per
 * request.
 */
export function splitRequest(request: BlockRequest, largest = MAX_REPLY_BYTES): BlockRequest[] {
  const columns = request.columns[1] - request.columns[0];
  const rows = request.rows[1] - request.rows[0];
  const rowBytes = Math.max(1, columns * bytesPerValue("float32"));
  const headsPerPart = Math.floor(largest / (rowBytes * Math.max(1, rows)));
  const parts: BlockRequest[] = [];
  if (headsPerPart >= 1) {
    for (let i = 0; i < request.heads.length; i += headsPerPart) {
      parts.push({ ...request, heads: request.heads.slice(i, i + headsPerPart) });
    }
    return parts;
  }
  const rowsPerPart = Math.max(1, Math.floor(largest / rowBytes));
  for (const head of request.heads) {
    for (let start = request.rows[0]; start < request.rows[1]; start += rowsPerPart) {
      const stop = Math.min(start + rowsPerPart, request.rows[1]);
      parts.push({ ...request, heads: [head], rows: [start, stop] });
    }
  }
  return parts;
}

async function readBlock(reply: Reply): Promise<WeightBlock> {
  const header = reply.header as EncodedHeader & Partial<MapsHeader> & TileHeader;
  const values = await decodeReply(header, dataOf(reply));
  const [count, rows, columns] = header.shape;
  const matrices = Array.from({ length: count }, (_, i) =>
    values.subarray(i * rows * columns, (i + 1) * rows * columns),
  );
  const { maximum, error, sampled, largest, sampling_interval: samplingInterval } = header;
  const optional = {
    ...(sampled && { sampled }),
    ...(largest && { largest }),
    ...(samplingInterval !== undefined && { samplingInterval }),
  };
  return { matrices, rows, columns, maximum, error, ...optional };
}

function bytesOfBlock({ matrices, rows, columns }: WeightBlock): number {
  return 4 * matrices.length * rows * columns;
}

/** Weights of one record and other answers about it, from any transport. */
export class Source {
  readonly transport: Transport;
  /** Number of the record, which changes when another record replaces it. */
  readonly record: ReadonlySignal<number>;
  readonly #blocks: LruCache<CachedWeights>;
  /** Row ranges of the cached blocks, by the key of a request without rows (see `keyOf`). */
  readonly #rows = new Map<string, Range[]>();
  /**
   * Pending answers, by the key of the request. A second caller with the same request waits for the
   * answer to the first request.
   */
  readonly #pending = new Map<string, Promise<unknown>>();
  readonly #answers: LruCache<unknown>;
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
    this.#blocks = new LruCache(cacheBytes, (key) => this.#dropRows(key));
    this.#answers = new LruCache(cacheBytes);
  }

  /**
   * Return the description of the record. Its stack names contain the number of the record (see
   * `record-number.ts`).
   */
  async describe(signal?: AbortSignal): Promise<Description> {
    const number = this.record.peek();
    const description = await this.#describe(signal);
    if (number === 0) return description;
    const stacks = description.stacks.map((stack) => ({
      ...stack,
      name: withNumber(stack.name, number),
    }));
    return { ...description, stacks };
  }

  async #describe(signal?: AbortSignal): Promise<Description> {
    const reply = await this.transport.request("describe", {}, signal);
    if (reply.data === null) return this.#toDescription(reply.header);
    // The description of a long text is deflated and comes in parts.
    const requestPart = async (part: number): Promise<Reply> =>
      this.transport.request("describe", { part }, signal);
    const bytes = await inflate(await joinParts(reply, requestPart));
    return this.#toDescription(JSON.parse(new TextDecoder().decode(bytes)));
  }

  /** Return the weights of the requested heads, rows and columns of a layer. */
  async block(request: BlockRequest, signal?: AbortSignal): Promise<WeightBlock> {
    const weightsByHead = new Map<number, CachedWeights>();
    const takeCached = (heads: number[]): number[] =>
      heads.filter((head) => {
        const cached = this.#blocks.get(keyOf(request, head)) ?? this.#cachedRows(request, head);
        if (cached) weightsByHead.set(head, cached);
        return !cached;
      });
    const collect = async (answer: PendingWeights): Promise<void> => {
      for (const [head, weights] of await answer) weightsByHead.set(head, weights);
    };
    let missing = takeCached(request.heads);
    while (missing.length > 0) {
      const unrequested: number[] = [];
      const waits: Promise<void>[] = [];
      for (const head of missing) {
        const pending = this.#pending.get(keyOf(request, head));
        if (pending) waits.push(collect(pending as PendingWeights).catch(ignoreAbort));
        else unrequested.push(head);
      }
      if (unrequested.length > 0) {
        const keys = unrequested.map((head) => keyOf(request, head));
        waits.push(
          collect(
            this.#register(keys, this.#requestBlock({ ...request, heads: unrequested }, signal)),
          ),
        );
      }
      await Promise.all(waits);
      signal?.throwIfAborted();
      missing = takeCached(missing.filter((head) => !weightsByHead.has(head)));
    }
    const rows = request.rows[1] - request.rows[0];
    const columns = request.columns[1] - request.columns[0];
    const results = request.heads.map((head) => weightsByHead.get(head) as CachedWeights);
    return {
      matrices: results.map((result) => result.matrix),
      rows,
      columns,
      maximum: Math.max(0, ...results.map((result) => result.maximum)),
      error: Math.max(0, ...results.map((result) => result.error)),
    };
  }

  /** Register a pending answer under `keys`, so that other callers can wait for it. */
  #register<T>(keys: readonly string[], answer: Promise<T>): Promise<T> {
    const pending = answer.finally(() => {
      for (const key of keys) this.#pending.delete(key);
    });
    for (const key of keys) this.#pending.set(key, pending);
    return pending;
  }

  /** Request weights, in several requests if they are too large for one reply, and cache them. */
  async #requestBlock(request: BlockRequest, signal?: AbortSignal): PendingWeights {
    const columns = request.columns[1] - request.columns[0];
    const length = (request.rows[1] - request.rows[0]) * columns;
    // The replies of a page have no size limit, so the rows of a head are not split.
    const largest = this.transport.live ? MAX_REPLY_BYTES : Math.max(MAX_REPLY_BYTES, 4 * length);
    const parts = splitRequest(request, largest);
    const received = new Map<number, CachedWeights>();
    await Promise.all(
      parts.map(async (part) => {
        const reply = await this.transport.request("block", part, signal);
        const header = reply.header as EncodedHeader;
        const values = await decodeReply(header, dataOf(reply));
        const size = (part.rows[1] - part.rows[0]) * columns;
        part.heads.forEach((head, i) => {
          const weights = values.subarray(i * size, (i + 1) * size);
          const { maximum, error } = header;
          const target = received.get(head) ?? {
            matrix: size === length ? weights : new Float32Array(length),
            ...{ maximum, error },
          };
          received.set(head, target);
          if (size < length) target.matrix.set(weights, (part.rows[0] - request.rows[0]) * columns);
        });
      }),
    );
    for (const [head, entry] of received) {
      this.#blocks.set(keyOf(request, head), entry, entry.matrix.byteLength);
      this.#noteRows(request, head);
    }
    return received;
  }

  /**
   * Return the requested rows from a cached block of the same columns. Return undefined if no block
   * contains all of these rows.
   */
  #cachedRows(request: BlockRequest, head: number): CachedWeights | undefined {
    const [start, stop] = request.rows;
    const columns = request.columns[1] - request.columns[0];
    for (const rows of this.#rows.get(keyOf({ ...request, rows: null }, head)) ?? []) {
      if (rows[0] > start || rows[1] < stop) continue;
      const cached = this.#blocks.get(keyOf({ ...request, rows }, head));
      if (!cached) continue;
      const bounds = [start, stop].map((row) => (row - rows[0]) * columns);
      return { ...cached, matrix: cached.matrix.subarray(...bounds) };
    }
    return undefined;
  }

  #noteRows(request: BlockOfHead & { rows: Range }, head: number): void {
    const key = keyOf({ ...request, rows: null }, head);
    const ranges = this.#rows.get(key) ?? [];
    this.#rows.set(key, [request.rows, ...ranges].slice(0, MAX_RANGES));
  }

  /** Remove the row range of a block that was dropped from the cache. */
  #dropRows(block: string): void {
    const [stack, layer, head, rows, columns] = JSON.parse(block) as KeyParts;
    const key = keyOf({ stack, layer, rows: null, columns }, head);
    const isOther = ([start, stop]: Range): boolean => start !== rows[0] || stop !== rows[1];
    const remaining = (this.#rows.get(key) ?? []).filter(isOther);
    if (remaining.length > 0) this.#rows.set(key, remaining);
    else this.#rows.delete(key);
  }

  /**
   * Return the maps of heads of a layer. A map is an attention matrix that is pooled to few cells.
   * The value of a cell is the largest weight in it, or the number with the largest absolute value.
   */
  async maps(request: MapsRequest, signal?: AbortSignal): Promise<WeightBlock> {
    return this.fetch("maps", request, readBlock, bytesOfBlock, signal);
  }

  /**
   * Return one tile of a matrix: a square of pooled cells. The cells may be computed from a sample
   * of the queries.
   */
  async tile(request: TileRequest, signal?: AbortSignal): Promise<WeightBlock> {
    return this.fetch("tile", request, readBlock, bytesOfBlock, signal);
  }

  /** Return the scores of all heads of a stack for a pattern, by layer. */
  async scores(stack: string, pattern: string, signal?: AbortSignal): Promise<Scores> {
    const read = ({ header }: Reply): Scores => (header as ScoresHeader).scores;
    const bytesOf = (scores: Scores): number => 8 * scores.flat().length;
    return this.fetch("scores", { stack, pattern }, read, bytesOf, signal);
  }

  /** Return one image of the record. The kernel scales it down if it is too large for a reply. */
  async image(index: number, signal?: AbortSignal): Promise<RecordImage> {
    return this.fetch("image", { index }, readImage, () => MAX_REPLY_BYTES, signal);
  }

  /**
   * Send a request and return its decoded answer, or return the cached answer.
   *
   * @param read decodes the reply. It may request further parts of the answer.
   * @param bytesOf returns the size of the answer, or null if it must not be cached.
   */
  async fetch<N extends keyof Requests, T>(
    name: N,
    request: Requests[N],
    read: (reply: Reply) => T | Promise<T>,
    bytesOf: (answer: T) => number | null,
    signal?: AbortSignal,
  ): Promise<T> {
    const key = this.#keyOf(name, request);
    const send = async (): Promise<T> => {
      const answer = await read(await this.transport.request(name, request, signal));
      const bytes = bytesOf(answer);
      if (bytes !== null) this.#answers.set(key, answer, bytes);
      return answer;
    };
    for (;;) {
      const cached = this.#answers.get(key) as T | undefined;
      if (cached !== undefined) return cached;
      const pending = this.#pending.get(key) as Promise<T> | undefined;
      if (!pending) return this.#register([key], send());
      const answer = await pending.catch(ignoreAbort);
      signal?.throwIfAborted();
      if (answer !== undefined) return answer;
    }
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
    const requestPart = async (part: number): Promise<Reply> =>
      this.transport.request("page", { part, state }, signal, report);
    const first = await requestPart(0);
    const { name } = first.header as PageHeader;
    const bytes = await joinParts(first, requestPart);
    return { name, bytes };
  }
}

/**
 * Return undefined if another caller aborted the shared request, and rethrow any other error.
 * Callers that still wait then send the request again.
 */
function ignoreAbort(reason: unknown): undefined {
  if (!isAbort(reason)) throw reason;
  return undefined;
}

type KeyParts = [string, number, number, Range, Range];

/**
 * Fields of a block request that identify a cached block of one head. `rows` is null if the rows do
 * not matter.
 */
type BlockOfHead = Omit<BlockRequest, "rows" | "heads"> & { rows: Range | null };

function keyOf(request: BlockOfHead, head: number): string {
  const { stack, layer, rows, columns } = request;
  return JSON.stringify([stack, layer, head, rows, columns]);
}
