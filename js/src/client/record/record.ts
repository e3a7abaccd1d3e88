/**
 * A saved record, opened from its file: what `attnviz.load` makes of it in Python
 * (`attnviz/record/storage/schema.py`), with the same checks.
 */

import {
  damaged,
  type Fields,
  fieldsOf,
  finiteOf,
  flagOf,
  listOf,
  orNull,
  quoted,
  RefusedFile,
  textOf,
  wholeOf,
} from "./fields";
import { type ArrayPlace, RecordFile } from "./file";
import { type Layer, layerOf, type Shared } from "./layers";
import { partOf } from "./parts";
import { measureOf, type SavedTokens, tokensOf } from "./tokens";

/** The formats that are read, as `FORMATS` in Python. */
const FORMATS = [2, 3];

/** The attention of the same tokens through some layers. */
export interface SavedStack {
  name: string;
  layers: ReadonlyMap<number, Layer>;
  queries: SavedTokens;
  /** The same object where they are the same tokens. */
  keys: SavedTokens;
  normalized: boolean;
  signed: boolean;
  measure: string;
  lookedThrough: LookedThrough;
}

/** What takes a look at all weights, and was found when the record was saved; null where it was not. */
interface LookedThrough {
  maximum: number | null;
  zeros: [number, number][][] | null;
}

export interface SavedRecord {
  file: RecordFile;
  model: string;
  notes: string[];
  images: ArrayPlace[];
  stacks: SavedStack[];
}

/** @throws RefusedFile where it is not a record, or damaged. */
export async function openRecord(blob: Blob): Promise<SavedRecord> {
  const file = await RecordFile.open(blob);
  const { header } = file;
  if (!FORMATS.includes(header.format as number)) {
    throw new RefusedFile(
      `This record has the format ${quoted(header.format)}, and this page reads the formats ` +
        `${FORMATS.join(" and ")}. Load it in Python with the version of attnviz that saved it, ` +
        "or use the page of a newer version.",
    );
  }
  const parts = new Map(
    Object.entries(fieldsOf(header.shared, "what layers share")).map(([name, part]) => [
      name,
      partOf(file, `${name}/`, part),
    ]),
  );
  const count = wholeOf(header.images, "the number of images");
  if (count > 1_000_000) return damaged(`it says that it has ${count} images`);
  const images = Array.from({ length: count }, (_, index) => imageAt(file, index));
  const shared: Shared = { file, parts, known: new Map() };
  const stacks: SavedStack[] = [];
  for (const fields of listOf(header.stacks, "stacks")) {
    stacks.push(await stackOf(shared, fieldsOf(fields, "a stack"), count));
  }
  const names = stacks.map((stack) => stack.name);
  if (new Set(names).size < names.length) return damaged("a stack is there twice");
  if (stacks.length === 0) return damaged("it has no stack");
  const model = textOf(header.model, "the model's name");
  const notes = listOf(header.notes, "notes").map((note) => textOf(note, "a note"));
  return { file, model, notes, images, stacks };
}

function imageAt(file: RecordFile, index: number): ArrayPlace {
  const place = file.placeOf(`images/${index}`, 3, "U8");
  const [height, width, colors] = place.shape;
  if (!height || !width || colors !== 3) return damaged(`image ${index} is not one`);
  return place;
}

async function stackOf(shared: Shared, fields: Fields, images: number): Promise<SavedStack> {
  const name = textOf(fields.name, "the name of a stack");
  const layers = new Map<number, Layer>();
  for (const value of listOf(fields.layers, "layers")) {
    const each = fieldsOf(value, "a layer");
    const number = wholeOf(each.number, "the number of a layer");
    if (layers.has(number))
      return damaged(`layer ${number} of stack ${quoted(name)} is there twice`);
    layers.set(number, await layerOf(shared, `${name}/${number}`, value));
  }
  if (layers.size === 0) return damaged(`stack ${quoted(name)} has no layers`);
  const queries = tokensOf(fields.query_tokens, images);
  const keys = orNull(fields.key_tokens, (tokens) => tokensOf(tokens, images)) ?? queries;
  for (const [number, { numQueries, numKeys }] of layers) {
    const [rows, columns] = [queries.list.text.length, keys.list.text.length];
    if (numQueries !== rows || numKeys !== columns) {
      return damaged(
        `layer ${number} of stack ${quoted(name)} is of ${numQueries} queries and ${numKeys} ` +
          `keys, and the tokens are ${rows} and ${columns}`,
      );
    }
  }
  const normalized = flagOf(fields.normalized, "normalized");
  const signed = fields.signed === undefined ? false : flagOf(fields.signed, "signed");
  if (normalized && signed) return damaged(`stack ${quoted(name)} is normalized and signed`);
  const sorted = [...layers].sort(([a], [b]) => a - b);
  return {
    ...{ name, queries, keys, normalized, signed },
    layers: new Map(sorted),
    measure: fields.measure === undefined ? "weight" : measureOf(fields.measure),
    lookedThrough: lookedThroughOf(fields.looked_through, sorted),
  };
}

function lookedThroughOf(value: unknown, layers: [number, Layer][]): LookedThrough {
  const fields: Fields = value === undefined ? {} : fieldsOf(value, "looked_through");
  const maximum =
    fields.maximum === undefined ? null : finiteOf(fields.maximum, "a largest weight");
  if (maximum !== null && maximum < 0) return damaged(`the largest weight is ${maximum}`);
  if (fields.zeros === undefined) return { maximum, zeros: null };
  const counts = listOf(fields.zeros, "exact zeros");
  const zeros = layers.map(([number, { heads }], at) => {
    const ofLayer = listOf(counts[at], "exact zeros");
    if (ofLayer.length === 0) return heads.map((): [number, number] => [0, 0]);
    if (ofLayer.length !== heads.length) {
      return damaged(`exact zeros of layer ${number} are not those of its heads`);
    }
    return ofLayer.map((pair): [number, number] => {
      const [found, counted] = listOf(pair, "exact zeros").map((each) => wholeOf(each, "a count"));
      if (found === undefined || counted === undefined || found > counted) {
        return damaged("more zeros were counted than weights");
      }
      return [found, counted];
    });
  });
  return { maximum, zeros };
}
