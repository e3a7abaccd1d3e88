/**
 * Export of the compare view as a figure. Members are the compared records. Each pane below the
 * grid of heads shows the chosen head of one member, or the difference of two members.
 */

import { sceneOf } from "../../draw/marks";
import { pinColor } from "../../ui/colors/palette";
import { drawnYet, type ViewFigure } from "../../ui/exports/exports";
import type { GridLayout } from "../../ui/head-grid/grid";
import { frameMark, gridMarks } from "../../ui/head-grid/marks";
import type { ViewContext } from "../../ui/view/define-view";
import { distanceScale, headMarks } from "./marks";
import type { CompareState } from "./state";
import type { CompareStore } from "./store";

/** Space in pixels at the left and right of a figure without a requested width. */
const PADDING = 24;

/**
 * Return the parts of the figure above the panes: grid of heads and colour scale.
 *
 * @param layout layout of the grid.
 * @param panesWidth width of the panes. If no width of the figure is requested, its upper part is
 *   at least as wide, so that the captions may be as wide as the panes.
 */
export function gridFigure(
  context: ViewContext<CompareState>,
  store: CompareStore,
  layout: GridLayout,
  panesWidth: number,
): Omit<ViewFigure, "captions"> {
  const selection = drawnYet(store.selection.peek());
  const palette = context.palette.peek();
  const style = { theme: context.theme.peek(), palette, end: store.end.peek() };
  const grid = drawnYet(store.grid.peek());
  const marks = gridMarks(grid, layout, palette, (cell, square) => {
    const chosen = cell.layer === selection.layer && cell.head === selection.head;
    return [
      ...headMarks(selection, !grid.columns, style, cell, square),
      frameMark(square, chosen ? pinColor(palette) : null, palette),
    ];
  });
  const requested = context.figure?.width;
  let { width } = layout;
  if (requested === undefined && panesWidth - 2 * PADDING > width) {
    width = panesWidth - 2 * PADDING;
    // An invisible line at the full width, without which `composeFigure` would remove the blank
    // area at the right.
    const line = { x0: 0, y0: 0, x1: width, y1: 0, stroke: palette.rule };
    marks.push({ kind: "line", ...line, opacity: 0 });
  }
  return {
    picture: sceneOf({ width, height: layout.height }, [], marks),
    scales: [distanceScale(style.theme, style.end)],
  };
}
