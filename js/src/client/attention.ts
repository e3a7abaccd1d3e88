/**
 * Logits and attention weights of one query, computed as in `attnviz/record/attention.py`:
 *
 *     logits = cap(scale * q k^T) + bias        cap(x) = c tanh(x / c)
 *     weights = softmax over the allowed keys and the sink
 *
 * q is the query, k are the keys, and c is the soft cap. Without a soft cap, cap(x) = x. The sink is
 * a learned logit of a head, which takes a share of the weight of each query. This share is returned
 * separately. Sources: Vaswani et al. 2017, equation 1, for attention; Gemma 2 report, section 2,
 * for the soft cap; gpt-oss model card for the sink.
 */

export interface RowInputs {
  /** Query vector with head_dim values. */
  query: Float32Array;
  /** Key vectors, one after the other, with head_dim values each. */
  keys: Float32Array;
  numKeys: number;
  scale: number;
  softcap: number | null;
  /** Return the number that is added to the logit of a key, after the soft cap. */
  bias: (key: number) => number;
  allowed: (key: number) => boolean;
  /** Logit of the sink, or null if the head has no sink. */
  sink: number | null;
}

/** Return the dot product of the query and a key. */
function dot({ query, keys }: RowInputs, key: number): number {
  const start = key * query.length;
  // Four independent sums, so that the processor can add them in parallel.
  let [a, b, c, d, i] = [0, 0, 0, 0, 0];
  for (; i + 3 < query.length; i += 4) {
    a += (query[i] as number) * (keys[start + i] as number);
    b += (query[i + 1] as number) * (keys[start + i + 1] as number);
    c += (query[i + 2] as number) * (keys[start + i + 2] as number);
    d += (query[i + 3] as number) * (keys[start + i + 3] as number);
  }
  for (; i < query.length; i++) a += (query[i] as number) * (keys[start + i] as number);
  return a + b + (c + d);
}

/** Apply the soft cap to a scaled product, or return the product if `softcap` is null. */
export function capped(product: number, softcap: number | null): number {
  return softcap === null ? product : softcap * Math.tanh(product / softcap);
}

/**
 * Compute the logits and weights of a query for all keys.
 *
 * The logit of a key that the mask does not allow is minus infinity. If no key is allowed, all
 * weights are 0. `logSumExp` is computed from all logits and the sink. It is null if no key is
 * allowed and the head has no sink. `sinkWeight` is null if the head has no sink.
 */
export function attentionRow(inputs: RowInputs) {
  const { numKeys, scale, softcap, sink } = inputs;
  const logits = new Float64Array(numKeys).fill(Number.NEGATIVE_INFINITY);
  let largest = sink ?? Number.NEGATIVE_INFINITY;
  for (let key = 0; key < numKeys; key++) {
    if (!inputs.allowed(key)) continue;
    logits[key] = capped(scale * dot(inputs, key), softcap) + inputs.bias(key);
    largest = Math.max(largest, logits[key] as number);
  }
  if (largest === Number.NEGATIVE_INFINITY) {
    return { logits, weights: new Float64Array(numKeys), logSumExp: null, sinkWeight: null };
  }
  // Subtract the largest logit so that the exponential does not overflow.
  const powers = logits.map((logit) => Math.exp(logit - largest));
  const sinkPower = sink === null ? 0 : Math.exp(sink - largest);
  const sum = powers.reduce((total, power) => total + power, sinkPower);
  return {
    logits,
    weights: powers.map((power) => power / sum),
    logSumExp: largest + Math.log(sum),
    sinkWeight: sink === null ? null : sinkPower / sum,
  };
}
