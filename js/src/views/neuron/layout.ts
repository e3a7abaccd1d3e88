/** Positions of the lines, columns and cells of the neuron view. Pure functions. */

import { PRINT_TEXT } from "../../draw/figure-request";
import { fontOf, printable } from "../../draw/marks";
import { AXIS_HEIGHT } from "../../ui/plot/bar-scale";

/** A line of the table: a key, the sink, or all keys that are not shown. */
export type Line =
  | { kind: "key"; index: number; masked: boolean }
  | { kind: "sink" }
  | { kind: "elsewhere" };

/** Numbers beside the cells. */
export type NumberColumn = "sum" | "capped" | "bias" | "logit";

/** Cells beside each other. */
export interface Strip {
  x: number;
  y: number;
  height: number;
}

/** The position of a line and of its strips. */
export interface LinePosition {
  line: Line;
  y: number;
  height: number;
  /** The middle of its text. */
  middle: number;
  keys: Strip;
  cells: Strip;
}

export interface Layout {
  /** Too narrow for columns: cells stand below each line's token and numbers. */
  stacked: boolean;
  width: number;
  height: number;
  left: number;
  tokenWidth: number;
  /** Width of a cell, with the gap behind it. */
  cell: number;
  gap: number;
  /** Dimensions that have a cell of their own. */
  count: number;
  /** The cell that the other dimensions share, from the beginning of a strip of products. */
  other: { x: number; width: number } | null;
  query: Strip;
  /** The middle of the column heads. */
  head: number;
  rule: number;
  /** Where the columns of cells begin. */
  keysLeft: number;
  cellsLeft: number;
  lines: LinePosition[];
  /** The right end of each column of numbers. */
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
  /** Whether every dimension has its own cell, though the picture then needs to be scrolled. */
  everyDimension: boolean;
  /** For a figure of a stated width: texts of one size, and lines no higher than they need. */
  printed?: boolean;
  measure: (text: string, font: string) => number;
}

/** Narrower cells could not be pointed at. */
export const LEAST_CELL = 2.5;
/** Where there are too many dimensions the shown ones are at least so wide. */
const FOLDED_CELL = 3;
const LARGEST_CELL = 24;
/** Between cells that are at least so wide there is a gap. */
const CELL_WITH_GAP = 5;
const NUMBER = 66;
const BEFORE_CELLS = 28;
const AFTER_CELLS = 8;
const BEFORE_BAR = 24;
const AFTER_TOKEN = 20;
const LEAST_BAR = 130;
const LARGEST_BAR = 220;
/** Room right of the bar's longest for its number. */
const BAR_NUMBER = 50;
const LARGEST_TOKEN = 150;
/** Columns of cells are narrower only where cells are still wide. */
const LEAST_STRIP = 150;
const COMFORTABLE_CELL = 10;
/** The words above a column of cells take so much. */
const LEAST_WORDS = 120;
const LEFT = 10;
/** Characters of "−11.57 → −11.50 − 0.03 = −11.53", by how many of its numbers there are. */
const EQUATION = [6, 15, 22, 31];
/** The width of one of them, of the size of the text. */
const EQUATION_CHARACTER = 0.56;

/** Whole or half pixels, so that edges are sharp. */
function snapped(cell: number): number {
  if (cell >= 8) return Math.floor(cell);
  return cell >= CELL_WITH_GAP ? Math.floor(cell * 2) / 2 : cell;
}

/** The width of a cell, how many there are, and the one that the rest shares. */
function cellsIn(
  room: number,
  headDim: number,
  everyDimension: boolean,
): Pick<Layout, "cell" | "count" | "other" | "gap"> {
  const cell = Math.min(LARGEST_CELL, room / headDim);
  if (cell >= LEAST_CELL || everyDimension) {
    const width = snapped(Math.max(LEAST_CELL, cell));
    return { cell: width, count: headDim, other: null, gap: width >= CELL_WITH_GAP ? 1 : 0 };
  }
  const width = 14;
  const count = Math.max(8, Math.min(headDim - 1, Math.floor((room - width - 4) / FOLDED_CELL)));
  return { cell: FOLDED_CELL, count, other: { x: count * FOLDED_CELL + 4, width }, gap: 0 };
}

