/**
 * What a view may ask for, whoever answers: a running kernel or an exported page.
 *
 * A `Carrier` moves one request and its reply; `Source` stands above it and splits what is too
 * big for one reply, decodes, and keeps what was lately asked for.
 */

import { bytesPerValue, decode, type Encoding, inflate, type PieceHeader } from "./codec";
import type { Pooled } from "./page/tiles";
import { Recent } from "./recent";
import { type RecordImage, readImage } from "./requests/images";

/** A run of tokens that are the patches of one image, row by row from the top left. */
export interface PatchGrid {
  /** Which of the description's images. */
  image: number;
  /** Place of the first patch among the tokens. */
  start: number;
  rows: number;
  columns: number;
}

/** A token that the model might have produced. */
export interface Candidate {
  text: string;
  id: number;
  /** From 0 to 1. */
  probability: number;
}

/** A token that the model produced, or was made to produce. */
export interface Prediction {
  /** The query that predicted it: the position before. */
  query: number;
  token: Candidate;
  /** The likeliest tokens there, best first. */
  candidates: Candidate[];
  /** The query that the token itself is; null where the model never read it. */
  row: number | null;
}

/** Display tokens of one side of a stack. */
export interface TokenList {
  text: string[];
  /** Indices of special tokens. */
  special: number[];
  /** 0 for the first sequence of a pair, 1 for the second, null for special tokens. */
  sequence: (number | null)[];
  /** Runs of patches, in order; left out where there are none. */
  grids?: PatchGrid[];
  /** Tokens that the model produced, in order; left out where there are none. */
  predictions?: Prediction[];
}

/** One stack of attention layers: "self", "encoder", "decoder", "cross", ... */
export interface StackDescription {
  name: string;
  /** The model's own layer numbers. */
  layers: number[];
  /** How many heads the model has in each layer: as many as `layers`. */
  heads_per_layer: number[];
  /** Numbers of the heads that were kept, layer by layer; left out where all were. */
  heads?: number[][];
  query_tokens: TokenList;
  /** null: the same tokens as the queries. */
  key_tokens: TokenList | null;
  /** Whether rows sum to one. */
  normalized: boolean;
  /** Largest weight that can occur: 1 where `normalized`. */
  maximum: number;
  causal: boolean;
  /** Whether queries and keys are known, and not the weights alone. */
  vectors: boolean;
  /** Names of the patterns that its heads can be scored by. */
  patterns: string[];
  /** Queries that estimates are made from; only where whole maps of all heads take too long. */
  sampled?: number;
  /** By layer and head, weights that are exactly 0 and pairs counted; only where there are any. */
  zeros?: [number, number][][];
  /** How much of its weights an exported page carries; left out where there is a kernel. */
  carried?: CarriedShare;
}

/** Numbers of a layer's heads whose weights are known, ascending. */
export function keptHeads(
  stack: Pick<StackDescription, "layers" | "heads_per_layer" | "heads">,
  layer: number,
): number[] {
  const at = stack.layers.indexOf(layer);
  const all = Array.from({ length: stack.heads_per_layer[at] ?? 0 }, (_, head) => head);
  return stack.heads?.[at] ?? all;
}

/** How an exported page carries weights, and how much of them. */
export interface CarriedShare {
  /** Every weight, queries and keys that weights are computed from, or the strongest keys. */
  form: "all" | "vectors" | "strongest";
  /** Share of all weight that is carried as it is. */
  covered: number;
  /** Largest absolute error of a weight, as it was measured. */
  error: number;
}

/** What a record holds. */
export interface Description {
  model: string;
  notes: string[];
  /** Sizes of the pictures that the model saw; left out where there are none. */
  images?: { height: number; width: number }[];
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

/** Heads' maps, pooled by the largest weight to at most `size` by `size`. */
export interface MapsRequest {
  stack: string;
  layer: number;
  size: number;
  /** All heads that were kept, all queries and keys where they are left out. */
  heads?: number[];
  rows?: Range;
  columns?: Range;
}

/**
 * A square of `TILE` by `TILE` cells of one head's matrix, or of the mean of several.
 *
 * At level l a cell stands for 2^l by 2^l weights, and tile (row, column) begins at query
 * `row * TILE * 2^l` and key `column * TILE * 2^l`; tiles at the end are smaller.
 */
export interface TileRequest {
  stack: string;
  layer: number;
  heads: number[];
  level: number;
  row: number;
  column: number;
  pooled: Pooled;
  precision: "uint8" | "float32";
  /** false: of a large matrix an estimate is enough. */
  exact?: boolean;
}

/** How far a tile of a large matrix is. */
export interface TileWork {
  /** Share of the work that is done; 1 where every cell is exact. */
  progress: number;
  /** How many queries its cells are made from so far, and how many they stand for. */
  queries: [number, number];
  /** Pairs of query and key that all of the work takes. */
  pairs: number;
  /** Whether asking again gives more. */
  waiting: boolean;
}

/** A pattern's score of every head of a stack; null where it is not defined. */
export type Scores = (number | null)[][];

/** Weights in hand, one matrix for each head that was asked for. */
export interface Piece {
  /** Row-major, `rows * columns` values each. */
  matrices: Float32Array[];
  rows: number;
  columns: number;
  maximum: number;
  /** Largest absolute error of a value. */
  error: number;
  /** Queries that stand for all, one a row; left out where all were gone through. */
  sampled?: number;
  /** Only of a tile of a large matrix. */
  work?: TileWork;
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

/** The bytes of an answer that comes in parts, one after the other: the kernel reads on from it. */
export async function joined(
  first: Reply,
  more: (part: number) => Promise<Reply>,
): Promise<Uint8Array<ArrayBuffer>> {
  const { parts } = first.header as { parts: number };
  const replies = [first];
  while (replies.length < parts) replies.push(await more(replies.length));
  if (replies.length === 1) return bytesOf(first);
  return new Uint8Array(await new Blob(replies.map(bytesOf)).arrayBuffer());
}

function bytesOf(reply: Reply): Uint8Array<ArrayBuffer> {
  const data = dataOf(reply);
  if (data instanceof ArrayBuffer) return new Uint8Array(data);
  return new Uint8Array(data.buffer as ArrayBuffer, data.byteOffset, data.byteLength);
}

function readPiece(reply: Reply): Piece {
  const header = reply.header as PieceHeader & Pick<Piece, "sampled">;
  const values = decode(header, dataOf(reply));
  const [count, rows, columns] = header.shape;
  const matrices = Array.from({ length: count }, (_, i) =>
    values.subarray(i * rows * columns, (i + 1) * rows * columns),
  );
  const { maximum, error, sampled } = header;
  return { matrices, rows, columns, maximum, error, ...(sampled !== undefined && { sampled }) };
}

function bytesOfPiece({ matrices, rows, columns }: Piece): number {
  return 4 * matrices.length * rows * columns;
}

/** The pieces of a record, from whichever carrier. */
export class Source {
  readonly carrier: Carrier;
  readonly #blocks: Recent<Kept>;
  readonly #answers: Recent<unknown>;

