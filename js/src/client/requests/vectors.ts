/** A query, its keys and how its weights come from them: the request and its answer. */

import { dataOf, LARGEST_REPLY, type Reply } from "../carrier";
import { asBytes } from "../codec";
import type { Range, RowHeader, VectorsHeader, VectorsRequest } from "../protocol";
import type { Source } from "../source";

/** A query and some of its keys. */
export interface Vectors {
  header: RowHeader;
  keys: Range;
  headDim: number;
  /** headDim values. */
  query: Float32Array;
  /** Key after key, headDim values each. */
  keyVectors: Float32Array;
  /** One value a key. */
  bias: Float32Array;
  /** 1 where the mask lets the key through. */
  allowed: Float32Array;
  /** Minus infinity where not allowed. */
  logits: Float32Array;
  weights: Float32Array;
  /** Weight of these keys, together. */
  weightInRange: number;
}

/** Floats of an answer, beside the query, for each key: its vector and four numbers. */
const NUMBERS_PER_KEY = 4;

/** Cuts a request into requests whose replies fit. */
export function splitVectors(
  request: VectorsRequest,
  headDim: number,
  largest: number,
): VectorsRequest[] {
  const room = largest / 4 - headDim;
  const each = Math.max(1, Math.floor(room / (headDim + NUMBERS_PER_KEY)));
  const [start, stop] = request.keys;
  const parts: VectorsRequest[] = [];
  for (let at = start; at < stop; at += each) {
    parts.push({ ...request, keys: [at, Math.min(stop, at + each)] });
  }
  return parts;
}

/**
 * Reads a reply.
 *
 * @throws Error when the buffer does not hold what the header says.
 */
export function readVectors(reply: Reply, keys: Range): Vectors {
  const header = reply.header as VectorsHeader;
  // A copy, because a view of a message need not start at a multiple of four bytes.
  const floats = new Float32Array(asBytes(dataOf(reply)).slice().buffer);
  const parts = new Map<string, Float32Array>();
  let offset = 0;
  for (const { name, shape } of header.parts) {
    const size = shape.reduce((product, length) => product * length, 1);
    parts.set(name, floats.subarray(offset, offset + size));
    offset += size;
  }
  if (offset !== floats.length) {
    throw new Error(`The reply holds ${floats.length} numbers; its parts need ${offset}.`);
  }
  const part = (name: string): Float32Array => {
    const values = parts.get(name);
    if (!values) throw new Error(`The reply came without “${name}”.`);
    return values;
  };
  const query = part("query");
  return {
    header,
    keys,
    headDim: query.length,
    query,
    keyVectors: part("keys"),
    bias: part("bias"),
    allowed: part("allowed"),
    logits: part("logits"),
    weights: part("weights"),
    weightInRange: header.weight_in_range,
  };
}

function joined(parts: Float32Array[]): Float32Array {
  const all = new Float32Array(parts.reduce((sum, part) => sum + part.length, 0));
  let offset = 0;
  for (const part of parts) {
    all.set(part, offset);
    offset += part.length;
  }
  return all;
}

/** Answers to neighbouring keys as one. */
export function joinVectors(parts: Vectors[]): Vectors {
  const [first, last] = [parts[0], parts[parts.length - 1]];
  if (!first || !last) throw new Error("There is nothing to join.");
  if (parts.length === 1) return first;
  return {
    ...first,
    keys: [first.keys[0], last.keys[1]],
    keyVectors: joined(parts.map((part) => part.keyVectors)),
    bias: joined(parts.map((part) => part.bias)),
    allowed: joined(parts.map((part) => part.allowed)),
    logits: joined(parts.map((part) => part.logits)),
    weights: joined(parts.map((part) => part.weights)),
    weightInRange: parts.reduce((sum, part) => sum + part.weightInRange, 0),
  };
}

/** Bytes that an answer takes. */
export function bytesOfVectors(vectors: Vectors): number {
  return 4 * (vectors.query.length + vectors.keyVectors.length + 4 * vectors.weights.length);
}

/** Dimensions that a head is taken to have when a request for its vectors is cut. */
const MOST_DIMENSIONS = 1024;

/** A query, some keys, and how the query's weights come from them. */
export async function askVectors(
  source: Source,
  request: VectorsRequest,
  signal?: AbortSignal,
): Promise<Vectors> {
  const parts = splitVectors(request, MOST_DIMENSIONS, LARGEST_REPLY).map((part) => {
    const read = (reply: Reply): Vectors => readVectors(reply, part.keys);
    return source.question("vectors", part, read, bytesOfVectors, signal);
  });
  return joinVectors(await Promise.all(parts));
}