/** The width that strips take. */
export function stripWidth(layout: Pick<Layout, "cell" | "count" | "other">): number {
  const { other } = layout;
  return other ? other.x + other.width : layout.count * layout.cell;
}

export function layOut(options: LayoutOptions): Layout {
  const { columns, headDim, measure, everyDimension, printed } = options;
  const size = printed ? PRINT_TEXT : 13;
  const font = fontOf({ size, font: "token", bold: true });
  const words = [...options.keyTexts, options.queryText, "elsewhere"];
  const longest = Math.max(...words.map((text) => measure(printable(text), font)));
  const tokenWidth = Math.ceil(Math.min(LARGEST_TOKEN, Math.max(52, longest)));
  const inner = Math.max(280, options.width) - 2 * LEFT;
  const fixed =
    tokenWidth +
    AFTER_TOKEN +
    BEFORE_CELLS +
    AFTER_CELLS +
    columns.length * NUMBER +
    BEFORE_BAR +
    LEAST_BAR;
  const room = (inner - fixed) / 2;
  if (room < LEAST_WORDS || (room < LEAST_STRIP && room / headDim < COMFORTABLE_CELL)) {
    return stackedLayout(options, tokenWidth, inner, size);
  }
  const cells = cellsIn(room, headDim, everyDimension);
  const strip = stripWidth(cells);
  const keysLeft = LEFT + tokenWidth + AFTER_TOKEN;
  const cellsLeft = keysLeft + strip + BEFORE_CELLS;
  // Few dimensions may take less room than the words above them.
  const numbersLeft = cellsLeft + Math.max(strip, LEAST_WORDS) + AFTER_CELLS;
  const barLeft = numbersLeft + columns.length * NUMBER + BEFORE_BAR;
  const barWidth = Math.max(LEAST_BAR, Math.min(LARGEST_BAR, LEFT + inner - barLeft)) - BAR_NUMBER;
  const many = options.lines.length;
  const height = printed ? 18 : many <= 24 ? 28 : many <= 40 ? 24 : 20;
  const cellHeight = height - (height > 24 ? 8 : 6);
  const queryTop = 22;
  const rule = queryTop + cellHeight + 18;
  const head = rule + 24;
  const top = head + 16;
  const lines = options.lines.map((line, i): LinePosition => {
    const y = top + i * height;
    const strip = { y: y + (height - cellHeight) / 2, height: cellHeight };
    return {
      line,
      y,
      height,
      middle: y + height / 2,
      keys: { x: keysLeft, ...strip },
      cells: { x: cellsLeft, ...strip },
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
  // Where the numbers are an equation of four the bar gives way.
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
    // What has no cells needs no room for them.
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
    width: Math.max(inner, stripWidth(cells)) + 2 * LEFT,
    height: y + AXIS_HEIGHT + 4,
    left: LEFT,
    tokenWidth: Math.max(36, Math.min(tokenWidth, numbersRight - LEFT - 12 - equation)),
    query: { x: LEFT, y: queryTop, height: cellHeight },
    head,
    rule,
    keysLeft: LEFT,
    cellsLeft: LEFT,
    lines,
    // All numbers in one place, written as they add up.
    numbers: [{ column: "logit", right: numbersRight }],
    bar,
    size,
  };
}

/** What lies at a point. */
export interface Hit {
  /** The index of the line, null for the query's own strip. */
  line: number | null;
  part: "query" | "keys" | "cells" | "line";
  /** The index of a dimension among those shown; null where the others share a cell, or for none. */
  column: number | null;
  others: boolean;
}

function columnAt(
  layout: Layout,
  strip: Strip,
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

/** What of the picture lies at (x, y). */
export function partAt(layout: Layout, x: number, y: number): Hit | null {
  const inside = (strip: Strip): boolean => y >= strip.y && y < strip.y + strip.height;
  if (inside(layout.query)) {
    const hit = columnAt(layout, layout.query, x, false);
    if (hit) return { line: null, part: "query", ...hit };
  }
  const line = layout.lines.findIndex((each) => y >= each.y && y < each.y + each.height);
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
