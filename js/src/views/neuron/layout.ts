/**
 * Positions in the neuron view. Pure functions.
 *
 * The picture is a table. The query is above it. Each line has a token, a row of cells for the key
 * vector (k), a row of cells for the products (q x k x scale), numbers, and a bar for the weight.
 * A cell is one dimension. If the table is too narrow for all dimensions, the last cell of the
 * products is the sum of the dimensions without separate cells (the shared cell).
 */

import { measureText } from "../../draw/canvas";
import { PRINT_FONT_SIZE } from "../../draw/figure-request";
import { fontOf, tokenText } from "../../draw/marks";
import { AXIS_HEIGHT } from "../../ui/plot/bars";
import { axisLabel } from "../../ui/text/places";
import type { Row, Table } from "./table";

/**
 * What a line of the table shows: one key, the sink ("sink"), or the sum over all keys that have no
 * separate line ("elsewhere").
 */
export type Line = Row | "sink" | "elsewhere";

/** Position of a row of adjacent cells. */
export interface CellRow {
  x: number;
  y: number;
  height: number;
}

/** Position of a line and of its two rows of cells. */
export interface LinePosition {
  line: Line;
  y: number;
  height: number;
  /** Vertical centre of the line's text. */
  middle: number;
  /** Cells of the key vector. */
  keys: CellRow;
  /** Cells of the products. */
  products: CellRow;
}

// All sizes are in pixels, except for those of `EQUATION`.
/** Minimum width of a cell, because the pointer cannot hit narrower cells. */
const MIN_CELL = 2.5;
/** Width of the cells of single dimensions if there is a shared cell. */
const FOLDED_CELL = 3;
const MAX_CELL = 24;
/** Minimum width of cells that are separated by gaps. */
const CELL_WITH_GAP = 5;
const NUMBER = 66;
const BEFORE_CELLS = 28;
const AFTER_CELLS = 8;
const BEFORE_BAR = 24;
const AFTER_TOKEN = 20;
const MIN_BAR = 130;
const MAX_BAR = 220;
/** Width of the number after the longest bar. */
const BAR_NUMBER = 50;
const MAX_TOKEN = 150;
/**
 * Minimum width of a table column that has the cells of k or of the products. A narrower column is
 * used only if each of its cells is at least `COMFORTABLE_CELL` wide and the column at least
 * `MIN_WORDS` wide. Otherwise the layout is stacked: the cells are below the tokens.
 */
const MIN_CELL_ROW = 150;
const COMFORTABLE_CELL = 10;
/** Minimum width of the heading above a column of cells, and thus of the column. */
const MIN_WORDS = 120;
/** Left end of the tokens. */
export const LEFT = 10;
/**
 * Number of characters of an equation of 1 to 4 numbers, such as "−11.57 → −11.50 − 0.03 = −11.53".
 */
const EQUATION = [6, 15, 22, 31];
/** Mean width of a character, as a fraction of the font size. */
const EQUATION_CHARACTER = 0.56;

/**
 * Fit the cells of `headDim` dimensions into `room` pixels. `cell` is the width of a cell,
 * including the `gap` to the next cell. `count` is the number of dimensions with a separate cell.
 * `other` is the shared cell, whose `x` is measured from the left end of the products, or null if
 * every dimension has a separate cell.
 *
 * @param everyDimension whether every dimension has a cell, even if the picture must then scroll.
 */
function cellsIn(room: number, headDim: number, everyDimension: boolean) {
  const exact = Math.min(MAX_CELL, room / headDim);
  if (exact < MIN_CELL && !everyDimension) {
    const width = 14;
    const fitting = Math.floor((room - width - 4) / FOLDED_CELL);
    const count = Math.max(8, Math.min(headDim - 1, fitting));
    return { cell: FOLDED_CELL, gap: 0, count, other: { x: count * FOLDED_CELL + 4, width } };
  }
  // Edges at whole or half pixels are sharp. Cells without gaps need no sharp edges.
  const cell = Math.max(MIN_CELL, exact);
  if (cell < CELL_WITH_GAP) return { cell, gap: 0, count: headDim, other: null };
  const rounded = cell >= 8 ? Math.floor(cell) : Math.floor(cell * 2) / 2;
  return { cell: rounded, gap: 1, count: headDim, other: null };
}

