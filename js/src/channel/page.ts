/** Answers from the data that an exported page carries, as a kernel would. */

import { bytesPerValue, type Encoding, fromBase64, inflate, type PieceHeader } from "./codec";
import type { BlockRequest, Carrier, Connection, Description, MapsRequest, Reply } from "./source";

/** All heads of one layer: the whole matrices, or their small maps. */
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
}

/** Inflated bytes that are kept; a layer that was dropped is inflated again when it is asked for. */
const KEPT_BYTES = 64_000_000;

/** A carrier that is never late. */
export class PageCarrier implements Carrier {
  readonly makesPages = false;
  readonly #data: PageData;
  readonly #inflated = new Map<CarriedPiece, Promise<Uint8Array>>();
  #bytes = 0;

  /** @throws Error when the data are of a format that this bundle does not know. */
  constructor(data: PageData) {
    if (data.format !== 1) {
      throw new Error(`The page's data have format ${String(data.format)}; format 1 is known.`);
    }
    this.#data = data;
  }

  async ask(name: string, args: object): Promise<Reply> {
    if (name === "describe") return { header: this.#data.description, data: null };
    if (name === "maps") {
      const piece = this.#find(this.#data.maps, args as MapsRequest);
      return { header: headerOf(piece, piece.shape), data: await this.#bytesOf(piece) };
    }
    if (name === "block") return this.#block(args as BlockRequest);
    throw new Error(`An exported page cannot answer "${name}".`);
  }

  retry(): void {}

  watch(listener: (connection: Connection) => void): void {
    listener("ready");
  }

  async #block(request: BlockRequest): Promise<Reply> {
    const piece = this.#find(this.#data.blocks, request);
    const bytes = await this.#bytesOf(piece);
    const [, allRows, allColumns] = piece.shape;
    const size = bytesPerValue(piece.encoding);
    const [top, bottom] = request.rows;
    const [left, right] = request.columns;
    const width = (right - left) * size;
    const shape: [number, number, number] = [request.heads.length, bottom - top, right - left];
    const out = new Uint8Array(shape[0] * shape[1] * width);
    let offset = 0;
    for (const head of request.heads) {
      for (let row = top; row < bottom; row++) {
        const start = ((head * allRows + row) * allColumns + left) * size;
        out.set(bytes.subarray(start, start + width), offset);
        offset += width;
      }
    }
    return { header: headerOf(piece, shape), data: out };
  }

  #find(pieces: CarriedPiece[], wanted: { stack: string; layer: number }): CarriedPiece {
    const piece = pieces.find(
      (other) => other.stack === wanted.stack && other.layer === wanted.layer,
    );
    if (!piece) {
      throw new Error(`This page does not carry layer ${wanted.layer} of "${wanted.stack}".`);
    }
    return piece;
  }

  #bytesOf(piece: CarriedPiece): Promise<Uint8Array> {
    const size = piece.shape[0] * piece.shape[1] * piece.shape[2] * bytesPerValue(piece.encoding);
    let bytes = this.#inflated.get(piece);
    if (bytes) {
      this.#inflated.delete(piece);
    } else {
      bytes = inflate(fromBase64(piece.data));
      this.#bytes += size;
    }
    this.#inflated.set(piece, bytes);
    for (const oldest of this.#inflated.keys()) {
      if (this.#bytes <= KEPT_BYTES || oldest === piece) break;
      this.#inflated.delete(oldest);
      const [heads, rows, columns] = oldest.shape;
      this.#bytes -= heads * rows * columns * bytesPerValue(oldest.encoding);
    }
    return bytes;
  }
}

function headerOf(piece: CarriedPiece, shape: [number, number, number]): PieceHeader {
  const { encoding, maximum, error } = piece;
  return { shape, encoding, maximum, error };
}
