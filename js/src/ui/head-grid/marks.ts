/** Marks of a grid of heads in a figure. */

import { textMark } from "../../draw/figure";
import type { Mark } from "../../draw/marks";
import type { Palette } from "../colors/palette";
import {
  columnLabel,
  type GridLayout,
  type HeadGrid,
  labelledEvery,
  rowLabel,
  type ScoredHead,
} from "./grid";

/**
 * Return the labels of rows and columns, and the marks of all heads. A gallery has no labels.
 *
 * @param cellMarks returns the marks of a head. The top left corner of its picture is at (x, y).
 */
export function gridMarks(
  grid: HeadGrid,
  layout: GridLayout,
  palette: Palette,
  cellMarks: (head: ScoredHead, x: number, y: number) => readonly Mark[],
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
      marks.push(textMark(label, left - 10, y + cell / 2, palette.ink, 11.5, { align: "end" }));
    }
    row.forEach((head, column) => {
      if (head) marks.push(...cellMarks(head, left + column * across, y));
    });
  });
  return marks;
}
