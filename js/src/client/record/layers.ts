/**
 * The layers of a saved record: weights as they are written, or computed from queries and keys
 * (`attnviz/record/attention.py`, `words.py` and `difference.py`).
 *
 * Heads go by the model's own numbers. Nothing is read or computed until it is asked for, and then a
 * few rows at a time.
 */

import { attentionRow, type RowInputs } from "../attention";
import type { Range } from "../protocol";
import {
  damaged,
  type Fields,
  fieldsOf,
  finiteOf,
  listOf,
  orNull,
  quoted,
  textOf,
  wholeOf,
} from "./fields";
import type { ArrayPlace, RecordFile } from "./file";
import type { Bias, Mask, Sizes } from "./parts";

/** Queries and keys of a layer, with what else its logits are made from. */
export interface QueriesAndKeys {
  scale: number;
  softcap: number | null;
  hasBias: boolean;
  /** What goes into any row of a head. */
  inputs: (head: number) => Promise<(row: number) => RowInputs>;
}

/** One layer. */
export interface Layer {
  numHeads: number;
  /** null where only weights are known. */
  numKeyHeads: number | null;
  /** Numbers of the heads whose weights are known, ascending. */
  heads: readonly number[];
  numQueries: number;
  numKeys: number;
  causal: boolean;
  /** The key position that query 0 stands at, as far as a mask says. */
  offset: number;
  /** What no weight exceeds in size; null where that is not known. */
  bound: number | null;
  /** Whether rows and columns are made of several tokens. */
  merged: boolean;
  isDifference: boolean;
  vectors: QueriesAndKeys | null;
  /** Whether weights were given, of whose exact zeros something can be said. */
  given: boolean;
  /** Multiplications that a weight takes. */
  cost: number;
  /** Weights of some rows of a head and all keys; neighbours are read at once. */
  weights: (head: number, rows: readonly number[]) => Promise<Float32Array>;
  /** Which keys the mask lets a query attend to, 1 where it does; all where it is not known. */
  allowed: (head: number, row: number) => Promise<Uint8Array>;
}

/** The most heads that a layer may be said to have. */
const MOST_HEADS = 100_000;

/** What the layers of a record share. */
export interface Shared {
  file: RecordFile;
  parts: ReadonlyMap<string, Mask | Bias>;
  /** Layers that were read, by their names; a side of a difference may be one of them. */
  known: Map<string, Layer>;
}

function numbersOf(value: unknown, name: string): number[] {
  return listOf(value, name).map((each) => wholeOf(each, name));
}

function upTo(count: number): number[] {
  return Array.from({ length: count }, (_, number) => number);
}

/** The numbers from one to another. */
export function between([start, stop]: Range): number[] {
  return Array.from({ length: Math.max(0, stop - start) }, (_, i) => start + i);
}

/** The axes of an array of floating-point numbers: none of them is empty. */
function threeAxes(place: ArrayPlace): [number, number, number] {
  if (place.shape.includes(0)) return damaged(`${quoted(place.name)} is empty`);
  return place.shape as [number, number, number];
}

function givenLayer(file: RecordFile, name: string): Layer {
  const place = file.floatPlace(`${name}/weights`, 3);
  const [numHeads, numQueries, numKeys] = threeAxes(place);
  return {
    ...{ numHeads, numKeyHeads: null, heads: upTo(numHeads), numQueries, numKeys },
    ...{ causal: false, offset: 0, bound: null, merged: false, isDifference: false, vectors: null },
    ...{ given: true, cost: 1 },
    weights: async (head, rows) => {
      const first = head * numQueries;
      const read = (top: number, count: number): Promise<Float32Array> =>
        file.floats(place, (first + top) * numKeys, (first + top + count) * numKeys);
      const [top = 0] = rows;
      if (rows.every((row, i) => row === top + i)) return read(top, rows.length);
      const out = new Float32Array(rows.length * numKeys);
      for (const [i, row] of rows.entries()) out.set(await read(row, 1), i * numKeys);
      return out;
    },
    allowed: async () => new Uint8Array(numKeys).fill(1),
  };
}

