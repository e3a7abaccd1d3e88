/** Data for tests of images: an image, tokens that are its patches, and series of heat maps. */

import type { Description, PatchGrid, StackDescription, TokenList } from "../src/client/protocol";
import { type RecordImage, readImage } from "../src/client/requests/images";
import type { HeatSeries } from "../src/ui/image/state";
import { stackOf } from "./builders";

export const GRID: PatchGrid = { image: 0, start: 1, rows: 2, columns: 3 };

/** Eight tokens: "[CLS]", six patches of `GRID` and a word. */
export const TOKENS: TokenList = {
  text: ["[CLS]", "0,0", "0,1", "0,2", "1,0", "1,1", "1,2", "word"],
  special: [0],
  sequence: [null, 0, 0, 0, 0, 0, 0, 0],
  grids: [GRID],
};

export function described(
  queries = TOKENS,
  keys: TokenList | null = null,
  more: Partial<StackDescription> = {},
): Description {
  const stack = stackOf({ query_tokens: queries, key_tokens: keys, ...more });
  return { model: "m", notes: [], images: [{ height: 4, width: 12 }], stacks: [stack] };
}

/** Return an image in which red is the column of a pixel, green is the row, and blue is 200. */
export function imageOf(width: number, height: number): RecordImage {
  const bytes = new Uint8Array(3 * width * height);
  for (let i = 0; i < width * height; i++)
    bytes.set([i % width, Math.floor(i / width), 200], 3 * i);
  return readImage({ header: { width, height }, data: bytes });
}

export const series = (heads: number[], more: Partial<HeatSeries> = {}): HeatSeries => ({
  name: heads.length === 1 ? `head ${heads[0]}` : `mean of ${heads.length} heads`,
  color: "#102030",
  textColor: "#102030",
  heads,
  how: "mean",
  ...more,
});
