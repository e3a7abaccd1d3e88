/**
 * Positions in the neuron view. Pure functions.
 *
 * The picture is a table. The query is above it. Each line has a token, a row of cells for the key
 * vector (k), a row of cells for the products (q x k x scale), numbers, and a bar for the weight.
 * A cell is one dimension. If the table is too narrow for all dimensions, the last cell of the
 * products is the sum of the dimensions without separate cells (the shared cell).
 */

import { PRINT_FONT_SIZE } from "../../draw/figure-request";
import { fontOf, printable } from "../../draw/marks";
import { AXIS_HEIGHT } from "../../ui/plot/bars";

/** Line of the table: one key, the sink, or all keys without a line together ("elsewhere"). */
export type Line =
  | { kind: "key"; index: number; masked: boolean }
  | { kind: "sink" }
  | { kind: "elsewhere" };

/** Number of a key that is written beside the cells. */
export type NumberColumn = "sum" | "capped" | "bias" | "logit";

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
  cells: CellRow;
}

export interface Layout {
  /**
   * Whether cells are below the token and the numbers of their line, because the view is narrow.
   */
  stacked: boolean;
  width: number;
  height: number;
  left: number;
  tokenWidth: number;
  /** Width of a cell, including the gap to the next cell. */
  cell: number;
  gap: number;
  /** Number of dimensions with a separate cell. */
  count: number;
  /** Shared cell, or null without one. `x` is measured from the left end of the products. */
  other: { x: number; width: number } | null;
  /** Cells of the query vector. */
  query: CellRow;
  /** Vertical centre of the column headings. */
  head: number;
  /** Vertical position of the line between the query and the table. */
  rule: number;
  /** Left end of the key vectors. */
  keysLeft: number;
  /** Left end of the products. */
  cellsLeft: number;
  lines: LinePosition[];
  /** Columns of numbers, each with the position of its right end. */
  numbers: { column: NumberColumn; right: number }[];
  /** Left end and maximum length of the bars. */
  bar: { x: number; width: number };
  /** Font size of the tokens. */
  size: number;
}

interface LayoutOptions {
  width: number;
  headDim: number;
  keyTexts: readonly string[];
  queryText: string;
  lines: readonly Line[];
  columns: readonly NumberColumn[];
  /** Whether to give every dimension a cell, even if the picture must then scroll. */
  everyDimension: boolean;
  /** Whether the layout is for a figure of a given width. Its lines are as low as possible. */
  printed?: boolean;
  measure: (text: string, font: string) => number;
}

/** Minimum width in pixels of a cell, because the pointer cannot hit narrower cells. */
export const MIN_CELL = 2.5;
/** Width in pixels of the cells if there is a shared cell. */
const FOLDED_CELL = 3;
const MAX_CELL = 24;
/** Minimum width in pixels of cells that are separated by gaps. */
const CELL_WITH_GAP = 5;
const NUMBER = 66;
const BEFORE_CELLS = 28;
const AFTER_CELLS = 8;
const BEFORE_BAR = 24;
const AFTER_TOKEN = 20;
const MIN_BAR = 130;
const MAX_BAR = 220;
/** Pixels for the number after the longest bar. */
const BAR_NUMBER = 50;
const MAX_TOKEN = 150;
/**
 * Minimum width in pixels of a column of cells beside the tokens. A narrower column is used only if
 * each of its cells is at least `COMFORTABLE_CELL` wide. Otherwise the layout is stacked.
 */
const MIN_CELL_ROW = 150;
const COMFORTABLE_CELL = 10;
/** Minimum width in pixels of the heading above a column of cells. */
const MIN_WORDS = 120;
const LEFT = 10;
/**
 * Numbers of characters of an equation of one, two, three or four numbers. The longest equation is
 * "−11.57 → −11.50 − 0.03 = −11.53" (sum, capped, bias, logit).
 */
const EQUATION = [6, 15, 22, 31];
/** Mean width of a character, as a fraction of the font size. */
const EQUATION_CHARACTER = 0.56;

/**
 * Round the width of a cell down to whole pixels, or to half pixels below 8 pixels, because edges
 * at such positions are sharp. Cells without gaps keep their width.
 */
