/** Thumbnails of heads: as pixels for the screen, and as marks for figures. */

import type { Range } from "../../client/protocol";
import { larger } from "../../client/signs";
import type { HeadMap } from "../../client/source";
import { paintMarks } from "../../draw/canvas";
import type { CurvesMark, ImageMark, Mark, RectMark } from "../../draw/marks";
import { type Ink, inkColor } from "../../ui/colors/color-scales";
import { type Palette, pinColor, rgbOf } from "../../ui/colors/palette";
import type { Layout } from "./layout";
import type { ModelState } from "./state";

/** Position of a thumbnail. */
export interface Square {
  x: number;
  y: number;
  side: number;
}

/**
 * Return the opacity of a weight, from 0 to 1. It is the square root of the share of `maximum`,
 * because a linear opacity would make weak patterns invisible.
 */
export function inkOf(weight: number, maximum: number): number {
  return maximum > 0 ? Math.sqrt(Math.min(1, Math.abs(weight) / maximum)) : 0;
}

/**
 * Return the first and the last cell that each pixel shows, if `count` cells are drawn on a line of
 * `pixels` pixels.
 *
 * If there are at least as many pixels as cells, a pixel shows one cell. Otherwise a pixel shows
 * every cell that it touches, because no cell may be lost.
 */
export function cellsOfPixels(count: number, pixels: number): [number, number][] {
  return Array.from({ length: pixels }, (_, pixel) => {
    if (pixels >= count) {
      const cell = Math.floor((pixel * count) / pixels);
      return [cell, cell];
    }
    const first = Math.floor((pixel * count) / pixels);
    return [first, Math.min(count, Math.ceil(((pixel + 1) * count) / pixels)) - 1];
  });
}

let lastSpans: { count: number; pixels: number; spans: [number, number][] } | null = null;

/** Return `cellsOfPixels`. The last result is cached, because all maps of a grid have one size. */
function spansOf(count: number, pixels: number): [number, number][] {
  if (lastSpans?.count !== count || lastSpans.pixels !== pixels)
    lastSpans = { count, pixels, spans: cellsOfPixels(count, pixels) };
  return lastSpans.spans;
}

type Rgb = [number, number, number];

/**
 * Paint a head's heat map into RGBA pixels. A pixel shows the largest weight of its cells.
 *
 * @param across width of the image in pixels.
 * @param square position of the heat map in the image.
 */
export function paintHeat(
  pixels: Uint8ClampedArray,
  across: number,
  map: HeadMap,
  square: Square,
  ink: Ink,
): void {
  const [above, below] = [1, -1].map((sign) => rgbOf(inkColor(ink, sign))) as [Rgb, Rgb];
  const rows = spansOf(map.rows, square.side);
  const columns = spansOf(map.columns, square.side);
  for (let y = 0; y < square.side; y++) {
    const [top, bottom] = rows[y] as [number, number];
    for (let x = 0; x < square.side; x++) {
      const [left, right] = columns[x] as [number, number];
      let weight = 0;
      for (let row = top; row <= bottom; row++)
        for (let column = left; column <= right; column++)
          weight = larger(weight, map.values[row * map.columns + column] as number);
      const offset = ((square.y + y) * across + square.x + x) * 4;
      const [red, green, blue] = weight < 0 ? below : above;
      pixels[offset] = red;
      pixels[offset + 1] = green;
      pixels[offset + 2] = blue;
      pixels[offset + 3] = 255 * inkOf(weight, map.maximum);
    }
  }
}

/** Return a head's heat map as an image mark with one pixel per cell. */
export function heatMark(map: HeadMap, square: Square, ink: Ink): ImageMark {
  const pixels = new Uint8ClampedArray(map.values.length * 4);
  const [above, below] = [1, -1].map((sign) => rgbOf(inkColor(ink, sign))) as [Rgb, Rgb];
  map.values.forEach((weight, i) => {
    pixels.set([...(weight < 0 ? below : above), 255 * inkOf(weight, map.maximum)], i * 4);
  });
  const { x, y, side } = square;
  const { rows, columns } = map;
  return { kind: "image", x, y, width: side, height: side, pixels, rows, columns };
}

/**
 * Return the top and the bottom of a query's row as shares of the height of a heat map. Return null
 * if the query is null or outside the range of queries that the map covers.
 */
export function rowOnMap([first, stop]: Range, query: number | null): [number, number] | null {
  if (query === null || query < first || query >= stop) return null;
  return [(query - first) / (stop - first), (query + 1 - first) / (stop - first)];
}

/**
 * Return an outline around a query's row on a heat map.
 *
 * @param row result of `rowOnMap`.
 */
export function rowMark(square: Square, row: [number, number], palette: Palette): RectMark {
  const { x, y, side } = square;
  const height = Math.max(3, (row[1] - row[0]) * side);
  const middle = y + ((row[0] + row[1]) / 2) * side;
  return {
    kind: "rect",
    x,
    y: middle - height / 2,
    width: side,
    height,
    stroke: pinColor(palette),
  };
}

/** Smallest opacity of the lines on a thumbnail. Smaller weights have no line. */
export const MIN_LINE_OPACITY = 0.03;

