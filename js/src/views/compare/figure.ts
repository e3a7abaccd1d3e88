/**
 * Export of the compare view as a figure, and of the chosen head as a CSV table. Members are the
 * compared records. Each pane below the grid of heads shows the chosen head of one member, or the
 * difference of two members.
 */

import type { Range } from "../../client/protocol";
import type { Source } from "../../client/source";
import { type Box, textMark } from "../../draw/figure";
import { sceneOf, translate } from "../../draw/marks";
import { pairAt, sizeOf, windowAt } from "../../ui/axis";
import { pinColor } from "../../ui/colors/palette";
import { drawnYet, type ViewFigure } from "../../ui/exports/exports";
import type { GridLayout } from "../../ui/head-grid/grid";
import { frameMark, gridMarks } from "../../ui/head-grid/marks";
import { formatSmall } from "../../ui/text/captions";
import { csvText, roundedTo, writtenError } from "../../ui/text/csv";
import type { ViewContext } from "../../ui/view/define-view";
import { type CellStyle, distanceScale, headMarks, TREND, trendMarks } from "./marks";
import { type CompareSelection, type CompareState, missingQueries } from "./state";
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

const COLUMNS = [
  ...["stack", "layer", "head", "query", "query_token", "key", "key_token"],
  ...["a", "b", "difference", "largest_error", "a_name", "b_name"],
];
/**
 * Maximum number of query-key pairs in a table. If there are more, the table contains only the
 * pinned query. If no query is pinned, it contains as many of the first queries as this limit
 * allows, but at least one.
 */
const MAX_PAIRS = 1 << 20;

/**
 * Return a CSV table of the chosen head, with one row per query-key pair: the weights in the first
 * and in the compared member, and their difference. Pairs whose weights are both 0 are omitted. If
 * a window is null, the table contains all queries or all keys.
 */
export async function pairsCsv(
  source: Source,
  selection: CompareSelection,
  windows: { queries: Range | null; keys: Range | null },
): Promise<string> {
  const { compared, member, layer, head, names } = selection;
  const numKeys = selection.keys.text.length;
  const columns = windows.keys ?? [0, numKeys];
  let rows = windows.queries ?? [0, selection.queries.text.length];
  if (sizeOf(rows) * sizeOf(columns) > MAX_PAIRS) {
    const { token } = selection;
    const most = Math.max(1, Math.floor(MAX_PAIRS / sizeOf(columns)));
    rows = token === null ? windowAt(0, most, rows) : [token, token + 1];
  }
  const ask = (stack: string) => source.block({ stack, layer, heads: [head], rows, columns });
  const difference = compared.differences[member];
  const [one, two] = await Promise.all([
    ask(compared.members[0] as string),
    ask(compared.members[member] as string),
  ]);
  // If the weights of the members are rounded, load their difference, which was rounded separately.
  // The picture and the caption also show this difference.
  const rounded = difference && one.error + two.error > 0 ? await ask(difference) : null;
  const changes = rounded?.matrices[0] as Float32Array | undefined;
  const missing = new Set(missingQueries(selection));
  const lines: (string | number)[][] = [];
  const largest = Math.max(one.error, two.error);
  const [a, b] = [one.matrices[0] as Float32Array, two.matrices[0] as Float32Array];
  for (let at = 0; at < a.length; at++) {
    const [from, to] = [a[at] as number, b[at] as number];
    if (from === 0 && to === 0) continue;
    const [query, key] = pairAt({ rows, columns }, at);
    // The picture of the difference does not show a query that only one member has. For such a
    // query, subtract the weights.
    const drawn = missing.has(query) ? undefined : changes?.[at];
    lines.push([
      ...[selection.stack.name, layer, head],
      ...[query, selection.queries.text[query] ?? ""],
      ...[key, selection.keys.text[key] ?? ""],
      roundedTo(from, one.error),
      roundedTo(to, two.error),
      drawn === undefined ? roundedTo(to - from, largest) : roundedTo(drawn, rounded?.error ?? 0),
      // The error of a subtraction is at most the sum of both errors.
      writtenError(
        drawn === undefined ? one.error + two.error : Math.max(largest, rounded?.error ?? 0),
      ),
      names[0] ?? "",
      names[member] ?? "",
    ]);
  }
  return csvText(COLUMNS, lines);
}
