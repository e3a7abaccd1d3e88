/**
 * Marks (shapes to draw) of the cells in the grid of heads. Members are the compared records. The
 * distance of a head is measured from the same head of the first member.
 */

import { type LegendScale, textMark } from "../../draw/figure";
import type { Mark } from "../../draw/marks";
import { colorAt } from "../../ui/colors/color-scales";
import { hexOf, inkOn, type Palette, type ThemeName } from "../../ui/colors/palette";
import type { HeadIndex } from "../../ui/head-grid/grid";
import type { Square } from "../../ui/head-grid/marks";
import { formatSmall, formatWeight } from "../../ui/text/captions";
import { WITH_NUMBERS } from "./layout";
import { type CompareSelection, distanceOf, type HeadDistance, isSame } from "./state";

export interface CellStyle {
  theme: ThemeName;
  palette: Palette;
  /** Distance that has the last colour of the scale. */
  end: number;
}

/** Return diagonal hatch lines inside a square. */
function hatch(x: number, y: number, side: number, color: string): Mark[] {
  const marks: Mark[] = [];
  const step = Math.max(5, side / 4);
  for (let sum = step; sum < 2 * side; sum += step) {
    const over = Math.max(0, sum - side);
    const line = { x0: x + over, y0: y + sum - over, x1: x + sum - over, y1: y + over };
    marks.push({ kind: "line", ...line, stroke: color, strokeWidth: 0.8 });
  }
  return marks;
}

/**
 * Return the cell of a head: a coloured square and, if it is wide enough, the distance as a number.
 * If rounding alone may cause the distance, the cell has only hatch lines. If the distance is
 * unknown, it has only "–".
 */
export function cellMarks(
  at: HeadDistance,
  { x, y, side }: Square,
  { theme, palette, end }: CellStyle,
): Mark[] {
  const textIn = (text: string, fill: string): Mark =>
    textMark(text, x + side / 2, y + side / 2, fill, 10, { align: "middle" });
  if (at.distance === null) return [textIn("–", palette.muted)];
  if (isSame(at)) return hatch(x, y, side, palette.muted);
  const fill = hexOf(colorAt(theme, Math.min(1, at.distance / end)));
  const cell: Mark = { kind: "rect", x, y, width: side, height: side, fill };
  if (side < WITH_NUMBERS) return [cell];
  const number = at.distance < 0.005 ? "<.01" : formatWeight(at.distance);
  return [cell, textIn(number, inkOn(fill))];
}

/** Return the marks of a head: its cell and, in a gallery, its name below the cell. */
export function headMarks(
  selection: CompareSelection,
  isGallery: boolean,
  style: CellStyle,
  { layer, head }: HeadIndex,
  square: Square,
): Mark[] {
  const marks = cellMarks(distanceOf(selection, layer, head), square, style);
  const [x, y] = [square.x + square.side / 2, square.y + square.side + 8];
  const name = textMark(`${layer}.${head}`, x, y, style.palette.ink, 10.5, { align: "middle" });
  return isGallery ? [...marks, name] : marks;
}

/** Return the legend of the colour scale of distances from 0 to `end`. */
export function distanceScale(theme: ThemeName, end: number): LegendScale {
  return {
    color: (position) => colorAt(theme, position),
    labels: ["0", "distance", formatSmall(end)],
  };
}
