/** Images of a record, decoded to pixels. */

import { asBytes } from "../codec";
import type { ImageHeader } from "../protocol";
import type { Reply } from "../transport";

/** An image that the model received. */
export interface RecordImage {
  width: number;
  height: number;
  /** Red, green, blue and opacity of each pixel, row by row from the top left. */
  pixels: Uint8ClampedArray<ArrayBuffer>;
}

/** Decode the image of a reply. @throws Error if the number of bytes does not fit the size. */
export function readImage(reply: Reply<ImageHeader>): RecordImage {
  const { height, width } = reply.header;
  const bytes = reply.data === null ? new Uint8Array(0) : asBytes(reply.data);
  if (bytes.length !== 3 * width * height) {
    throw new Error(
      `The reply has ${bytes.length} bytes, but an image of ${width} x ${height} needs ${3 * width * height}.`,
    );
  }
  const pixels = new Uint8ClampedArray(4 * width * height).fill(255);
  for (let i = 0, offset = 0; i < bytes.length; offset++) {
    for (let color = 0; color < 3; color++) pixels[offset++] = bytes[i++] as number;
  }
  return { width, height, pixels };
}
