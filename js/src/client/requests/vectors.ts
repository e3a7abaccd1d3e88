/** Requests for a query vector and key vectors, with the query's logits and weights. */

import { asBytes } from "../codec";
import type { Range, RowHeader, VectorsHeader, VectorsRequest } from "../protocol";
import type { Source } from "../source";
import { MAX_REPLY_BYTES, type Reply } from "../transport";

/** A query vector, the vectors of a range of keys, and the query's logits and weights for them. */
export interface Vectors {
  header: RowHeader;
  keys: Range;
  headDim: number;
  /** Query vector with headDim values. */
  query: Float32Array;
  /** Key vectors, one after the other, with headDim values each. */
  keyVectors: Float32Array;
  bias: Float32Array;
  /** 1 if the mask allows the key, else 0. */
  allowed: Float32Array;
  /** Logit of each key. Minus infinity for keys that the mask does not allow. */
  logits: Float32Array;
  weights: Float32Array;
  /** Sum of the weights of the keys in the range. */
  weightInRange: number;
}

/** Number of values for each key in addition to its vector: bias, allowed, logit, weight. */
const NUMBERS_PER_KEY = 4;

/**
 * Split a request by keys, so that each reply has at most `largest` bytes. Every part has at least
 * one key.
 */
export function splitVectors(
  request: VectorsRequest,
  headDim: number,
  largest: number,
): VectorsRequest[] {
  const maxFloats = largest / 4 - headDim;
  const keysPerPart = Math.max(1, Math.floor(maxFloats / (headDim + NUMBERS_PER_KEY)));
  const [start, stop] = request.keys;
  const parts: VectorsRequest[] = [];
  for (let first = start; first < stop; first += keysPerPart) {
    parts.push({ ...request, keys: [first, Math.min(stop, first + keysPerPart)] });
  }
  return parts;
}

/** Decode a reply. @throws Error if the buffer does not fit the number of keys. */
export function readVectors(reply: Reply, keys: Range): Vectors {
  // A reply from a page contains the result itself.
  if (!reply.data) return reply.header as Vectors;
  const header = reply.header as VectorsHeader;
  // Copy the bytes, because a Float32Array must start at a multiple of 4 bytes. A view of a message
  // may start anywhere.
  const floats = new Float32Array(asBytes(reply.data).slice().buffer);
  const numKeys = keys[1] - keys[0];
  const headDim = (floats.length - NUMBERS_PER_KEY * numKeys) / (1 + numKeys);
  if (!Number.isInteger(headDim)) {
    throw new Error(`The reply has ${floats.length} numbers, which do not fit ${numKeys} keys.`);
  }
  let offset = 0;
  const next = (size: number): Float32Array => {
    offset += size;
    return floats.subarray(offset - size, offset);
  };
  // The order of the fields is the order of the arrays in the buffer.
  return {
    ...{ header, keys, headDim },
    query: next(headDim),
    keyVectors: next(numKeys * headDim),
    bias: next(numKeys),
    allowed: next(numKeys),
    logits: next(numKeys),
    weights: next(numKeys),
    weightInRange: header.weight_in_range,
  };
}

function concatenate(parts: Float32Array[]): Float32Array {
  const joined = new Float32Array(parts.reduce((sum, part) => sum + part.length, 0));
  let offset = 0;
  for (const part of parts) {
    joined.set(part, offset);
    offset += part.length;
  }
  return joined;
}

/** Join the replies for adjacent ranges of keys, which must be in ascending order. */
export function joinVectors(parts: Vectors[]): Vectors {
  const [first, last] = [parts[0], parts[parts.length - 1]];
  if (!first || !last) throw new Error("There are no replies to join.");
  if (parts.length === 1) return first;
  const joined = (name: "keyVectors" | "bias" | "allowed" | "logits" | "weights"): Float32Array =>
    concatenate(parts.map((part) => part[name]));
  return {
    ...first,
    keys: [first.keys[0], last.keys[1]],
    keyVectors: joined("keyVectors"),
    bias: joined("bias"),
    allowed: joined("allowed"),
    logits: joined("logits"),
    weights: joined("weights"),
    weightInRange: parts.reduce((sum, part) => sum + part.weightInRange, 0),
  };
}

export function bytesOfVectors(vectors: Vectors): number {
  return 4 * (vectors.query.length + vectors.keyVectors.length + 4 * vectors.weights.length);
}

/** Upper bound of head_dim. Requests are split by this bound, because head_dim is not known yet. */
const MAX_HEAD_DIM = 1024;

/**
 * Request a query vector, the vectors of a range of keys, and the query's logits and weights for
 * these keys.
 */
export async function requestVectors(
  source: Source,
  request: VectorsRequest,
  signal?: AbortSignal,
): Promise<Vectors> {
  const parts = splitVectors(request, MAX_HEAD_DIM, MAX_REPLY_BYTES).map((part) => {
    const read = (reply: Reply): Vectors => readVectors(reply, part.keys);
    return source.fetch("vectors", part, read, bytesOfVectors, signal);
  });
  return joinVectors(await Promise.all(parts));
}
