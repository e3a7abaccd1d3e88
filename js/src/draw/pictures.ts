/** Pixels of pictures: the part that a patch is, and what steps back behind weights. */

import type { RecordImage } from "../client/requests/images";
import type { ImageMark } from "./marks";

/** Pixels of an image mark. */
export type Pixels = Pick<ImageMark, "pixels" | "columns" | "rows">;

/** A cell of a grid that covers an image. */
interface Cell {
  grid: { rows: number; columns: number };
  row: number;
  column: number;
}

/** A patch is drawn from at most so many pixels a side. */
const MOST_SIDE = 40;

// By the image, so that a patch's pixels are one object however often it is drawn.
const crops = new WeakMap<RecordImage, Map<string, Pixels>>();
const greys = new WeakMap<RecordImage, Map<string, Pixels>>();

function kept(
  store: WeakMap<RecordImage, Map<string, Pixels>>,
  image: RecordImage,
  key: string,
  make: () => Pixels,
): Pixels {
  const known = store.get(image) ?? new Map<string, Pixels>();
  store.set(image, known);
  const found = known.get(key) ?? make();
  known.set(key, found);
  return found;
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
  return kept(crops, image, [grid.rows, grid.columns, row, column].join(), () => {
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
  return kept(greys, image, ground.join(), () => {
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