function partNamed<T extends "mask" | "bias">(
  { parts }: Shared,
  value: unknown,
  of: T,
): (T extends "mask" ? Mask : Bias) | null {
  return orNull(value, (given) => {
    const found = parts.get(textOf(given, `the name of a ${of}`));
    if (found?.of !== of) return damaged(`a layer has the ${of} ${quoted(given)}, which is none`);
    return found as T extends "mask" ? Mask : Bias;
  });
}

async function computedLayer(shared: Shared, name: string, fields: Fields): Promise<Layer> {
  const { file } = shared;
  const queries = file.floatPlace(`${name}/queries`, 3);
  const keys = file.floatPlace(`${name}/keys`, 3);
  const [numHeads, numQueries, dim] = threeAxes(queries);
  const [numKeyHeads, numKeys, otherDim] = threeAxes(keys);
  if (dim !== otherDim) return damaged(`${quoted(name)} has queries and keys that do not fit`);
  const keyHeads = orNull(fields.key_heads, (value) => numbersOf(value, "key_heads"));
  if (keyHeads) {
    const fits = keyHeads.length === numHeads && keyHeads.every((each) => each < numKeyHeads);
    if (!fits) return damaged(`${quoted(name)} reads key heads that are not there`);
  } else if (numHeads % numKeyHeads) {
    return damaged(`${quoted(name)} has ${numHeads} heads that share ${numKeyHeads} key heads`);
  }
  const scale = finiteOf(fields.scale, "a scale");
  const softcap = orNull(fields.softcap, (value) => finiteOf(value, "a soft cap"));
  if (softcap !== null && softcap <= 0) return damaged(`a soft cap is ${softcap}`);
  const sinks = file.has(`${name}/sinks`) ? file.floatPlace(`${name}/sinks`, 1) : null;
  if (sinks && sinks.shape[0] !== numHeads) return damaged(`${quoted(name)} lacks sinks of heads`);
  const mask = partNamed(shared, fields.mask, "mask");
  const bias = partNamed(shared, fields.bias, "bias");
  const sizes: Sizes = [numHeads, numQueries, numKeys];
  await mask?.check(sizes);
  await bias?.check(sizes);
  const inputs = async (head: number): Promise<(row: number) => RowInputs> => {
    const keyHead = keyHeads?.[head] ?? Math.floor(head / (numHeads / numKeyHeads));
    const [ofQueries, ofKeys, allowed, added, ofSinks] = await Promise.all([
      file.entry(queries, head),
      file.entry(keys, keyHead),
      mask?.read(sizes, head),
      bias?.read(sizes, head),
      sinks && file.floats(sinks, head, head + 1),
    ]);
    return (row) => ({
      query: ofQueries.subarray(row * dim, (row + 1) * dim),
      keys: ofKeys,
      ...{ numKeys, scale, softcap },
      bias: added?.(head, row) ?? (() => 0),
      allowed: allowed?.(head, row) ?? (() => true),
      sink: ofSinks?.[0] ?? null,
    });
  };
  return {
    ...{ numHeads, numKeyHeads, heads: upTo(numHeads), numQueries, numKeys },
    ...{ bound: 1, merged: false, isDifference: false, given: false, cost: dim },
    causal: mask !== null && (await mask.causal(sizes)),
    offset: mask === null ? 0 : await mask.offset(sizes),
    vectors: { scale, softcap, hasBias: bias !== null, inputs },
    weights: async (head, rows) => {
      const of = await inputs(head);
      const out = new Float32Array(rows.length * numKeys);
      for (const [i, row] of rows.entries()) {
        const { weights, logits, logSumExp } = attentionRow(of(row));
        // Of numbers that are NaN all comparisons are false, also that with the largest.
        const lost = logSumExp === null ? logits.some(Number.isNaN) : !Number.isFinite(logSumExp);
        out.set(lost ? weights.fill(Number.NaN) : weights, i * numKeys);
      }
      return out;
    },
    allowed: async (head, row) => {
      const flags = new Uint8Array(numKeys).fill(1);
      const ofRow = (await mask?.read(sizes, head))?.(head, row);
      return ofRow ? flags.map((_, key) => (ofRow(key) ? 1 : 0)) : flags;
    },
  };
}

