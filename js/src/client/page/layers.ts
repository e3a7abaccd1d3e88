/** The layers of an exported page, inflated on request. */

import { once, Recent } from "../recent";
import { type EmbeddedPiece, type Rows, wholeRows } from "./rows";
import { type EmbeddedKeys, sparseRows } from "./sparse";
import type { PageVectors } from "./vectors";

/** Cache size in bytes. A layer that was dropped is inflated again on request. */
const KEPT_BYTES = 64_000_000;

/** Weights of a layer, complete or as strongest keys. Other layers have embedded queries and keys. */
export type EmbeddedBlock = EmbeddedPiece | EmbeddedKeys;

/** Stack and layer. The layer number is the model's own. */
export interface LayerPlace {
  stack: string;
  layer: number;
}

function isOf(piece: LayerPlace, wanted: LayerPlace): boolean {
  return piece.stack === wanted.stack && piece.layer === wanted.layer;
}

/** Reads the weights of layers from any of the forms in which they are embedded. */
export class EmbeddedLayers {
  readonly #blocks: EmbeddedBlock[];
  readonly #maps: EmbeddedPiece[];
  readonly #vectors: PageVectors;
  readonly #kept = new Recent<Promise<Rows>>(KEPT_BYTES);

  constructor(blocks: EmbeddedBlock[], maps: EmbeddedPiece[], vectors: PageVectors) {
    this.#blocks = blocks;
    this.#maps = maps;
    this.#vectors = vectors;
  }

  /** @throws Error if the page does not contain the layer. */
  async rows(at: LayerPlace): Promise<Rows> {
    return this.#once("rows", at, async () => {
      const block = this.#blocks.find((each) => isOf(each, at));
      if (block?.encoding === "strongest-keys") return sparseRows(block);
      if (block) return wholeRows(block);
      const computed = await this.#vectors.rows(at);
      if (computed) return computed;
      throw new Error(`This page does not contain layer ${at.layer} of “${at.stack}”.`);
    });
  }

  /** Return the number of weights that the page contains of a layer, or 0. */
  size(at: LayerPlace): number {
    const block = this.#blocks.find((each) => isOf(each, at));
    const [heads, rows, columns] = block?.shape ?? this.#vectors.shape(at);
    return heads * rows * columns;
  }

  /** Return the small maps of a layer, or null if the page contains none. */
  async maps(at: LayerPlace): Promise<Rows | null> {
    const maps = this.#maps.find((each) => isOf(each, at));
    return maps ? this.#once("maps", at, () => wholeRows(maps)) : null;
  }

  #once(kind: string, { stack, layer }: LayerPlace, make: () => Promise<Rows>): Promise<Rows> {
    return once(this.#kept, JSON.stringify([kind, stack, layer]), make, ({ bytes }) => bytes);
  }
}
