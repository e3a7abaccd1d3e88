/**
 * Queries and keys of an exported page, in the format of saved records
 * (`attnviz/record/storage/schema.py`), and the weights that are computed from them.
 */

import { attentionRow, type RowInputs } from "../attention";
import type { VectorsHeader, VectorsRequest } from "../protocol";
import type { Reply } from "../transport";
import { SCORED_ZERO } from "../zeros";
import type { LayerKey, WeightRows } from "./rows";
import { inflatedText } from "./texts";

/**
 * Numbers of a layer that its logits depend on. The arrays `queries`, `keys` and `sinks`, and the
 * `gates`, are in `SavedRecord.arrays`.
 */
interface SavedLayer {
  number: number;
  scale: number;
  softcap: number | null;
  /**
   * Names of the mask and of the bias, which are keys of `SavedHeader.shared`, such as "shared/0".
   * null if the layer has no mask or no bias. If a mask or bias has an array, `SavedRecord.arrays`
   * contains it under a longer name, such as "shared/0/bits".
   */
  mask: string | null;
  bias: string | null;
}

/** Header of a saved record. Only the parts that are read are listed. */
interface SavedHeader {
  stacks: { name: string; layers: SavedLayer[] }[];
  /**
   * Masks and biases (see `attnviz/record/masks.py`). A "band" is a mask that allows the keys up to
   * `before` positions before and up to `after` positions after the query. If one of these numbers
   * is null, all keys on this side are allowed. `offset` is the position of the first query among
   * the keys. A mask of the kind "chosen" consists of two masks: `base` allows the keys that could
   * be chosen (all if it is null), and `chosen` allows those that were chosen. The other kinds have
   * an array: `bits` of a mask ("packed"), or `values` of a bias ("distance" or "dense").
   */
  shared: Record<string, SavedMask | { kind: "distance" | "dense" }>;
}

type SavedMask =
  | { kind: "band"; before: number | null; after: number | null; offset: number }
  | { kind: "packed" }
  | { kind: "chosen"; chosen: SavedMask; base: SavedMask | null };

/** A saved record, as a page contains it. */
export interface SavedRecord {
  /** JSON of a `SavedHeader`, deflated. `inflatedText` inflates it. */
  header: string;
  /**
   * Arrays of little-endian numbers by name. Their data are deflated, and `inflatedText` inflates
   * them. Empty if the page contains weights instead of queries and keys.
   */
  arrays: Record<string, EmbeddedArray>;
}

interface EmbeddedArray {
  dtype: string;
  shape: number[];
  data: string;
}

/** Errors that result from rounding the queries and keys of a layer. */
export interface VectorErrors extends LayerKey {
  /** Largest absolute error of a weight (`error`) and of a logit (`logit_error`). */
  error: number;
  logit_error: number;
  /**
   * Number of queries per head on which the errors were measured. Undefined if they were measured
   * on all queries, or if nothing was rounded.
   */
  measured?: number;
}

/** Queries and keys of a layer. */
export type LayerVectors = Awaited<ReturnType<typeof readVectors>>;

/**
 * Array of a saved record. In a "packed" mask or a "dense" bias, the first two axes are heads and
 * queries. If such an axis has length 1, the values are the same for all heads or for all queries.
 */
interface PairArray {
  values: Float32Array | Uint8Array;
  shape: number[];
}

/** Function of a head, a query and a key. */
type OfPair<T> = (head: number, query: number, key: number) => T;

/** Maximum number of keys in `RowHeader.strongest`. */
const NUM_STRONGEST = 5;