/** Queries and keys as a file has them, or weights. */
async function plainLayer(shared: Shared, name: string, fields: Fields): Promise<Layer> {
  const kind = textOf(fields.kind, "the kind of a layer");
  if (kind === "weights") return givenLayer(shared.file, name);
  if (kind === "queries and keys") return computedLayer(shared, name, fields);
  return damaged(`${quoted(name)} is a layer of an unknown kind, ${quoted(kind)}`);
}

/** Some heads of a layer, under the model's own numbers. */
function subsetLayer(base: Layer, name: string, fields: Fields): Layer {
  const heads = numbersOf(fields.heads, "heads");
  const numHeads = wholeOf(fields.num_heads, "num_heads", 1);
  const numKeyHeads = orNull(fields.num_key_heads, (each) => wholeOf(each, "num_key_heads", 1));
  const ascending = heads.every((head, i) => head > (heads[i - 1] ?? -1) && head < numHeads);
  const groups = numKeyHeads === null ? base.given : !base.given && numHeads % numKeyHeads === 0;
  if (heads.length !== base.numHeads || !ascending || numHeads > MOST_HEADS || !groups) {
    return damaged(`${quoted(name)} has heads under numbers that do not fit`);
  }
  const place = new Map(heads.map((head, at) => [head, at]));
  const at = (head: number): number => place.get(head) as number;
  return {
    ...base,
    ...{ numHeads, numKeyHeads, heads },
    vectors: base.vectors && {
      ...base.vectors,
      inputs: (head) => (base.vectors as QueriesAndKeys).inputs(at(head)),
    },
    weights: (head, rows) => base.weights(at(head), rows),
    allowed: (head, row) => base.allowed(at(head), row),
  };
}

/** Where words begin: ascending from 0. */
async function startsOf(file: RecordFile, name: unknown, count: number): Promise<number[]> {
  const text = textOf(name, "the starts of words");
  const starts = Array.from(await file.wholes(text));
  const ascends = starts.every((each, i) => (i === 0 ? each === 0 : each > (starts[i - 1] ?? 0)));
  if (!ascends || starts.length === 0 || (starts[starts.length - 1] as number) >= count) {
    return damaged("words begin where no tokens are");
  }
  return [...starts, count];
}

/** Words: weights to the tokens of a key are summed, those of the tokens of a query averaged. */
async function mergedLayer(
  file: RecordFile,
  base: Layer,
  name: string,
  fields: Fields,
): Promise<Layer> {
  if (base.merged) return damaged(`${quoted(name)} has words that are merged from words`);
  const rows = await startsOf(file, fields.query_starts, base.numQueries);
  const columns = await startsOf(file, fields.key_starts, base.numKeys);
  const [numQueries, numKeys] = [rows.length - 1, columns.length - 1];
  const tokensOf = (word: number): Range => [rows[word] as number, rows[word + 1] as number];
  /** As Python has it: the words of the queries are the last words of the keys. */
  const sameWords = (): boolean => {
    const last = columns.slice(numKeys - numQueries, numKeys);
    return last.every((start, i) => start - base.offset === rows[i]);
  };
  return {
    ...base,
    ...{ numQueries, numKeys, merged: true, vectors: null, given: false },
    causal: base.causal && numQueries <= numKeys && sameWords(),
    weights: async (head, words) => {
      const out = new Float32Array(words.length * numKeys);
      const sums = new Float64Array(numKeys);
      for (const [i, word] of words.entries()) {
        const [first, last] = tokensOf(word);
        const found = await base.weights(head, between([first, last]));
        sums.fill(0);
        for (let token = first; token < last; token++) {
          const from = (token - first) * base.numKeys;
          for (let column = 0; column < numKeys; column++) {
            let sum = 0;
            const stop = columns[column + 1] as number;
            for (let key = columns[column] as number; key < stop; key++) {
              sum += found[from + key] as number;
            }
            sums[column] = (sums[column] as number) + sum;
          }
        }
        const count = last - first;
        out.set(
          sums.map((sum) => sum / count),
          i * numKeys,
        );
      }
      return out;
    },
    allowed: async (head, word) => {
      const flags = new Uint8Array(numKeys);
      const [first, last] = tokensOf(word);
      for (let token = first; token < last; token++) {
        const found = await base.allowed(head, token);
        for (let column = 0; column < numKeys; column++) {
          const part = found.subarray(columns[column] as number, columns[column + 1] as number);
          if (part.includes(1)) flags[column] = 1;
        }
      }
      return flags;
    },
  };
}

