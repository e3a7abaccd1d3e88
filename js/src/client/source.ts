/**
 * Requests of a view to a running kernel or an exported page.
 *
 * A transport sends one request and returns its reply. `Source` splits requests that are too large
 * for one reply, decodes replies, and caches recent answers. An answer is the decoded content of
 * one or more replies.
 *
 * The weights of a head are a matrix, whose rows are queries and whose columns are keys. Most
 * requests are reads: they ask for a part of the matrices of some heads, which can be combined to
 * one matrix, and reduced, for example to cells or to the strongest keys of each query.
 */

import { type ReadonlySignal, signal } from "@preact/signals";
import { decodeReply, inflate } from "./codec";
import { LruCache } from "./lru-cache";
import type {
  Cells,
  CellsHeader,
  Description,
  PageHeader,
  Range,
  ReadRequest,
  ReplyProgress,
  ScoresHeader,
  StackDescription,
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

/**
 * Answer to a read about one matrix: the weights of a head, or of several combined heads, or what
 * they are reduced to.
 */
export interface Matrix {
  /** Numbers in row-major order. */
  values: Float32Array;
  rows: number;
  columns: number;
  /** Upper bound of the weights, or of their absolute values if some are negative. */
  maximum: number;
  /** Largest absolute error of a weight. */
  error: number;
  /** Query of each row. Undefined unless the rows are a sample of the queries. */
  sampled?: readonly number[] | undefined;
  /** Sampling interval n, if only every n-th query was used. Undefined if all were used. */
  samplingInterval?: number | undefined;
  /**
   * Index of the largest cell in `values`, and its weight without the rounding of `values`. Signed
   * numbers are compared by absolute value. Undefined if only rounded weights are known.
   */
  largest?: [number, number] | undefined;
}

/** Weights of several matrices. */
export interface WeightBlock extends Pick<Matrix, "rows" | "columns" | "maximum" | "error"> {
  matrices: Float32Array[];
}

/** Read of the maps of heads. */
export type MapsRead = ReadRequest & { reduce: Cells };

/** Return the ranges of all queries and of all keys of a stack. */
export function wholeOf({ query_tokens, key_tokens }: StackDescription) {
  const rows: Range = [0, query_tokens.text.length];
  const columns: Range = [0, (key_tokens ?? query_tokens).text.length];
  return { rows, columns };
}

/**
 * Return the read of maps with at most `size` rows and columns of cells. The value of a cell is the
 * largest weight in it or, for signed numbers, the number with the largest absolute value.
 */
export function mapsRead({ size, ...read }: ReadRequest & { size: number }): MapsRead {
  return { ...read, reduce: { kind: "cells", pooled: "max", max_cells: size } };
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

/**
 * Maximum number of weights in which one request searches the strongest keys. A kernel needs a tenth
 * of a second for this, or two tenths on a busy machine.
 */
const MAX_SEARCHED_WEIGHTS = 1 << 23;

/** Maximum number of row ranges that are cached for one matrix and one range of columns. */
const MAX_RANGES = 8;

/** Cached answer, and the rows that it covers. */
interface CachedRows {
  rows: Range;
  matrix: Matrix;
}

/** Answer that was requested and has not arrived. */
interface Pending<T> {
  answer: Promise<T>;
  /** Number of callers that wait for the answer. */
  callers: number;
  cancel: () => void;
}

const sizeOf = ([start, stop]: Range): number => stop - start;

/** Return whether the heads of a request are combined to one matrix. */
function isCombined({ heads, combine = "separate" }: ReadRequest): boolean {
  return combine !== "separate" && heads.length > 1;
}

/** Split a request into requests for single matrices. */
function singlesOf(request: ReadRequest): ReadRequest[] {
  if (isCombined(request)) return [request];
  return request.heads.map((head) => ({ ...request, heads: [head] }));
}

/**
 * Split a request into parts with fewer heads, unless they are combined, and then into parts with
 * fewer rows. Return a list of parts for each list of heads. A part has at most `maxHeads` heads and
 * `maxRows` rows, counted for each of its heads, but at least one row of each head.
 */
export function splitRead(
  request: ReadRequest,
  maxRows: number,
  maxHeads = request.heads.length,
): ReadRequest[][] {
  const { heads } = request;
  const [start, stop] = request.rows;
  const fitting = Math.floor(Math.min(maxHeads, maxRows / (stop - start)));
  const step = isCombined(request) ? heads.length : Math.max(1, Math.min(heads.length, fitting));
  const rowsPerPart = Math.max(1, Math.floor(maxRows / step));
  const count = Math.ceil(heads.length / step);
  return Array.from({ length: count }, (_, i) => {
    const parts: ReadRequest[] = [];
    for (let row = start; row < stop; row += rowsPerPart) {
      const rows: Range = [row, Math.min(row + rowsPerPart, stop)];
      parts.push({ ...request, heads: heads.slice(i * step, (i + 1) * step), rows });
    }
    return parts;
  });
}

/** Decode the reply to a read. */
async function readMatrices(reply: Reply<CellsHeader>): Promise<Matrix[]> {
  const { header } = reply;
  const all = await decodeReply(header, dataOf(reply));
  const { maximum, error, sampled, sampling_interval: samplingInterval, largest } = header;
  const [count, rows, columns] = header.shape;
  return Array.from({ length: count }, (_, i) => ({
    values: all.subarray(i * rows * columns, (i + 1) * rows * columns),
    ...{ rows, columns, maximum, error, sampled, samplingInterval, largest: largest?.[i] },
  }));
}

/** Join parts of a matrix with successive rows. */
function joinRows(parts: readonly Matrix[]): Matrix {
  const [first] = parts as [Matrix];
  if (parts.length === 1) return first;
  const rows = parts.reduce((sum, part) => sum + part.rows, 0);
  const values = new Float32Array(rows * first.columns);
  let start = 0;
  for (const part of parts) {
    values.set(part.values, start);
    start += part.values.length;
  }
  return { ...first, rows, values };
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

  /**
   * Return the answer to a read for each matrix: from the cache, from a pending request, or from a
   * new request. A request is split if its reply would be too large.
   *
   * @param onArrival called whenever the answers of one request have arrived.
   * @param maxHeads maximum number of heads of one request.
   */
  async read(
    request: ReadRequest,
    signal?: AbortSignal,
    onArrival = () => {},
    maxHeads?: number,
  ): Promise<Matrix[]> {
    const answers = new Map<string, Matrix>();
    const waits = new Set<Pending<Map<string, Matrix>>>();
    const singles = singlesOf(request);
    const missing = singles.filter((single) => {
      const key = pendingKey(single);
      const answer = this.cached(single);
      const pending = this.#pending.get(key) as Pending<Map<string, Matrix>> | undefined;
      if (answer) answers.set(key, answer);
      else if (pending) waits.add(pending);
      return !answer && !pending;
    });
    const heads = missing.flatMap((single) => single.heads);
    for (const parts of splitRead({ ...request, heads }, this.#maxRows(request), maxHeads)) {
      const keys = singlesOf({ ...(parts[0] as ReadRequest), rows: request.rows }).map(pendingKey);
      waits.add(this.#send(keys, (ended) => this.#requestParts(request.rows, parts, ended)));
    }
    const arrivals = [...waits].map(async (pending) => {
      for (const [key, answer] of await this.#join(pending, signal)) answers.set(key, answer);
      onArrival();
    });
    await Promise.all(arrivals);
    return singles.map((single) => answers.get(pendingKey(single)) as Matrix);
  }

  /** Return the weights of the requested heads, rows and columns of a layer. */
  async block(request: Omit<ReadRequest, "reduce">, signal?: AbortSignal): Promise<WeightBlock> {
    const matrices = await this.read(request, signal);
    return {
      matrices: matrices.map(({ values }) => values),
      rows: sizeOf(request.rows),
      columns: sizeOf(request.columns),
      maximum: Math.max(0, ...matrices.map(({ maximum }) => maximum)),
      error: Math.max(0, ...matrices.map(({ error }) => error)),
    };
  }

  /**
   * Return the maps of heads of a layer. A map is an attention matrix that is pooled to few cells.
   *
   * @param onArrival called whenever the maps of some heads have arrived.
   */
  async maps(
    { sampled }: Pick<StackDescription, "sampled">,
    request: MapsRead,
    signal?: AbortSignal,
    onArrival?: () => void,
  ): Promise<Matrix[]> {
    const { max_cells: size = 1 } = request.reduce;
    const numRows = sizeOf(request.rows);
    const numPooled = sampled === undefined ? numRows : Math.min(numRows, size);
    const maxHeads = Math.min(
      MAX_REPLY_BYTES / size ** 2,
      MAX_POOLED_WEIGHTS / (numPooled * sizeOf(request.columns)),
    );
    return this.read(request, signal, onArrival, maxHeads);
  }

  /**
   * Return the maximum number of rows of one request, counted for each of its heads. The cells of
   * several requests could not be joined, so their rows are not limited.
   */
  #maxRows(request: ReadRequest): number {
    const { reduce, columns, rows, heads } = request;
    if (reduce?.kind === "strongest") {
      const rowBytes = 8 * reduce.k + 8;
      return Math.min(MAX_SEARCHED_WEIGHTS / sizeOf(columns), MAX_REPLY_BYTES / rowBytes);
    }
    if (reduce) return Number.POSITIVE_INFINITY;
    const rowBytes = Math.max(1, 4 * sizeOf(columns));
    // Without a limit, the rows of a head are not split.
    const maxBytes =
      this.transport.maxReplyBytes ?? Math.max(MAX_REPLY_BYTES, sizeOf(rows) * rowBytes);
    return (maxBytes / rowBytes) * (isCombined(request) ? heads.length : 1);
  }

  /** Request parts of a read with the same heads and successive rows, and cache the answers. */
  async #requestParts(
    rows: Range,
    parts: readonly ReadRequest[],
    signal: AbortSignal,
  ): Promise<Map<string, Matrix>> {
    const answers = await Promise.all(
      parts.map(async (part) => {
        const reply = await this.transport.request("read", part, signal);
        return readMatrices(reply as Reply<CellsHeader>);
      }),
    );
    const received = new Map<string, Matrix>();
    singlesOf({ ...(parts[0] as ReadRequest), rows }).forEach((single, i) => {
      const matrix = joinRows(answers.map((ofPart) => ofPart[i] as Matrix));
      received.set(pendingKey(single), matrix);
      // The oldest ranges of rows of a matrix are dropped.
      const key = cacheKey(single);
      const others = (this.#cache.get(key) as CachedRows[] | undefined) ?? [];
      const kept = [{ rows, matrix }, ...others].slice(0, MAX_RANGES);
      const bytes = kept.reduce((sum, entry) => sum + entry.matrix.values.byteLength, 0);
      this.#cache.set(key, kept, bytes);
    });
    return received;
  }

  /**
   * Return the answer to a read for one matrix if it is cached. One of the cached ranges of rows must
   * contain all requested rows.
   */
  cached(request: ReadRequest): Matrix | undefined {
    const [start, stop] = request.rows;
    const all = this.#cache.get(cacheKey(request)) as CachedRows[] | undefined;
    const entry = all?.find(({ rows }) => rows[0] <= start && rows[1] >= stop);
    if (!entry || sizeOf(entry.rows) === stop - start) return entry?.matrix;
    const { columns } = entry.matrix;
    const [from, to] = [start, stop].map((row) => (row - entry.rows[0]) * columns);
    return { ...entry.matrix, rows: stop - start, values: entry.matrix.values.subarray(from, to) };
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
 * Return the cache key of a matrix. One entry has several ranges of rows, except of cells, which
 * depend on all rows. The fields of a reduction must always have the same order.
 */
function cacheKey(request: ReadRequest): string {
  const { stack, layer, heads, columns, combine, reduce, rows } = request;
  const combined = isCombined(request) ? combine : "separate";
  const ofCells = reduce?.kind === "cells" ? rows : null;
  return JSON.stringify(["read", stack, layer, heads, columns, combined, reduce, ofCells]);
}

function pendingKey(request: ReadRequest): string {
  return `${cacheKey(request)} ${request.rows}`;
}
