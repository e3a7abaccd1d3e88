/** Hatching: diagonal lines in some cells of a grid. Small cells have a tint instead of lines. */

import type { Area, HatchMark, RectMark } from "./marks";

/** Size in pixels of the hatched or tinted sample in a legend. */
export const SAMPLE = { width: 20, height: 10 };
/** Opacity of a tint. It is about the mean opacity of hatched cells. */
export const TINT_OPACITY = 0.3;
const HATCH_OPACITY = 0.85;
/** Distance in pixels between two lines, measured along an edge of the grid. */
const SPACING = 5;

/** Return a hatch mark. `cells` has 1 for each hatched cell of `grid`, otherwise 0. */
export function hatchMark(
  grid: Area & Pick<HatchMark, "columns" | "rows">,
  cells: ArrayLike<number>,
  stroke: string,
): HatchMark {
  const style = { stroke, strokeWidth: 1, opacity: HATCH_OPACITY, spacing: SPACING };
  return { kind: "hatch", ...grid, cells: Uint8Array.from(cells), ...style };
}

/** Return a tinted area. */
export function tintMark(area: Area, fill: string): RectMark {
  return { kind: "rect", ...area, fill, opacity: TINT_OPACITY };
}

/**
 * Return the lines of a hatch mark, each as x and y of its two ends. All lines rise to the right. A
 * line runs through adjacent hatched cells without a break.
 */
export function hatchLines(mark: HatchMark): [number, number, number, number][] {
  const { x, y, width, height, columns, rows, cells, spacing } = mark;
  const [cellWidth, cellHeight] = [width / columns, height / rows];
  const lines: [number, number, number, number][] = [];
  // At each point of a diagonal, the distances from the left and upper edges add up to `sum`.
  for (let sum = spacing; sum < width + height; sum += spacing) {
    // Distances from the left edge at which the diagonal enters another cell.
    const cuts = [Math.max(0, sum - height), Math.min(width, sum)];
    const [first, last] = cuts as [number, number];
    for (let column = 1; column < columns; column++) cuts.push(column * cellWidth);
    for (let row = 1; row < rows; row++) cuts.push(sum - row * cellHeight);
    const inside = cuts.filter((cut) => cut >= first && cut <= last).sort((a, b) => a - b);
    let start: number | null = null;
    inside.forEach((from, i) => {
      const middle = (from + (inside[i + 1] ?? from)) / 2;
      const row = Math.floor((sum - middle) / cellHeight);
      const index = row * columns + Math.floor(middle / cellWidth);
      const isHatched = i + 1 < inside.length && cells[index] === 1;
      if (isHatched) start ??= from;
      else if (start !== null) {
        lines.push([x + start, y + sum - start, x + from, y + sum - from]);
        start = null;
      }
    });
  }
  return lines;
}
