/** The weights of a pinned query below its columns, and of a pinned key beside its rows. */

import type { Mark } from "../../draw/marks";
import { formatWeight, quoted } from "../../ui/captions";
import { GAP } from "./layout";
import type { Line, Picture } from "./marks";
import type { Axis } from "./state";

const LONGEST_BELOW = 30;
const LONGEST_BESIDE = 62;
const NUMBER_SIZE = 10.5;
/** Numbers are written from this weight on. */
const LEAST_NUMBER = 0.005;

/** A line's weights, pooled as the cells are. */
export function pooledLine(line: Line, axis: Axis, pooled: "mean" | "max"): number[] {
  const each = 2 ** axis.level;
  return Array.from({ length: axis.cells }, (_, cell) => {
    const start = axis.window[0] + cell * each - line.window[0];
    const part = line.values.subarray(Math.max(0, start), Math.max(0, start + each));
    if (pooled === "max") return part.reduce((most, value) => Math.max(most, value), 0);
    return part.length === 0 ? 0 : part.reduce((sum, value) => sum + value, 0) / part.length;
  });
}

/** The bars that have their number: the longest first, none too near to another. */
function numbered(values: readonly number[], step: number, apart: number): number[] {
  const chosen: number[] = [];
  const order = values.map((_, i) => i).filter((i) => (values[i] as number) >= LEAST_NUMBER);
  order.sort((a, b) => (values[b] as number) - (values[a] as number));
  for (const i of order) {
    if (chosen.every((other) => Math.abs(other - i) * step >= apart)) chosen.push(i);
  }
  return chosen;
}

function number(text: string, x: number, y: number, fill: string, align: "start" | "middle"): Mark {
  return { kind: "text", text, x, y, fill, size: NUMBER_SIZE, font: "text", align };
}

export function barsBelowMarks(picture: Picture, line: Line): Mark[] {
  const { layout, palette, queries } = picture;
  const axis = layout.plan.columns;
  const values = pooledLine(line, axis, layout.plan.pooled);
  const most = Math.max(...values, 0) || 1;
  const y = layout.top + layout.cellsHeight + GAP;
  const thick = Math.max(0.75, Math.min(16, axis.cell - (axis.cell > 3 ? 1 : 0)));
  const middle = (i: number): number => layout.left + (i + 0.5) * axis.cell;
  const x1 = layout.left + layout.cellsWidth;
  const marks: Mark[] = [{ kind: "line", x0: layout.left, y0: y, x1, y1: y, stroke: palette.rule }];
  values.forEach((value, i) => {
    if (value <= 0) return;
    const height = Math.max(0.75, (value / most) * LONGEST_BELOW);
    const x = middle(i) - thick / 2;
    marks.push({ kind: "rect", x, y, width: thick, height, fill: palette.neutral });
  });
  for (const i of numbered(values, axis.cell, 28)) {
    const value = values[i] as number;
    const end = y + (value / most) * LONGEST_BELOW + 8;
    marks.push(number(formatWeight(value), middle(i), end, palette.ink, "middle"));
  }
  const title = `weight from ${quoted(queries.text[line.token] ?? "")}`;
  marks.push({
    kind: "text",
    text: title,
    x: layout.left,
    y: y + LONGEST_BELOW + 22,
    fill: palette.muted,
    size: 11.5,
    font: "text",
  });
  return marks;
}

export function barsBesideMarks(picture: Picture, line: Line): Mark[] {
  const { layout, palette, keys } = picture;
  const axis = layout.plan.rows;
  const values = pooledLine(line, axis, layout.plan.pooled);
  const most = Math.max(...values, 0) || 1;
  const x = layout.left + layout.cellsWidth + GAP;
  const thick = Math.max(0.75, Math.min(12, axis.cell - (axis.cell > 3 ? 1 : 0)));
  const middle = (i: number): number => layout.top + (i + 0.5) * axis.cell;
  const y1 = layout.top + layout.cellsHeight;
  const marks: Mark[] = [{ kind: "line", x0: x, y0: layout.top, x1: x, y1, stroke: palette.rule }];
  const lengthOf = (i: number): number => ((values[i] ?? 0) / most) * LONGEST_BESIDE;
  values.forEach((value, i) => {
    if (value <= 0) return;
    const width = Math.max(0.75, lengthOf(i));
    marks.push({
      kind: "rect",
      x,
      y: middle(i) - thick / 2,
      width,
      height: thick,
      fill: palette.neutral,
    });
  });
  const reach = axis.cell < NUMBER_SIZE ? Math.ceil(NUMBER_SIZE / 2 / axis.cell) : 0;
  for (const i of numbered(values, axis.cell, 12)) {
    // Clear of the bars of its neighbours where rows are lower than a number.
    let end = lengthOf(i);
    for (let near = i - reach; near <= i + reach; near++) end = Math.max(end, lengthOf(near));
    marks.push(
      number(formatWeight(values[i] as number), x + end + 5, middle(i), palette.ink, "start"),
    );
  }
  marks.push({
    kind: "text",
    text: `to ${quoted(keys.text[line.token] ?? "")}`,
    x,
    y: y1 + GAP + 5,
    fill: palette.muted,
    size: 11.5,
    font: "text",
  });
  return marks;
}
