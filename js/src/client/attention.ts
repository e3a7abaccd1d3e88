/**
 * The one formula, as `attnviz/record/attention.py` has it: logits and weights of one query.
 *
 *     logits = cap(scale * q k^T) + bias        cap(x) = c tanh(x / c)
 *     weights = softmax over the allowed keys and the sink, the sink's weight apart
 *
 * (Vaswani et al. 2017, equation 1; Gemma 2 report, section 2, for the cap; gpt-oss model card for
 * the sink). Pure functions.
 */

/** What goes into a row of attention. */
export interface RowInputs {
  /** head_dim values. */
  query: Float32Array;
  /** Keys after each other, head_dim values each. */
  keys: Float32Array;
  numKeys: number;
  scale: number;
  softcap: number | null;
  /** Added to the logit of a key, after the cap. */
  bias: (key: number) => number;
  allowed: (key: number) => boolean;
  /** A learned logit that takes its share of the row. */
  sink: number | null;
}

/** One row of attention. */
export interface AttentionRow {
  /** Minus infinity where a key is not allowed. */
  logits: Float64Array;
  /** All zero where no key is allowed. */
  weights: Float64Array;
  /** Of all logits and the sink; null where no key is allowed. */
  logSumExp: number | null;
  sinkWeight: number | null;
}

/** The product of a query and a key, scaled. */
export function scaledProduct(inputs: RowInputs, key: number): number {
  const { query, keys } = inputs;
  const from = key * query.length;
  const count = query.length;
  // Four sums at once: one addition need not wait for the last.
  let a = 0;
  let b = 0;
  let c = 0;
  let d = 0;
  let i = 0;
  for (let at = from; i + 3 < count; i += 4, at += 4) {
    a += (query[i] as number) * (keys[at] as number);
    b += (query[i + 1] as number) * (keys[at + 1] as number);
    c += (query[i + 2] as number) * (keys[at + 2] as number);
    d += (query[i + 3] as number) * (keys[at + 3] as number);
  }
  for (; i < count; i++) a += (query[i] as number) * (keys[from + i] as number);
  return (a + b + (c + d)) * inputs.scale;
}

/** A scaled product, bounded by the soft cap where there is one. */
export function capped(product: number, softcap: number | null): number {
  return softcap === null ? product : softcap * Math.tanh(product / softcap);
}

/** Logits and weights of a query against all keys. */
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
    // Less the largest, so that no power overflows.
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
