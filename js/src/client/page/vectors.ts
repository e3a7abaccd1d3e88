/** Queries and keys of an exported page, in the format that `attnviz/pages/vectors.py` writes. */

import { attentionRow, type RowInputs } from "../attention";
import { LruCache, once } from "../lru-cache";
import {
  bandMask,
  denseBias,
  distanceBias,
  packedMask,
  type RowFunction,
  withInsertedTokens,
} from "../masks";
import type { VectorsHeader, VectorsRequest } from "../protocol";
import type { Reply } from "../transport";
import type { WeightRows } from "./rows";
import { inflatedText } from "./texts";

/**
 * A mask or bias for a text with inserted tokens. `base` is the mask or bias for the shorter text
 * without these tokens. `query_places` and `key_places` are indices of two arrays. For each query
 * or key of the longer text, an array has its index in the shorter text, or -1 if it is inserted.
 */
interface Inserted<Base> {
  kind: "inserted";
  num_queries: number;
  num_keys: number;
  query_places: number;
  key_places: number;
  base: Base;
}

/**
 * A mask, stored as the limits of a band of keys around the query, or as one bit per pair of query
 * and key.
 */
type EmbeddedMask =
  | { kind: "band"; before: number | null; after: number | null; offset: number }
  | { kind: "packed"; heads: number; bits: number }
  | Inserted<EmbeddedMask | null>;

/**
 * A bias that is added to logits, stored by distance from query to key, or for every pair of query
 * and key.
 */
type EmbeddedBias =
  | { kind: "distance"; heads: number; values: number }
  | { kind: "dense"; heads: number; rows: number; values: number }
  | Inserted<EmbeddedBias>;

type Sizes = { num_queries: number; num_keys: number };

type VectorEncoding = "float32" | "float16" | "bfloat16";

/** Inputs of the logits of a layer. An array is given as its index in `EmbeddedVectors.arrays`. */
export interface EmbeddedLayer {
  stack: string;
  layer: number;
  num_heads: number;
  num_key_heads: number;
  num_queries: number;
  num_keys: number;
  head_dim: number;
  encoding: VectorEncoding;
  /**
   * Indices of two arrays, which have the shapes (heads, queries, head_dim) and (key heads, keys,
   * head_dim).
   */
  queries: number;
  keys: number;
  scale: number;
  softcap: number | null;
  sinks: number[] | null;
  mask: EmbeddedMask | null;
  bias: EmbeddedBias | null;
  error: number;
  logit_error: number;
  /**
   * Number of queries per head on which the errors were measured. Undefined if they were measured
   * on all queries.
   */
  measured?: number;
}

export interface EmbeddedVectors {
  layers: EmbeddedLayer[];
  /** Arrays of little-endian numbers, deflated and stored as texts for `inflatedText`. */
  arrays: string[];
}

/** Maximum number of strongest keys in a reply. */
const NUM_STRONGEST = 5;
/** Maximum size of each cache in bytes. */
const CACHE_BYTES = 64_000_000;