/** Return the number that 16 bits stand for (IEEE 754 binary16). */
export function fromHalf(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

export function readNumbers(bytes: Uint8Array, dtype: string): Float32Array | Uint8Array {
  if (dtype === "U8") return bytes;
  const { buffer } = bytes.slice();
  if (dtype === "F32") return new Float32Array(buffer);
  const halves = new Uint16Array(buffer);
  if (dtype === "F16") return Float32Array.from(halves, fromHalf);
  // A bfloat16 has the upper 16 bits of a float32. The lower 16 bits are 0.
  return new Float32Array(Uint32Array.from(halves, (bits) => bits << 16).buffer);
}

/**
 * Return the numbers of heads, queries and keys of a layer. All are 0 if its queries and keys are
 * not embedded.
 */
export function shapeOfVectors(
  { arrays }: SavedRecord,
  { stack, layer }: LayerKey,
): [number, number, number] {
  const [heads = 0, queries = 0] = arrays[`${stack}/${layer}/queries`]?.shape ?? [];
  const [, keys = 0] = arrays[`${stack}/${layer}/keys`]?.shape ?? [];
  return [heads, queries, keys];
}

export async function readHeader({ header }: SavedRecord): Promise<SavedHeader> {
  return JSON.parse(new TextDecoder().decode(await inflatedText(header)));
}

/** @throws Error if the page does not contain queries and keys of the layer. */
export async function readVectors(saved: SavedRecord, header: SavedHeader, key: LayerKey) {
  const layer = header.stacks
    .find(({ name }) => name === key.stack)
    ?.layers.find(({ number }) => number === key.layer);
  const prefix = `${key.stack}/${key.layer}`;
  if (!layer || !(`${prefix}/queries` in saved.arrays)) {
    throw new Error(
      `This page does not contain queries and keys of layer ${key.layer} of “${key.stack}”.`,
    );
  }
  const read = async (name: string): Promise<PairArray> => {
    const { data, dtype, shape } = saved.arrays[name] as EmbeddedArray;
    return { values: readNumbers(await inflatedText(data), dtype), shape };
  };
  const [queries, keys, sinks, gates] = await Promise.all([
    read(`${prefix}/queries`),
    read(`${prefix}/keys`),
    `${prefix}/sinks` in saved.arrays ? read(`${prefix}/sinks`) : null,
    `${prefix}/gates` in saved.arrays ? read(`${prefix}/gates`) : null,
  ]);
  const shape = shapeOfVectors(saved, key);
  const [numHeads, numQueries, numKeys] = shape;
  const [numKeyHeads = 0, , dim = 0] = keys.shape;
  const mask = layer.mask === null ? null : (header.shared[layer.mask] as SavedMask);
  const { allowed, leftOut } = await readMask(mask, `${layer.mask}/`, read);
  const bias = await readBias(header, layer.bias, read, numQueries);
  return {
    ...{ ...layer, shape, numKeyHeads },
    /** Size in memory, in bytes. */
    bytes: queries.values.byteLength + keys.values.byteLength,
    /** Return the mean gate of a head at a query, or undefined if it is not known. */
    gate: (head: number, query: number): number | undefined => {
      const gate = gates?.values[head * numQueries + query];
      return Number.isNaN(gate) ? undefined : gate;
    },
    allowed,
    /** Return whether a query could attend to a key that was not chosen. */
    leftOut,
    /** Return the inputs from which the weights of a row are computed. */
    inputs: (head: number, query: number): RowInputs => {
      const start = (head * numQueries + query) * dim;
      const firstKey = Math.floor((head * numKeyHeads) / numHeads) * numKeys * dim;
      return {
        query: queries.values.subarray(start, start + dim) as Float32Array,
        keys: keys.values.subarray(firstKey, firstKey + numKeys * dim) as Float32Array,
        ...{ numKeys, scale: layer.scale, softcap: layer.softcap },
        bias: (index) => bias(head, query, index),
        allowed: (index) => allowed(head, query, index),
        sink: sinks?.values[head] ?? null,
      };
    },
  };
}

/**
 * Read a mask: the keys that are allowed, and those that are left out because they were not chosen.
 * The names of its arrays begin with `prefix`.
 */
async function readMask(
  mask: SavedMask | null,
  prefix: string,
  read: (name: string) => Promise<PairArray>,
): Promise<{ allowed: OfPair<boolean>; leftOut: OfPair<boolean> }> {
  const leftOut = () => false;
  if (!mask) return { allowed: () => true, leftOut };
  if (mask.kind === "chosen") {
    const { allowed: chosen } = await readMask(mask.chosen, `${prefix}chosen.`, read);
    const { allowed: base } = await readMask(mask.base, `${prefix}base.`, read);
    return {
      allowed: (...pair) => base(...pair) && chosen(...pair),
      leftOut: (...pair) => base(...pair) && !chosen(...pair),
    };
  }
  if (mask.kind === "band") {
    const { before, after, offset } = mask;
    const allowed: OfPair<boolean> = (_, query, key) =>
      (after === null || key - query - offset <= after) &&
      (before === null || query + offset - key <= before);
    return { allowed, leftOut };
  }
  // The array has one bit for each key. The lowest bit of a byte belongs to the first of its eight
  // keys.
  const bits = await read(`${prefix}bits`);
  const allowed: OfPair<boolean> = (head, query, key) => {
    const byte = bits.values[rowStart(bits, head, query) + (key >> 3)] as number;
    return ((byte >> (key & 7)) & 1) === 1;
  };
  return { allowed, leftOut };
}

async function readBias(
  { shared }: SavedHeader,
  name: string | null,
  read: (name: string) => Promise<PairArray>,
  numQueries: number,
): Promise<OfPair<number>> {
  const bias = name === null ? undefined : shared[name];
  if (!bias) return () => 0;
  const array = await read(`${name}/values`);
  const { values, shape } = array;
  if (bias.kind === "dense") {
    return (head, query, key) => values[rowStart(array, head, query) + key] as number;
  }
  // The array has one number for each distance (position of the key minus position of the query),
  // in ascending order.
  const [numHeads = 1, numDistances = 0] = shape;
  return (head, query, key) => {
    const start = (numHeads > 1 ? head : 0) * numDistances;
    return values[start + numQueries - 1 + key - query] as number;
  };
}

function rowStart({ shape }: PairArray, head: number, query: number): number {
  const [heads = 1, queries = 1, length = 0] = shape;
  return ((heads > 1 ? head : 0) * queries + (queries > 1 ? query : 0)) * length;
}

/** Masks of a layer that chooses keys, and its lost weight. */
export type ChosenKeys = Awaited<ReturnType<typeof readChosen>>;

/** Masks of a layer that has none, so that the softmax scores all keys. */
export const ALL_SCORED: ChosenKeys = {
  bytes: 0,
  lost: () => 0,
  allowed: () => true,
  leftOut: () => false,
};

/** Read which keys were chosen in a layer. @throws Error if the page does not contain the layer. */
export async function readChosen(saved: SavedRecord, header: SavedHeader, key: LayerKey) {
  const { allowed, leftOut, shape } = await readVectors(saved, header, key);
  const { data, dtype } = saved.arrays[`${key.stack}/${key.layer}/lost`] as EmbeddedArray;
  const lost = readNumbers(await inflatedText(data), dtype);
  return {
    bytes: lost.byteLength,
    /** Return the lost weight of a query: the weight that its left-out keys would have. */
    lost: (head: number, query: number): number => lost[head * shape[1] + query] as number,
    allowed,
    leftOut,
  };
}

/**
 * Return the same rows of weights with their lost weights, and with signed zeros for keys that were
 * not scored (see `zeros.ts`).
 * In the mean of several heads, a key was scored if one of the heads scored it.
 */
export function withKindsOfZeros(
  rows: WeightRows,
  { allowed, leftOut, lost }: ChosenKeys,
): WeightRows {
  return {
    ...rows,
    lost,
    add: (heads, row, left, line) => {
      rows.add(heads, row, left, line);
      for (let x = 0; x < line.length; x++) {
        const isOf = (flags: OfPair<boolean>) => heads.some((head) => flags(head, row, left + x));
        if (isOf(allowed)) line[x] ||= SCORED_ZERO;
        else line[x] = isOf(leftOut) ? 0 : -0;
      }
    },
  };
}

/** Return the weights of a layer. The weights of a row are computed when the row is first read. */
export function computedWeights(vectors: LayerVectors, error: number): WeightRows {
  const { shape, inputs } = vectors;
  const [numHeads, numQueries, numKeys] = shape;
  const rows = new Map<number, Float32Array>();
  return {
    ...{ start: 0, shape, maximum: 1, error, bytes: 4 * numHeads * numQueries * numKeys },
    add: (heads, row, left, line) => {
      for (const head of heads) {
        const index = head * numQueries + row;
        const weights =
          rows.get(index) ?? Float32Array.from(attentionRow(inputs(head, row)).weights);
        rows.set(index, weights);
        for (let x = 0; x < line.length; x++) {
          line[x] = (line[x] as number) + (weights[left + x] as number);
        }
      }
    },
  };
}

/** Return the reply to a request for a query and a range of keys. */
export function vectorsReply(
  vectors: LayerVectors,
  { head, token, keys }: VectorsRequest,
  { error, logit_error, measured }: VectorErrors,
  lost: number | undefined,
): Reply<VectorsHeader> {
  const inputs = vectors.inputs(head, token);
  const { query, sink, numKeys } = inputs;
  const row = attentionRow(inputs);
  const [numHeads] = vectors.shape;
  const [start, stop] = keys;
  const range = Array.from({ length: stop - start }, (_, i) => start + i);
  const weights = row.weights.subarray(start, stop);
  const gate = vectors.gate(head, token);
  const allKeys = Array.from({ length: numKeys }, (_, key) => key);
  const isLeftOut = (key: number): boolean => vectors.leftOut(head, token, key);
  const numLeftOut = allKeys.filter(isLeftOut).length;
  return {
    header: {
      scale: vectors.scale,
      softcap: vectors.softcap,
      has_bias: vectors.bias !== null,
      sink: sink === null ? null : { logit: sink, weight: row.sinkWeight ?? 0 },
      log_sum_exp: row.logSumExp,
      head,
      num_heads: numHeads,
      key_head: Math.floor((head * vectors.numKeyHeads) / numHeads),
      num_key_heads: vectors.numKeyHeads,
      num_allowed: allKeys.filter(inputs.allowed).length,
      ...(numLeftOut > 0 && lost !== undefined && { num_left_out: numLeftOut, lost }),
      strongest: allKeys
        .map((key): [number, number] => [key, row.weights[key] as number])
        .filter(([, weight]) => weight > 0)
        .sort((a, b) => b[1] - a[1])
        .slice(0, NUM_STRONGEST),
      ...{ error, logit_error, ...(measured && { measured }) },
      ...(gate !== undefined && { gate }),
      weight_in_range: weights.reduce((sum, weight) => sum + weight, 0),
    },
    // `VectorsHeader` documents the order of the numbers.
    data: Float32Array.from([
      ...query,
      ...inputs.keys.subarray(start * query.length, stop * query.length),
      ...range.map(inputs.bias),
      ...range.map((key) => (inputs.allowed(key) ? 1 : isLeftOut(key) ? -1 : 0)),
      ...row.logits.subarray(start, stop),
      ...weights,
    ]),
  };
}
