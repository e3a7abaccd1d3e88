/** Weights of a saved record, a few rows at a time, so that the page stays responsive. */

import type { Rows } from "../page/rows";
import type { Range } from "../protocol";
import { Recent } from "../recent";
import { between, type Layer } from "./layers";
import type { SavedRecord, SavedStack } from "./record";

/** Multiplications that rows take which are computed together: some ten milliseconds. */
const WORK = 1 << 24;
/** Weights of such rows, at most: a megabyte. */
const WEIGHTS = 1 << 18;
/** Bytes of weights that are kept. */
const KEPT_BYTES = 128_000_000;
/** Milliseconds after which the browser has a turn. */
const TURN = 40;
/** Weights may exceed the largest by rounding. */
const ROUNDING = 1.005;
/** Where they are computed they may differ by so much from those that Python computed. */
const COMPUTED = 1e-4;

/** A layer in its stack. */
export interface Place {
  stack: SavedStack;
  number: number;
  layer: Layer;
}

/** Gives the browser a turn when it has waited for one. */
export class Turns {
  #since = performance.now();

  /** @throws the signal's reason where the answer is not wanted any more. */
  async rest(signal?: AbortSignal): Promise<void> {
    signal?.throwIfAborted();
    if (performance.now() - this.#since < TURN) return;
    await new Promise((resolve) => setTimeout(resolve));
    this.#since = performance.now();
    signal?.throwIfAborted();
  }
}

/** Refuses numbers that would be drawn wrongly. */
function check(
  values: Float32Array,
  { stack, number, layer }: Place,
  head: number,
  maximum: number,
): Float32Array {
  let [least, most] = [0, 0];
  let finite = true;
  for (let i = 0; i < values.length; i++) {
    const value = values[i] as number;
    if (value < least) least = value;
    else if (value > most) most = value;
    else if (Number.isNaN(value)) finite = false;
  }
  const of = `Stack “${stack.name}”, layer ${number}, head ${head}`;
  if (!finite || !Number.isFinite(least) || !Number.isFinite(most)) {
    throw new Error(
      `${of}: some weights are NaN or infinite. Run the model in float32, or leave the layer out.`,
    );
  }
  if (least < 0 && !stack.signed) {
    throw new Error(`${of}: some weights are negative; attention weights never are.`);
  }
  const size = Math.max(most, -least);
  if (size > maximum * ROUNDING + (layer.given ? 0 : COMPUTED)) {
    throw new Error(
      `${of}: some weights are ${size.toPrecision(4)}, more than the ${maximum.toPrecision(4)} ` +
        "that can occur: the file was changed. Save the record again.",
    );
  }
  return values;
}

export class Weights {
  readonly turns = new Turns();
  readonly #kept = new Recent<Promise<Float32Array>>(KEPT_BYTES);
  readonly #maximum: (stack: SavedStack) => number;

  /** @param maximum the largest weight of a stack. */
  constructor(maximum: (stack: SavedStack) => number) {
    this.#maximum = maximum;
  }

