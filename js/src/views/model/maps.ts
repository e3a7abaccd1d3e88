/**
 * Requests and cache of maps. A map is the attention matrix of one head, pooled to `size` by `size`
 * cells if the matrix is larger. The cell of a pooled map has the largest weight of its queries and
 * keys.
 */

import { type Signal, signal } from "@preact/signals";
import { LruCache } from "../../client/lru-cache";
import type { Range, StackDescription } from "../../client/protocol";
import { headsOf, type Source } from "../../client/source";
import { MAX_REPLY_BYTES } from "../../client/transport";
import { same } from "../../ui/view/state";

/** Map of one head. */
export interface HeadMap {
  /** Weights in row-major order, of length `rows * columns`. */
  values: Float32Array;
  rows: number;
  columns: number;
  /** Largest possible weight. */
  maximum: number;
  /** Largest absolute error of `values`. */
  error: number;
  /**
   * Index in `values` of the cell with the largest weight, and the exact value of this weight.
   * Omitted if only rounded weights are known.
   */
  largest?: [number, number] | undefined;
  /** Query of each row, if the rows are a sample of the queries. Otherwise omitted. */
  sampled?: readonly number[] | undefined;
}

/** Part of the attention matrices that maps cover. */
export interface Part {
  /** Queries. */
  rows: Range;
  /** Keys. */
  columns: Range;
}

/** Maps of all heads of a stack with the same resolution and the same queries and keys. */
export interface MapSet {
  stack: string;
  /** Maximum number of cells per side. */
  size: number;
  /** Covered queries and keys, or null for all. */
  part: Part | null;
}

/** Maps of a set that the view needs. */
export interface MapsRequest extends MapSet {
  /** Layers, each with its heads. */
  layers: [number, number[]][];
}

/** Number of rows of a map, and the queries of sampled rows. */
type MapRows = Pick<HeadMap, "rows" | "sampled">;

/** Properties that are the same for all maps of a set. */
export interface MapProperties extends Omit<HeadMap, "values" | "largest"> {
  stack: string;
}

interface PendingRequest {
  /** Cache keys of the requested maps. */
  keys: Set<string>;
  done: Promise<void>;
  controller: AbortController;
}

/** Maximum size of the cache in bytes. About 15,000 maps of 32 x 32 cells fit. */
const CACHE_BYTES = 64_000_000;
/** Resolutions of maps in cells per side, the finest first. */
const SIZES = [64, 32, 16] as const;
/** Maximum number of weights per request. A kernel pools them in a few tenths of a second. */
const WEIGHTS_AT_ONCE = 1 << 24;

function keyOf({ stack, size, part }: MapSet, layer: number, head: number): string {
  const partText = part ? `${part.rows} ${part.columns}` : "";
  return `${layer} ${head} ${size} ${partText} ${stack}`;
}

/** Cache that requests missing maps. */
export class HeadMaps {
  /** Number of replies so far. Its change makes the grid repaint. */
  readonly arrivals: Signal<number> = signal(0);
  /** Properties of the maps in the last reply, or null before the first reply. */
  readonly properties: Signal<MapProperties | null> = signal(null);
  readonly #source: Source;
  readonly #cache = new LruCache<HeadMap>(CACHE_BYTES);
  readonly #pending = new Set<PendingRequest>();
  readonly #stackOf: (name: string) => StackDescription | undefined;

  constructor(source: Source, stackOf: (name: string) => StackDescription | undefined) {
    this.#source = source;
    this.#stackOf = stackOf;
  }

  /**
   * Return the map of a head. Until it has arrived, return a cached map of another resolution, or
   * undefined if none is cached.
   */
  get(set: MapSet, layer: number, head: number): HeadMap | undefined {
    const exact = this.#cache.get(keyOf(set, layer, head));
    if (exact) return exact;
    for (const size of SIZES) {
      const map = this.#cache.get(keyOf({ ...set, size }, layer, head));
      if (map) return map;
    }
    return undefined;
  }

  /** Return whether a map of the head with at least the resolution of `set` is cached. */
  #isCached(set: MapSet, layer: number, head: number): boolean {
    const sizes = [set.size, ...SIZES.filter((size) => size > set.size)];
    return sizes.some((size) => this.#cache.get(keyOf({ ...set, size }, layer, head)));
  }

