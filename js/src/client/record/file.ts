/**
 * A safetensors file, as `attnviz/record/storage/safetensors_file.py` writes records: eight bytes that
 * say how long the header is, the header as JSON, and the arrays one after the other
 * (https://huggingface.co/docs/safetensors, section "Format").
 *
 * Of the arrays only what is asked for is read, a slice at a time: a file may have gigabytes. Header,
 * names and shapes are held against their checksum, and arrays of up to 16 MB in all against theirs,
 * as `attnviz.load` does.
 */

import { halvesToFloats } from "../page/vectors";
import { Recent } from "../recent";
import { damaged, type Fields, fieldsOf, listOf, quoted, RefusedFile, textOf } from "./fields";

/** The library that others read such files with refuses longer ones. */
const LONGEST_HEADER = 100_000_000;
/** Arrays of so many bytes are held against their checksum. */
const ALWAYS_SUMMED = 1 << 24;
/** Bytes that are read and summed at once. */
const PIECE = 1 << 22;
/** Numbers of arrays that are kept, in bytes. */
const KEPT_BYTES = 128_000_000;

/** Bytes of a number, and what torch calls it. */
const KINDS = {
  F64: [8, "torch.float64"],
  F32: [4, "torch.float32"],
  F16: [2, "torch.float16"],
  BF16: [2, "torch.bfloat16"],
  I64: [8, "torch.int64"],
  I32: [4, "torch.int32"],
  I16: [2, "torch.int16"],
  I8: [1, "torch.int8"],
  U8: [1, "torch.uint8"],
  BOOL: [1, "torch.bool"],
} as const;

type Kind = keyof typeof KINDS;

const FLOATS: ReadonlySet<Kind> = new Set<Kind>(["F64", "F32", "F16", "BF16"]);

/** Where an array lies in the file, and what it holds. */
export interface ArrayPlace {
  name: string;
  kind: Kind;
  shape: readonly number[];
  start: number;
  stop: number;
}

