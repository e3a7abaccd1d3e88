/**
 * Requests of a view to a running kernel or an exported page.
 *
 * A transport sends one request and returns its reply. `Source` splits requests that are too large
 * for one reply, decodes replies, and caches recent answers.
 */

import { type ReadonlySignal, signal } from "@preact/signals";
import { bytesPerValue, decodeReply, inflate } from "./codec";
import { isAbort } from "./kernel";
import type {
  BlockRequest,
  Description,
  MapsHeader,
  MapsRequest,
  PageHeader,
  PieceHeader,
  Range,
  ReplyProgress,
  ScoresHeader,
  StackDescription,
  TileHeader,
  TileRequest,
} from "./protocol";
import { Recent } from "./recent";
import { withNumber } from "./record-number";
import { type RecordImage, readImage } from "./requests/images";
import {
  dataOf,
  joined,
  MAX_REPLY_BYTES,
  type Reply,
  type Requests,
  type Transport,
} from "./transport";

/** Score of one pattern for every head of a stack. An undefined score is null. */
export type Scores = ScoresHeader["scores"];

/** Return the numbers of the heads in a layer. */
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
  /** Row-major, `rows * columns` values each. */
  matrices: Float32Array[];
  rows: number;
  columns: number;
  maximum: number;
  /** Largest absolute error of a value. */
  error: number;
  /** Queries of the rows, if rows are a sample of the queries. Undefined if all queries were used. */
  sampled?: readonly number[];
  /** Cell with the largest weight in each map, and that weight. Only in maps from a kernel. */
  largest?: [number, number][];
  /** Sampling interval of a tile: one query in `every` was used. Undefined if all were used. */
  every?: number;
}

/** A file that the reader downloads. */
export interface MadeFile {
  name: string;
  bytes: Uint8Array<ArrayBuffer>;
}

/** Cache size in bytes: more than twenty layers of 12 heads at 256 tokens. */
const KEPT_BYTES = 64_000_000;

/** Maximum number of cached row ranges that are searched for a block. */
const MAX_RANGES = 8;

interface Kept {
  matrix: Float32Array;
  maximum: number;
  error: number;
}

/** Requested weights by head. */
type Asked = Promise<Map<number, Kept>>;

/** Split a request by heads, or also by rows, so that each reply has at most `largest` bytes. */
export function splitRequest(request: BlockRequest, largest = MAX_REPLY_BYTES): BlockRequest[] {
  const columns = request.columns[1] - request.columns[0];
  const rows = request.rows[1] - request.rows[0];
  const rowBytes = Math.max(1, columns * bytesPerValue("float32"));
  const headsEach = Math.floor(largest / (rowBytes * Math.max(1, rows)));
  const parts: BlockRequest[] = [];
  if (headsEach >= 1) {
    for (let i = 0; i < request.heads.length; i += headsEach) {
      parts.push({ ...request, heads: request.heads.slice(i, i + headsEach) });
    }
    return parts;
  }
  const rowsEach = Math.max(1, Math.floor(largest / rowBytes));
  for (const head of request.heads) {
    for (let start = request.rows[0]; start < request.rows[1]; start += rowsEach) {
      const stop = Math.min(start + rowsEach, request.rows[1]);
      parts.push({ ...request, heads: [head], rows: [start, stop] });
    }
  }
  return parts;
}

async function readPiece(reply: Reply): Promise<WeightBlock> {
  const header = reply.header as PieceHeader & Partial<MapsHeader> & TileHeader;
  const values = await decodeReply(header, dataOf(reply));
  const [count, rows, columns] = header.shape;
  const matrices = Array.from({ length: count }, (_, i) =>
    values.subarray(i * rows * columns, (i + 1) * rows * columns),
  );
  const { maximum, error, sampled, largest, sampling_interval: every } = header;
  const more = {
    ...(sampled && { sampled }),
    ...(largest && { largest }),
    ...(every !== undefined && { every }),
  };
  return { matrices, rows, columns, maximum, error, ...more };
}

function bytesOfPiece({ matrices, rows, columns }: WeightBlock): number {
  return 4 * matrices.length * rows * columns;
}

/** Weights and other answers about one record, from any transport. */
export class Source {
  readonly transport: Transport;
  /** Number of the record, which changes when another record replaces it. */
  readonly record: ReadonlySignal<number>;
  readonly #blocks: Recent<Kept>;
  /** Row ranges of the cached blocks, by the other fields of their requests. */
  readonly #rows = new Map<string, Range[]>();
  /** Pending requests. A second caller with the same request waits for the first one's answer. */
  readonly #asked = new Map<string, Promise<unknown>>();
  readonly #answers: Recent<unknown>;
  readonly #described: (answer: unknown) => Description;

