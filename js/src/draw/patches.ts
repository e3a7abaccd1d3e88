/**
 * Tokens that are patches of an image: their row and column, their names and their pixels. A grid
 * is the rows and columns of an image's patches, which are successive tokens.
 */

import type { Description, PatchGrid, TokenList } from "../client/protocol";
import type { RecordImage } from "../client/requests/images";
import type { Area, ImageMark } from "./marks";

/** A patch, by its row and column in a grid. `index` counts the patches row by row. */
export interface Patch {
  grid: PatchGrid;
  index: number;
  row: number;
  column: number;
}

/** Return the token of a patch. */
export function patchToken({ start, columns, gap = 0 }: PatchGrid, index: number): number {
  return start + index + gap * Math.floor(index / columns);
}

/** Return the tokens of all patches, row by row. */
export function gridTokens(grid: PatchGrid): number[] {
  return Array.from({ length: grid.rows * grid.columns }, (_, index) => patchToken(grid, index));
}

/** Return the patch of a grid that a token stands for, or null for a token outside of the grid. */
export function patchIn(grid: PatchGrid, token: number | null): Patch | null {
  if (token === null || token < grid.start) return null;
  const stride = grid.columns + (grid.gap ?? 0);
  const row = Math.floor((token - grid.start) / stride);
  const column = (token - grid.start) % stride;
  if (row >= grid.rows || column >= grid.columns) return null;
  return { grid, index: row * grid.columns + column, row, column };
}

/** Return the patch that a token stands for, or null if the token is not a patch. */
export function patchOf(tokens: TokenList, token: number): Patch | null {
  const patches = tokens.grids?.map((grid) => patchIn(grid, token)) ?? [];
  return patches.find((patch) => patch !== null) ?? null;
}

/** Return whether the name of an image is the time of a frame of a video: "0.5 s", "1:02.5". */
export function isTime(name: string): boolean {
  return /^[\d.]+ s$|^\d+:[\d.]+$/.test(name);
}

/** Return the end of the name of a patch: " of image 1", " at 0.5 s", or "". */
function inImage(name: string): string {
  return name && ` ${isTime(name) ? "at" : "of"} ${name}`;
}

/**
 * Name patches "patch 2,3" (row, column), or "patch 2,3 of image 1" if there are several images. The
 * name of the image replaces its number. Frames of a video are named by their times.
 */
function withNames(tokens: TokenList, numImages: number): TokenList {
  if (!tokens.grids) return tokens;
  const text = tokens.text.map((name, token) => {
    const patch = patchOf(tokens, token);
    if (!patch) return name;
    const number = numImages > 1 ? `image ${patch.grid.image}` : "";
    return `patch ${patch.row},${patch.column}${inImage(patch.grid.name ?? number)}`;
  });
  return { ...tokens, text };
}

/** Return the name of a token on an axis: that of a patch without the name of its image. */
export function patchLabel(tokens: TokenList, token: number): string {
  const text = tokens.text[token] ?? "";
  const end = inImage(patchOf(tokens, token)?.grid.name ?? "");
  return end && text.endsWith(end) ? text.slice(0, -end.length) : text;
}

/**
 * Return a record's description in which patches are named by their row and column.
 *
 * Tokenizers give all patches of an image the same name, or only coordinates. In a sentence, such a
 * name does not show that the token is a patch.
 */
export function withPatchNames(description: Description): Description {
  const count = description.images?.length ?? 0;
  if (count === 0) return description;
  const stacks = description.stacks.map((stack) => ({
    ...stack,
    query_tokens: withNames(stack.query_tokens, count),
    key_tokens: stack.key_tokens && withNames(stack.key_tokens, count),
  }));
  return { ...description, stacks };
}

/** Return the width of a patch divided by its height. */
export function aspectRatio(image: Pick<RecordImage, "width" | "height">, grid: PatchGrid): number {
  return (image.width / grid.columns) * (grid.rows / image.height);
}

/**
 * Return a function that returns the aspect ratio of a token's patch, or null for a text token.
 * Return null instead of a function if no token is a patch or the record has no images.
 */
export function aspectRatios(tokens: TokenList, description: Description | null) {
  const images = description?.images;
  if (!tokens.grids || !images) return null;
  return (token: number): number | null => {
    const grid = patchOf(tokens, token)?.grid;
    const image = grid && images[grid.image];
    return image ? aspectRatio(image, grid) : null;
  };
}