/** Return the maximum number of lines on a thumbnail with a side of `cell` pixels. */
export function maxLinesFor(cell: number): number {
  return Math.round(cell < 40 ? cell : Math.min(160, 2 * cell));
}

/** Return the indices of at most `maxCells` cells of a map that have lines, strongest first. */
export function strongestCells(map: HeadMap, maxCells: number): number[] {
  const cells: number[] = [];
  const minSize = MIN_LINE_OPACITY * map.maximum;
  for (let i = 0; i < map.values.length; i++)
    if (map.values[i] && Math.abs(map.values[i] as number) >= minSize) cells.push(i);
  const sizeOf = (cell: number): number => Math.abs(map.values[cell] as number);
  cells.sort((a, b) => sizeOf(b) - sizeOf(a));
  return cells.slice(0, maxCells);
}

/**
 * Return the lines of several heads. A line leads from a query on the left side of the head's
 * square to a key on the right side.
 */
export function lineMarks(heads: readonly [HeadMap, Square][], ink: Ink): Mark[] {
  if (typeof ink === "string") return [linesOf(heads, ink, null)];
  return [linesOf(heads, ink.positive, 1), linesOf(heads, ink.negative, -1)];
}

/**
 * Return the lines of one colour.
 *
 * @param sign sign of the weights that have this colour, or null for all weights.
 */
function linesOf(
  heads: readonly [HeadMap, Square][],
  color: string,
  sign: 1 | -1 | null,
): CurvesMark {
  const lines: [number, number, number, number, number][] = [];
  let width = 1;
  for (const [map, square] of heads) {
    const { side } = square;
    const edge = side < 36 ? 1.5 : 3;
    const inner = side - 2 * edge;
    // A line is narrower than the distance between two tokens, or neighbouring lines would merge.
    width = Math.max(0.4, Math.min(1.2, (0.75 * inner) / Math.max(map.rows, map.columns)));
    for (const cell of strongestCells(map, maxLinesFor(side))) {
      const value = map.values[cell] as number;
      if (sign !== null && Math.sign(value) !== sign) continue;
      const row = Math.floor(cell / map.columns);
      const column = cell % map.columns;
      lines.push([
        square.x + edge,
        square.y + edge + ((row + 0.5) / map.rows) * inner,
        square.x + side - edge,
        square.y + edge + ((column + 0.5) / map.columns) * inner,
        Math.min(1, Math.abs(value) / map.maximum),
      ]);
    }
  }
  const field = (index: number): Float32Array =>
    Float32Array.from(lines, (line) => line[index] as number);
  return {
    kind: "curves",
    columns: "vertical",
    color,
    ...(sign === -1 && { dashed: true }),
    count: lines.length,
    x0: field(0),
    y0: field(1),
    x1: field(2),
    y1: field(3),
    opacity: field(4),
    width: new Float32Array(lines.length).fill(width),
  };
}

/**
 * Paint a row of thumbnails.
 *
 * @param maps one entry per cell: undefined while the map is loading, null for a cell without a
 * head.
 */
export function paintRow(
  context: CanvasRenderingContext2D,
  maps: readonly (HeadMap | null | undefined)[],
  look: {
    layout: Layout;
    thumbnails: ModelState["thumbnails"];
    palette: Palette;
    signed: boolean;
    outlinedRow: [number, number] | null;
    /** Device pixels per CSS pixel. */
    scale: number;
  },
): void {
  const { layout, thumbnails, palette, outlinedRow, scale } = look;
  const { cell, across } = layout;
  const ink = look.signed ? palette : palette.neutral;
  const loaded: [HeadMap, number][] = [];
  maps.forEach((map, i) => {
    if (map) loaded.push([map, i * across]);
  });
  if (thumbnails === "lines") {
    const squares = loaded.map(([map, x]): [HeadMap, Square] => [map, { x, y: 0, side: cell }]);
    paintMarks(context, lineMarks(squares, ink));
  } else {
    paintHeatMaps(context, loaded, cell * scale, scale, ink);
    const squares = loaded.map(([, x]): Square => ({ x, y: 0, side: cell }));
    if (outlinedRow)
      paintMarks(
        context,
        squares.map((square) => rowMark(square, outlinedRow, palette)),
      );
  }
  context.fillStyle = palette.raised;
  maps.forEach((map, i) => {
    if (map === undefined) context.fillRect(i * across, 0, cell, cell);
  });
}

/**
 * Paint heat maps directly in device pixels. If the canvas scaled them, cells could be blurred or
 * lost.
 */
function paintHeatMaps(
  context: CanvasRenderingContext2D,
  maps: [HeadMap, number][],
  pixelsPerSide: number,
  scale: number,
  ink: Ink,
): void {
  const { canvas } = context;
  const side = Math.min(canvas.height, Math.round(pixelsPerSide));
  const image = new ImageData(canvas.width, canvas.height);
  for (const [map, x] of maps) {
    const left = Math.min(canvas.width - side, Math.round(x * scale));
    paintHeat(image.data, canvas.width, map, { x: left, y: 0, side }, ink);
  }
  context.putImageData(image, 0, 0);
}
