/** Positions of the lines, columns and cells of the neuron view. Pure functions. */

import { PRINT_FONT_SIZE } from "../../draw/figure-request";
import { fontOf, printable } from "../../draw/marks";
import { AXIS_HEIGHT } from "../../ui/plot/bar-scale";

/** Line of the table: a key, the sink, or all keys that are not shown. */
export type Line =
  | { kind: "key"; index: number; masked: boolean }
  | { kind: "sink" }
  | { kind: "elsewhere" };

/** Numbers beside the cells. */
export type NumberColumn = "sum" | "capped" | "bias" | "logit";

/** Row of adjacent cells. */
export interface CellRow {
  x: number;
  y: number;
  height: number;
}

/** Position of a line and of its cells. */
export interface LinePosition {
  line: Line;
  y: number;
  height: number;
  /** Vertical centre of its text. */
  middle: number;
  keys: CellRow;
  cells: CellRow;
}

export interface Layout {
  /** Whether the cells are below the token and numbers of their line, as in narrow views. */
  stacked: boolean;
  width: number;
  height: number;
  left: number;
  tokenWidth: number;
  /** Width of a cell with the gap after it. */
  cell: number;
  gap: number;
  /** Number of dimensions that have separate cells. */
  count: number;
  /** Position of the cell for the sum of the other dimensions, from the start of the products. */
  other: { x: number; width: number } | null;
  query: CellRow;
  /** Vertical centre of the column headings. */
  head: number;
  rule: number;
  /** Left ends of the columns of cells. */
  keysLeft: number;
  cellsLeft: number;
  lines: LinePosition[];
  /** Columns of numbers with their right ends. */
  numbers: { column: NumberColumn; right: number }[];
  bar: { x: number; width: number };
  size: number;
}

interface LayoutOptions {
  width: number;
  headDim: number;
  keyTexts: readonly string[];
  queryText: string;
  lines: readonly Line[];
  columns: readonly NumberColumn[];
  /** Whether every dimension has a cell, even if the picture must scroll. */
  everyDimension: boolean;
  /** Whether this is a figure of a given width, with texts of one size and lines of minimum height. */
  printed?: boolean;
  measure: (text: string, font: string) => number;
}

/** Minimum width of a cell that the pointer can hit. */
export const MIN_CELL = 2.5;
/** Width of cells if there are too many dimensions to show all. */
const FOLDED_CELL = 3;
const MAX_CELL = 24;
/** Minimum width of cells with gaps between them. */
const CELL_WITH_GAP = 5;
const NUMBER = 66;
const BEFORE_CELLS = 28;
const AFTER_CELLS = 8;
const BEFORE_BAR = 24;
const AFTER_TOKEN = 20;
const MIN_BAR = 130;
const MAX_BAR = 220;
/** Room for the number after the longest bar. */
const BAR_NUMBER = 50;
const MAX_TOKEN = 150;
/** Minimum width of a column of cells, unless each cell is at least `COMFORTABLE_CELL` wide. */
const MIN_CELL_ROW = 150;
const COMFORTABLE_CELL = 10;
/** Minimum width of a column of cells for the words above it. */
const MIN_WORDS = 120;
const LEFT = 10;
/**
 * Number of characters of the equation "−11.57 → −11.50 − 0.03 = −11.53" (sum, capped, bias, logit)
 * up to its first, second, third and fourth number.
 */
const EQUATION = [6, 15, 22, 31];
/** Width of a character, relative to the size of the text. */
const EQUATION_CHARACTER = 0.56;

/**
 * Round the width of a cell down to whole or half pixels, so that edges are sharp. Cells without
 * gaps keep their width.
 */
function roundCell(cell: number): number {
  if (cell >= 8) return Math.floor(cell);
  return cell >= CELL_WITH_GAP ? Math.floor(cell * 2) / 2 : cell;
}

/** Return the width and number of the cells, and the shared cell of the other dimensions. */
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

/** Return the width of a row of cells. */
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
  // The cells of few dimensions may be narrower than the words above them.
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
  // Next to an equation of four numbers the bar is short.
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
    // Lines without cells need no room for them.
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
    // One column has all numbers as an equation.
    numbers: [{ column: "logit", right: numbersRight }],
    bar,
    size,
  };
}

/** Part of the picture at a point. */
export interface Hit {
  /** Index of the line, or null for the cells of the query. */
  line: number | null;
  part: "query" | "keys" | "cells" | "line";
  /** Index among the displayed dimensions, or null outside the cells and for the shared cell. */
  column: number | null;
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

/** Return the part of the picture at (x, y). */
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
