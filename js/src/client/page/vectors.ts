/**
 * Queries and keys of an exported page, in the format of saved records
 * (`attnviz/record/storage/schema.py`).
 */

import { attentionRow, type RowInputs } from "../attention";
import { LruCache, once } from "../lru-cache";
import { bandMask, denseBias, distanceBias, packedMask, type RowFunction } from "../masks";
import type { VectorsHeader, VectorsRequest } from "../protocol";
import type { Reply } from "../transport";
import type { WeightRows } from "./rows";
import { inflatedText } from "./texts";

/**
 * A mask, stored as the limits of a band of keys around the query, or as one bit per pair of query
 * and key, in the array `bits`.
 */
type SavedMask =
  | { kind: "band"; before: number | null; after: number | null; offset: number }
  | { kind: "packed" };

/**
 * A bias that is added to logits, stored by distance from query to key, or for every pair of query
 * and key, in the array `values`.
 */
type SavedBias = { kind: "distance" } | { kind: "dense" };

/** Inputs of the logits of a layer, besides its arrays `queries`, `keys` and `sinks`. */
interface SavedLayer {
  number: number;
  scale: number;
  softcap: number | null;
  /**
   * Names of entries in `shared`, or null. They are also the prefixes of the names of the arrays of
   * these entries.
   */
  mask: string | null;
  bias: string | null;
}

/** Header of a saved record. Only the parts that are read are listed. */
interface SavedHeader {
  stacks: { name: string; layers: SavedLayer[] }[];
  shared: Record<string, SavedMask | SavedBias>;
}

/** Array of little-endian numbers, deflated and stored as a text for `inflatedText`. */
interface SavedArray {
  dtype: "F32" | "F16" | "BF16" | "I64" | "U8";
  shape: number[];
  data: string;
}

/** A saved record, as a page contains it. */
export interface SavedRecord {
  /** JSON of a `SavedHeader`, deflated and stored as a text for `inflatedText`. */
  header: string;
  /** Arrays by name. Empty if the page contains weights instead of queries and keys. */
  arrays: Record<string, SavedArray>;
}

/** Errors that result from rounding the queries and keys of a layer. */
export interface VectorErrors {
  stack: string;
  layer: number;
  /** Largest absolute error of a weight (`error`) and of a logit (`logit_error`). */
  error: number;
  logit_error: number;
  /**
   * Number of queries per head on which the errors were measured. Undefined if they were measured
   * on all queries.
   */
  measured?: number;
}

type Sizes = { queries: number; keys: number };
type LayerKey = { stack: string; layer: number };

