/**
 * Export of the compare view as a figure. Members are the compared records. Each pane below the grid of heads shows the chosen head of one member, or the
 * difference of two members.
 */

import { type Box, textMark } from "../../draw/figure";
import { sceneOf, translate } from "../../draw/marks";
import { pinColor } from "../../ui/colors/palette";
import { drawnYet, type ViewFigure } from "../../ui/exports/exports";
import type { GridLayout } from "../../ui/head-grid/grid";
import { frameMark, gridMarks } from "../../ui/head-grid/marks";
import { formatSmall } from "../../ui/text/captions";
import type { ViewContext } from "../../ui/view/define-view";
import { type CellStyle, distanceScale, headMarks, TREND, trendMarks } from "./marks";
import type { CompareSelection, CompareState } from "./state";
import type { CompareStore } from "./store";

/**
 * Return the labelled chart of the chosen head's distance from the first member, for each member.
 */
function trendBox(
  trend: readonly (number | null)[],
  selection: CompareSelection,
  { palette, end }: CellStyle,
): Box {
  const { names, layer, head, member } = selection;
  const title = `head ${layer}.${head}: distance from ${names[0]}, 0 to ${formatSmall(end)}`;
  const low = TREND.height + 28;
  return {
    width: TREND.width,
    height: low + 10,
    marks: [
      textMark(title, 0, 8, palette.ink, 11.5),
      ...translate(trendMarks(trend, member, end, palette), 0, 16),
      textMark(names[0] ?? "", TREND.left, low, palette.muted, 10.5),
      textMark(names.at(-1) ?? "", TREND.width, low, palette.muted, 10.5, { align: "end" }),
    ],
  };
}

/** Space in pixels at the left and right of a figure without a requested width. */
const PADDING = 24;

/**
 * Return the parts of the figure above the panes: grid of heads, chart of distances, colour scale.
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
  let { width, height } = layout;
  const trend = store.trend.peek();
  // Two members have only one distance, which needs no chart.
  if (trend.length > 2) {
    const chart = trendBox(trend, selection, style);
    const besideWidth = width + 24 + chart.width;
    if (besideWidth <= (requested ?? Number.POSITIVE_INFINITY)) {
      marks.push(...translate(chart.marks, width + 24, layout.top));
      width = besideWidth;
      height = Math.max(height, layout.top + chart.height);
    } else {
      marks.push(...translate(chart.marks, layout.left, height + 12));
      height += 12 + chart.height;
    }
  }
  if (requested === undefined && panesWidth - 2 * PADDING > width) {
    width = panesWidth - 2 * PADDING;
    // An invisible line at the full width, without which `composeFigure` would remove the blank
    // area at the right.
    const line = { x0: 0, y0: 0, x1: width, y1: 0, stroke: palette.rule };
    marks.push({ kind: "line", ...line, opacity: 0 });
  }
  return {
    picture: sceneOf({ width, height }, [], marks),
    scales: [distanceScale(style.theme, style.end)],
  };
}
