/**
 * What a view may ask for, whoever answers: a running kernel or an exported page.
 *
 * A `Carrier` moves one request and its reply; `Source` stands above it and splits what is too
 * big for one reply, decodes, and keeps what was lately asked for.
 */

import { bytesPerValue, decode, type Encoding, type PieceHeader } from "./codec";

/** Display tokens of one side of a stack. */
export interface TokenList {
  text: string[];
  /** Indices of special tokens. */
  special: number[];
  /** 0 for the first sequence of a pair, 1 for the second, null for special tokens. */
  sequence: (number | null)[];
}

/** One stack of attention layers: "self", "encoder", "decoder", "cross", ... */
export interface StackDescription {
  name: string;
  /** The model's own layer numbers. */
  layers: number[];
  /** As many as `layers`. */
  heads_per_layer: number[];
  query_tokens: TokenList;
  /** null: the same tokens as the queries. */
  key_tokens: TokenList | null;
  /** Whether rows sum to one. */
  normalized: boolean;
  /** Largest weight that can occur: 1 where `normalized`. */
  maximum: number;
  causal: boolean;
}

/** What a record holds. */
export interface Description {
  model: string;
  notes: string[];
  stacks: StackDescription[];
}

/** A half-open range [start, stop). */
export type Range = [number, number];

/** Which weights are asked for. */
export interface BlockRequest {
  stack: string;
  layer: number;
  heads: number[];
  rows: Range;
  columns: Range;
  precision: "uint8" | "float32";
}

/** Every head's map, pooled to at most `size` by `size`. */
export interface MapsRequest {
  stack: string;
  layer: number;
  size: number;
}

/** Weights in hand, one matrix for each head that was asked for. */
export interface Piece {
  /** Row-major, `rows * columns` values each. */
  matrices: Float32Array[];
  rows: number;
  columns: number;
  maximum: number;
  /** Largest absolute error of a value. */
  error: number;
}

/** A file that was made for the reader. */
export interface MadeFile {
  name: string;
  bytes: Uint8Array<ArrayBuffer>;
}

/** A reply as it came: a header, and at most one buffer. */
export interface Reply {
  header: unknown;
  data: ArrayBufferView | ArrayBuffer | null;
}

/** How a carrier stands: `unanswered` after it has waited too long. */
export type Connection = "ready" | "waiting" | "unanswered";

/** Moves requests and replies. */
export interface Carrier {
  ask(name: string, args: object, signal?: AbortSignal): Promise<Reply>;
  /** Asks once more for everything that has not been answered. */
  retry(): void;
  /** Calls the listener with every change of the connection, until the signal is aborted. */
  watch(listener: (connection: Connection) => void, signal: AbortSignal): void;
  /** Whether it can make an exported page. */
  readonly makesPages: boolean;
}

/** Replies carry at most this many bytes: what every host that was tried passes on. */
export const LARGEST_REPLY = 1_000_000;

/** Bytes of decoded weights that are kept: over twenty layers of 12 heads at 256 tokens. */
const KEPT_BYTES = 64_000_000;

interface Kept {
  matrix: Float32Array;
  maximum: number;
  error: number;
}