  /**
   * Request the maps that are neither cached nor pending, and wait for all of them. Cancel pending
   * requests that contain none of the needed maps.
   */
  async load(request: MapsRequest): Promise<void> {
    const needed = new Set<string>();
    for (const [layer, heads] of request.layers)
      for (const head of heads) needed.add(keyOf(request, layer, head));
    for (const pending of this.#pending)
      if (![...pending.keys].some((key) => needed.has(key))) pending.controller.abort();
    const running = [...this.#pending].filter((pending) => !pending.controller.signal.aborted);
    const pendingKeys = new Set(running.flatMap((pending) => [...pending.keys]));
    for (const [layer, heads] of request.layers) {
      const missing = heads.filter((head) => {
        const key = keyOf(request, layer, head);
        return !pendingKeys.has(key) && !this.#isCached(request, layer, head);
      });
      const batchSize = this.#headsPerRequest(request);
      for (let from = 0; from < missing.length; from += batchSize)
        running.push(this.#send(request, layer, missing.slice(from, from + batchSize)));
    }
    await Promise.all(running.map((pending) => pending.done));
  }

  #headsPerRequest({ stack, size, part }: MapsRequest): number {
    const description = this.#stackOf(stack);
    if (!description) return 1;
    const queries = description.query_tokens.text.length;
    const keys = (description.key_tokens ?? description.query_tokens).text.length;
    const { rows, columns } = part ?? { rows: [0, queries] as Range, columns: [0, keys] as Range };
    const count = rows[1] - rows[0];
    const numRows = description.sampled === undefined ? count : Math.min(count, size);
    const weights = numRows * (columns[1] - columns[0]);
    const maxHeads = Math.min(MAX_REPLY_BYTES / size ** 2, WEIGHTS_AT_ONCE / weights);
    return Math.max(1, Math.floor(maxHeads));
  }

  #send(mapsRequest: MapsRequest, layer: number, heads: number[]): PendingRequest {
    const controller = new AbortController();
    const done = this.#fetch(mapsRequest, layer, heads, controller.signal)
      .then(() => {
        this.arrivals.value += 1;
      })
      .finally(() => this.#pending.delete(pending));
    const pending: PendingRequest = {
      keys: new Set(heads.map((head) => keyOf(mapsRequest, layer, head))),
      done,
      controller,
    };
    this.#pending.add(pending);
    return pending;
  }

  async #fetch(mapsRequest: MapsRequest, layer: number, heads: number[], ended: AbortSignal) {
    const { stack, size, part } = mapsRequest;
    const description = this.#stackOf(stack);
    // A request without `heads` stands for all heads of the layer.
    const isAll = description && heads.length === headsOf(description, layer).length;
    const request = { stack, layer, size, ...(isAll ? {} : { heads }), ...part };
    const { matrices, largest, ...piece } = await this.#source.maps(request, ended);
    const { rows, columns, maximum, error, sampled } = piece;
    heads.forEach((head, i) => {
      const values = matrices[i] as Float32Array;
      const map = { values, rows, columns, maximum, error, largest: largest?.[i], sampled };
      this.#cache.set(keyOf(mapsRequest, layer, head), map, values.byteLength);
    });
    const properties = { stack, rows, columns, maximum, error, sampled };
    if (!same(this.properties.peek(), properties)) this.properties.value = properties;
  }

  /** Cancel all pending requests. */
  end(): void {
    for (const pending of this.#pending) pending.controller.abort();
  }
}

/** Return the cell with the largest absolute weight, or null if all weights are 0. */
export function strongestCell(
  map: HeadMap,
): { row: number; column: number; weight: number } | null {
  let [best, weight] = map.largest ?? [-1, 0];
  if (weight === 0) best = -1;
  for (let i = 0; i < map.values.length && !map.largest; i++) {
    const value = map.values[i] as number;
    if (Math.abs(value) > Math.abs(weight)) {
      best = i;
      weight = value;
    }
  }
  if (best < 0) return null;
  return { row: Math.floor(best / map.columns), column: best % map.columns, weight };
}

/**
 * Return the range of queries that a row of a map covers. In a sample, a row is a single query.
 *
 * @param range queries that the map covers.
 */
export function queriesOf(row: number, { rows, sampled }: MapRows, range: Range): Range {
  const query = sampled?.[row];
  return query === undefined ? coveredRange(row, rows, range) : [query, query + 1];
}

/**
 * Return the range of queries (or keys) that one row (or column) of a map covers.
 *
 * @param index row or column.
 * @param cells number of rows or columns.
 * @param range queries or keys that the map covers.
 */
export function coveredRange(index: number, cells: number, [start, stop]: Range): Range {
  const count = stop - start;
  return [
    start + Math.floor((index * count) / cells),
    start + Math.floor(((index + 1) * count) / cells),
  ];
}
