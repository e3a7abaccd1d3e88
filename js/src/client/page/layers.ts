/**
 * The layers of an exported page. A layer is inflated when it is first requested. Data that the
 * page contains are called embedded. A small map is the attention matrix of a head, pooled to few
 * cells at the export.
 */

import { LruCache, once } from "../lru-cache";
import { type EmbeddedRows, readRows, type WeightRows } from "./rows";
import type { PageVectors } from "./vectors";

/** Maximum size of the cache in bytes. A layer that was dropped is inflated again on request. */
const CACHE_BYTES = 64_000_000;

/** Stack and layer. The layer has the number that it has in the model. */
export interface LayerKey {
  stack: string;
  layer: number;
}

function isSameLayer(first: LayerKey, second: LayerKey): boolean {
  return first.stack === second.stack && first.layer === second.layer;
}

/** Reads the weights of a layer: embedded weights, or weights computed from queries and keys. */
export class EmbeddedLayers {
  readonly #blocks: EmbeddedRows[];
  readonly #maps: EmbeddedRows[];
  readonly #vectors: PageVectors;
  readonly #cache = new LruCache<Promise<WeightRows>>(CACHE_BYTES);

  constructor(blocks: EmbeddedRows[], maps: EmbeddedRows[], vectors: PageVectors) {
    this.#blocks = blocks;
    this.#maps = maps;
    this.#vectors = vectors;
  }

  /**
   * Return the weights of a layer.
   *
   * @throws Error if the page does not contain the layer.
   */
  async rows(key: LayerKey): Promise<WeightRows> {
    return this.#cached("rows", key, async () => {
      const block = this.#blocks.find((entry) => isSameLayer(entry, key));
      if (block) return readRows(block);
      const computed = await this.#vectors.rows(key);
      if (computed) return computed;
      throw new Error(`This page does not contain layer ${key.layer} of “${key.stack}”.`);
    });
  }

  /**
   * Return the number of weights of a layer (heads * queries * keys), or 0 if the page does not
   * contain the layer.
   */
  size(key: LayerKey): number {
    const block = this.#blocks.find((entry) => isSameLayer(entry, key));
    const [heads, rows, columns] = block?.shape ?? this.#vectors.shape(key);
    return heads * rows * columns;
  }

  /** Return the embedded small maps of a layer, or null if the page does not contain them. */
  async maps(key: LayerKey): Promise<WeightRows | null> {
    const maps = this.#maps.find((entry) => isSameLayer(entry, key));
    return maps ? this.#cached("maps", key, () => readRows(maps)) : null;
  }

  #cached(
    kind: string,
    { stack, layer }: LayerKey,
    make: () => Promise<WeightRows>,
  ): Promise<WeightRows> {
    return once(this.#cache, JSON.stringify([kind, stack, layer]), make, ({ bytes }) => bytes);
  }
}