/** Return the number that 16 bits stand for (IEEE 754 binary16). */
export function fromHalf(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

let halfValues: Float32Array | null = null;

/** Convert float16 or bfloat16 numbers to float32. */
function halvesToFloats(halves: Uint16Array, encoding: "float16" | "bfloat16"): Float32Array {
  const count = halves.length;
  if (encoding === "float16") {
    halfValues ??= Float32Array.from({ length: 65536 }, (_, bits) => fromHalf(bits));
    const floats = new Float32Array(count);
    for (let i = 0; i < count; i++) floats[i] = halfValues[halves[i] as number] as number;
    return floats;
  }
  // A bfloat16 has the upper 16 bits of a float32. The lower 16 bits are 0.
  const bits = new Uint32Array(count);
  for (let i = 0; i < count; i++) bits[i] = (halves[i] as number) * 65536;
  return new Float32Array(bits.buffer);
}

export function readFloats(bytes: Uint8Array, encoding: VectorEncoding): Float32Array {
  const { buffer } = bytes.slice();
  if (encoding === "float32") return new Float32Array(buffer);
  return halvesToFloats(new Uint16Array(buffer), encoding);
}

/** Properties of a layer that a reply with queries and keys contains. */
type VectorLayer = Pick<
  EmbeddedLayer,
  "num_heads" | "num_key_heads" | "scale" | "softcap" | "error" | "logit_error" | "measured"
> & { bias: unknown };

/**
 * Return a reply with a query, a range of keys, and the logits and weights of the query for these
 * keys.
 */
function vectorsReply(
  { head, keys: [start, stop] }: VectorsRequest,
  layer: VectorLayer,
  inputs: RowInputs,
): Reply {
  const { allowed, bias, numKeys } = inputs;
  const dim = inputs.query.length;
  const row = attentionRow(inputs);
  const strongest = Array.from(row.weights, (weight, key): [number, number] => [key, weight])
    .filter(([, weight]) => weight > 0)
    .sort((a, b) => b[1] - a[1] || a[0] - b[0])
    .slice(0, NUM_STRONGEST);
  const range = Array.from({ length: stop - start }, (_, i) => start + i);
  const parts: [string, number[], ArrayLike<number>][] = [
    ["query", [dim], inputs.query],
    ["keys", [range.length, dim], inputs.keys.subarray(start * dim, stop * dim)],
    ["bias", [range.length], range.map(bias)],
    ["allowed", [range.length], range.map((key) => (allowed(key) ? 1 : 0))],
    ["logits", [range.length], row.logits.subarray(start, stop)],
    ["weights", [range.length], row.weights.subarray(start, stop)],
  ];
  let numAllowed = 0;
  for (let key = 0; key < numKeys; key++) if (allowed(key)) numAllowed++;
  const header: VectorsHeader = {
    parts: parts.map(([name, shape]) => ({ name, shape })),
    scale: layer.scale,
    softcap: layer.softcap,
    has_bias: layer.bias !== null,
    sink: inputs.sink === null ? null : { logit: inputs.sink, weight: row.sinkWeight ?? 0 },
    log_sum_exp: row.logSumExp,
    head,
    num_heads: layer.num_heads,
    key_head: Math.floor(head / (layer.num_heads / layer.num_key_heads)),
    num_key_heads: layer.num_key_heads,
    num_allowed: numAllowed,
    strongest,
    weight_in_range: row.weights.subarray(start, stop).reduce((sum, weight) => sum + weight, 0),
    error: layer.error,
    logit_error: layer.logit_error,
    ...(layer.measured && { measured: layer.measured }),
  };
  const data = new Float32Array(parts.reduce((sum, [, , values]) => sum + values.length, 0));
  let offset = 0;
  for (const [, , values] of parts) {
    data.set(values, offset);
    offset += values.length;
  }
  return { header, data };
}

/** Answers requests for queries and keys, and computes weights from them. */
export class PageVectors {
  readonly #data: EmbeddedVectors;
  readonly #floatCache = new LruCache<Promise<Float32Array>>(CACHE_BYTES);
  readonly #byteCache = new LruCache<Promise<Uint8Array>>(CACHE_BYTES);

  constructor(data: EmbeddedVectors) {
    this.#data = data;
  }

  /**
   * Answer a request for a query and a range of keys.
   *
   * @throws Error if the page does not contain queries and keys of the layer.
   */
  async reply(request: VectorsRequest): Promise<Reply> {
    const layer = this.#data.layers.find(
      (entry) => entry.stack === request.stack && entry.layer === request.layer,
    );
    if (!layer) {
      throw new Error(
        `This page does not contain queries and keys of layer ${request.layer} of “${request.stack}”.`,
      );
    }
    const inputs = (await this.#inputs(layer))(request.head, request.token);
    return vectorsReply(request, layer, inputs);
  }

  /**
   * Return the numbers of heads, queries and keys of a layer. All are 0 if its queries and keys are
   * not embedded.
   */
  shape({ stack, layer: number }: { stack: string; layer: number }): [number, number, number] {
    const layer = this.#data.layers.find(
      (entry) => entry.stack === stack && entry.layer === number,
    );
    if (!layer) return [0, 0, 0];
    return [layer.num_heads, layer.num_queries, layer.num_keys];
  }

  /**
   * Return the weights of a layer, or null if its queries and keys are not embedded. The weights of
   * a row are computed when they are first read.
   */
  async rows(key: { stack: string; layer: number }): Promise<WeightRows | null> {
    const layer = this.#data.layers.find(
      (entry) => entry.stack === key.stack && entry.layer === key.layer,
    );
    if (!layer) return null;
    const inputs = await this.#inputs(layer);
    const { num_queries: numQueries, num_keys: numKeys } = layer;
    const shape = this.shape(key);
    const bytes = 4 * shape[0] * numQueries * numKeys;
    const computedRows = new Map<number, Float32Array>();
    const rowOf = (head: number, row: number): Float32Array => {
      const index = head * numQueries + row;
      let weights = computedRows.get(index);
      if (!weights) {
        weights = Float32Array.from(attentionRow(inputs(head, row)).weights);
        computedRows.set(index, weights);
      }
      return weights;
    };
    return {
      ...{ shape, maximum: 1, error: layer.error, bytes },
      add: (heads, row, left, line) => {
        for (const head of heads) {
          const weights = rowOf(head, row);
          for (let x = 0; x < line.length; x++) {
            line[x] = (line[x] as number) + (weights[left + x] as number);
          }
        }
      },
    };
  }

  /** Return a function that returns the inputs of a layer's row for a head and a query token. */
  async #inputs(layer: EmbeddedLayer): Promise<(head: number, token: number) => RowInputs> {
    const { head_dim: dim, num_keys: numKeys, num_queries: numQueries } = layer;
    const [queries, keys, bias, allowed] = await Promise.all([
      this.#floats(layer.queries, layer.encoding),
      this.#floats(layer.keys, layer.encoding),
      this.#bias(layer.bias, layer),
      this.#allowed(layer.mask, layer),
    ]);
    return (head, token) => {
      const keyHead = Math.floor(head / (layer.num_heads / layer.num_key_heads));
      const start = (head * numQueries + token) * dim;
      return {
        query: queries.subarray(start, start + dim),
        keys: keys.subarray(keyHead * numKeys * dim, (keyHead + 1) * numKeys * dim),
        numKeys,
        scale: layer.scale,
        softcap: layer.softcap,
        bias: bias(head, token),
        allowed: allowed(head, token),
        sink: layer.sinks?.[head] ?? null,
      };
    };
  }

  async #bias(bias: EmbeddedBias | null, size: Sizes): Promise<RowFunction<number>> {
    if (!bias) return () => () => 0;
    if (bias.kind === "inserted") return this.#inserted(bias, await this.#bias(bias.base, bias), 0);
    const values = await this.#floats(bias.values, "float32");
    const sizes = { heads: bias.heads, queries: size.num_queries, keys: size.num_keys };
    if (bias.kind === "distance") return distanceBias(values, sizes);
    return denseBias(values, { ...sizes, rows: bias.rows });
  }

  async #allowed(mask: EmbeddedMask | null, size: Sizes): Promise<RowFunction<boolean>> {
    if (!mask) return () => () => true;
    if (mask.kind === "inserted") {
      return this.#inserted(mask, await this.#allowed(mask.base, mask), false);
    }
    if (mask.kind === "band") return bandMask(mask.before, mask.after, mask.offset);
    const bits = await this.#bytes(mask.bits);
    const { heads } = mask;
    return packedMask(bits, { heads, queries: size.num_queries, keys: size.num_keys });
  }

  /**
   * Extend a mask or bias for the shorter text to the text with inserted tokens.
   *
   * @param missing value of pairs with an inserted token.
   */
  async #inserted<T>(
    { query_places, key_places }: Inserted<unknown>,
    base: RowFunction<T>,
    missing: T,
  ): Promise<RowFunction<T>> {
    const [queries, keys] = await Promise.all(
      [query_places, key_places].map(async (index) => {
        const bytes = await this.#bytes(index);
        return new Int32Array(bytes.slice().buffer);
      }),
    );
    return withInsertedTokens(queries as Int32Array, keys as Int32Array, base, missing);
  }

  #floats(index: number, encoding: VectorEncoding): Promise<Float32Array> {
    const make = async () => readFloats(await this.#inflated(index), encoding);
    return once(this.#floatCache, `${index} ${encoding}`, make, ({ byteLength }) => byteLength);
  }

  #bytes(index: number): Promise<Uint8Array> {
    return once(
      this.#byteCache,
      String(index),
      () => this.#inflated(index),
      ({ length }) => length,
    );
  }

  async #inflated(index: number): Promise<Uint8Array> {
    const text = this.#data.arrays[index];
    if (text === undefined) throw new Error(`The page’s data contain no array ${index}.`);
    return inflatedText(text);
  }
}
