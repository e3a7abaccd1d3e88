/** Masks and position biases of a saved record: each kind of `attnviz/record/masks.py`. */

import { bandMask, denseBias, distanceBias, inserted, type OfRow, packedMask } from "../masks";
import { damaged, type Fields, fieldsOf, flagOf, orNull, quoted, textOf, wholeOf } from "./fields";
import type { RecordFile } from "./file";

/** How many heads, queries and keys a layer has. */
export type Sizes = readonly [heads: number, queries: number, keys: number];

interface Part<T> {
  /** @throws RefusedFile where it has no entry for every head, query and key. */
  check: (sizes: Sizes) => Promise<void>;
  /** Its entries for one head; what it needs is read once. */
  read: (sizes: Sizes, head: number) => Promise<OfRow<T>>;
}

/** Which keys each query may attend to. */
export interface Mask extends Part<boolean> {
  of: "mask";
  /** Whether no query may look ahead, as far as the form of the mask tells. */
  causal: (sizes: Sizes) => Promise<boolean>;
  /** The key position that query 0 stands at, where the mask says so. */
  offset: (sizes: Sizes) => Promise<number>;
}

/** What is added to the logits after the soft cap. */
export interface Bias extends Part<number> {
  of: "bias";
}

/** Parts of parts: one is made of another, as tokens are inserted and pairs are cut. */
const DEEPEST = 32;
/** What a position in any text is below. */
const FARTHEST = 2 ** 53 - 1;

function missing(what: string): never {
  return damaged(`a ${what} has no entry for every head, query and key`);
}

/** Makes once what is asked for any number of times: a mask is shared by layers. */
function once<T>(make: (sizes: Sizes) => Promise<T>): (sizes: Sizes) => Promise<T> {
  const made = new Map<string, Promise<T>>();
  return (sizes) => {
    const key = sizes.join(" ");
    const found = made.get(key) ?? make(sizes);
    made.set(key, found);
    found.catch(() => made.delete(key));
    return found;
  };
}

function endOf(value: unknown): number {
  const end = wholeOf(value, "the end of a band", -FARTHEST);
  return end <= FARTHEST ? end : damaged("a band has an end farther away than any token");
}

function bandOf(fields: Fields): Mask {
  const [before, after] = [orNull(fields.before, endOf), orNull(fields.after, endOf)];
  const offset = endOf(fields.offset);
  return {
    of: "mask",
    check: async () => {},
    read: async () => bandMask(before, after, offset),
    causal: async () => after !== null && after <= 0,
    offset: async () => offset,
  };
}

function packedOf(file: RecordFile, name: string, fields: Fields): Mask {
  const place = file.placeOf(`${name}bits`, 3, "U8");
  const count = wholeOf(fields.num_keys, "the keys of a mask");
  const [heads, rows, bytes] = place.shape as [number, number, number];
  return {
    of: "mask",
    check: async ([numHeads, queries, keys]) => {
      const fits = (heads === 1 || heads === numHeads) && rows === queries && count === keys;
      if (!fits || bytes !== Math.ceil(keys / 8)) missing("mask");
    },
    read: once(async ([, queries, keys]) => {
      const bits = await file.bytes(place, 0, heads * rows * bytes);
      return packedMask(bits, { heads, queries, keys });
    }),
    causal: async () => false,
    offset: async () => 0,
  };
}

/** Whole numbers, one a token, each below `stop` if that is given. */
async function numbersOf(
  file: RecordFile,
  name: string,
  count: number,
  stop: number | null = null,
): Promise<Float64Array> {
  const [length] = file.placeOf(name, 1, "I64").shape;
  if (length !== count) return missing("window");
  const numbers = await file.wholes(name);
  if (stop !== null && numbers.some((each) => !(each >= 0 && each < stop))) missing("window");
  return numbers;
}

function windowsOf(file: RecordFile, name: string): Mask {
  const read = once(async ([, queries, keys]): Promise<OfRow<boolean>> => {
    const ofQueries = await numbersOf(file, `${name}query_windows`, queries);
    const ofKeys = await numbersOf(file, `${name}key_windows`, keys);
    return (_, token) => {
      const window = ofQueries[token];
      return (key) => ofKeys[key] === window;
    };
  });
  return {
    of: "mask",
    check: async (sizes) => void (await read(sizes)),
    read,
    causal: async () => false,
    offset: async () => 0,
  };
}