type Cells = ReturnType<typeof cellsIn>;

/** Return the width of a row of cells, including the shared cell. */
export function cellRowWidth({ other, count, cell }: Cells): number {
  return other ? other.x + other.width : count * cell;
}

/** Return the names of the numbers beside the cells of a key. The last number equals the logit. */
function columnsOf({ softcap, has_bias }: Table["vectors"]["header"]) {
  const columns = ["sum", "capped", "bias", "logit"] as const;
  return columns.filter(
    (column) => column === "sum" || (column === "capped" ? softcap !== null : has_bias),
  );
}

/**
 * Lay out a table.
 *
 * @param everyDimension whether every dimension has a cell, even if the picture must then scroll.
 * @param printed whether the layout is for an exported figure with a given width or text size. Its
 *   lines are less high than those of a view.
 */
export function layOut(
  { vectors, rows, selection }: Table,
  width: number,
  everyDimension: boolean,
  printed: boolean,
) {
  const { headDim, header } = vectors;
  const columns = columnsOf(header);
  const lines: Line[] = [
    ...rows,
    ...(rows.length < selection.keys.text.length ? (["elsewhere"] as const) : []),
    ...(header.sink ? (["sink"] as const) : []),
  ];
  const size = printed ? PRINT_FONT_SIZE : 13;
  const font = fontOf({ size, font: "token", bold: true });
  const keyTexts = rows.map(({ key }) => axisLabel(selection.keys, key));
  const texts = [...keyTexts, selection.queries.text[selection.token] ?? "", "elsewhere"];
  const longest = Math.max(...texts.map((text) => measureText(tokenText(text), font)));
  const tokenWidth = Math.ceil(Math.min(MAX_TOKEN, Math.max(52, longest)));
  const inner = Math.max(280, width) - 2 * LEFT;
  const besideCells = tokenWidth + AFTER_TOKEN + BEFORE_CELLS + AFTER_CELLS;
  const room = (inner - besideCells - columns.length * NUMBER - BEFORE_BAR - MIN_BAR) / 2;
  if (room < MIN_WORDS || (room < MIN_CELL_ROW && room / headDim < COMFORTABLE_CELL)) {
    const cells = cellsIn(inner, headDim, everyDimension);
    return stackedLayout(lines, columns, cells, { tokenWidth, inner, size, printed });
  }
  const cells = cellsIn(room, headDim, everyDimension);
  const cellsWidth = cellRowWidth(cells);
  const keysLeft = LEFT + tokenWidth + AFTER_TOKEN;
  const productsLeft = keysLeft + cellsWidth + BEFORE_CELLS;
  // If there are few dimensions, the cells may be narrower than the heading above them. The numbers
  // then begin after the heading.
  const numbersLeft = productsLeft + Math.max(cellsWidth, MIN_WORDS) + AFTER_CELLS;
  const barLeft = numbersLeft + columns.length * NUMBER + BEFORE_BAR;
  const barWidth = Math.max(MIN_BAR, Math.min(MAX_BAR, LEFT + inner - barLeft)) - BAR_NUMBER;
  const many = lines.length;
  const height = printed ? 18 : many <= 24 ? 28 : many <= 40 ? 24 : 20;
  const cellHeight = height - (height > 24 ? 8 : 6);
  const query = { x: keysLeft, y: 22, height: cellHeight };
  // `rule` is the vertical position of the rule below the query, and `head` that of the headings of
  // the table.
  const rule = query.y + cellHeight + 18;
  const head = rule + 24;
  const top = head + 16;
  return {
    ...cells,
    // Whether the cells of a line are below its token and its numbers.
    stacked: false,
    width: Math.max(LEFT + inner, barLeft + barWidth + BAR_NUMBER) + LEFT,
    height: top + many * height + AXIS_HEIGHT + 4,
    ...{ tokenWidth, size, query, head, rule, productsLeft },
    lines: lines.map((line, i) => {
      const y = top + i * height;
      const cellRow = { y: y + (height - cellHeight) / 2, height: cellHeight };
      const [keys, products] = [keysLeft, productsLeft].map((x) => ({ x, ...cellRow }));
      return { line, y, height, middle: y + height / 2, keys, products } as LinePosition;
    }),
    // Columns of numbers, each with the position of its right end.
    numbers: columns.map((column, i) => ({ column, right: numbersLeft + (i + 1) * NUMBER })),
    bar: { x: barLeft, width: barWidth },
  };
}

