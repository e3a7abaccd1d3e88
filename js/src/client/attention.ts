/**
 * Logits and attention weights of one query, computed as in `attnviz/record/attention.py`:
 *
 *     logits = cap(scale * q k^T) + bias        cap(x) = c tanh(x / c)
 *     weights = softmax over the allowed keys and the sink
 *
 * q is the query, k are the keys, and c is the soft cap, without which cap(x) = x. The weight of the
 * sink is returned separately. Sources: Vaswani et al. 2017, equation 1, for attention; Gemma 2
 * report, section 2, for the soft cap; gpt-oss model card for the sink.
 */

export interface RowInputs {
  /** Query vector with head_dim values. */
  query: Float32Array;
  /** Key vectors, one after the other, with head_dim values each. */
  keys: Float32Array;
  numKeys: number;
  scale: number;
  softcap: number | null;
  /** Return the bias of a key, which is added after the soft cap. */
  bias: (key: number) => number;
  allowed: (key: number) => boolean;
  /** Learned logit that takes a share of the row's weight, or null if the head has no sink. */
  sink: number | null;
}

export interface AttentionRow {
  /** Logit of each key. Minus infinity for keys that the mask does not allow. */
  logits: Float64Array;
  /** Weight of each key. All weights are 0 if no key is allowed. */
  weights: Float64Array;
  /** Log-sum-exp of all logits and the sink, or null if no key is allowed and there is no sink. */
  logSumExp: number | null;
  /** Weight of the sink, or null if the head has no sink. */
  sinkWeight: number | null;
}

/** Return the dot product of the query and a key, multiplied by the scale. */
export function scaledProduct(inputs: RowInputs, key: number): number {
  const { query, keys } = inputs;
  const start = key * query.length;
  const count = query.length;
  // Four independent sums, so that the processor can add them in parallel.
  let a = 0;
  let b = 0;
  let c = 0;
  let d = 0;
  let i = 0;
  for (let keyOffset = start; i + 3 < count; i += 4, keyOffset += 4) {
    a += (query[i] as number) * (keys[keyOffset] as number);
    b += (query[i + 1] as number) * (keys[keyOffset + 1] as number);
    c += (query[i + 2] as number) * (keys[keyOffset + 2] as number);
    d += (query[i + 3] as number) * (keys[keyOffset + 3] as number);
  }
  for (; i < count; i++) a += (query[i] as number) * (keys[start + i] as number);
  return (a + b + (c + d)) * inputs.scale;
}

/** Apply the soft cap to a scaled product, or return the product if `softcap` is null. */
export function capped(product: number, softcap: number | null): number {
  return softcap === null ? product : softcap * Math.tanh(product / softcap);
}

/** Compute the logits and weights of a query for all keys. */
export function attentionRow(inputs: RowInputs): AttentionRow {
  const { numKeys, softcap, sink } = inputs;
  const logits = new Float64Array(numKeys);
  let largest = sink ?? Number.NEGATIVE_INFINITY;
  for (let key = 0; key < numKeys; key++) {
    const logit = inputs.allowed(key)
      ? capped(scaledProduct(inputs, key), softcap) + inputs.bias(key)
      : Number.NEGATIVE_INFINITY;
    logits[key] = logit;
    if (logit > largest) largest = logit;
  }
  const weights = new Float64Array(numKeys);
  if (largest === Number.NEGATIVE_INFINITY) {
    return { logits, weights, logSumExp: null, sinkWeight: null };
  }
  let sum = sink === null ? 0 : Math.exp(sink - largest);
  for (let key = 0; key < numKeys; key++) {
    // Subtract the largest logit so that the exponential does not overflow.
    const power = Math.exp((logits[key] as number) - largest);
    weights[key] = power;
    sum += power;
  }
  for (let key = 0; key < numKeys; key++) weights[key] = (weights[key] as number) / sum;
  const logSumExp = largest + Math.log(sum);
  return {
    logits,
    weights,
    logSumExp,
    sinkWeight: sink === null ? null : Math.exp(sink - logSumExp),
  };
}
