/** Answers from the data that an exported page carries, as a kernel would. */

import { type CarriedVectors, VectorCarrier } from "./carried";
import { bytesPerValue, type Encoding, fromBase64, inflate, type PieceHeader } from "./codec";
import type { ImageHeader } from "./picture";
import { parts, pooledMean, runs, tileRange } from "./pieces";
import { Recent } from "./recent";
import {
  type BlockRequest,
  type Carrier,
  type Connection,
  type Description,
  keptHeads,
  type MapsRequest,
  type Reply,
  type Scores,
  type TileRequest,
} from "./source";
import type { VectorsRequest } from "./vectors";

/** All kept heads of one layer: the whole matrices, or their small maps. */
export interface CarriedPiece {
  stack: string;
  layer: number;
  shape: [number, number, number];
  encoding: Encoding;
  maximum: number;
  error: number;
  /** base64 of the deflated bytes. */
  data: string;
}

/** What an exported page carries. */
export interface PageData {
  format: 1;
  view: string;
  /** The view's traits when the page was made. */
  state: Record<string, unknown>;
  description: Description;
  blocks: CarriedPiece[];
  maps: CarriedPiece[];
  /** Scores of all heads, by pattern. */
  scores?: { stack: string; pattern: string; scores: Scores }[];
  /** Queries and keys, where the view shows them. */
  vectors?: CarriedVectors;
  /** Pictures that the model saw, where there are any: base64 of deflated bytes, three a pixel. */
  images?: (ImageHeader & { data: string })[];
}

/** Inflated bytes that are kept; a layer that was dropped is inflated again when it is asked for. */
const KEPT_BYTES = 64_000_000;
/** A layer of at most so many weights is pooled here to maps that are finer than the carried ones. */
const POOLED_WEIGHTS = 4_000_000;

/** A carrier that is never late. */
export class PageCarrier implements Carrier {
  readonly makesPages = false;
  readonly #data: PageData;
  readonly #vectors: VectorCarrier;
  readonly #inflated = new Recent<Promise<Uint8Array>>(KEPT_BYTES);

  /** @throws Error when the data are of a format that this bundle does not know. */
  constructor(data: PageData) {
    if (data.format !== 1) {
      throw new Error(`The page's data have format ${String(data.format)}; format 1 is known.`);
    }
    this.#data = data;
    this.#vectors = new VectorCarrier(data.vectors ?? { layers: [], arrays: [] });
  }

  async ask(name: string, args: object): Promise<Reply> {
    if (name === "describe") return { header: this.#data.description, data: null };
    if (name === "block") return this.#block(args as BlockRequest);
    if (name === "maps") return this.#maps(args as MapsRequest);
    if (name === "tile") return this.#tile(args as TileRequest);
    if (name === "scores") return this.#scores(args as { stack: string; pattern: string });
    if (name === "vectors") return this.#vectors.reply(args as VectorsRequest);
    if (name === "image") return this.#image(args as { index: number });
    throw new Error(`An exported page cannot answer "${name}".`);
  }

  retry(): void {}

  watch(listener: (connection: Connection) => void): void {
    listener("ready");
  }

  async #block(request: BlockRequest): Promise<Reply> {
    const piece = this.#find(this.#data.blocks, request);
    const bytes = await this.#bytesOf("block", piece);
    const [, allRows, allColumns] = piece.shape;
    const size = bytesPerValue(piece.encoding);
    const [top, bottom] = request.rows;
    const [left, right] = request.columns;
    const width = (right - left) * size;
    const shape: [number, number, number] = [request.heads.length, bottom - top, right - left];
    const out = new Uint8Array(shape[0] * shape[1] * width);
    let offset = 0;
    for (const head of this.#places(request, request.heads)) {
      for (let row = top; row < bottom; row++) {
        const start = ((head * allRows + row) * allColumns + left) * size;
        out.set(bytes.subarray(start, start + width), offset);
        offset += width;
      }
    }
    return { header: headerOf(piece, shape), data: out };
  }

