/** Marks of a grid of heads. A figure has all of them, and a view has those of its cells. */

import { measureText } from "../../draw/canvas";
import { textMark } from "../../draw/figure";
import { fontOf, type Mark } from "../../draw/marks";
import type { Palette } from "../colors/palette";
import {
  columnLabel,
  type GridLayout,
  type HeadGrid,
  labelledEvery,
  rowKind,
  rowLabel,
  type ScoredHead,
} from "./grid";

/** Position and side of the picture of a head, in pixels. */
export interface Square {
  x: number;
  y: number;
  side: number;
}

/**
 * Return the frame of a head's picture in a figure. On the screen, the element of the cell has it.
 *
 * @param chosen colour of a chosen head, or null.
 */
export function frameMark({ x, y, side }: Square, chosen: string | null, palette: Palette): Mark {
  const box = { x: x - 0.5, y: y - 0.5, width: side + 1, height: side + 1 };
  return { kind: "rect", ...box, stroke: chosen ?? palette.rule, strokeWidth: chosen ? 2 : 1 };
}

/** Return the mark of linear layers, from x to x + 14. */
function linearMark(x: number, y: number, { negative, positive }: Palette): Mark[] {
  const box = { y: y - 1.5, width: 7, height: 3 };
  return [
    { kind: "rect", ...box, x, fill: negative },
    { kind: "rect", ...box, x: x + 7, fill: positive },
  ];
}

/**
 * Return the labels of rows and columns, and the marks of all heads. A gallery has no labels.
 *
 * @param cellMarks returns the marks of a head, whose picture is in the square.
 */
export function gridMarks(
  grid: HeadGrid,
  layout: GridLayout,
  palette: Palette,
  cellMarks: (head: ScoredHead, square: Square) => readonly Mark[],
): Mark[] {
  const { cell, across, down, left, top } = layout;
  const marks: Mark[] = [];
  if (grid.columns && columnLabel(0, layout) === "0")
    marks.push(textMark("head", left - 10, 12, palette.muted, 11, { align: "end" }));
  grid.columns?.forEach((head, column) => {
    if (column % labelledEvery(across) !== 0) return;
    const x = left + column * across + cell / 2;
    marks.push(textMark(columnLabel(head, layout), x, 12, palette.muted, 11, { align: "middle" }));
  });
  grid.rows.forEach((row, at) => {
    const y = top + at * down;
    if (grid.columns && at % labelledEvery(down) === 0) {
      const label = rowLabel(row.find((head) => head !== null)?.layer, layout);
      const text = textMark(label, left - 10, y + cell / 2, palette.ink, 11.5, { align: "end" });
      marks.push(text);
      const { kind, word } = rowKind(row, grid, layout);
      if (kind) {
        const x = left - 10 - measureText(label, fontOf(text)) - 6;
        marks.push(...linearMark(x - 14, y + cell / 2, palette));
        marks.push(textMark(word, x - 18, y + cell / 2, palette.muted, 11, { align: "end" }));
      }
    }
    row.forEach((head, column) => {
      if (head) marks.push(...cellMarks(head, { x: left + column * across, y, side: cell }));
    });
  });
  return marks;
}