  constructor(carrier: Carrier, keptBytes = KEPT_BYTES) {
    this.carrier = carrier;
    this.#blocks = new Recent(keptBytes);
    this.#answers = new Recent(keptBytes);
  }

  /** What the record holds. */
  async describe(signal?: AbortSignal): Promise<Description> {
    const reply = await this.carrier.ask("describe", {}, signal);
    if (reply.data === null) return reply.header as Description;
    // Of a long text: deflated, in parts.
    const more = async (part: number): Promise<Reply> =>
      this.carrier.ask("describe", { part }, signal);
    const bytes = await inflate(await joined(reply, more));
    return JSON.parse(new TextDecoder().decode(bytes)) as Description;
  }

  /** Weights of some heads, rows and columns of a layer. */
  async block(request: BlockRequest, signal?: AbortSignal): Promise<Piece> {
    const found = new Map<number, Kept>();
    const missing: number[] = [];
    for (const head of request.heads) {
      const kept = this.#blocks.get(keyOf(request, head));
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
        this.#blocks.set(keyOf(request, head), kept, kept.matrix.byteLength);
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

  /** Heads' maps of a layer, pooled by the largest weight where they are too big. */
  async maps(request: MapsRequest, signal?: AbortSignal): Promise<Piece> {
    return this.question("maps", request, readPiece, bytesOfPiece, signal);
  }

  /** One tile of a matrix; of a large one as far as it is known, and asked for again it is more. */
  async tile(request: TileRequest, signal?: AbortSignal): Promise<Piece> {
    const key = JSON.stringify(["tile", { ...request, exact: undefined }]);
    const known = this.#answers.get(key) as Piece | undefined;
    if (known) return known;
    const reply = await this.carrier.ask("tile", request, signal);
    const piece = readPiece(reply);
    const work = reply.header as Partial<TileWork>;
    if (work.progress !== undefined) piece.work = work as TileWork;
    if (!piece.work || piece.work.progress === 1) {
      this.#answers.set(key, piece, bytesOfPiece(piece));
    }
    return piece;
  }

  /** A pattern's score of every head of a stack, layer by layer. */
  async scores(stack: string, pattern: string, signal?: AbortSignal): Promise<Scores> {
    const read = ({ header }: Reply): Scores => (header as { scores: Scores }).scores;
    const bytesOf = (scores: Scores): number => 8 * scores.flat().length;
    return this.question("scores", { stack, pattern }, read, bytesOf, signal);
  }

  /** One of the description's images, as many pixels as a reply carries. */
  async image(index: number, signal?: AbortSignal): Promise<RecordImage> {
    return this.question("image", { index }, readImage, () => LARGEST_REPLY, signal);
  }

  /**
   * The answer to a question whose answer fits into one reply; kept for who asks again.
   *
   * @param read what the reply says.
   * @param bytesOf what it takes to keep it; null where it is not to be kept.
   */
  async question<T>(
    name: string,
    request: object,
    read: (reply: Reply) => T | Promise<T>,
    bytesOf: (answer: T) => number | null,
    signal?: AbortSignal,
  ): Promise<T> {
    return this.#once(name, request, bytesOf, async () =>
      read(await this.carrier.ask(name, request, signal)),
    );
  }

  async #once<T>(
    name: string,
    request: object,
    bytesOf: (answer: T) => number | null,
    ask: () => Promise<T>,
  ): Promise<T> {
    const key = JSON.stringify([name, request]);
    const known = this.#answers.get(key) as T | undefined;
    if (known !== undefined) return known;
    const answer = await ask();
    const bytes = bytesOf(answer);
    if (bytes !== null) this.#answers.set(key, answer, bytes);
    return answer;
  }

  /** The page that carries what is shown, made by the kernel, with its name. */
  async page(state: object, signal?: AbortSignal): Promise<MadeFile> {
    const more = async (part: number): Promise<Reply> =>
      this.carrier.ask("page", { part, state }, signal);
    const first = await more(0);
    const { name } = first.header as { name: string };
    const bytes = await joined(first, more);
    return { name, bytes };
  }
}

function keyOf(request: BlockRequest, head: number): string {
  const { stack, layer, rows, columns, precision } = request;
  return JSON.stringify([stack, layer, head, rows, columns, precision]);
}
