/** Tokens that are patches of an image: which patch, its name and its pixels. Pure functions. */

import type { Description, PatchGrid, TokenList } from "../client/protocol";
import type { RecordImage } from "../client/requests/images";
import type { ImageMark } from "./marks";

/** A patch by its place in its grid. */
export interface Patch {
  grid: PatchGrid;
  row: number;
  column: number;
}

/** The token after the last of a grid. */
export function gridEnd(grid: PatchGrid): number {
  return grid.start + grid.rows * grid.columns;
}

/** The patch in a grid that a token is; null where it is none. */
export function patchIn(grid: PatchGrid, token: number | null): Patch | null {
  if (token === null || token < grid.start || token >= gridEnd(grid)) return null;
  const at = token - grid.start;
  return { grid, row: Math.floor(at / grid.columns), column: at % grid.columns };
}

/** The patch that a token is; null where it is none. */
export function patchOf(tokens: TokenList, token: number): Patch | null {
  for (const grid of tokens.grids ?? []) {
    const patch = patchIn(grid, token);
    if (patch) return patch;
  }
  return null;
}

/** "patch 2,3": its row and its column; with its image where there are several. */
function nameOf({ grid, row, column }: Patch, numImages: number): string {
  const image = numImages > 1 ? ` of image ${grid.image}` : "";
  return `patch ${row},${column}${image}`;
}

function named(tokens: TokenList, numImages: number): TokenList {
  if (!tokens.grids) return tokens;
  const text = tokens.text.map((each, token) => {
    const patch = patchOf(tokens, token);
    return patch ? nameOf(patch, numImages) : each;
  });
  return { ...tokens, text };
}

/**
 * A description whose patches are called by their places.
 *
 * What a tokenizer calls them is the same for all patches of an image, or a bare place, of which
 * no sentence says that it is one.
 */
export function withPatchNames(description: Description): Description {
  const count = description.images?.length ?? 0;
  if (count === 0) return description;
  const stacks = description.stacks.map((stack) => ({
    ...stack,
    query_tokens: named(stack.query_tokens, count),
    key_tokens: stack.key_tokens && named(stack.key_tokens, count),
  }));
  return { ...description, stacks };
}

/** How wide the patch that a token is stands to its height; null for a token of text. */
export type PatchShape = (token: number) => number | null;

/** How wide a patch of a grid is to its height. */
export function shapeOf(image: Pick<RecordImage, "width" | "height">, grid: PatchGrid): number {
  return (image.width / grid.columns) * (grid.rows / image.height);
}

/** The shapes of a list of tokens; null where none is a patch. */
export function shapesOf(tokens: TokenList, description: Description | null): PatchShape | null {
  const images = description?.images;
  if (!tokens.grids || !images) return null;
  return (token) => {
    const grid = patchOf(tokens, token)?.grid;
    const image = grid && images[grid.image];
    return image ? shapeOf(image, grid) : null;
  };
}

/** A part of an image, by its row and column in a grid that covers it. */
type Cell = Pick<Patch, "row" | "column"> & { grid: Pick<PatchGrid, "rows" | "columns"> };

/** Pixels of an image mark. */
export type Pixels = Pick<ImageMark, "pixels" | "columns" | "rows">;

/** A patch is drawn from at most so many pixels a side. */
const MOST_SIDE = 40;

// Cached by the image, so that a patch's pixels are one object however often it is drawn.
const crops = new WeakMap<RecordImage, Map<string, Pixels>>();
const greys = new WeakMap<RecordImage, Map<string, Pixels>>();

function cached(
  store: WeakMap<RecordImage, Map<string, Pixels>>,
  image: RecordImage,
  key: string,
  make: () => Pixels,
): Pixels {
  const ofImage = store.get(image) ?? new Map<string, Pixels>();
  store.set(image, ofImage);
  const pixels = ofImage.get(key) ?? make();
  ofImage.set(key, pixels);
  return pixels;
}

/** Where part `at` of `count` begins and ends; at least one pixel. */
function span(at: number, count: number, pixels: number): [number, number] {
  const start = Math.min(pixels - 1, Math.round((at * pixels) / count));
  return [start, Math.max(start + 1, Math.round(((at + 1) * pixels) / count))];
}

function mean(image: RecordImage, x: readonly number[], y: readonly number[], color: number) {
  let sum = 0;
  let count = 0;
  for (let row = y[0] as number; row < (y[1] as number); row++) {
    for (let column = x[0] as number; column < (x[1] as number); column++) {
      sum += image.pixels[4 * (row * image.width + column) + color] as number;
      count++;
    }
  }
  return sum / count;
}

/** The part of an image that a patch is, averaged down where it has many pixels. */
export function cropOf(image: RecordImage, { grid, row, column }: Cell): Pixels {
  return cached(crops, image, [grid.rows, grid.columns, row, column].join(), () => {
    const [left, right] = span(column, grid.columns, image.width);
    const [top, bottom] = span(row, grid.rows, image.height);
    const columns = Math.min(MOST_SIDE, right - left);
    const rows = Math.min(MOST_SIDE, bottom - top);
    const pixels = new Uint8ClampedArray(4 * columns * rows).fill(255);
    for (let y = 0; y < rows; y++) {
      const down = span(y, rows, bottom - top).map((each) => top + each);
      for (let x = 0; x < columns; x++) {
        const across = span(x, columns, right - left).map((each) => left + each);
        for (let color = 0; color < 3; color++)
          pixels[4 * (y * columns + x) + color] = mean(image, across, down, color);
      }
    }
    return { pixels, columns, rows };
  });
}

const LUMA = [0.2126, 0.7152, 0.0722];
/** Contrast that a picture keeps behind weights. */
const GREY_CONTRAST = 0.45;

/** An image without colours, near the ground that it stands on: weights have the colours. */
export function greyOf(image: RecordImage, ground: readonly [number, number, number]): Pixels {
  return cached(greys, image, ground.join(), () => {
    const pixels = new Uint8ClampedArray(image.pixels.length).fill(255);
    for (let at = 0; at < pixels.length; at += 4) {
      // Luma (Rec. 709), as eyes weigh the three.
      const grey = LUMA.reduce((sum, share, i) => sum + share * (image.pixels[at + i] ?? 0), 0);
      for (let color = 0; color < 3; color++)
        pixels[at + color] = grey * GREY_CONTRAST + (ground[color] as number) * (1 - GREY_CONTRAST);
    }
    return { pixels, columns: image.width, rows: image.height };
  });
}

/** A mark for pixels that are a picture of something. */
export function pictureMark(
  of: Pixels,
  place: Pick<ImageMark, "x" | "y" | "width" | "height">,
): ImageMark {
  // What is magnified much shows its pixels: they are what the model saw.
  const smooth = place.width < 3 * of.columns;
  return { kind: "image", ...place, ...of, smooth, picture: true };
}