  /** Weights of some queries of a head, of which not many are asked for at once. */
  async some(at: Place, head: number, rows: readonly number[]): Promise<Float32Array> {
    return check(await at.layer.weights(head, rows), at, head, this.#maximum(at.stack));
  }

  /** How many rows of a layer are computed at once. */
  rowsAtOnce({ layer: { numQueries, numKeys, cost } }: Place): number {
    const most = Math.min(WEIGHTS, WORK / cost) / numKeys;
    return Math.min(numQueries, Math.max(1, Math.floor(most)));
  }

  /** All rows of a range, some after the others; the browser has its turns between them. */
  async *each(
    at: Place,
    heads: readonly number[],
    [top, bottom]: Range,
    signal?: AbortSignal,
  ): AsyncGenerator<{ rows: Rows; range: Range }> {
    const each = this.rowsAtOnce(at);
    for (let row = top; row < bottom; ) {
      const range: Range = [row, Math.min(bottom, (Math.floor(row / each) + 1) * each)];
      yield { rows: await this.rows(at, heads, range, signal), range };
      row = range[1];
    }
  }

  /** The rows of a range at once, of which not many are asked for. */
  async rows(
    at: Place,
    heads: readonly number[],
    [top, bottom]: Range,
    signal?: AbortSignal,
  ): Promise<Rows> {
    const { numQueries, numKeys } = at.layer;
    const each = this.rowsAtOnce(at);
    const parts = new Map<number, Float32Array[]>();
    const first = Math.floor(top / each);
    for (const head of heads) {
      const found: Float32Array[] = [];
      for (let part = first; part * each < bottom; part++) {
        await this.turns.rest(signal);
        const range: Range = [part * each, Math.min(numQueries, (part + 1) * each)];
        found.push(await this.#part(at, head, range));
      }
      parts.set(head, found);
    }
    const rowOf = (head: number, row: number): Float32Array => {
      const part = Math.floor(row / each);
      const weights = parts.get(head)?.[part - first] as Float32Array;
      const from = (row - part * each) * numKeys;
      return weights.subarray(from, from + numKeys);
    };
    return {
      shape: [at.layer.numHeads, numQueries, numKeys],
      maximum: this.#maximum(at.stack),
      error: 0,
      bytes: 0,
      add: (some, row, left, line) => {
        for (const head of some) {
          const weights = rowOf(head, row);
          for (let x = 0; x < line.length; x++) {
            line[x] = (line[x] as number) + (weights[left + x] as number);
          }
        }
      },
      range: (head, row) => {
        const weights = Float64Array.from(rowOf(head, row));
        return { low: weights, high: weights, shared: null };
      },
    };
  }

  #part(at: Place, head: number, range: Range): Promise<Float32Array> {
    const key = JSON.stringify([at.stack.name, at.number, head, range[0]]);
    let found = this.#kept.get(key);
    if (!found) {
      const maximum = this.#maximum(at.stack);
      found = at.layer
        .weights(head, between(range))
        .then((values) => check(values, at, head, maximum));
      this.#kept.set(key, found, 4 * (range[1] - range[0]) * at.layer.numKeys);
      found.catch(() => this.#kept.delete(key));
    }
    return found;
  }
}

/** Weights that are looked through for the largest of them, where a bound is known. */
const LOOKED_THROUGH = 1 << 24;
/** Weights that are looked through at once. */
const AT_ONCE = 1 << 20;

/** The largest weight of a stack: 1 where rows are shares of one. */
export async function maximumOf(stack: SavedStack, turns: Turns): Promise<number> {
  if (stack.normalized) return 1;
  if (stack.lookedThrough.maximum !== null) return stack.lookedThrough.maximum;
  const layers = [...stack.layers.values()];
  const bounds = layers.map((layer) => layer.bound);
  const weights = layers.reduce((sum, each) => {
    return sum + each.heads.length * each.numQueries * each.numKeys;
  }, 0);
  if (bounds.every((each) => each !== null) && weights > LOOKED_THROUGH) {
    return Math.max(...bounds);
  }
  let most = 0;
  for (const layer of layers) {
    const rows = Math.max(1, Math.floor(AT_ONCE / layer.numKeys));
    for (const head of layer.heads) {
      for (let row = 0; row < layer.numQueries; row += rows) {
        await turns.rest();
        const range: Range = [row, Math.min(layer.numQueries, row + rows)];
        for (const value of await layer.weights(head, between(range))) {
          const size = stack.signed ? Math.abs(value) : value;
          if (size > most) most = size;
        }
      }
    }
  }
  return most;
}

/** The layer that a request names, with its heads. @throws Error where the record has none of them. */
export function placeIn(
  { stacks }: SavedRecord,
  { stack: name, layer: number }: { stack: string; layer: number },
  heads: readonly number[] = [],
): Place {
  const stack = stacks.find((each) => each.name === name);
  const layer = stack?.layers.get(number);
  if (!stack || !layer) throw new Error(`The record has no layer ${number} of “${name}”.`);
  for (const head of heads) {
    if (!layer.heads.includes(head))
      throw new Error(`Head ${head} of layer ${number} was not kept.`);
  }
  return { stack, number, layer };
}