function roundCell(cell: number): number {
  if (cell >= 8) return Math.floor(cell);
  return cell >= CELL_WITH_GAP ? Math.floor(cell * 2) / 2 : cell;
}

/**
 * Return the width of the cells, the gap between them, the number of dimensions with a cell, and
 * the shared cell.
 *
 * @param room available width in pixels.
 */
function cellsIn(
  room: number,
  headDim: number,
  everyDimension: boolean,
): Pick<Layout, "cell" | "count" | "other" | "gap"> {
  const cell = Math.min(MAX_CELL, room / headDim);
  if (cell >= MIN_CELL || everyDimension) {
    const width = roundCell(Math.max(MIN_CELL, cell));
    return { cell: width, count: headDim, other: null, gap: width >= CELL_WITH_GAP ? 1 : 0 };
  }
  const width = 14;
  const count = Math.max(8, Math.min(headDim - 1, Math.floor((room - width - 4) / FOLDED_CELL)));
  return { cell: FOLDED_CELL, count, other: { x: count * FOLDED_CELL + 4, width }, gap: 0 };
}

/** Return the width of a row of cells, including the shared cell. */
export function cellRowWidth(layout: Pick<Layout, "cell" | "count" | "other">): number {
  const { other } = layout;
  return other ? other.x + other.width : layout.count * layout.cell;
}

export function layOut(options: LayoutOptions): Layout {
  const { columns, headDim, measure, everyDimension, printed } = options;
  const size = printed ? PRINT_FONT_SIZE : 13;
  const font = fontOf({ size, font: "token", bold: true });
  const words = [...options.keyTexts, options.queryText, "elsewhere"];
  const longest = Math.max(...words.map((text) => measure(printable(text), font)));
  const tokenWidth = Math.ceil(Math.min(MAX_TOKEN, Math.max(52, longest)));
  const inner = Math.max(280, options.width) - 2 * LEFT;
  const fixed =
    tokenWidth +
    AFTER_TOKEN +
    BEFORE_CELLS +
    AFTER_CELLS +
    columns.length * NUMBER +
    BEFORE_BAR +
    MIN_BAR;
  const room = (inner - fixed) / 2;
  if (room < MIN_WORDS || (room < MIN_CELL_ROW && room / headDim < COMFORTABLE_CELL)) {
    return stackedLayout(options, tokenWidth, inner, size);
  }
  const cells = cellsIn(room, headDim, everyDimension);
  const strip = cellRowWidth(cells);
  const keysLeft = LEFT + tokenWidth + AFTER_TOKEN;
  const cellsLeft = keysLeft + strip + BEFORE_CELLS;
  // If there are few dimensions, the cells may be narrower than the heading above them. The numbers
  // then begin after the heading.
  const numbersLeft = cellsLeft + Math.max(strip, MIN_WORDS) + AFTER_CELLS;
  const barLeft = numbersLeft + columns.length * NUMBER + BEFORE_BAR;
  const barWidth = Math.max(MIN_BAR, Math.min(MAX_BAR, LEFT + inner - barLeft)) - BAR_NUMBER;
  const many = options.lines.length;
  const height = printed ? 18 : many <= 24 ? 28 : many <= 40 ? 24 : 20;
  const cellHeight = height - (height > 24 ? 8 : 6);
  const queryTop = 22;
  const rule = queryTop + cellHeight + 18;
  const head = rule + 24;
  const top = head + 16;
  const lines = options.lines.map((line, i): LinePosition => {
    const y = top + i * height;
    const verticalRange = { y: y + (height - cellHeight) / 2, height: cellHeight };
    return {
      line,
      y,
      height,
      middle: y + height / 2,
      keys: { x: keysLeft, ...verticalRange },
      cells: { x: cellsLeft, ...verticalRange },
    };
  });
  return {
    ...cells,
    stacked: false,
    width: Math.max(LEFT + inner, barLeft + barWidth + BAR_NUMBER) + LEFT,
    height: top + many * height + AXIS_HEIGHT + 4,
    left: LEFT,
    tokenWidth,
    query: { x: keysLeft, y: queryTop, height: cellHeight },
    head,
    rule,
    keysLeft,
    cellsLeft,
    lines,
    numbers: columns.map((column, i) => ({ column, right: numbersLeft + (i + 1) * NUMBER })),
    bar: { x: barLeft, width: barWidth },
    size,
  };
}

