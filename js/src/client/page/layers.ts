/** The layers that an exported page contains, inflated when they are asked for. */

import { once, Recent } from "../recent";
import { type EmbeddedPiece, type Rows, wholeRows } from "./rows";
import { type EmbeddedKeys, sparseRows } from "./sparse";
import type { VectorCarrier } from "./vectors";

/** Bytes that are kept; a layer that was dropped is inflated again when it is asked for. */
const KEPT_BYTES = 64_000_000;

/** A layer's weights, in one of the forms; where there are none, its queries and keys are embedded. */
export type EmbeddedBlock = EmbeddedPiece | EmbeddedKeys;

/** Where a layer is: the model's own number. */
export interface LayerPlace {
  stack: string;
  layer: number;
}

function isOf(piece: LayerPlace, wanted: LayerPlace): boolean {
  return piece.stack === wanted.stack && piece.layer === wanted.layer;
}

/** Finds a layer's weights, whichever form they are embedded in. */
export class EmbeddedLayers {
  readonly #blocks: EmbeddedBlock[];
  readonly #maps: EmbeddedPiece[];
  readonly #vectors: VectorCarrier;
  readonly #kept = new Recent<Promise<Rows>>(KEPT_BYTES);

  constructor(blocks: EmbeddedBlock[], maps: EmbeddedPiece[], vectors: VectorCarrier) {
    this.#blocks = blocks;
    this.#maps = maps;
    this.#vectors = vectors;
  }

  /** @throws Error where the page does not contain the layer. */
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

  /** How many weights the page contains of a layer; 0 where none. */
  size(at: LayerPlace): number {
    const block = this.#blocks.find((each) => isOf(each, at));
    const [heads, rows, columns] = block?.shape ?? this.#vectors.shape(at);
    return heads * rows * columns;
  }

  /** Small maps of a layer, where they are embedded beside its weights. */
  async maps(at: LayerPlace): Promise<Rows | null> {
    const maps = this.#maps.find((each) => isOf(each, at));
    return maps ? this.#once("maps", at, () => wholeRows(maps)) : null;
  }

  #once(kind: string, { stack, layer }: LayerPlace, make: () => Promise<Rows>): Promise<Rows> {
    return once(this.#kept, JSON.stringify([kind, stack, layer]), make, ({ bytes }) => bytes);
  }
}