/** A layer, with the sizes of its arrays. */
interface VectorLayer extends SavedLayer {
  numHeads: number;
  numKeyHeads: number;
  numQueries: number;
  numKeys: number;
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
function halvesToFloats(halves: Uint16Array, dtype: SavedArray["dtype"]): Float32Array {
  const count = halves.length;
  if (dtype === "F16") {
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

export function readFloats(bytes: Uint8Array, dtype: SavedArray["dtype"]): Float32Array {
  const { buffer } = bytes.slice();
  if (dtype === "F32") return new Float32Array(buffer);
  return halvesToFloats(new Uint16Array(buffer), dtype);
}

/**
 * Return a reply with a query, a range of keys, and the logits and weights of the query for these
 * keys.
 */
function vectorsReply(
  { head, keys: [start, stop] }: VectorsRequest,
  layer: VectorLayer,
  errors: VectorErrors,
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
    num_heads: layer.numHeads,
    key_head: Math.floor(head / (layer.numHeads / layer.numKeyHeads)),
    num_key_heads: layer.numKeyHeads,
    num_allowed: numAllowed,
    strongest,
    weight_in_range: row.weights.subarray(start, stop).reduce((sum, weight) => sum + weight, 0),
    error: errors.error,
    logit_error: errors.logit_error,
    ...(errors.measured && { measured: errors.measured }),
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
  readonly #saved: SavedRecord;
  readonly #errors: VectorErrors[];
  readonly #floatCache = new LruCache<Promise<Float32Array>>(CACHE_BYTES);
  readonly #byteCache = new LruCache<Promise<Uint8Array>>(CACHE_BYTES);
  #header: Promise<SavedHeader> | null = null;

  constructor(saved: SavedRecord, errors: VectorErrors[]) {
    this.#saved = saved;
    this.#errors = errors;
  }

  /**
   * Answer a request for a query and a range of keys.
   *
   * @throws Error if the page does not contain queries and keys of the layer.
   */
  async reply(request: VectorsRequest): Promise<Reply> {
    const layer = await this.#layer(request);
    if (!layer) {
      throw new Error(
        `This page does not contain queries and keys of layer ${request.layer} of “${request.stack}”.`,
      );
    }
    const inputs = (await this.#inputs(request.stack, layer))(request.head, request.token);
    return vectorsReply(request, layer, this.#errorsOf(request), inputs);
  }

  /**
   * Return the numbers of heads, queries and keys of a layer. All are 0 if its queries and keys are
   * not embedded.
   */
  shape({ stack, layer }: LayerKey): [number, number, number] {
    const [heads = 0, queries = 0] = this.#shapeOf(`${stack}/${layer}/queries`);
    const [, keys = 0] = this.#shapeOf(`${stack}/${layer}/keys`);
    return [heads, queries, keys];
  }

  /**
   * Return the weights of a layer, or null if its queries and keys are not embedded. The weights of
   * a row are computed when they are first read.
   */
  async rows(key: LayerKey): Promise<WeightRows | null> {
    const layer = await this.#layer(key);
    if (!layer) return null;
    const inputs = await this.#inputs(key.stack, layer);
    const { numQueries, numKeys } = layer;
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
      ...{ shape, maximum: 1, error: this.#errorsOf(key).error, bytes },
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

  /** Return a layer, or null if its queries and keys are not embedded. */
  async #layer(key: LayerKey): Promise<VectorLayer | null> {
    const [numHeads, numQueries, numKeys] = this.shape(key);
    if (numHeads === 0) return null;
    const [numKeyHeads = 1] = this.#shapeOf(`${key.stack}/${key.layer}/keys`);
    const { stacks } = await this.#readHeader();
    const stack = stacks.find(({ name }) => name === key.stack);
    const layer = stack?.layers.find(({ number }) => number === key.layer);
    return layer ? { ...layer, numHeads, numKeyHeads, numQueries, numKeys } : null;
  }

  #errorsOf({ stack, layer }: LayerKey): VectorErrors {
    return this.#errors.find(
      (entry) => entry.stack === stack && entry.layer === layer,
    ) as VectorErrors;
  }

  #readHeader(): Promise<SavedHeader> {
    this.#header ??= inflatedText(this.#saved.header).then((bytes) =>
      JSON.parse(new TextDecoder().decode(bytes)),
    );
    return this.#header;
  }

  /** Return a function that returns the inputs of a layer's row for a head and a query token. */
  async #inputs(
    stack: string,
    layer: VectorLayer,
  ): Promise<(head: number, token: number) => RowInputs> {
    const { numKeys, numQueries } = layer;
    const prefix = `${stack}/${layer.number}`;
    const { shared } = await this.#readHeader();
    const mask = layer.mask === null ? null : (shared[layer.mask] as SavedMask);
    const bias = layer.bias === null ? null : (shared[layer.bias] as SavedBias);
    const size = { queries: numQueries, keys: numKeys };
    const sinksName = `${prefix}/sinks`;
    const [queries, keys, sinks, biasOf, allowed] = await Promise.all([
      this.#floats(`${prefix}/queries`),
      this.#floats(`${prefix}/keys`),
      sinksName in this.#saved.arrays ? this.#floats(sinksName) : null,
      this.#bias(bias, `${layer.bias}/`, size),
      this.#allowed(mask, `${layer.mask}/`, size),
    ]);
    const dim = queries.length / (layer.numHeads * numQueries);
    return (head, token) => {
      const keyHead = Math.floor(head / (layer.numHeads / layer.numKeyHeads));
      const start = (head * numQueries + token) * dim;
      return {
        query: queries.subarray(start, start + dim),
        keys: keys.subarray(keyHead * numKeys * dim, (keyHead + 1) * numKeys * dim),
        numKeys,
        scale: layer.scale,
        softcap: layer.softcap,
        bias: biasOf(head, token),
        allowed: allowed(head, token),
        sink: sinks?.[head] ?? null,
      };
    };
  }

  /** @param prefix beginning of the names of the bias's arrays. */
  async #bias(bias: SavedBias | null, prefix: string, size: Sizes): Promise<RowFunction<number>> {
    if (!bias) return () => () => 0;
    const name = `${prefix}values`;
    const [values, [heads = 1, rows = 1]] = [await this.#floats(name), this.#shapeOf(name)];
    if (bias.kind === "distance") return distanceBias(values, { heads, ...size });
    return denseBias(values, { heads, rows, keys: size.keys });
  }

  /** @param prefix beginning of the names of the mask's arrays. */
  async #allowed(
    mask: SavedMask | null,
    prefix: string,
    size: Sizes,
  ): Promise<RowFunction<boolean>> {
    if (!mask) return () => () => true;
    if (mask.kind === "band") return bandMask(mask.before, mask.after, mask.offset);
    const name = `${prefix}bits`;
    const [heads = 1] = this.#shapeOf(name);
    return packedMask(await this.#bytes(name), { heads, ...size });
  }

  #shapeOf(name: string): number[] {
    return this.#saved.arrays[name]?.shape ?? [];
  }

  #floats(name: string): Promise<Float32Array> {
    const make = async () => readFloats(await this.#inflated(name), this.#array(name).dtype);
    return once(this.#floatCache, name, make, ({ byteLength }) => byteLength);
  }

  #bytes(name: string): Promise<Uint8Array> {
    const make = () => this.#inflated(name);
    return once(this.#byteCache, name, make, ({ length }) => length);
  }

  async #inflated(name: string): Promise<Uint8Array> {
    return inflatedText(this.#array(name).data);
  }

  #array(name: string): SavedArray {
    const array = this.#saved.arrays[name];
    if (!array) throw new Error(`The page’s data contain no array “${name}”.`);
    return array;
  }
}
