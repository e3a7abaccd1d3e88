/**
 * Thumbnails of heads. In figures, they are marks (shapes to draw). On the screen, heat maps are
 * painted pixel by pixel.
 */

import type { HeadMap } from "../../client/source";
import { paintMarks } from "../../draw/canvas";
import type { LegendScale } from "../../draw/figure";
import type { CurvesMark, ImageMark, Mark, RectMark } from "../../draw/marks";
import { type Ink, rampOf } from "../../ui/colors/color-scales";
import { type Palette, pinColor } from "../../ui/colors/palette";
import { heatPixels, inkOf } from "../../ui/head-grid/heat-pixels";
import { aroundZero, plainNumber, type Quantity, signsInWords } from "../../ui/text/captions";
import type { Layout } from "./layout";
import type { ModelState } from "./state";

/** Position and side of a thumbnail in pixels. */
export interface Square {
  x: number;
  y: number;
  side: number;
}

/** Return a head's heat map as an image mark with one pixel per cell. */
export function heatMark(map: HeadMap, { x, y, side }: Square, ink: Ink): ImageMark {
  const { rows, columns } = map;
  const pixels = heatPixels(map, rows, columns, ink);
  return { kind: "image", x, y, width: side, height: side, pixels, rows, columns };
}

/**
 * Return an outline around the row of a query on a heat map.
 *
 * @param row top and bottom of the row, as shares of the height of the heat map.
 */
export function rowMark(
  { x, y, side }: Square,
  [top, bottom]: readonly [number, number],
  palette: Palette,
): RectMark {
  const height = Math.max(3, (bottom - top) * side);
  const middle = y + ((top + bottom) / 2) * side;
  const box = { x, y: middle - height / 2, width: side, height };
  return { kind: "rect", ...box, stroke: pinColor(palette) };
}

/** Smallest opacity of the lines on a thumbnail. Weights with a smaller opacity have no line. */
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
function lineMarks(heads: readonly [HeadMap, Square][], ink: Ink): Mark[] {
  if (typeof ink === "string") return [linesOf(heads, ink, null)];
  return [linesOf(heads, ink.positive, 1), linesOf(heads, ink.negative, -1)];
}

/** Return the lines of several heads, each with its own colours. */
export function linesByInk(heads: readonly [HeadMap, Square, Ink][]): Mark[] {
  return [...new Set(heads.map(([, , ink]) => ink))].flatMap((ink) => {
    const same = heads.filter(([, , other]) => other === ink);
    return lineMarks(
      same.map(([map, square]) => [map, square]),
      ink,
    );
  });
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
 * Paint a row of thumbnails. `inks` has the colours of each of them.
 *
 * @param maps one entry per cell: undefined while the map is loading, null for a cell without a
 * head.
 * @param scale device pixels per CSS pixel.
 */
export function paintRow(
  context: CanvasRenderingContext2D,
  maps: readonly (HeadMap | null | undefined)[],
  scale: number,
  look: {
    layout: Layout;
    thumbnails: ModelState["thumbnails"];
    palette: Palette;
    inks: readonly Ink[];
    outlinedRow: readonly [number, number] | null;
  },
): void {
  const { layout, thumbnails, palette, inks, outlinedRow } = look;
  const { cell, across } = layout;
  const loaded = maps.flatMap((map, i): [HeadMap, Square, Ink][] =>
    map ? [[map, { x: i * across, y: 0, side: cell }, inks[i] ?? palette.neutral]] : [],
  );
  if (thumbnails === "lines") paintMarks(context, linesByInk(loaded));
  else {
    // Paint device pixels. If the canvas scaled heat maps, cells could be blurred or lost.
    const { width, height } = context.canvas;
    const side = Math.min(height, Math.round(cell * scale));
    for (const [map, { x }, ink] of loaded) {
      const image = new ImageData(heatPixels(map, side, side, ink), side, side);
      context.putImageData(image, Math.min(width - side, Math.round(x * scale)), 0);
    }
    if (outlinedRow) {
      const rows = loaded.map(([, square]) => rowMark(square, outlinedRow, palette));
      paintMarks(context, rows);
    }
  }
  context.fillStyle = palette.raised;
  maps.forEach((map, i) => {
    if (map === undefined) context.fillRect(i * across, 0, cell, cell);
  });
}

/**
 * Return the legend of the colour scale of thumbnails. The opacity of lines is proportional to the
 * weight, and that of heat maps to its square root.
 */
export function thumbnailScale(
  thumbnails: ModelState["thumbnails"],
  maximum: number,
  quantity: Quantity,
  palette: Palette,
): LegendScale {
  const { name, signed } = quantity;
  const straight = thumbnails === "lines";
  const end = plainNumber(Number(maximum.toPrecision(2)));
  const note = `thumbnails: ${straight ? `opacity = ${name}` : `ink = √${name}`}`;
  return {
    color: rampOf(signed ? palette : palette.neutral, (size) => (straight ? size : inkOf(size, 1))),
    ...(signed
      ? { labels: aroundZero(end), quantity: signsInWords(quantity, note) }
      : { labels: ["0", note, end] }),
  };
}