  async #maps(request: MapsRequest): Promise<Reply> {
    const small = this.#find(this.#data.maps, request);
    const block = this.#data.blocks.find((each) => isOf(each, request));
    const all = Array.from({ length: small.shape[0] }, (_, place) => place);
    const heads = request.heads ? this.#places(request, request.heads) : all;
    const part = request.rows !== undefined || request.columns !== undefined;
    const finer = request.size > Math.max(small.shape[1], small.shape[2]);
    const weights = block ? block.shape[0] * block.shape[1] * block.shape[2] : 0;
    // The carried maps are of the whole; a part of them would be coarse.
    if (block && (part || (finer && weights <= POOLED_WEIGHTS))) {
      const [, rows, columns] = block.shape;
      const starts = {
        rows: parts(request.rows ?? [0, rows], request.size),
        columns: parts(request.columns ?? [0, columns], request.size),
      };
      const bytes = await this.#bytesOf("block", block);
      const matrices = heads.map((head) => pooledMean(block, bytes, [head], starts, "max"));
      return asFloats(block, matrices, starts.rows.length - 1, starts.columns.length - 1);
    }
    const bytes = await this.#bytesOf("maps", small);
    const [, rows, columns] = small.shape;
    const each = rows * columns * bytesPerValue(small.encoding);
    const out = new Uint8Array(heads.length * each);
    heads.forEach((head, i) => {
      out.set(bytes.subarray(head * each, (head + 1) * each), i * each);
    });
    return { header: headerOf(small, [heads.length, rows, columns]), data: out };
  }

  async #tile(request: TileRequest): Promise<Reply> {
    const block = this.#find(this.#data.blocks, request);
    const [, numRows, numColumns] = block.shape;
    const each = 2 ** request.level;
    const starts = {
      rows: runs(tileRange(request.row, request.level, numRows), each),
      columns: runs(tileRange(request.column, request.level, numColumns), each),
    };
    const bytes = await this.#bytesOf("block", block);
    const heads = this.#places(request, request.heads);
    const cells = pooledMean(block, bytes, heads, starts, request.pooled);
    return asFloats(block, [cells], starts.rows.length - 1, starts.columns.length - 1);
  }

  #scores(request: { stack: string; pattern: string }): Reply {
    const found = this.#data.scores?.find(
      (each) => each.stack === request.stack && each.pattern === request.pattern,
    );
    if (!found) throw new Error(`This page does not carry scores for "${request.pattern}".`);
    return { header: found, data: null };
  }

  async #image({ index }: { index: number }): Promise<Reply> {
    const image = this.#data.images?.[index];
    if (!image) throw new Error(`This page does not carry image ${index}.`);
    return { header: image, data: await inflate(fromBase64(image.data)) };
  }

  /** Where heads stand among those of a layer that were kept. */
  #places(at: { stack: string; layer: number }, heads: readonly number[]): number[] {
    const stack = this.#data.description.stacks.find((each) => each.name === at.stack);
    const kept = stack?.heads && keptHeads(stack, at.layer);
    if (!kept) return [...heads];
    return heads.map((head) => {
      const place = kept.indexOf(head);
      if (place < 0) throw new Error(`Head ${head} of layer ${at.layer} was not kept.`);
      return place;
    });
  }

  #find(pieces: CarriedPiece[], wanted: { stack: string; layer: number }): CarriedPiece {
    const piece = pieces.find((each) => isOf(each, wanted));
    if (!piece) {
      throw new Error(`This page does not carry layer ${wanted.layer} of "${wanted.stack}".`);
    }
    return piece;
  }

  #bytesOf(kind: "block" | "maps", piece: CarriedPiece): Promise<Uint8Array> {
    const key = JSON.stringify([kind, piece.stack, piece.layer]);
    let bytes = this.#inflated.get(key);
    if (!bytes) {
      bytes = inflate(fromBase64(piece.data));
      const values = piece.shape[0] * piece.shape[1] * piece.shape[2];
      this.#inflated.set(key, bytes, values * bytesPerValue(piece.encoding));
    }
    return bytes;
  }
}

function isOf(piece: CarriedPiece, wanted: { stack: string; layer: number }): boolean {
  return piece.stack === wanted.stack && piece.layer === wanted.layer;
}

/** Weights that were pooled here: no less exact than those that they come from. */
function asFloats(
  from: CarriedPiece,
  matrices: Float32Array[],
  rows: number,
  columns: number,
): Reply {
  const values = new Float32Array(matrices.length * rows * columns);
  matrices.forEach((matrix, i) => {
    values.set(matrix, i * rows * columns);
  });
  const shape: [number, number, number] = [matrices.length, rows, columns];
  return { header: { ...headerOf(from, shape), encoding: "float32" }, data: values };
}

function headerOf(piece: CarriedPiece, shape: [number, number, number]): PieceHeader {
  const { encoding, maximum, error } = piece;
  return { shape, encoding, maximum, error };
}
