/** Requests for a query vector and key vectors, with the query's logits and weights. */

import { copiedBuffer } from "../codec";
import type { Range, RowHeader, VectorsHeader, VectorsRequest } from "../protocol";
import type { Source } from "../source";
import { dataOf, type Reply } from "../transport";

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
  /** 1 if the mask allows the key, 0 if the key is masked, -1 if the model did not choose it. */
  allowed: Float32Array;
  /** Logit of each key. Minus infinity for keys that the mask does not allow. */
  logits: Float32Array;
  weights: Float32Array;
  /** Sum of the weights of the keys in the range. */
  weightInRange: number;
}

/**
 * Number of values in a reply for each key, in addition to its vector: bias, allowed, logit,
 * weight.
 */
const NUMBERS_PER_KEY = 4;

/** Decode a reply. @throws Error if the buffer does not fit the number of keys. */
export function readVectors(reply: Reply<VectorsHeader>, keys: Range): Vectors {
  const { header } = reply;
  const floats = new Float32Array(copiedBuffer(dataOf(reply)));
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

/**
 * Request a query vector, the vectors of a range of keys, and the query's logits and weights for
 * these keys. A reply has enough space for a few hundred keys.
 */
export function requestVectors(
  source: Source,
  request: VectorsRequest,
  signal?: AbortSignal,
): Promise<Vectors> {
  const read = (reply: Reply<VectorsHeader>): Vectors => readVectors(reply, request.keys);
  const bytesOf = ({ query, keyVectors, weights }: Vectors): number =>
    4 * (query.length + keyVectors.length + NUMBERS_PER_KEY * weights.length);
  return source.fetch("vectors", request, read, bytesOf, signal);
}