/** Cuts a request into requests whose replies fit, by heads first, then by rows. */
export function splitRequest(request: BlockRequest, largest = LARGEST_REPLY): BlockRequest[] {
  const encoding: Encoding = request.precision === "float32" ? "float32" : "uint8-sqrt";
  const columns = request.columns[1] - request.columns[0];
  const rows = request.rows[1] - request.rows[0];
  const rowBytes = Math.max(1, columns * bytesPerValue(encoding));
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

function dataOf(reply: Reply): ArrayBufferView | ArrayBuffer {
  if (reply.data === null) throw new Error("The reply came without its data.");
  return reply.data;
}

/** The pieces of a record, from whichever carrier. */
export class Source {
  readonly carrier: Carrier;
  readonly #keptBytes: number;
  // In order of last use, so that the first is the one to forget.
  readonly #kept = new Map<string, Kept>();
  #bytes = 0;

  constructor(carrier: Carrier, keptBytes = KEPT_BYTES) {
    this.carrier = carrier;
    this.#keptBytes = keptBytes;
  }

  /** What the record holds. */
  async describe(signal?: AbortSignal): Promise<Description> {
    return (await this.carrier.ask("describe", {}, signal)).header as Description;
  }

  /** Weights of some heads, rows and columns of a layer. */
  async block(request: BlockRequest, signal?: AbortSignal): Promise<Piece> {
    const found = new Map<number, Kept>();
    const missing: number[] = [];
    for (const head of request.heads) {
      const kept = this.#recall(keyOf(request, head));
      if (kept) found.set(head, kept);
      else missing.push(head);
    }
    const rows = request.rows[1] - request.rows[0];
    const columns = request.columns[1] - request.columns[0];
    if (missing.length > 0) {
      const parts = splitRequest({ ...request, heads: missing });
      const fresh = new Map<number, Kept>();
      await Promise.all(
        parts.map(async (part) => {
          const reply = await this.carrier.ask("block", part, signal);
          const header = reply.header as PieceHeader;
          const values = decode(header, dataOf(reply));
          const size = (part.rows[1] - part.rows[0]) * columns;
          part.heads.forEach((head, i) => {
            let kept = fresh.get(head);
            if (!kept) {
              const matrix = new Float32Array(rows * columns);
              kept = { matrix, maximum: header.maximum, error: header.error };
              fresh.set(head, kept);
            }
            const offset = (part.rows[0] - request.rows[0]) * columns;
            kept.matrix.set(values.subarray(i * size, (i + 1) * size), offset);
          });
        }),
      );
      for (const [head, kept] of fresh) {
        found.set(head, kept);
        this.#keep(keyOf(request, head), kept);
      }
    }
    const pieces = request.heads.map((head) => found.get(head) as Kept);
    return {
      matrices: pieces.map((piece) => piece.matrix),
      rows,
      columns,
      maximum: Math.max(0, ...pieces.map((piece) => piece.maximum)),
      error: Math.max(0, ...pieces.map((piece) => piece.error)),
    };
  }

  /** Every head's map of a layer, pooled by the largest weight where it is too big. */
  async maps(request: MapsRequest, signal?: AbortSignal): Promise<Piece> {
    const reply = await this.carrier.ask("maps", request, signal);
    const header = reply.header as PieceHeader;
    const values = decode(header, dataOf(reply));
    const [heads, rows, columns] = header.shape;
    const matrices = Array.from({ length: heads }, (_, head) =>
      values.subarray(head * rows * columns, (head + 1) * rows * columns),
    );
    return { matrices, rows, columns, maximum: header.maximum, error: header.error };
  }

  /** The page that carries what is shown, made by the kernel, with its name. */
  async page(state: object, signal?: AbortSignal): Promise<MadeFile> {
    const chunks: Uint8Array[] = [];
    let parts = 1;
    let name = "attention.html";
    // One after the other: the kernel makes the page at the first, and reads from it after.
    for (let part = 0; part < parts; part++) {
      const reply = await this.carrier.ask("page", { part, state }, signal);
      const header = reply.header as { parts: number; name: string };
      parts = header.parts;
      name = header.name;
      const data = dataOf(reply);
      chunks.push(
        data instanceof ArrayBuffer
          ? new Uint8Array(data)
          : new Uint8Array(data.buffer, data.byteOffset, data.byteLength),
      );
    }
    const bytes = new Uint8Array(chunks.reduce((sum, chunk) => sum + chunk.byteLength, 0));
    let offset = 0;
    for (const chunk of chunks) {
      bytes.set(chunk, offset);
      offset += chunk.byteLength;
    }
    return { name, bytes };
  }

  #recall(key: string): Kept | undefined {
    const kept = this.#kept.get(key);
    if (kept) {
      this.#kept.delete(key);
      this.#kept.set(key, kept);
    }
    return kept;
  }

  #keep(key: string, kept: Kept): void {
    const before = this.#kept.get(key);
    if (before) {
      this.#bytes -= before.matrix.byteLength;
      this.#kept.delete(key);
    }
    this.#kept.set(key, kept);
    this.#bytes += kept.matrix.byteLength;
    for (const [oldest, { matrix }] of this.#kept) {
      if (this.#bytes <= this.#keptBytes) break;
      this.#kept.delete(oldest);
      this.#bytes -= matrix.byteLength;
    }
  }
}

function keyOf(request: BlockRequest, head: number): string {
  const { stack, layer, rows, columns, precision } = request;
  return JSON.stringify([stack, layer, head, rows, columns, precision]);
}