function stackedLayout(
  options: LayoutOptions,
  tokenWidth: number,
  inner: number,
  size: number,
): Layout {
  const cells = cellsIn(inner, options.headDim, options.everyDimension);
  const [text, keyHeight, cellHeight, air] = options.printed ? [14, 6, 10, 9] : [20, 8, 13, 12];
  // An equation of four numbers leaves room for a short bar only.
  const barWidth = options.columns.length > 3 ? 16 : 46;
  const bar = { x: LEFT + inner - barWidth - BAR_NUMBER, width: barWidth };
  const numbersRight = bar.x - 10;
  const equation = (EQUATION[options.columns.length - 1] ?? 0) * size * EQUATION_CHARACTER;
  const queryTop = 24;
  const rule = queryTop + cellHeight + 16;
  const head = rule + 20;
  let y = head + 20;
  const lines: LinePosition[] = [];
  for (const line of options.lines) {
    // A masked key has no products, and the sink and "elsewhere" have no cells at all.
    const strips = line.kind !== "key" ? 0 : line.masked ? keyHeight : keyHeight + 3 + cellHeight;
    const tall = text + strips + air;
    lines.push({
      line,
      y,
      height: tall,
      middle: y + 4 + text / 2,
      keys: { x: LEFT, y: y + 4 + text, height: keyHeight },
      cells: { x: LEFT, y: y + 4 + text + keyHeight + 3, height: cellHeight },
    });
    y += tall;
  }
  return {
    ...cells,
    stacked: true,
    width: Math.max(inner, cellRowWidth(cells)) + 2 * LEFT,
    height: y + AXIS_HEIGHT + 4,
    left: LEFT,
    tokenWidth: Math.max(36, Math.min(tokenWidth, numbersRight - LEFT - 12 - equation)),
    query: { x: LEFT, y: queryTop, height: cellHeight },
    head,
    rule,
    keysLeft: LEFT,
    cellsLeft: LEFT,
    lines,
    // A single column has all numbers of a line, as an equation.
    numbers: [{ column: "logit", right: numbersRight }],
    bar,
    size,
  };
}

/** Part of the picture under the pointer. */
export interface Hit {
  /** Index of the line, or null for the cells of the query. */
  line: number | null;
  /** Row of cells under the pointer, or "line" outside of them. */
  part: "query" | "keys" | "cells" | "line";
  /** Index among the displayed dimensions, or null for the shared cell and outside the cells. */
  column: number | null;
  /** Whether the pointer is on the shared cell. */
  others: boolean;
}

function columnAt(
  layout: Layout,
  strip: CellRow,
  x: number,
  shared: boolean,
): Omit<Hit, "line" | "part"> | null {
  const across = x - strip.x;
  if (across >= 0 && across < layout.count * layout.cell) {
    return { column: Math.floor(across / layout.cell), others: false };
  }
  const { other } = layout;
  if (shared && other && across >= other.x && across < other.x + other.width) {
    return { column: null, others: true };
  }
  return null;
}

/** Return the part of the picture at (x, y), or null if no line is there. */
export function partAt(layout: Layout, x: number, y: number): Hit | null {
  const inside = (strip: CellRow): boolean => y >= strip.y && y < strip.y + strip.height;
  if (inside(layout.query)) {
    const hit = columnAt(layout, layout.query, x, false);
    if (hit) return { line: null, part: "query", ...hit };
  }
  const line = layout.lines.findIndex((item) => y >= item.y && y < item.y + item.height);
  const position = layout.lines[line];
  if (!position || x < 0 || x >= layout.width) return null;
  if (position.line.kind === "key") {
    for (const part of ["cells", "keys"] as const) {
      const hit = inside(position[part]) && columnAt(layout, position[part], x, part === "cells");
      if (hit) return { line, part, ...hit };
    }
  }
  return { line, part: "line", column: null, others: false };
}
