// @vitest-environment node

import { deflateSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { PageTransport } from "../../../src/client/page";
import { readImage } from "../../../src/client/requests/images";
import { Source } from "../../../src/client/source";
import { pageOf } from "../../builders";
import { imageOf } from "../../images";

describe("an image of a record", () => {
  it("becomes opaque pixels, and reports missing bytes", () => {
    const image = imageOf(3, 2);
    expect([...image.pixels.subarray(16, 24)]).toEqual([1, 1, 200, 255, 2, 1, 200, 255]);
    expect(() => readImage({ header: { width: 2, height: 2 }, data: new Uint8Array(9) })).toThrow(
      "The reply has 9 bytes, but an image of 2 x 2 needs 12.",
    );
  });

  it("is read once from the page that contains it", async () => {
    const data = pageOf({
      images: [
        {
          width: 1,
          height: 2,
          data: deflateSync(Buffer.from([1, 2, 3, 4, 5, 6])).toString("base64"),
        },
      ],
    });
    const source = new Source(new PageTransport(data));
    const image = await source.image(0);
    expect(image).toMatchObject({ width: 1, height: 2 });
    expect([...image.pixels]).toEqual([1, 2, 3, 255, 4, 5, 6, 255]);
    expect(await source.image(0)).toBe(image);
    await expect(source.image(1)).rejects.toThrow("This page does not contain image 1.");
  });
});
