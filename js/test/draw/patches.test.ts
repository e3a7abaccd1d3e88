// @vitest-environment node
import { describe, expect, it } from "vitest";
import {
  aspectRatios,
  cropOf,
  greyOf,
  gridTokens,
  patchOf,
  withPatchNames,
} from "../../src/draw/patches";
import { described, GRID, imageOf, TOKENS } from "../images";

describe("patches", () => {
  it("are found by their tokens and named by row and column, and by image if there are several", () => {
    expect(patchOf(TOKENS, 0)).toBeNull();
    expect(patchOf(TOKENS, 6)).toEqual({ grid: GRID, index: 5, row: 1, column: 2 });
    expect(patchOf(TOKENS, 7)).toBeNull();
    const [stack] = withPatchNames(described()).stacks;
    expect(stack?.query_tokens.text.slice(0, 3)).toEqual(["[CLS]", "patch 0,0", "patch 0,1"]);
    expect(stack?.query_tokens.text[7]).toBe("word");
    const two = { ...described(), images: [1, 2].map(() => ({ height: 4, width: 12 })) };
    expect(withPatchNames(two).stacks[0]?.query_tokens.text[6]).toBe("patch 1,2 of image 0");
  });

  it("may have other tokens between their rows, and the name of their image", () => {
    // Two rows of two patches. A token after each row is not a patch.
    const grid = { image: 0, start: 1, rows: 2, columns: 2, gap: 1, name: "wrist" };
    const tokens = { ...TOKENS, grids: [grid] };
    const patches = TOKENS.text.map((_, token) => patchOf(tokens, token));
    expect(patches.map((patch) => patch && [patch.row, patch.column, patch.index])).toEqual([
      null,
      [0, 0, 0],
      [0, 1, 1],
      null,
      [1, 0, 2],
      [1, 1, 3],
      null,
      null,
    ]);
    expect(gridTokens(grid)).toEqual([1, 2, 4, 5]);
    const [stack] = withPatchNames(described(tokens)).stacks;
    expect(stack?.query_tokens.text[4]).toBe("patch 1,0 of wrist");
  });

  it("have the aspect ratio of their part of the image", () => {
    // The image has 12 x 4 pixels and 3 x 2 patches, so a patch has 4 x 2 pixels and the ratio 2.
    const shape = aspectRatios(TOKENS, described());
    expect([0, 1, 6, 7].map((token) => shape?.(token))).toEqual([null, 2, 2, null]);
  });

  it("are cropped from the image", () => {
    const crop = cropOf(imageOf(12, 4), { grid: GRID, row: 1, column: 2 });
    expect([crop.columns, crop.rows]).toEqual([4, 2]);
    expect([...crop.pixels.subarray(0, 4)]).toEqual([8, 2, 200, 255]);
    expect([...crop.pixels.subarray(-4)]).toEqual([11, 3, 200, 255]);
  });

  it("are averaged if they have too many pixels", () => {
    const crop = cropOf(imageOf(160, 80), { grid: { rows: 1, columns: 2 }, row: 0, column: 1 });
    expect([crop.columns, crop.rows]).toEqual([40, 40]);
    // A pixel of the crop is the mean of 2 x 2 pixels of the image. For the first pixel of the crop,
    // these have the red values 80 and 81 (their columns). The mean 80.5 is rounded up or down.
    expect([80, 81]).toContain(crop.pixels[0]);
    expect(crop.pixels[2]).toBe(200);
  });

  it("have at least one pixel if the grid is finer than the image", () => {
    const crop = cropOf(imageOf(2, 2), { grid: { rows: 8, columns: 8 }, row: 7, column: 7 });
    expect([crop.columns, crop.rows, ...crop.pixels]).toEqual([1, 1, 1, 1, 200, 255]);
  });

  it("become grey with low contrast to the background", () => {
    const red = new Uint8ClampedArray([255, 0, 0, 255]);
    const grey = greyOf({ width: 1, height: 1, pixels: red }, [100, 110, 120]);
    // The luma of red is 0.2126 * 255 = 54.213. The result is 22 % luma and 78 % background.
    const mixed = [100, 110, 120].map((ground) => Math.round(0.22 * 54.213 + 0.78 * ground));
    expect([...grey.pixels]).toEqual([...mixed, 255]);
  });
});
