/**
 * The browser's half of the codec: bytes of a reply to float weights.
 *
 * The Python half is `attnviz/server/codec.py`; both are tested against the one fixture
 * `tests/fixtures/codec.json`.
 */

import type { Encoding, PieceHeader } from "./protocol";

function isCoded(encoding: Encoding): boolean {
  return encoding === "uint8-sqrt" || encoding === "int8-sqrt";
}

/** The number of bytes that one value takes. */
export function bytesPerValue(encoding: Encoding): number {
  return isCoded(encoding) ? 1 : 4;
}

/** The codes of the largest weight, and of the largest number of either sign. */
export const TOP_CODE = 255;
export const TOP_SIGNED_CODE = 127;

/** The signed code of a byte, as two's complement has it. */
function signedCode(byte: number): number {
  return byte < 128 ? byte : byte - 256;
}

/**
 * The 256 values that the bytes of "uint8-sqrt" stand for, maximum * (code / 255)^2, or those of
 * "int8-sqrt", whose codes have a sign: sign * maximum * (code / 127)^2.
 */
export function codeValues(maximum: number, signed = false): Float32Array {
  const values = new Float32Array(256);
  for (let byte = 0; byte < 256; byte++) {
    const share = signed ? signedCode(byte) / TOP_SIGNED_CODE : byte / TOP_CODE;
    values[byte] = maximum * share * Math.abs(share);
  }
  return values;
}

/** The bytes of a reply's buffer; its own offset and length are honoured. */
export function asBytes(data: ArrayBufferView | ArrayBuffer): Uint8Array {
  return data instanceof ArrayBuffer
    ? new Uint8Array(data)
    : new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}

/** The same numbers whose bytes stand together, from those of which the first bytes do, and so on. */
function fromPlanes(planes: Uint8Array): Uint8Array {
  const count = planes.length / 4;
  const out = new Uint8Array(planes.length);
  for (let byte = 0; byte < 4; byte++) {
    for (let i = 0; i < count; i++) out[4 * i + byte] = planes[byte * count + i] as number;
  }
  return out;
}

/** Decodes a buffer, also one that was deflated. */
export async function decodeReply(
  header: PieceHeader,
  data: ArrayBufferView | ArrayBuffer,
): Promise<Float32Array> {
  if (header.encoding !== "float32-deflated") return decode(header, data);
  const planes = await inflate(asBytes(data) as Uint8Array<ArrayBuffer>);
  return decode({ ...header, encoding: "float32" }, fromPlanes(planes));
}

/**
 * Decodes a buffer to float32 values in row-major order.
 *
 * @param data the reply's buffer; its own offset and length are honoured.
 * @throws Error when the length does not fit the shape, or the encoding is not known.
 */
export function decode(header: PieceHeader, data: ArrayBufferView | ArrayBuffer): Float32Array {
  const bytes = asBytes(data);
  const count = header.shape[0] * header.shape[1] * header.shape[2];
  if (!isCoded(header.encoding) && header.encoding !== "float32") {
    throw new Error(`The reply has an encoding that is not known: ${String(header.encoding)}.`);
  }
  const expected = count * bytesPerValue(header.encoding);
  if (bytes.byteLength !== expected) {
    throw new Error(
      `The reply holds ${bytes.byteLength} bytes; its shape ${header.shape.join(" x ")} needs ${expected}.`,
    );
  }
  if (header.encoding === "float32") {
    // Made here, for this answer.
    if (data instanceof Float32Array) return data;
    // A copy, because a view of a message need not start at a multiple of four bytes.
    return new Float32Array(bytes.slice().buffer);
  }
  const values = codeValues(header.maximum, header.encoding === "int8-sqrt");
  const out = new Float32Array(count);
  for (let i = 0; i < count; i++) out[i] = values[bytes[i] as number] as number;
  return out;
}

/** Bytes of a base64 text. @throws Error where it was changed to what no base64 is. */
export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  // Decodes at 20 times the speed of `atob`, where the browser has it.
  const native = (
    Uint8Array as unknown as { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> }
  ).fromBase64;
  try {
    return native ? native.call(Uint8Array, text) : fromBinary(atob(text));
  } catch (error) {
    throw error instanceof RangeError ? error : damaged();
  }
}

function fromBinary(binary: string): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/**
 * Inflates bytes that zlib deflated.
 *
 * @throws Error where they were changed: zlib's own checksum is part of them.
 */
export async function inflate(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  const { readable, writable } = new DecompressionStream("deflate");
  const writer = writable.getWriter();
  // The reason is read below.
  writer.write(bytes).catch(() => {});
  writer.close().catch(() => {});
  const parts: Uint8Array<ArrayBuffer>[] = [];
  try {
    // A response would give the same in several tasks, between which a browser reads the rest of a page.
    const reader = readable.getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      parts.push(part.value);
    }
  } catch (error) {
    throw error instanceof RangeError ? error : damaged();
  }
  const inflated = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let start = 0;
  for (const part of parts) {
    inflated.set(part, start);
    start += part.length;
  }
  return inflated;
}

function damaged(): Error {
  return new Error(
    "The data are damaged. Copy or download the file again, or save the view again.",
  );
}