/** A part of an image, by its row and column in a grid of parts. */
type Cell = Pick<Patch, "row" | "column"> & { grid: Pick<PatchGrid, "rows" | "columns"> };

/** Pixels of an image, with the number of their columns and rows. */
export type Pixels = Pick<ImageMark, "pixels" | "columns" | "rows">;

/** Maximum number of pixels along each side of the picture of a patch. */
const MAX_PATCH_SIDE = 40;

// Cache of crops and grey versions of images. A crop must always have the same array of pixels,
// because `canvasOf` caches canvases by array.
const cache = new WeakMap<RecordImage, Map<string, Pixels>>();

function cached(image: RecordImage, key: string, make: () => Pixels): Pixels {
  const entries = cache.get(image) ?? new Map<string, Pixels>();
  cache.set(image, entries);
  const pixels = entries.get(key) ?? make();
  entries.set(key, pixels);
  return pixels;
}

/**
 * Divide `pixels` pixels into `count` nearly equal parts, and return the range [start, stop) of
 * part `index`. Each part has at least one pixel.
 */
function span(index: number, count: number, pixels: number): [number, number] {
  const start = Math.min(pixels - 1, Math.round((index * pixels) / count));
  return [start, Math.max(start + 1, Math.round(((index + 1) * pixels) / count))];
}

type Span = ReturnType<typeof span>;

/** Return the mean of a colour (0 red, 1 green, 2 blue) over columns and rows of an image. */
function mean(image: RecordImage, [left, right]: Span, [top, bottom]: Span, color: number) {
  let sum = 0;
  for (let y = top; y < bottom; y++)
    for (let x = left; x < right; x++)
      sum += image.pixels[4 * (y * image.width + x) + color] as number;
  return sum / ((right - left) * (bottom - top));
}

/** Return the pixels of a patch, averaged to at most MAX_PATCH_SIDE pixels along each side. */
export function cropOf(image: RecordImage, { grid, row, column }: Cell): Pixels {
  return cached(image, `crop ${[grid.rows, grid.columns, row, column]}`, () => {
    const [left, right] = span(column, grid.columns, image.width);
    const [top, bottom] = span(row, grid.rows, image.height);
    const columns = Math.min(MAX_PATCH_SIDE, right - left);
    const rows = Math.min(MAX_PATCH_SIDE, bottom - top);
    const pixels = new Uint8ClampedArray(4 * columns * rows).fill(255);
    for (let y = 0; y < rows; y++) {
      const rowSpan = span(y, rows, bottom - top).map((edge) => top + edge) as Span;
      for (let x = 0; x < columns; x++) {
        const columnSpan = span(x, columns, right - left).map((edge) => left + edge) as Span;
        for (let color = 0; color < 3; color++)
          pixels[4 * (y * columns + x) + color] = mean(image, columnSpan, rowSpan, color);
      }
    }
    return { pixels, columns, rows };
  });
}

const LUMA = [0.2126, 0.7152, 0.0722];
/**
 * Share of the contrast that remains in a grey image behind weights. The colours of weights are
 * visible on all remaining greys, for every type of colour vision.
 */
export const GREY_CONTRAST = 0.22;

/**
 * Return an image in grey, blended with a background colour so that it has little contrast. Only
 * the weights painted over it are coloured.
 */
export function greyOf(image: RecordImage, ground: readonly [number, number, number]): Pixels {
  return cached(image, `grey ${ground}`, () => {
    const pixels = new Uint8ClampedArray(image.pixels.length).fill(255);
    for (let offset = 0; offset < pixels.length; offset += 4) {
      // Grey value of the pixel (luma, Rec. 709).
      const grey = LUMA.reduce((sum, share, i) => sum + share * (image.pixels[offset + i] ?? 0), 0);
      for (let color = 0; color < 3; color++)
        pixels[offset + color] =
          grey * GREY_CONTRAST + (ground[color] as number) * (1 - GREY_CONTRAST);
    }
    return { pixels, columns: image.width, rows: image.height };
  });
}

/** Return a mark that shows the pixels of an image in a box. */
export function pictureMark(image: Pixels, box: Area): ImageMark {
  // If an image is enlarged three times or more, draw sharp pixels, so that readers see the pixels
  // that the model received.
  const smooth = box.width < 3 * image.columns;
  return { kind: "image", ...box, ...image, smooth, picture: true };
}
