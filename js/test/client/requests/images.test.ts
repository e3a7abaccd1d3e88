// @vitest-environment node

import { deflateSync } from "node:zlib";
import { expect, it } from "vitest";
import { PageTransport } from "../../../src/client/page";
import { readImage } from "../../../src/client/requests/images";
import { Source } from "../../../src/client/source";
import { pageOf } from "../../builders";

it("an image of a page has opaque pixels", async () => {
  const data = deflateSync(Uint8Array.of(1, 2, 3, 4, 5, 6)).toString("base64");
  const source = new Source(new PageTransport(pageOf({ images: [{ width: 1, height: 2, data }] })));
  const image = await source.image(0);
  expect(image).toMatchObject({ width: 1, height: 2 });
  expect([...image.pixels]).toEqual([1, 2, 3, 255, 4, 5, 6, 255]);
});

it("an image with missing bytes is rejected", () => {
  expect(() => readImage({ header: { width: 2, height: 2 }, data: new Uint8Array(9) })).toThrow(
    "The reply has 9 bytes, but an image of 2 x 2 needs 12.",
  );
});