/** What `b` has more than `a`; 0 where a query may attend to nothing on one side. */
function differenceLayer(a: Layer, b: Layer, name: string): Layer {
  const heads = a.heads.filter((head) => b.heads.includes(head));
  const { numQueries, numKeys } = a;
  if (b.numQueries !== numQueries || b.numKeys !== numKeys || heads.length === 0) {
    return damaged(`${quoted(name)} is a difference of layers that do not fit`);
  }
  const attends = async (head: number, row: number): Promise<boolean> => {
    const sides = await Promise.all([a.allowed(head, row), b.allowed(head, row)]);
    return sides.every((side) => side.includes(1));
  };
  return {
    ...{ numHeads: a.numHeads, numKeyHeads: null, heads, numQueries, numKeys },
    ...{ causal: a.causal && b.causal, merged: a.merged || b.merged, isDifference: true },
    ...{ offset: 0, vectors: null, given: false, cost: a.cost + b.cost },
    bound: a.bound === null || b.bound === null ? null : Math.max(a.bound, b.bound),
    weights: async (head, rows) => {
      const [before, after] = await Promise.all([a.weights(head, rows), b.weights(head, rows)]);
      const out = after.map((weight, at) => weight - (before[at] as number));
      for (const [i, row] of rows.entries()) {
        if (!(await attends(head, row))) out.fill(0, i * numKeys, (i + 1) * numKeys);
      }
      return out;
    },
    allowed: async (head, row) => {
      const [before, after] = await Promise.all([a.allowed(head, row), b.allowed(head, row)]);
      const both = before.includes(1) && after.includes(1);
      return before.map((flag, key) => (both && (flag || after[key]) ? 1 : 0));
    },
  };
}

/** A layer, or a side of a difference, which may be a layer that was read already. */
export async function layerOf(shared: Shared, name: string, value: unknown): Promise<Layer> {
  const fields = fieldsOf(value, quoted(name));
  if (fields.kind === "the same") {
    const known = shared.known.get(textOf(fields.as, "the name of a layer"));
    return known ?? damaged(`${quoted(name)} is said to be ${quoted(fields.as)}, which is missing`);
  }
  const made = await formOf(shared, name, fields);
  shared.known.set(name, made);
  return made;
}

async function formOf(shared: Shared, name: string, fields: Fields): Promise<Layer> {
  switch (fields.kind) {
    case "difference": {
      const [a, b] = [
        await layerOf(shared, `${name}/a`, plainSide(fields.a, name)),
        await layerOf(shared, `${name}/b`, plainSide(fields.b, name)),
      ];
      return differenceLayer(a, b, name);
    }
    case "merged words": {
      const base = fieldsOf(fields.base, quoted(name));
      if (base.kind === "merged words") return damaged(`${quoted(name)} has words made of words`);
      return mergedLayer(shared.file, await formOf(shared, name, base), name, fields);
    }
    case "head subset": {
      const base = fieldsOf(fields.base, quoted(name));
      return subsetLayer(await plainLayer(shared, name, base), name, fields);
    }
  }
  return plainLayer(shared, name, fields);
}

/** A side of a difference: it is not one itself. */
function plainSide(value: unknown, name: string): Fields {
  const side = fieldsOf(value, `a side of ${quoted(name)}`);
  const base = side.base === undefined ? null : fieldsOf(side.base, quoted(name));
  if (side.kind === "difference" || base?.kind === "difference") {
    return damaged(`${quoted(name)} is a difference of differences`);
  }
  return side;
}
