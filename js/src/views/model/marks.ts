/** Marks of heads: their thumbnails, and the bars and texts below them. */

import type { Matrix } from "../../client/source";
import { measureText } from "../../draw/canvas";
import { type LegendScale, textMark } from "../../draw/figure";
import {
  type CurvesMark,
  fontOf,
  type ImageMark,
  type Mark,
  type RectMark,
} from "../../draw/marks";
import { type Ink, rampOf } from "../../ui/colors/color-scales";
import { type Palette, pinColor } from "../../ui/colors/palette";
import { effectMarks, shortEffectText } from "../../ui/effects/effects";
import { mapInk } from "../../ui/head-grid/gates";
import type { HeadGrid, HeadIndex, ScoredHead } from "../../ui/head-grid/grid";
import { fittedName, roleMarks } from "../../ui/head-grid/head-roles";
import { scoreText } from "../../ui/head-grid/head-strip";
import { heatPixels, inkOf } from "../../ui/head-grid/heat-pixels";
import type { Square } from "../../ui/head-grid/marks";
import {
  aroundZero,
  headName,
  plainNumber,
  type Quantity,
  signsInWords,
} from "../../ui/text/captions";
import type { ViewContext } from "../../ui/view/define-view";
import { BAR_GAP, BAR_HEIGHT, type Layout, MIN_NAMED, ROLE_LETTER } from "./layout";
import type { ModelState } from "./state";
import type { ModelStore } from "./store";

/**
 * Return a head's heat map as an image mark. It has one pixel per cell in a figure, and one per
 * device pixel on the screen: if the canvas scaled the image, cells could be blurred or lost.
 *
 * @param scale device pixels per pixel on the screen, or undefined for a figure.
 */
function heatMark(map: Matrix, { x, y, side }: Square, ink: Ink, scale?: number): ImageMark {
  const count = scale && Math.round(side * scale);
  const [rows, columns] = [count ?? map.rows, count ?? map.columns];
  const pixels = heatPixels(map, rows, columns, ink);
  const [left, width] = scale ? [Math.round(x * scale) / scale, rows / scale] : [x, side];
  return { kind: "image", x: left, y, width, height: width, pixels, rows, columns };
}

/**
 * Return an outline around the row of a query on a heat map.
 *
 * @param row top and bottom of the row, as shares of the height of the heat map.
 */
