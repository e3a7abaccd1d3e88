/**
 * Marks (shapes to draw) of the cells in the grid of heads, and of the chart of one head's
 * distances. Members are the compared records. The distance of a head is measured from the same
 * head of the first member.
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

/** Size and margins of the chart of distances, in pixels. */
export const TREND = { width: 220, height: 64, left: 4, right: 6, top: 8, bottom: 6 };
const TREND_ROOM = TREND.width - TREND.left - TREND.right;

/** Return the x position in pixels of a member on the chart of `count` members (at least two). */
export function trendX(member: number, count: number): number {
  return TREND.left + (member / (count - 1)) * TREND_ROOM;
}

/**
 * Return the member nearest to an x position on the chart. The first member is never returned,
 * because the others are compared with it.
 */
export function memberAt(x: number, count: number): number {
  const member = Math.round(((x - TREND.left) / TREND_ROOM) * (count - 1));
  return Math.max(1, Math.min(count - 1, member));
}

/**
 * Return the chart of a head, with one point for each known distance and lines between neighbouring
 * points. The point of the compared `member` is highlighted.
 */
export function trendMarks(
  distances: readonly (number | null)[],
  member: number,
  end: number,
  palette: Palette,
): Mark[] {
  const low = TREND.height - TREND.bottom;
  const points = distances.map((distance, at) => ({
    x: trendX(at, distances.length),
    y: distance === null ? null : low - (Math.min(distance, end) / end) * (low - TREND.top),
  }));
  const axis = { x0: TREND.left, y0: low, x1: TREND.width - TREND.right, y1: low };
  const lines: Mark[] = [{ kind: "line", ...axis, stroke: palette.rule }];
  const dots: Mark[] = [];
  points.forEach(({ x, y }, at) => {
    if (y === null) return;
    const before = points[at - 1];
    if (before && before.y !== null) {
      const line = { x0: before.x, y0: before.y, x1: x, y1: y };
      lines.push({ kind: "line", ...line, stroke: palette.neutral, strokeWidth: 1.5 });
    }
    const size = at === member ? 9 : 5;
    const box = { x: x - size / 2, y: y - size / 2, width: size, height: size, radius: size / 2 };
    const fill = at === member ? (palette.heads[0] as string) : palette.neutral;
    dots.push({ kind: "rect", ...box, fill });
  });
  return [...lines, ...dots];
}
