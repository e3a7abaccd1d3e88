/**
 * Decoding of replies from bytes to float32 numbers. In some encodings, one byte stands for a
 * number. This byte is called a code.
 *
 * `attnviz/server/codec.py` encodes the numbers. The tests of both modules read
 * `tests/fixtures/codec.json`.
 */

import type { EncodedHeader } from "./protocol";

/** Largest code of "uint8-sqrt" (`TOP_CODE`) and of the signed "int8-sqrt" (`TOP_SIGNED_CODE`). */
export const TOP_CODE = 255;
export const TOP_SIGNED_CODE = 127;

/**
 * Return the number that each byte from 0 to 255 stands for. In "uint8-sqrt", this is maximum *
 * (byte / 255)^2. In "int8-sqrt" (`signed`), the byte is a code from -127 to 127 in two's
 * complement, which stands for sign(code) * maximum * (code / 127)^2.
 */
export function codeValues(maximum: number, signed = false): Float32Array {
  return Float32Array.from({ length: 256 }, (_, byte) => {
    const signedCode = byte < 128 ? byte : byte - 256;
    const share = signed ? signedCode / TOP_SIGNED_CODE : byte / TOP_CODE;
    return maximum * share * Math.abs(share);
  });
}

/**
 * Return the bytes of `data` without copying them. If `data` is a view of a larger buffer, return
 * only the bytes in the view.
 */
export function asBytes(data: ArrayBufferView | ArrayBuffer): Uint8Array<ArrayBuffer> {
  if (data instanceof ArrayBuffer) return new Uint8Array(data);
  return new Uint8Array(data.buffer as ArrayBuffer, data.byteOffset, data.byteLength);
}

/**
 * Return a copy of the bytes of `data`, from which typed arrays can be made. An array of 4-byte
 * numbers must start at a multiple of 4 bytes, but a view of a message may start anywhere.
 */
export function copiedBuffer(data: ArrayBufferView | ArrayBuffer): ArrayBuffer {
  return asBytes(data).slice().buffer;
}

/**
 * Return the bytes of float32 numbers in their usual order, with the four bytes of each number
 * together.
 *
 * @param planes the bytes of "float32-deflated" after inflating: the first bytes of all numbers,
 *   then the second bytes of all numbers, and so on.
 */
function fromPlanes(planes: Uint8Array): Uint8Array {
  const count = planes.length / 4;
  const out = new Uint8Array(planes.length);
  for (let byte = 0; byte < 4; byte++) {
    for (let i = 0; i < count; i++) out[4 * i + byte] = planes[byte * count + i] as number;
  }
  return out;
}

/** Decode a reply of any encoding to float32 values in row-major order. */
export async function decodeReply(
  header: EncodedHeader,
  data: ArrayBufferView | ArrayBuffer,
): Promise<Float32Array> {
  if (header.encoding !== "float32-deflated") return decode(header, data);
  const planes = await inflate(asBytes(data));
  return decode({ ...header, encoding: "float32" }, fromPlanes(planes));
}

/**
 * Decode a buffer that is not deflated to float32 values in row-major order.
 *
 * @throws Error if the length does not fit the shape or the encoding is unknown.
 */
export function decode(header: EncodedHeader, data: ArrayBufferView | ArrayBuffer): Float32Array {
  const bytes = asBytes(data);
  const { encoding } = header;
  const count = header.shape[0] * header.shape[1] * header.shape[2];
  const isCoded = encoding === "uint8-sqrt" || encoding === "int8-sqrt";
  if (!isCoded && encoding !== "float32") {
    throw new Error(`The reply has the unknown encoding ${String(encoding)}.`);
  }
  const expected = count * (isCoded ? 1 : 4);
  if (bytes.byteLength !== expected) {
    throw new Error(
      `The reply has ${bytes.byteLength} bytes, but its shape ${header.shape.join(" x ")} needs ${expected}.`,
    );
  }
  if (!isCoded) {
    // An exported page passes an array that it computed only for this reply, so no copy is needed.
    return data instanceof Float32Array ? data : new Float32Array(copiedBuffer(data));
  }
  const values = codeValues(header.maximum, encoding === "int8-sqrt");
  const out = new Float32Array(count);
  for (let i = 0; i < count; i++) out[i] = values[bytes[i] as number] as number;
  return out;
}

/** Decode base64. @throws Error if the text is not valid base64. */
export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  // The native method of newer browsers is 20 times as fast as `atob`.
  const native = (
    Uint8Array as unknown as { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> }
  ).fromBase64;
  try {
    if (native) return native.call(Uint8Array, text);
    const binary = atob(text);
    const bytes = new Uint8Array(binary.length);
    for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
    return bytes;
  } catch (error) {
    throw error instanceof RangeError ? error : damagedError();
  }
}

/**
 * Inflate bytes that were deflated by zlib.
 *
 * @throws Error if the bytes are damaged.
 */
export async function inflate(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  const { readable, writable } = new DecompressionStream("deflate");
  const writer = writable.getWriter();
  // Ignore errors of the writer, because the reader below throws the same error.
  writer.write(bytes).catch(() => {});
  writer.close().catch(() => {});
  const parts: Uint8Array<ArrayBuffer>[] = [];
  try {
    // Read the stream directly. A Response would need several tasks, between which a browser may
    // parse more of the page and delay the data.
    const reader = readable.getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      parts.push(part.value);
    }
  } catch (error) {
    throw error instanceof RangeError ? error : damagedError();
  }
  const inflated = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let start = 0;
  for (const part of parts) {
    inflated.set(part, start);
    start += part.length;
  }
  return inflated;
}

function damagedError(): Error {
  return new Error(
    "The data are damaged. Copy or download the file again, or save the view again.",
  );
}