/** The row or column that each token of a base is: some of `count`, ascending. */
async function unitsOf(file: RecordFile, name: string, count: number): Promise<Float64Array> {
  const units = await file.wholes(name);
  const ascends = units.every((unit, i) => unit > (i === 0 ? -1 : (units[i - 1] as number)));
  const fits = ascends && units.length > 0 && (units[units.length - 1] as number) < count;
  return fits ? units : damaged("tokens were inserted where no rows or columns are");
}

function placesAmong(units: Float64Array, count: number): Int32Array {
  const places = new Int32Array(count).fill(-1);
  units.forEach((unit, place) => {
    places[unit] = place;
  });
  return places;
}

function insertedOf<T>(file: RecordFile, name: string, fields: Fields, base: Part<T> | null) {
  const counts = [
    wholeOf(fields.num_query_units, "the rows of a mask or bias"),
    wholeOf(fields.num_key_units, "the columns of a mask or bias"),
  ];
  const units = once(([, queries, keys]) =>
    Promise.all([
      unitsOf(file, `${name}query_units`, queries),
      unitsOf(file, `${name}key_units`, keys),
    ]),
  );
  const inner = async (sizes: Sizes): Promise<Sizes> => {
    const [queries, keys] = await units(sizes);
    return [sizes[0], queries.length, keys.length];
  };
  return {
    units,
    inner,
    check: async (sizes: Sizes): Promise<void> => {
      if (counts[0] !== sizes[1] || counts[1] !== sizes[2]) missing("mask or bias");
      await base?.check(await inner(sizes));
    },
    /** @param whole what is said of all pairs without a base; `absent` of other pairs. */
    read: (whole: T, absent: T) => {
      const places = once(async (sizes) => {
        const [queries, keys] = await units(sizes);
        return [placesAmong(queries, sizes[1]), placesAmong(keys, sizes[2])] as const;
      });
      return async (sizes: Sizes, head: number): Promise<OfRow<T>> => {
        const [rows, columns] = await places(sizes);
        const entries = base ? await base.read(await inner(sizes), head) : () => () => whole;
        return inserted(rows, columns, entries, absent);
      };
    },
  };
}

function insertedMask(file: RecordFile, name: string, fields: Fields, base: Mask | null): Mask {
  const { check, inner, read, units } = insertedOf(file, name, fields, base);
  return {
    of: "mask",
    check,
    read: read(true, false),
    causal: async (sizes) => {
      if (!base || !(await base.causal(await inner(sizes)))) return false;
      const [queries, keys] = await units(sizes);
      return queries.length === keys.length && queries.every((unit, i) => unit === keys[i]);
    },
    offset: async (sizes) => {
      const before = base ? await base.offset(await inner(sizes)) : 0;
      const [queries, keys] = await units(sizes);
      const key = keys[before];
      return key === undefined ? before : key - (queries[0] as number);
    },
  };
}

/** Yes or no for each of some things. */
async function flagsOf(file: RecordFile, name: string): Promise<Uint8Array> {
  const place = file.placeOf(name, 1, "BOOL");
  return file.bytes(place, 0, place.shape[0] as number);
}

function cutMask(file: RecordFile, name: string, fields: Fields, base: Mask | null): Mask {
  const keepOwn = flagOf(fields.keep_own, "whether tokens keep themselves");
  const [heads, queries, keys] = ["heads", "queries", "keys"].map(
    (each) => file.placeOf(name + each, 1, "BOOL").shape[0] as number,
  ) as [number, number, number];
  const flags = once(() =>
    Promise.all(["heads", "queries", "keys"].map((each) => flagsOf(file, name + each))),
  );
  return {
    of: "mask",
    check: async (sizes) => {
      const fits = (heads === 1 || heads === sizes[0]) && queries === sizes[1] && keys === sizes[2];
      if (!fits) missing("mask");
      await base?.check(sizes);
    },
    read: async (sizes, head) => {
      const [inHeads, ofQueries, ofKeys] = await flags(sizes);
      const before = base ? await base.read(sizes, head) : () => () => true;
      return (place, token) => {
        const row = before(place, token);
        const cuts = inHeads?.[heads > 1 ? place : 0] && ofQueries?.[token];
        if (!cuts) return row;
        return (key) => row(key) && !(ofKeys?.[key] && !(keepOwn && key === token));
      };
    },
    causal: async (sizes) => (base ? base.causal(sizes) : false),
    offset: async (sizes) => (base ? base.offset(sizes) : 0),
  };
}

