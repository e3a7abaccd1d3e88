/**
 * Marks of the grid's cells, and of the chart of one head's distances. Members are the compared
 * records. The distance of a head is measured from the same head of the first member.
 */

import type { LegendScale } from "../../draw/figure";
import type { Mark } from "../../draw/marks";
import { colorAt } from "../../ui/colors/color-scales";
import { inkOn, type Palette, type ThemeName } from "../../ui/colors/palette";
import { formatSmall, formatWeight } from "../../ui/text/captions";
import { WITH_NUMBERS } from "./layout";
import { type HeadDistance, isSame } from "./state";

export interface CellStyle {
  theme: ThemeName;
  palette: Palette;
  /** Distance that has the last colour of the scale. */
  end: number;
}

/** Return the colour of a distance as red, green, blue and opacity. */
export function distanceColor(
  theme: ThemeName,
  distance: number,
  end: number,
): [number, number, number, number] {
  return colorAt(theme, Math.max(0, Math.min(1, distance / end)));
}

function cssOf([red, green, blue]: readonly number[]): string {
  const hex = [red, green, blue].map((value) => (value as number).toString(16).padStart(2, "0"));
  return `#${hex.join("")}`;
}

/** Return diagonal hatch lines inside a square. */
function hatch(x: number, y: number, side: number, color: string): Mark[] {
  const marks: Mark[] = [];
  const step = Math.max(5, side / 4);
  for (let sum = step; sum < 2 * side; sum += step) {
    const over = Math.max(0, sum - side);
    marks.push({
      kind: "line",
      x0: x + over,
      y0: y + sum - over,
      x1: x + sum - over,
      y1: y + over,
      stroke: color,
      strokeWidth: 0.8,
    });
  }
  return marks;
}

/**
 * Return the cell of a head with its colour, and with its distance as a number if the cell is wide
 * enough. The cell is hatched if rounding alone may cause the distance, and shows "–" if the
 * distance is unknown.
 */
export function cellMarks(
  at: HeadDistance,
  x: number,
  y: number,
  side: number,
  { theme, palette, end }: CellStyle,
): Mark[] {
  const middle = { x: x + side / 2, y: y + side / 2, align: "middle", size: 10 } as const;
  if (at.distance === null) {
    return [{ kind: "text", ...middle, text: "–", fill: palette.muted, font: "text" }];
  }
  if (isSame(at)) return hatch(x, y, side, palette.muted);
  const color = distanceColor(theme, at.distance, end);
  const marks: Mark[] = [{ kind: "rect", x, y, width: side, height: side, fill: cssOf(color) }];
  if (side >= WITH_NUMBERS) {
    const text = at.distance < 0.005 ? "<.01" : formatWeight(at.distance);
    marks.push({ kind: "text", ...middle, text, fill: inkOn(cssOf(color)), font: "text" });
  }
  return marks;
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

/** Return the x position of a member on the chart, in pixels. */
export function trendX(member: number, count: number): number {
  const room = TREND.width - TREND.left - TREND.right;
  return TREND.left + (count < 2 ? 0 : (member / (count - 1)) * room);
}

/**
 * Return the chart of a head, with one point for each known distance. The point of the compared
 * `member` is highlighted.
 */
export function trendMarks(
  distances: readonly (number | null)[],
  member: number,
  end: number,
  palette: Palette,
): Mark[] {
  const room = TREND.height - TREND.top - TREND.bottom;
  const low = TREND.height - TREND.bottom;
  const y = (distance: number): number => low - (Math.min(distance, end) / end) * room;
  const marks: Mark[] = [
    {
      kind: "line",
      x0: TREND.left,
      y0: low,
      x1: TREND.width - TREND.right,
      y1: low,
      stroke: palette.rule,
    },
  ];
  const points = distances.map((distance, at) =>
    // The distance of the first member from itself is 0.
    at === 0 ? 0 : distance,
  );
  points.forEach((distance, at) => {
    const before = points[at - 1];
    if (distance === null) return;
    const x = trendX(at, points.length);
    if (before !== undefined && before !== null) {
      const from = { x0: trendX(at - 1, points.length), y0: y(before) };
      const line = { kind: "line", ...from, x1: x, y1: y(distance) } as const;
      marks.push({ ...line, stroke: palette.neutral, strokeWidth: 1.5 });
    }
  });
  points.forEach((distance, at) => {
    if (distance === null) return;
    const size = at === member ? 9 : 5;
    const box = { width: size, height: size, radius: size / 2 };
    const x = trendX(at, points.length) - size / 2;
    const fill = at === member ? (palette.heads[0] as string) : palette.neutral;
    marks.push({ kind: "rect", x, y: y(distance) - size / 2, ...box, fill });
  });
  return marks;
}
