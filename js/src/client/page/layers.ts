/** The layers of an exported page, inflated on request. */

import { LruCache, once } from "../lru-cache";
import { completeRows, type EmbeddedWeights, type WeightRows } from "./rows";
import { type EmbeddedKeys, sparseRows } from "./sparse";
import type { PageVectors } from "./vectors";

/** Cache size in bytes. A layer that was dropped is inflated again on request. */
const CACHE_BYTES = 64_000_000;

/** Weights of a layer, complete or as strongest keys. Other layers have embedded queries and keys. */
export type EmbeddedBlock = EmbeddedWeights | EmbeddedKeys;

/** Stack and layer. The layer number is the model's own. */
export interface LayerKey {
  stack: string;
  layer: number;
}

function isSameLayer(first: LayerKey, second: LayerKey): boolean {
  return first.stack === second.stack && first.layer === second.layer;
}

/** Reads the weights of layers from any of the forms in which they are embedded. */
export class EmbeddedLayers {
  readonly #blocks: EmbeddedBlock[];
  readonly #maps: EmbeddedWeights[];
  readonly #vectors: PageVectors;
  readonly #cache = new LruCache<Promise<WeightRows>>(CACHE_BYTES);

  constructor(blocks: EmbeddedBlock[], maps: EmbeddedWeights[], vectors: PageVectors) {
    this.#blocks = blocks;
    this.#maps = maps;
    this.#vectors = vectors;
  }

  /** @throws Error if the page does not contain the layer. */
  async rows(key: LayerKey): Promise<WeightRows> {
    return this.#cached("rows", key, async () => {
      const block = this.#blocks.find((entry) => isSameLayer(entry, key));
      if (block?.encoding === "strongest-keys") return sparseRows(block);
      if (block) return completeRows(block);
      const computed = await this.#vectors.rows(key);
      if (computed) return computed;
      throw new Error(`This page does not contain layer ${key.layer} of “${key.stack}”.`);
    });
  }

  /** Return the number of weights that the page contains of a layer, or 0. */
  size(key: LayerKey): number {
    const block = this.#blocks.find((entry) => isSameLayer(entry, key));
    const [heads, rows, columns] = block?.shape ?? this.#vectors.shape(key);
    return heads * rows * columns;
  }

  /** Return the small maps of a layer, or null if the page contains none. */
  async maps(key: LayerKey): Promise<WeightRows | null> {
    const maps = this.#maps.find((entry) => isSameLayer(entry, key));
    return maps ? this.#cached("maps", key, () => completeRows(maps)) : null;
  }

  #cached(
    kind: string,
    { stack, layer }: LayerKey,
    make: () => Promise<WeightRows>,
  ): Promise<WeightRows> {
    return once(this.#cache, JSON.stringify([kind, stack, layer]), make, ({ bytes }) => bytes);
  }
}