function rowMark(
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
export function strongestCells(map: Matrix, maxCells: number): number[] {
  const cells: number[] = [];
  const minSize = MIN_LINE_OPACITY * map.maximum;
  for (let i = 0; i < map.values.length; i++)
    if (map.values[i] && Math.abs(map.values[i] as number) >= minSize) cells.push(i);
  const sizeOf = (cell: number): number => Math.abs(map.values[cell] as number);
  cells.sort((a, b) => sizeOf(b) - sizeOf(a));
  return cells.slice(0, maxCells);
}

/**
 * Return the lines of a head. A line leads from a query on the left side of the head's square to a
 * key on the right side. Negative weights have their own colour.
 */
function lineMarks(map: Matrix, square: Square, ink: Ink): CurvesMark[] {
  if (typeof ink === "string") return [linesOf(map, square, ink, null)];
  return [linesOf(map, square, ink.positive, 1), linesOf(map, square, ink.negative, -1)];
}

/**
 * Return the lines of one colour.
 *
 * @param sign sign of the weights that have this colour, or null for all weights.
 */
function linesOf(
  map: Matrix,
  { x, y, side }: Square,
  color: string,
  sign: 1 | -1 | null,
): CurvesMark {
  const { values, rows, columns, maximum } = map;
  const edge = side < 36 ? 1.5 : 3;
  const inner = side - 2 * edge;
  const cells = strongestCells(map, maxLinesFor(side)).filter(
    (cell) => sign === null || Math.sign(values[cell] as number) === sign,
  );
  const count = cells.length;
  const field = (numberOf: (cell: number) => number) => Float32Array.from(cells, numberOf);
  // A line is narrower than the distance between two tokens, or neighbouring lines would merge.
  const width = Math.max(0.4, Math.min(1.2, (0.75 * inner) / Math.max(rows, columns)));
  return {
    kind: "curves",
    color,
    ...(sign === -1 && { dashed: true }),
    count,
    x0: new Float32Array(count).fill(x + edge),
    y0: field((cell) => y + edge + ((Math.floor(cell / columns) + 0.5) / rows) * inner),
    x1: new Float32Array(count).fill(x + side - edge),
    y1: field((cell) => y + edge + (((cell % columns) + 0.5) / columns) * inner),
    opacity: field((cell) => Math.min(1, Math.abs(values[cell] as number) / maximum)),
    width: new Float32Array(count).fill(width),
  };
}

/**
 * Return the texts below the map of a head: its role or, in a gallery, its name, and its score,
 * effect or role. The name is "layer 3, head 1", or "3.1" if the layout has short captions.
 */
function labelMarks(
  store: ModelStore,
  palette: Palette,
  layout: Layout,
  grid: HeadGrid,
  head: ScoredHead,
  { x, y, side }: Square,
): Mark[] {
  const below = y + side + layout.bars + 9;
  const role = store.roleOf(head);
  const sign = store.signOf(role);
  const letterAt = (middle: number): Mark[] =>
    sign ? roleMarks(sign, [middle, below], ROLE_LETTER) : [];
  const middle = x + side / 2;
  if (grid.columns) {
    if (layout.roles === 0 || !role) return [];
    if (side < MIN_NAMED) return letterAt(middle);
    const name = fittedName(role.name, side - ROLE_LETTER - 3);
    return [
      ...letterAt(x + ROLE_LETTER / 2),
      textMark(name, x + ROLE_LETTER + 3, below, palette.muted, 9.5),
    ];
  }
  const effects = store.effects.value;
  const score =
    effects?.name === grid.score ? shortEffectText(effects, head.score) : scoreText(head.score);
  const line = store.byRole.value ? (role?.name ?? "no role") : score;
  const name = layout.caption === "words" ? headName(head) : `${head.layer}.${head.head}`;
  const more = { align: "middle" } as const;
  const room = Math.min(layout.across - 2, side + 2 * layout.left);
  const half = measureText(name, fontOf({ size: 10.5, font: "text" })) / 2;
  return [
    textMark(name, middle, below, palette.ink, 10.5, more),
    ...letterAt(middle + half + 8),
    textMark(fittedName(line, room), middle, below + 13, palette.muted, 10.5, more),
  ];
}

/**
 * Return a function that returns the marks of a head: its thumbnail, and the bar and the texts below
 * it. While its map is loading, the thumbnail is a plain square.
 */
export function headMarks(
  context: ViewContext<ModelState>,
  store: ModelStore,
  grid: HeadGrid,
  layout: Layout,
  mapOf: (head: HeadIndex) => Matrix | undefined,
): (head: ScoredHead, square: Square, scale?: number) => Mark[] {
  const palette = context.palette.value;
  const ground = context.figure?.background === "transparent" ? undefined : palette.background;
  const hasLines = context.state.thumbnails.value === "lines";
  const [row, effects] = [store.outlinedRow.value, store.effects.value];
  const thumbnail = (head: HeadIndex, square: Square, scale?: number): Mark[] => {
    const { x, y, side } = square;
    const map = mapOf(head);
    if (!map) return [{ kind: "rect", x, y, width: side, height: side, fill: palette.raised }];
    const stack = store.stackOf(head);
    const ink = mapInk(stack, head, stack.signed ? palette : palette.neutral, palette);
    if (hasLines) return lineMarks(map, square, ink);
    const image = { ...heatMark(map, square, ink, scale), ground };
    return row ? [image, rowMark(square, row, palette)] : [image];
  };
  return (head, square, scale) => {
    const marks = thumbnail(head, square, scale);
    if (effects) {
      const { value, error } = effects.of(head);
      const { x, side } = square;
      const box = { x, y: square.y + side + BAR_GAP, width: side, height: BAR_HEIGHT };
      marks.push(...effectMarks(box, value, effects.end, palette, error));
    }
    return [...marks, ...labelMarks(store, palette, layout, grid, head, square)];
  };
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
