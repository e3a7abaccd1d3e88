/**
 * Pixels of small heat maps, each of one head. They are in grids of heads and on the buttons that
 * choose heads.
 */

import { larger } from "../../client/signs";
import type { Matrix } from "../../client/source";
import { type Ink, inkColor } from "../colors/color-scales";
import { rgbOf } from "../colors/palette";

/**
 * Return the opacity of a weight, from 0 to 1. It is the square root of the ratio of the absolute
 * weight to `maximum`, because a linear opacity would make weak patterns invisible.
 */
export function inkOf(weight: number, maximum: number): number {
  return maximum > 0 ? Math.sqrt(Math.min(1, Math.abs(weight) / maximum)) : 0;
}

/**
 * Return the indices of the first and the last cell that each pixel shows, if a row or column of
 * `count` cells of a heat map is drawn with `pixels` pixels.
 *
 * If there are at least as many pixels as cells, a pixel shows one cell. Otherwise a pixel shows
 * every cell that it touches, so that no cell is omitted.
 */
function cellsOfPixels(count: number, pixels: number): [number, number][] {
  return Array.from({ length: pixels }, (_, pixel) => {
    const first = Math.floor((pixel * count) / pixels);
    if (pixels >= count) return [first, first];
    return [first, Math.min(count, Math.ceil(((pixel + 1) * count) / pixels)) - 1];
  });
}

/**
 * Draw a heat map with `rows` by `columns` pixels, and return their RGBA values. A pixel shows the
 * weight with the largest absolute value among its cells. The sign of this weight determines the
 * colour, and its absolute value the opacity (see `inkOf`).
 */
export function heatPixels(
  map: Matrix,
  rows: number,
  columns: number,
  ink: Ink,
): Uint8ClampedArray<ArrayBuffer> {
  const pixels = new Uint8ClampedArray(4 * rows * columns);
  const [above, below] = [rgbOf(inkColor(ink, 1)), rgbOf(inkColor(ink, -1))];
  const across = cellsOfPixels(map.columns, columns);
  let offset = 0;
  for (const [top, bottom] of cellsOfPixels(map.rows, rows))
    for (const [left, right] of across) {
      let weight = 0;
      for (let row = top; row <= bottom; row++)
        for (let column = left; column <= right; column++)
          weight = larger(weight, map.values[row * map.columns + column] as number);
      const color = weight < 0 ? below : above;
      // Assigning single values is faster than `set`, which would take most of the time.
      for (let part = 0; part < 3; part++) pixels[offset + part] = color[part] as number;
      pixels[offset + 3] = 255 * inkOf(weight, map.maximum);
      offset += 4;
    }
  return pixels;
}