/** Lay out a narrow table: the cells of a line are below its token, its numbers and its bar. */
function stackedLayout(
  lines: readonly Line[],
  columns: ReturnType<typeof columnsOf>,
  cells: Cells,
  options: { tokenWidth: number; inner: number; size: number; printed: boolean },
) {
  const { tokenWidth, inner, size, printed } = options;
  const [text, keyHeight, productHeight, air] = printed ? [14, 6, 10, 9] : [20, 8, 13, 12];
  // An equation of four numbers leaves room for a short bar only.
  const barWidth = columns.length > 3 ? 16 : 46;
  const bar = { x: LEFT + inner - barWidth - BAR_NUMBER, width: barWidth };
  const right = bar.x - 10;
  const equation = (EQUATION[columns.length - 1] ?? 0) * size * EQUATION_CHARACTER;
  const query = { x: LEFT, y: 24, height: productHeight };
  const rule = query.y + productHeight + 16;
  const head = rule + 20;
  let bottom = head + 20;
  const positions = lines.map((line): LinePosition => {
    const y = bottom;
    const keys = { x: LEFT, y: y + 4 + text, height: keyHeight };
    const products = { x: LEFT, y: keys.y + keyHeight + 3, height: productHeight };
    bottom = keys.y - 4 + air;
    // A masked key has no products. The lines "sink" and "elsewhere" have no cells at all.
    if (typeof line !== "string") bottom += keyHeight + (line.allowed ? 3 + productHeight : 0);
    return { line, y, height: bottom - y, middle: y + 4 + text / 2, keys, products };
  });
  return {
    ...cells,
    stacked: true,
    width: Math.max(inner, cellRowWidth(cells)) + 2 * LEFT,
    height: bottom + AXIS_HEIGHT + 4,
    tokenWidth: Math.max(36, Math.min(tokenWidth, right - LEFT - 12 - equation)),
    ...{ size, query, head, rule, productsLeft: LEFT, lines: positions },
    // A single column has all numbers of a line, as an equation.
    numbers: [{ column: "logit" as const, right }],
    bar,
  };
}

export type Layout = ReturnType<typeof layOut>;

/**
 * Cell of a dimension, as its index among the displayed dimensions, or the shared cell ("others").
 */
export type Cell = number | "others";

/** Part of the picture under the pointer. */
export interface Hit {
  /** Index of the line, or null for the query. */
  line: number | null;
  /** Cell under the pointer, or null outside of the cells. */
  cell: Cell | null;
}

/**
 * Return the part of the picture at (x, y), or null if neither a cell of the query nor a line is
 * there.
 */
export function partAt(layout: Layout, x: number, y: number): Hit | null {
  const { query, lines, other, width } = layout;
  const cellAt = (row: CellRow): Cell | null => {
    const across = x - row.x;
    if (across < 0 || y < row.y || y >= row.y + row.height) return null;
    if (across < layout.count * layout.cell) return Math.floor(across / layout.cell);
    const isShared = other && across >= other.x && across < other.x + other.width;
    return isShared ? "others" : null;
  };
  const queryCell = cellAt(query);
  if (typeof queryCell === "number") return { line: null, cell: queryCell };
  const index = lines.findIndex((line) => y >= line.y && y < line.y + line.height);
  const position = lines[index];
  if (!position || x < 0 || x >= width) return null;
  if (typeof position.line === "string") return { line: index, cell: null };
  const keyCell = cellAt(position.keys);
  const cell = cellAt(position.products) ?? (keyCell === "others" ? null : keyCell);
  return { line: index, cell };
}