function distanceOf(file: RecordFile, name: string, fields: Fields): Bias {
  const place = file.floatPlace(`${name}values`, 2);
  const count = wholeOf(fields.num_queries, "the queries of a bias");
  const [heads, values] = place.shape as [number, number];
  return {
    of: "bias",
    check: async ([numHeads, queries, keys]) => {
      const fits = (heads === 1 || heads === numHeads) && count === queries;
      if (!fits || values !== queries + keys - 1) missing("bias");
    },
    read: once(async ([, queries, keys]) =>
      distanceBias(await file.floats(place, 0, heads * values), { heads, queries, keys }),
    ),
  };
}

function denseOf(file: RecordFile, name: string): Bias {
  const place = file.floatPlace(`${name}values`, 3);
  const [heads, rows, columns] = place.shape as [number, number, number];
  return {
    of: "bias",
    check: async ([numHeads, queries, keys]) => {
      const fits = (heads === 1 || heads === numHeads) && (rows === 1 || rows === queries);
      if (!fits || columns !== keys) missing("bias");
    },
    // A head of a long text takes many megabytes.
    read: async ([, , keys], head) =>
      denseBias(await file.entry(place, heads > 1 ? head : 0), { heads: 1, rows, keys }),
  };
}

function windowBias(file: RecordFile, name: string): Bias {
  const place = file.floatPlace(`${name}values`, 4);
  const [windows, heads, rows, columns] = place.shape as [number, number, number, number];
  const numbers = once(([, queries, keys]) =>
    Promise.all([
      numbersOf(file, `${name}query_windows`, queries, windows === 1 ? null : windows),
      numbersOf(file, `${name}key_windows`, keys),
      numbersOf(file, `${name}query_places`, queries, rows),
      numbersOf(file, `${name}key_places`, keys, columns),
    ]),
  );
  return {
    of: "bias",
    check: async (sizes) => {
      if (heads !== 1 && heads !== sizes[0]) missing("bias");
      await numbers(sizes);
    },
    read: once(async (sizes) => {
      const values = await file.floats(place, 0, windows * heads * rows * columns);
      const [ofQueries, ofKeys, inQueries, inKeys] = await numbers(sizes);
      return (head, token) => {
        const window = ofQueries[token] as number;
        const of = (windows > 1 ? window : 0) * heads + (heads > 1 ? head : 0);
        const from = (of * rows + (inQueries[token] as number)) * columns;
        return (key) =>
          ofKeys[key] === window ? (values[from + (inKeys[key] as number)] as number) : 0;
      };
    }),
  };
}

function depthOf(fields: Fields): number {
  let depth = 0;
  for (let at: unknown = fields; at && depth <= DEEPEST; depth++) {
    at = (at as { base?: unknown }).base;
  }
  return depth;
}

/** @param name what the names of its arrays begin with. */
export function partOf(file: RecordFile, name: string, value: unknown): Mask | Bias {
  const fields = fieldsOf(value, "a mask or bias");
  if (depthOf(fields) > DEEPEST) return damaged("a mask or bias is made of too many others");
  const base = (): Mask | Bias | null =>
    orNull(fields.base, (inner) => partOf(file, `${name}base.`, inner));
  const baseMask = (): Mask | null => {
    const found = base();
    return found?.of === "bias" ? damaged("a mask has a bias as its base") : found;
  };
  const kind = textOf(fields.kind, "the kind of a mask or bias");
  switch (kind) {
    case "band":
      return bandOf(fields);
    case "packed":
      return packedOf(file, name, fields);
    case "windows":
      return windowsOf(file, name);
    case "inserted":
      return insertedMask(file, name, fields, baseMask());
    case "cut":
      return cutMask(file, name, fields, baseMask());
    case "distance":
      return distanceOf(file, name, fields);
    case "dense":
      return denseOf(file, name);
    case "in windows":
      return windowBias(file, name);
    case "inserted bias": {
      const found = base();
      if (found?.of !== "bias") return damaged("a bias has no bias as its base");
      const { check, read } = insertedOf(file, name, fields, found);
      return { of: "bias", check, read: read(0, 0) };
    }
  }
  return damaged(`a mask or bias is of an unknown kind, ${quoted(kind)}`);
}