  /** @param described converts the answer to a Description if the transport sends another format. */
  constructor(
    transport: Transport,
    keptBytes = KEPT_BYTES,
    described = (answer: unknown) => answer as Description,
  ) {
    this.transport = transport;
    this.record = transport.record ?? signal(0);
    this.#described = described;
    this.#blocks = new Recent(keptBytes, (key) => this.#dropRows(key));
    this.#answers = new Recent(keptBytes);
  }

  /** Return the description of the record, with its number in the names of the stacks. */
  async describe(signal?: AbortSignal): Promise<Description> {
    const number = this.record.peek();
    const described = await this.#describe(signal);
    if (number === 0) return described;
    const stacks = described.stacks.map((stack) => ({
      ...stack,
      name: withNumber(stack.name, number),
    }));
    return { ...described, stacks };
  }

  async #describe(signal?: AbortSignal): Promise<Description> {
    const reply = await this.transport.request("describe", {}, signal);
    if (reply.data === null) return this.#described(reply.header);
    // The description of a long text is deflated and comes in parts.
    const more = async (part: number): Promise<Reply> =>
      this.transport.request("describe", { part }, signal);
    const bytes = await inflate(await joined(reply, more));
    return this.#described(JSON.parse(new TextDecoder().decode(bytes)));
  }

  /** Return the weights of the requested heads, rows and columns of a layer. */
  async block(request: BlockRequest, signal?: AbortSignal): Promise<WeightBlock> {
    const found = new Map<number, Kept>();
    const lookFor = (heads: number[]): number[] =>
      heads.filter((head) => {
        const kept = this.#blocks.get(keyOf(request, head)) ?? this.#within(request, head);
        if (kept) found.set(head, kept);
        return !kept;
      });
    const take = async (asked: Asked): Promise<void> => {
      for (const [head, kept] of await asked) found.set(head, kept);
    };
    let missing = lookFor(request.heads);
    while (missing.length > 0) {
      const ours: number[] = [];
      const waits: Promise<void>[] = [];
      for (const head of missing) {
        const asked = this.#asked.get(keyOf(request, head));
        if (asked) waits.push(take(asked as Asked).catch(unlessGivenUp));
        else ours.push(head);
      }
      if (ours.length > 0) {
        const keys = ours.map((head) => keyOf(request, head));
        waits.push(take(this.#share(keys, this.#ask({ ...request, heads: ours }, signal))));
      }
      await Promise.all(waits);
      signal?.throwIfAborted();
      missing = lookFor(missing.filter((head) => !found.has(head)));
    }
    const rows = request.rows[1] - request.rows[0];
    const columns = request.columns[1] - request.columns[0];
    const pieces = request.heads.map((head) => found.get(head) as Kept);
    return {
      matrices: pieces.map((piece) => piece.matrix),
      rows,
      columns,
      maximum: Math.max(0, ...pieces.map((piece) => piece.maximum)),
      error: Math.max(0, ...pieces.map((piece) => piece.error)),
    };
  }

  /** Register a pending answer under its keys, so that other callers can wait for it. */
  #share<T>(keys: readonly string[], answer: Promise<T>): Promise<T> {
    const asked = answer.finally(() => {
      for (const key of keys) this.#asked.delete(key);
    });
    for (const key of keys) this.#asked.set(key, asked);
    return asked;
  }

  /** Request weights and cache them. */
  async #ask(request: BlockRequest, signal?: AbortSignal): Asked {
    const columns = request.columns[1] - request.columns[0];
    const length = (request.rows[1] - request.rows[0]) * columns;
    // There is no limit on the size of a page's replies.
    const largest = this.transport.live ? MAX_REPLY_BYTES : Math.max(MAX_REPLY_BYTES, 4 * length);
    const parts = splitRequest(request, largest);
    const fresh = new Map<number, Kept>();
    await Promise.all(
      parts.map(async (part) => {
        const reply = await this.transport.request("block", part, signal);
        const header = reply.header as PieceHeader;
        const values = await decodeReply(header, dataOf(reply));
        const size = (part.rows[1] - part.rows[0]) * columns;
        part.heads.forEach((head, i) => {
          const own = values.subarray(i * size, (i + 1) * size);
          const { maximum, error } = header;
          const kept = fresh.get(head) ?? {
            matrix: size === length ? own : new Float32Array(length),
            ...{ maximum, error },
          };
          fresh.set(head, kept);
          if (size < length) kept.matrix.set(own, (part.rows[0] - request.rows[0]) * columns);
        });
      }),
    );
    for (const [head, kept] of fresh) {
      this.#blocks.set(keyOf(request, head), kept, kept.matrix.byteLength);
      this.#noteRows(request, head);
    }
    return fresh;
  }

  /** Return the requested rows from a cached block, or undefined if no block contains them. */
  #within(request: BlockRequest, head: number): Kept | undefined {
    const [start, stop] = request.rows;
    const columns = request.columns[1] - request.columns[0];
    for (const rows of this.#rows.get(keyOf({ ...request, rows: null }, head)) ?? []) {
      if (rows[0] > start || rows[1] < stop) continue;
      const kept = this.#blocks.get(keyOf({ ...request, rows }, head));
      if (!kept) continue;
      const part = [start, stop].map((row) => (row - rows[0]) * columns);
      return { ...kept, matrix: kept.matrix.subarray(...part) };
    }
    return undefined;
  }

  #noteRows(request: BlockOfHead & { rows: Range }, head: number): void {
    const key = keyOf({ ...request, rows: null }, head);
    const known = this.#rows.get(key) ?? [];
    this.#rows.set(key, [request.rows, ...known].slice(0, MAX_RANGES));
  }

  /** Remove the row range of a block that was dropped from the cache. */
  #dropRows(block: string): void {
    const [stack, layer, head, rows, columns] = JSON.parse(block) as KeyParts;
    const key = keyOf({ stack, layer, rows: null, columns }, head);
    const other = ([start, stop]: Range): boolean => start !== rows[0] || stop !== rows[1];
    const left = (this.#rows.get(key) ?? []).filter(other);
    if (left.length > 0) this.#rows.set(key, left);
    else this.#rows.delete(key);
  }

  /** Return the maps of heads of a layer. Large maps are pooled by their maximum. */
  async maps(request: MapsRequest, signal?: AbortSignal): Promise<WeightBlock> {
    return this.fetch("maps", request, readPiece, bytesOfPiece, signal);
  }

  /** Return one tile of a matrix. Its cells may be computed from a sample of the queries. */
  async tile(request: TileRequest, signal?: AbortSignal): Promise<WeightBlock> {
    return this.fetch("tile", request, readPiece, bytesOfPiece, signal);
  }

  /** Return a pattern's score of every head of a stack, by layer. */
  async scores(stack: string, pattern: string, signal?: AbortSignal): Promise<Scores> {
    const read = ({ header }: Reply): Scores => (header as ScoresHeader).scores;
    const bytesOf = (scores: Scores): number => 8 * scores.flat().length;
    return this.fetch("scores", { stack, pattern }, read, bytesOf, signal);
  }

  /** Return one image of the description. The kernel reduces it to fit into a reply. */
  async image(index: number, signal?: AbortSignal): Promise<RecordImage> {
    return this.fetch("image", { index }, readImage, () => MAX_REPLY_BYTES, signal);
  }

  /**
   * Send a request whose answer fits into one reply, or return its cached answer.
   *
   * @param read decodes the reply.
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
    const ask = async (): Promise<T> => {
      const answer = await read(await this.transport.request(name, request, signal));
      const bytes = bytesOf(answer);
      if (bytes !== null) this.#answers.set(key, answer, bytes);
      return answer;
    };
    for (;;) {
      const known = this.#answers.get(key) as T | undefined;
      if (known !== undefined) return known;
      const asked = this.#asked.get(key) as Promise<T> | undefined;
      if (!asked) return this.#share([key], ask());
      const answer = await asked.catch(unlessGivenUp);
      signal?.throwIfAborted();
      if (answer !== undefined) return answer;
    }
  }

  #keyOf(name: string, request: object): string {
    return JSON.stringify([name, request, this.record.peek()]);
  }

  /**
   * Return the HTML page that the kernel exports for the view's state.
   *
   * @param report receives the progress.
   */
  async page(
    state: object,
    signal?: AbortSignal,
    report?: (later: ReplyProgress) => void,
  ): Promise<MadeFile> {
    const more = async (part: number): Promise<Reply> =>
      this.transport.request("page", { part, state }, signal, report);
    const first = await more(0);
    const { name } = first.header as PageHeader;
    const bytes = await joined(first, more);
    return { name, bytes };
  }
}

/** Rethrow an error unless another caller aborted. Callers that still wait send the request again. */
function unlessGivenUp(reason: unknown): undefined {
  if (!isAbort(reason)) throw reason;
  return undefined;
}

type KeyParts = [string, number, number, Range, Range];

/** A block request for one head. `rows` is null in the key for blocks with any rows. */
type BlockOfHead = Omit<BlockRequest, "rows" | "heads"> & { rows: Range | null };

function keyOf(request: BlockOfHead, head: number): string {
  const { stack, layer, rows, columns } = request;
  return JSON.stringify([stack, layer, head, rows, columns]);
}