/** Eight hexadecimal digits of CRC-32, as `zlib.crc32` has it. */
export class Checksum {
  static readonly #table = Uint32Array.from({ length: 256 }, (_, byte) => {
    let code = byte;
    for (let bit = 0; bit < 8; bit++) code = code & 1 ? (code >>> 1) ^ 0xedb88320 : code >>> 1;
    return code;
  });
  #code = 0xffffffff;

  add(bytes: Uint8Array | string): this {
    const all = typeof bytes === "string" ? new TextEncoder().encode(bytes) : bytes;
    const table = Checksum.#table;
    let code = this.#code;
    for (let i = 0; i < all.length; i++) {
      code = (table[(code ^ (all[i] as number)) & 255] as number) ^ (code >>> 8);
    }
    this.#code = code;
    return this;
  }

  toString(): string {
    return ((this.#code ^ 0xffffffff) >>> 0).toString(16).padStart(8, "0");
  }
}

/** Names in Python's order, that of their characters' numbers. */
function sorted(places: Iterable<ArrayPlace>): ArrayPlace[] {
  const codes = (text: string): number[] => [...text].map((each) => each.codePointAt(0) as number);
  return [...places].sort((a, b) => {
    const [one, other] = [codes(a.name), codes(b.name)];
    const at = one.findIndex((code, i) => code !== other[i]);
    return at < 0 ? one.length - other.length : (one[at] as number) - (other[at] ?? -1);
  });
}

/** An array as its checksum calls it. */
function described({ name, kind, shape }: ArrayPlace): string {
  const tuple = shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(", ")})`;
  return `${name} ${KINDS[kind][1]} ${tuple}`;
}

/** What is said of another file. */
function noRecord(reason: string): never {
  throw new RefusedFile(
    `This is not a saved record: ${reason}. A record is a file that record.save("x.safetensors") ` +
      "wrote in Python.",
  );
}

function parsed(text: string, what: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return damaged(`its ${what} is not JSON`);
  }
}

/** A file of named arrays, of which nothing is read until it is asked for. */
export class RecordFile {
  /** What the record is, but for its arrays. */
  readonly header: Fields;
  readonly #file: Blob;
  readonly #places: ReadonlyMap<string, ArrayPlace>;
  readonly #kept = new Recent<Promise<Float32Array>>(KEPT_BYTES);

  private constructor(file: Blob, header: Fields, places: ReadonlyMap<string, ArrayPlace>) {
    this.#file = file;
    this.header = header;
    this.#places = places;
  }

  /** @throws RefusedFile where it is not a record, or damaged. */
  static async open(file: Blob): Promise<RecordFile> {
    if (file.size < 8) return noRecord(`it has ${file.size} bytes`);
    const first = new DataView(await bytesAt(file, 0, 8));
    const length = first.getBigUint64(0, true);
    if (length > LONGEST_HEADER || length + 8n > BigInt(file.size)) {
      return noRecord(
        "it is not a safetensors file, or its end is missing: it begins as if its header had " +
          `${length.toLocaleString("en-US")} bytes`,
      );
    }
    const begin = 8 + Number(length);
    let text: string;
    try {
      const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
      text = decoder.decode(await bytesAt(file, 8, begin));
    } catch (error) {
      if (error instanceof TypeError) return noRecord("its header is not text");
      throw error;
    }
    if (!text.startsWith("{")) return noRecord("it has no header of a safetensors file");
    const { __metadata__: metadata, ...arrays } = fieldsOf(parsed(text, "header"), "its header");
    const places = placesOf(arrays, begin, file.size);
    const words = metadata === undefined ? {} : fieldsOf(metadata, "its metadata");
    for (const [name, value] of Object.entries(words)) textOf(value, name);
    const { attnviz, header_crc32: ofHeader, crc32: ofArrays } = words;
    if (attnviz === undefined) return noRecord("attnviz did not write this safetensors file");
    const ownText = textOf(attnviz, "its header");
    const own = new Checksum().add(ownText);
    const all = sorted(places.values());
    for (const each of all) own.add(described(each));
    let intact = ofHeader === own.toString() && typeof ofArrays === "string";
    if (intact && file.size - begin <= ALWAYS_SUMMED) {
      const sum = new Checksum().add(ownText);
      for (const each of all) {
        sum.add(described(each));
        for (let at = each.start; at < each.stop; at += PIECE) {
          const piece = await bytesAt(file, at, Math.min(each.stop, at + PIECE));
          sum.add(new Uint8Array(piece));
        }
      }
      intact = ofArrays === sum.toString();
    }
    if (!intact) return damaged("it is not what was written");
    return new RecordFile(file, fieldsOf(parsed(ownText, "header"), "its header"), places);
  }

  has(name: string): boolean {
    return this.#places.has(name);
  }

  /** Where an array is. @throws RefusedFile where it is not there, or has another number of axes. */
  place(name: string, axes: number): ArrayPlace {
    const place = this.#places.get(name);
    if (!place) return damaged(`the array ${quoted(name)} is missing`);
    if (place.shape.length !== axes) {
      return damaged(`${quoted(name)} has the shape ${place.shape.join(" x ") || "of a number"}`);
    }
    return place;
  }

  /** Likewise, and it holds floating-point numbers. */
  floatPlace(name: string, axes: number): ArrayPlace {
    const place = this.place(name, axes);
    return FLOATS.has(place.kind) ? place : damaged(`${quoted(name)} holds ${place.kind}`);
  }

  /** Likewise, and it holds numbers of one kind. */
  placeOf(name: string, axes: number, kind: Kind): ArrayPlace {
    const place = this.place(name, axes);
    return place.kind === kind ? place : damaged(`${quoted(name)} holds ${place.kind}`);
  }

  /** Some numbers of an array, counted as they lie. */
  async floats(place: ArrayPlace, from: number, to: number): Promise<Float32Array> {
    const [size] = KINDS[place.kind];
    const buffer = await bytesAt(this.#file, place.start + size * from, place.start + size * to);
    if (place.kind === "F32") return new Float32Array(buffer);
    if (place.kind === "F64") return Float32Array.from(new Float64Array(buffer));
    return halvesToFloats(new Uint16Array(buffer), place.kind === "F16" ? "float16" : "bfloat16");
  }

  /** One entry of an array's first axis, which is kept for who asks again. */
  entry(place: ArrayPlace, index: number): Promise<Float32Array> {
    const key = `${index} ${place.name}`;
    let found = this.#kept.get(key);
    if (!found) {
      const size = place.shape.slice(1).reduce((product, length) => product * length, 1);
      found = this.floats(place, index * size, (index + 1) * size);
      this.#kept.set(key, found, 4 * size);
      found.catch(() => this.#kept.delete(key));
    }
    return found;
  }

  /** All numbers of a short array of whole numbers. */
  async wholes(name: string): Promise<Float64Array> {
    const { start, stop } = this.placeOf(name, 1, "I64");
    const numbers = new BigInt64Array(await bytesAt(this.#file, start, stop));
    return Float64Array.from(numbers, Number);
  }

  /** Bytes of an array, from one to another. */
  async bytes({ start }: ArrayPlace, from: number, to: number): Promise<Uint8Array<ArrayBuffer>> {
    return new Uint8Array(await bytesAt(this.#file, start + from, start + to));
  }
}

async function bytesAt(file: Blob, from: number, to: number): Promise<ArrayBuffer> {
  let buffer: ArrayBuffer;
  try {
    buffer = await file.slice(from, to).arrayBuffer();
  } catch {
    throw new RefusedFile(
      "The file cannot be read any more: it was moved, changed or deleted since it was opened. " +
        "Open it again.",
    );
  }
  if (buffer.byteLength !== to - from) return damaged("its end is missing");
  return buffer;
}

/** Where the arrays are: they lie one after the other, without gaps, up to the end of the file. */
function placesOf(arrays: Fields, begin: number, size: number): Map<string, ArrayPlace> {
  const places = new Map<string, ArrayPlace>();
  for (const [name, value] of Object.entries(arrays)) {
    const { dtype, shape, data_offsets: offsets } = fieldsOf(value, quoted(name));
    if (!Object.hasOwn(KINDS, String(dtype))) {
      return damaged(`${quoted(name)} holds ${quoted(dtype)}, which no record has`);
    }
    const lengths = listOf(shape, "a shape");
    const [start, stop, ...more] = listOf(offsets, "a place");
    const whole = (each: unknown): each is number =>
      typeof each === "number" && Number.isSafeInteger(each) && each >= 0;
    if (!lengths.every(whole) || !whole(start) || !whole(stop) || more.length > 0) {
      return damaged(`${quoted(name)} has no shape and place`);
    }
    const kind = dtype as Kind;
    const bytes = lengths.reduce((product, length) => product * length, KINDS[kind][0]);
    if (!Number.isSafeInteger(bytes) || stop - start !== bytes) {
      return damaged(`${quoted(name)} does not have as many numbers as its shape says`);
    }
    places.set(name, { name, kind, shape: lengths, start: begin + start, stop: begin + stop });
  }
  let end = begin;
  for (const each of [...places.values()].sort((a, b) => a.start - b.start || a.stop - b.stop)) {
    if (each.start !== end) return damaged("its arrays overlap, or have gaps between them");
    end = each.stop;
  }
  if (end !== size) return damaged(`it has ${size} bytes, and its header says ${end}`);
  return places;
}
