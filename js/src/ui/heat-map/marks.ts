/**
 * Marks of a heat map: cells, labels, bars and highlights. A pinned query or key has bars for its
 * weights. The effect of a key is a signed number that is drawn as a bar above its column.
 */

import type { Range, TokenList } from "../../client/protocol";
import { pool as pooledOf } from "../../client/signs";
import { measureText } from "../../draw/canvas";
import { fontOf, type Mark, type TextMark } from "../../draw/marks";
import { aspectRatio, cropOf, patchOf, pictureMark } from "../../draw/patches";
import {
  type ColorScale,
  colorAt,
  pixelsOf,
  type SignColors,
  shareOf,
  signColor,
  signColorAt,
  signedShareOf,
} from "../colors/color-scales";
import {
  headTextColor,
  luminance,
  type Palette,
  pinColor,
  rgbOf,
  type ThemeName,
} from "../colors/palette";
import { effectMarks, endText, type TokenEffects, tokenEffect } from "../effects/effects";
import { answerStart } from "../generated-token/state";
import type { Images } from "../image/state";
import { AXIS_HEIGHT, type BarScale, barEnd, barGroupMarks } from "../plot/bars";
import { isTiny, quantityOf, quoted, written } from "../text/captions";
import { fitLabel } from "../text/labels";
import {
  AXIS_NAME,
  GAP,
  type Labels,
  type Layout,
  labelOf,
  middleOf,
  ticks,
  tokenStep,
} from "./layout";
import type { Grid } from "./tiles";
import { type Axis, cellOf, tokensOf } from "./viewport";

/** Row, column or cell of the grid. null in a field means that only the other field is set. */
export interface CellAt {
  row: number | null;
  column: number | null;
}

/** Token indices of a query, a key or both. */
export interface TokensAt {
  query: number | null;
  key: number | null;
}

/** Weights of a pinned query on a window of keys, or of a window of queries on a pinned key. */
export interface Line {
  token: number;
  window: Range;
  values: Float32Array;
  error: number;
}

/** Everything that determines the marks of a heat map. */
export interface HeatMap {
  layout: Layout;
  palette: Palette;
  theme: ThemeName;
  grid: Grid;
  scale: ColorScale;
  /** End of the colour scale, and whether some visible weights exceed it. */
  end: number;
  beyond: boolean;
  queries: TokenList;
  keys: TokenList;
  /** Images of the record. Their patches may be tokens. */
  images: Images;
  token: number | null;
  key: number | null;
  row: Line | null;
  column: Line | null;
  hovered: CellAt | null;
  cursor: TokensAt | null;
  /** Effects of the keys, which are drawn as bars above the cells. */
  effects?: TokenEffects | null;
  /** Function that returns whether a token matches the search, or null without a search. */
  isFound: ((token: string) => boolean) | null;
}

/** Smallest width of a cell in which a number fits, in pixels. */
const NUMBER_CELL = 30;
const NUMBER_SIZE = 10;
/** Smallest width and height of a cell in which a minus sign fits, in pixels. */
const MIN_SIGN_CELL = 9;
/** Smallest weight whose number is written into its cell. */
const MIN_NUMBER = 0.005;
const TICK_SIZE = 10.5;
const TICKS_APART_ACROSS = 44;
const TICKS_APART_DOWN = 26;

/** Return the marks that do not depend on the pointer: the cells, their numbers and borders. */
export function backMarks(heatMap: HeatMap): Mark[] {
  const { layout, palette, grid, theme, end, scale } = heatMap;
  const { left, top, cellsWidth, cellsHeight } = layout;
  const box = { x: left, y: top, width: cellsWidth, height: cellsHeight };
  const pixels = pixelsOf(grid.values, theme, end, scale, palette.rule, signsOf(heatMap));
  return [
    { kind: "image", ...box, pixels, columns: grid.columns, rows: grid.rows, averaged: true },
    ...numberMarks(heatMap),
    ...borderMarks(heatMap),
    {
      kind: "rect",
      x: left - 0.5,
      y: top - 0.5,
      width: cellsWidth + 1,
      height: cellsHeight + 1,
      stroke: palette.rule,
    },
  ];
}

/** Return the colours of signed numbers, or undefined if the heat map shows weights. */
export function signsOf({ layout, palette }: HeatMap): SignColors | undefined {
  return layout.viewport.stack.signed ? palette : undefined;
}

/**
 * Return the colour of the names of pinned tokens. With signed numbers, this is the text colour,
 * because the pin colour would look like the colour of negative numbers.
 */
function pinTextOf(heatMap: HeatMap): string {
  return signsOf(heatMap) ? heatMap.palette.ink : headTextColor(heatMap.palette, 0, 1);
}

/** Return the opaque colour that results from a transparent colour on a background. */
function over(
  [red, green, blue, opacity]: readonly [number, number, number, number],
  ground: string,
): [number, number, number] {
  const below = rgbOf(ground);
  return [red, green, blue].map(
    (value, i) => (value * opacity + (below[i] as number) * (255 - opacity)) / 255,
  ) as [number, number, number];
}

/** Smallest share of the scale at which a negative cell gets a minus sign. */
const MIN_SIGNED_SHARE = 0.2;

/**
 * Return the marks of the numbers in the cells. If numbers do not fit, clearly negative cells have
 * a minus sign.
 */
function numberMarks(heatMap: HeatMap): Mark[] {
  const { layout, grid, theme, end, scale, palette } = heatMap;
  const { rows, columns, stack } = layout.viewport;
  const quantity = quantityOf(stack);
  const signs = signsOf(heatMap);
  const level = Math.max(rows.level, columns.level);
  const numbers = level === 0 && rows.cell >= 20 && columns.cell >= NUMBER_CELL;
  const room = Math.min(rows.cell, columns.cell);
  const minNumber = leastNumber(heatMap, end);
  if (!numbers && (!signs || room < MIN_SIGN_CELL)) return [];
  const marks: Mark[] = [];
  for (let row = 0; row < grid.rows; row++) {
    for (let column = 0; column < grid.columns; column++) {
      const weight = grid.values[row * grid.columns + column] as number;
      const share = (signs ? signedShareOf : shareOf)(weight, end, scale);
      if (share === null || (numbers && Math.abs(weight) < minNumber)) continue;
      const text = numbers ? written(quantity, weight) : "−";
      if (numbers && isTiny(quantity, weight)) continue;
      if (!numbers && share > -MIN_SIGNED_SHARE) continue;
      const [red, green, blue] = signs
        ? over(signColorAt(share, signs), palette.background)
        : colorAt(theme, share);
      const light = luminance([red, green, blue]) > 0.238;
      marks.push({
        kind: "text",
        text: text.replace(/^([+−]?)0(?=\.)/, "$1"),
        x: layout.left + (column + 0.5) * columns.cell,
        y: layout.top + (row + 0.5) * rows.cell,
        fill: light ? "#16181d" : "#ffffff",
        size: NUMBER_SIZE,
        font: "text",
        align: "middle",
      });
    }
  }
  return marks;
}

/** Return the token indices inside the window at which another text starts. */
export function borders(tokens: TokenList, window: Range): number[] {
  const out: number[] = [];
  let before: number | null = null;
  for (let i = 0; i < tokens.sequence.length; i++) {
    const now = tokens.sequence[i] ?? null;
    if (now === null) continue;
    if (before !== null && now !== before && i > window[0] && i < window[1]) out.push(i);
    before = now;
  }
  return out;
}

function borderMarks(heatMap: HeatMap): Mark[] {
  const { layout, palette, queries, keys } = heatMap;
  const { left, top, cellsWidth, cellsHeight, viewport } = layout;
  const stroke = palette.muted;
  const across = borders(queries, viewport.rows.window).map((at) => {
    const y = top + (at - viewport.rows.window[0]) * tokenStep(viewport, "rows");
    return { kind: "line", x0: left - 4, y0: y, x1: left + cellsWidth, y1: y, stroke } as const;
  });
  const down = borders(keys, viewport.columns.window).map((at) => {
    const x = left + (at - viewport.columns.window[0]) * tokenStep(viewport, "columns");
    return { kind: "line", x0: x, y0: top - 4, x1: x, y1: top + cellsHeight, stroke } as const;
  });
  return [...across, ...down, ...answerNames(heatMap)];
}

const NAME_SIZE = 11;

/**
 * Return the word "answer" at the borders of a generated answer. The word is in blank cells above
 * the diagonal.
 */
function answerNames({ layout, palette, queries, keys }: HeatMap): Mark[] {
  const { left, top, cellsWidth, viewport } = layout;
  const { rows, columns } = viewport;
  const name = { kind: "text", text: "answer", fill: palette.muted, font: "text" } as const;
  const [query, key] = [answerStart(queries), answerStart(keys)];
  const marks: Mark[] = [];
  if (!viewport.stack.causal || query === null || key === null) return marks;
  const across = middleOf(layout, "rows", query) - tokenStep(viewport, "rows") / 2;
  const down = middleOf(layout, "columns", key) - tokenStep(viewport, "columns") / 2;
  const inside = (at: number, window: Range): boolean => at > window[0] && at < window[1];
  // Omit the word if the blank cells are too narrow.
  if (left + cellsWidth - down < 64) return marks;
  if (inside(key, columns.window) && inside(key, rows.window)) {
    marks.push({ ...name, size: NAME_SIZE, x: down + 6, y: top + NAME_SIZE });
  }
  // If a row is thinner than the word, the outline of a pinned row would cross the word.
  const room = tokenStep(viewport, "rows") >= NAME_SIZE + 4;
  if (room && inside(query, rows.window) && inside(query, columns.window)) {
    const x = left + cellsWidth - 6;
    marks.push({ ...name, size: NAME_SIZE, x, y: across + NAME_SIZE, align: "end" });
  }
  return marks;
}

/**
 * Return the row and column that are highlighted: under the pointer or, without a pointer, at the
 * keyboard cursor.
 */
export function focusOf(heatMap: HeatMap): CellAt | null {
  const { hovered, cursor, layout } = heatMap;
  const { rows, columns } = layout.viewport;
  const gone = (hovered?.row ?? 0) >= rows.cells || (hovered?.column ?? 0) >= columns.cells;
  if (hovered && !gone) return hovered;
  if (!cursor) return null;
  return { row: cellOf(rows, cursor.query), column: cellOf(columns, cursor.key) };
}

/** Return the marks that may change with the pointer: labels, outlines and all bars. */
export function frontMarks(heatMap: HeatMap): Mark[] {
  const { layout, palette, token, key } = heatMap;
  const { rows, columns } = layout.viewport;
  const focus = focusOf(heatMap);
  const pinned = { row: cellOf(rows, token), column: cellOf(columns, key) };
  const marks: Mark[] = axisNames(heatMap);
  const outline = (at: CellAt, stroke: string, strokeWidth: number): void => {
    const grow = strokeWidth / 2;
    const box = (x: number, y: number, width: number, height: number): Mark => ({
      kind: "rect",
      x: x - grow,
      y: y - grow,
      width: width + 2 * grow,
      height: height + 2 * grow,
      stroke,
      strokeWidth,
    });
    const { left, top, cellsWidth, cellsHeight } = layout;
    if (at.row !== null) marks.push(box(left, top + at.row * rows.cell, cellsWidth, rows.cell));
    if (at.column !== null) {
      marks.push(box(left + at.column * columns.cell, top, columns.cell, cellsHeight));
    }
  };
  outline(pinned, signsOf(heatMap) ? palette.ink : pinColor(palette), 2);
  if (focus) outline(focus, palette.ink, 1);
  marks.push(...queryLabels(heatMap, focus?.row ?? null, pinned.row));
  marks.push(...keyLabels(heatMap, focus?.column ?? null, pinned.column));
  marks.push(...effectBars(heatMap));
  if (heatMap.row) marks.push(...pinnedBars(heatMap, heatMap.row, "query"));
  if (heatMap.column) marks.push(...pinnedBars(heatMap, heatMap.column, "key"));
  return marks;
}

function axisNames({ layout, palette }: HeatMap): Mark[] {
  const name = (text: string, x: number, y: number, align: "end" | "start"): TextMark => ({
    kind: "text",
    text,
    x,
    y,
    fill: palette.muted,
    size: 12,
    font: "text",
    align,
  });
  return [
    name("query ↓", layout.left - GAP, layout.top - 13, "end"),
    name("key →", layout.left, layout.top - layout.above - AXIS_NAME / 2 - 2, "start"),
  ];
}

interface Look {
  fill: string;
  bold: boolean;
}

function lookOf(heatMap: HeatMap, special: Set<number>, index: number): Look {
  return { fill: special.has(index) ? heatMap.palette.muted : heatMap.palette.ink, bold: false };
}

/** Return the label of a highlighted row or column: its token or range of token indices. */
function nameOf(axis: Axis, cell: number, tokens: TokenList, labels: Labels): string {
  const [start, stop] = tokensOf(axis, cell);
  if (stop - start > 1) return `${start}–${stop - 1}`;
  return labelOf(tokens.text[start] ?? "", labels, measureText, true).text;
}

function queryLabels(heatMap: HeatMap, focus: number | null, pinned: number | null): Mark[] {
  const { layout, palette, queries } = heatMap;
  const { rows } = layout.viewport;
  const labels = layout.queryLabels;
  const special = new Set(queries.special);
  const x = layout.left - GAP;
  const marks: Mark[] = [];
  const write = (y: number, text: string, look: Look, size: number, font: "text" | "token") =>
    marks.push({ kind: "text", text, x, y, size, font, align: "end", ...look });
  const strong = (cell: number): Look => ({
    fill: cell === pinned ? pinTextOf(heatMap) : palette.ink,
    bold: true,
  });
  if (labels.tokens) {
    for (let index = rows.window[0]; index < rows.window[1]; index++) {
      const cell = index - rows.window[0];
      const look =
        cell === focus || cell === pinned ? strong(cell) : lookOf(heatMap, special, index);
      const { text } = labelOf(queries.text[index] ?? "", labels, measureText, look.bold);
      const patchMarks = patchLabel(heatMap, "query", index, look.bold ? look.fill : null);
      if (patchMarks) {
        marks.push(...patchMarks);
        continue;
      }
      const y = middleOf(layout, "rows", index);
      if (matchesSearch(heatMap, queries.text[index]))
        marks.push(searchMark(heatMap, text, x, y, labels));
      write(y, text, look, labels.size, "token");
    }
    return marks;
  }
  marks.push(...stripMarks(heatMap, "query"));
  const lifted = [pinned, focus].filter((cell): cell is number => cell !== null);
  const yOf = (cell: number): number => layout.top + (cell + 0.5) * rows.cell;
  for (const at of ticks(rows.window, tokenStep(layout.viewport, "rows"), TICKS_APART_DOWN)) {
    const y = middleOf(layout, "rows", at);
    marks.push({
      kind: "line",
      x0: layout.left - 5,
      y0: y,
      x1: layout.left - 1,
      y1: y,
      stroke: palette.muted,
    });
    if (lifted.some((cell) => Math.abs(yOf(cell) - y) < 13)) continue;
    write(y, String(at), { fill: palette.muted, bold: false }, TICK_SIZE, "text");
  }
  for (const cell of new Set(lifted)) {
    const near =
      cell === pinned &&
      focus !== null &&
      focus !== pinned &&
      Math.abs(yOf(focus) - yOf(cell)) < 12;
    if (near) continue;
    const lifted = liftedPatch(heatMap, "query", tokensOf(rows, cell)[0], strong(cell).fill);
    if (lifted && rows.level === 0) {
      marks.push(...lifted);
      continue;
    }
    const narrow = { ...labels, size: 12, limit: 52 };
    write(yOf(cell), nameOf(rows, cell, queries, narrow), strong(cell), 12, "token");
  }
  return marks;
}

function matchesSearch(heatMap: HeatMap, text: string | undefined): boolean {
  return heatMap.isFound?.(text ?? "") ?? false;
}

function searchMark(heatMap: HeatMap, text: string, x: number, y: number, labels: Labels): Mark {
  const width = measureText(text, fontOf({ size: labels.size, font: "token" }));
  const fill = heatMap.palette.searchMatch;
  const height = labels.size + 3;
  return {
    kind: "rect",
    x: x - width - 2,
    y: y - height / 2,
    width: width + 4,
    height,
    fill,
    radius: 3,
  };
}

function keyLabels(heatMap: HeatMap, focus: number | null, pinned: number | null): Mark[] {
  const { layout, palette, keys } = heatMap;
  const { columns } = layout.viewport;
  const labels = layout.keyLabels;
  const special = new Set(keys.special);
  // Bars of effects are between the labels and the cells.
  const top = labelsEnd(layout);
  const y = top - GAP + 2;
  const marks: Mark[] = [];
  const strong = (cell: number): Look => ({
    fill: cell === pinned ? pinTextOf(heatMap) : palette.ink,
    bold: true,
  });
  if (labels.tokens) {
    for (let index = columns.window[0]; index < columns.window[1]; index++) {
      const cell = index - columns.window[0];
      const look =
        cell === focus || cell === pinned ? strong(cell) : lookOf(heatMap, special, index);
      if (look.bold === false && matchesSearch(heatMap, keys.text[index])) look.bold = true;
      const { text } = labelOf(keys.text[index] ?? "", labels, measureText, look.bold);
      const patchMarks = patchLabel(heatMap, "key", index, look.bold ? look.fill : null);
      if (patchMarks) {
        marks.push(...patchMarks);
        continue;
      }
      const x = middleOf(layout, "columns", index);
      const { size } = labels;
      const placed: Pick<TextMark, "align" | "rotate" | "x" | "y"> =
        labels.slope === "level"
          ? { x, y: y - 3, align: "middle" }
          : { x, y, align: "start", rotate: labels.slope === "slanted" ? -45 : -90 };
      marks.push({ kind: "text", text, size, font: "token", ...look, ...placed });
    }
    return marks;
  }
  marks.push(...stripMarks(heatMap, "key"));
  const lifted = [pinned, focus].filter((cell): cell is number => cell !== null);
  const xOf = (cell: number): number => layout.left + (cell + 0.5) * columns.cell;
  const named = [...new Set(lifted)].map((cell) => {
    const text = nameOf(columns, cell, keys, { ...labels, size: 12, limit: 110 });
    const width = measureText(text, fontOf({ size: 12, font: "token", bold: true }));
    const half = width / 2;
    // Keep the label away from the name of the query axis.
    const x = Math.max(layout.left + half - 3, Math.min(layout.width - half - 2, xOf(cell)));
    return { cell, text, x, half };
  });
  const last = named.at(-1);
  for (const at of ticks(
    columns.window,
    tokenStep(layout.viewport, "columns"),
    TICKS_APART_ACROSS,
  )) {
    const x = middleOf(layout, "columns", at);
    marks.push({
      kind: "line",
      x0: x,
      y0: top - 5,
      x1: x,
      y1: top - 1,
      stroke: palette.muted,
    });
    if (named.some((label) => Math.abs(label.x - x) < label.half + 18)) continue;
    const look = { fill: palette.muted, bold: false };
    marks.push({
      kind: "text",
      text: String(at),
      x,
      y: top - 13,
      size: TICK_SIZE,
      font: "text",
      align: "middle",
      ...look,
    });
  }
  for (const label of named) {
    const hidden =
      last && label !== last && Math.abs(last.x - label.x) < last.half + label.half + 6;
    if (hidden) continue;
    const lifted = liftedPatch(heatMap, "key", tokensOf(columns, label.cell)[0], palette.ink);
    if (lifted && columns.level === 0) {
      marks.push(...lifted);
      continue;
    }
    marks.push({
      kind: "text",
      text: label.text,
      x: label.x,
      y: top - 13,
      size: 12,
      font: "token",
      align: "middle",
      ...strong(label.cell),
    });
  }
  return marks;
}

/**
 * Return the position of the lower end of the key labels, which are above the cells or above the
 * bars of effects.
 */
function labelsEnd({ top, effects = 0 }: Layout): number {
  return top - effects;
}

const EFFECT_SIZE = 11;

/**
 * Return the bars of effects above the columns. A column with several keys shows their largest
 * absolute effect.
 */
function effectBars({ layout, palette, effects }: HeatMap): Mark[] {
  const room = layout.effects ?? 0;
  if (!effects || room === 0) return [];
  const { columns } = layout.viewport;
  const width = Math.max(0.5, Math.min(11, columns.cell - (columns.cell > 3 ? 2 : 0)));
  const font = fontOf({ size: EFFECT_SIZE, font: "text" });
  const title = (text: string, y: number): Mark => ({
    kind: "text",
    text,
    x: layout.left - GAP,
    y: layout.top - room + y,
    size: EFFECT_SIZE,
    font: "text",
    align: "end",
    fill: palette.muted,
  });
  const marks: Mark[] = [
    title(fitLabel(effects.name, layout.left - GAP, font, measureText).text, 5),
    title(`±${endText(effects)}`, 18),
  ];
  for (let cell = 0; cell < columns.cells; cell++) {
    const x = layout.left + (cell + 0.5) * columns.cell - width / 2;
    const box = { x, y: layout.top - room, width, height: room - 6, standing: true };
    const value = tokenEffect(effects, tokensOf(columns, cell));
    marks.push(...effectMarks(box, value, effects.end, palette));
  }
  return marks;
}

const MAX_BAR_BELOW = 30;
const MAX_BAR_BESIDE = 62;
/** Smallest distance between the centres of two numbers, in pixels. */
const MIN_NUMBER_DISTANCE = 34;

/** Pool the weights of a line in the same way as the cells, one value per cell. */
function pooledLine(line: Line, axis: Axis, pooled: "mean" | "max"): number[] {
  const tokensPerCell = 2 ** axis.level;
  return Array.from({ length: axis.cells }, (_, cell) => {
    const start = axis.window[0] + cell * tokensPerCell - line.window[0];
    const part = line.values.subarray(Math.max(0, start), Math.max(0, start + tokensPerCell));
    return pooledOf(part, pooled);
  });
}

/**
 * Return the absolute value below which numbers are omitted in cells and less prominent at bars.
 * Signed numbers have no fixed range, so their limit is relative to the end of the scale.
 */
function leastNumber(heatMap: HeatMap, end: number): number {
  return signsOf(heatMap) ? end / 100 : MIN_NUMBER;
}

/** Pixels by which the number below a thin first column extends to the left of the cells. */
const BEFORE_FIRST_NUMBER = 16;
/**
 * Space for the number at the end of a signed bar, in pixels: height at a vertical bar, and width
 * at a horizontal bar.
 */
const NUMBER_HIGH = 13;
const NUMBER_WIDE = 34;

/**
 * Draw the bars of a pinned token. The weights of a query are standing bars below the cells, and
 * the weights on a key are lying bars beside the cells.
 */
function pinnedBars(heatMap: HeatMap, line: Line, side: Side): Mark[] {
  const { layout, palette } = heatMap;
  const { viewport } = layout;
  const standing = side === "query";
  const axis = standing ? viewport.columns : viewport.rows;
  const quantity = quantityOf(viewport.stack);
  const signs = signsOf(heatMap);
  const end = barEnd(viewport.stack.maximum, viewport.keys.text.length);
  // Along the cells, and away from them in the direction of the bars.
  const [first, last, away] = standing
    ? [layout.left, layout.left + layout.cellsWidth, layout.top + layout.cellsHeight + GAP]
    : [layout.top, layout.top + layout.cellsHeight, layout.left + layout.cellsWidth + GAP];
  const longest = standing ? MAX_BAR_BELOW : MAX_BAR_BESIDE;
  const size = standing ? NUMBER_HIGH : NUMBER_WIDE;
  const scale: BarScale = {
    // Bars of signed numbers extend to both sides of 0. Positive ones extend up or to the right.
    ...(signs
      ? { zero: away + size + longest / 3, reach: ((standing ? -1 : 1) * longest) / 3 }
      : { zero: away, reach: longest }),
    ...{ end, standing, signs: signs && "both" },
  };
  const thick = Math.max(0.75, Math.min(standing ? 16 : 12, axis.cell - (axis.cell > 3 ? 1 : 0)));
  const bars = pooledLine(line, axis, viewport.pooled).map((value, token) => {
    const middle = first + (token + 0.5) * axis.cell;
    const color = signs ? signColor(value, signs) : palette.neutral;
    return { token, value, middle, from: middle - thick / 2, thick, color };
  });
  const text = (standing ? heatMap.queries : heatMap.keys).text[line.token] ?? "";
  return [
    ...barGroupMarks({
      ...{ scale, bars, quantity, palette, step: axis.cell },
      line: [first, last],
      axisAt: standing ? first - BEFORE_FIRST_NUMBER : last + 4,
      apart: standing ? MIN_NUMBER_DISTANCE : 12,
      minProminent: leastNumber(heatMap, end),
    }),
    {
      kind: "text",
      text: standing ? `${quantity.name} from ${quoted(text)}` : `to ${quoted(text)}`,
      ...(standing
        ? { x: first, y: away + MAX_BAR_BELOW + 22 }
        : { x: away, y: last + AXIS_HEIGHT + GAP + 5 }),
      fill: palette.muted,
      size: 11.5,
      font: "text",
    },
  ];
}

type Side = "query" | "key";

/** Size in pixels of the picture of a highlighted patch, if cells are too small for labels. */
const HIGHLIGHTED_PATCH_SIZE = 24;
/** Thickness of the strip of patches along cells that are too small for labels, in pixels. */
const STRIP_THICKNESS = 5;

function labelsOf(layout: Layout, side: Side) {
  return side === "query" ? layout.queryLabels : layout.keyLabels;
}

/**
 * Return the picture of a patch as a label whose longer side has `size` pixels. Return null for a
 * token that is not a patch.
 *
 * @param frame colour of the frame of a highlighted patch, or null without a frame.
 */
function patchLabel(
  heatMap: HeatMap,
  side: Side,
  token: number,
  frame: string | null,
  size = labelsOf(heatMap.layout, side).patchSize,
): Mark[] | null {
  const { layout, images, palette } = heatMap;
  const patch = patchOf(side === "query" ? heatMap.queries : heatMap.keys, token);
  const image = patch && images[patch.grid.image];
  if (!patch || size === 0) return null;
  const middle = middleOf(layout, side === "query" ? "rows" : "columns", token);
  const shape = image ? aspectRatio(image, patch.grid) : 1;
  const [width, height] = [size * Math.min(1, shape), size / Math.max(1, shape)];
  const box =
    side === "query"
      ? { x: layout.left - GAP - width, y: middle - height / 2, width, height }
      : { x: middle - width / 2, y: labelsEnd(layout) - GAP - height, width, height };
  const marks: Mark[] = [
    image ? pictureMark(cropOf(image, patch), box) : { kind: "rect", ...box, fill: palette.raised },
  ];
  if (frame) marks.push({ kind: "rect", ...box, stroke: frame, strokeWidth: 1.6 });
  return marks;
}

/** Return a larger picture of a highlighted patch, for cells that are too small for labels. */
function liftedPatch(heatMap: HeatMap, side: Side, token: number, frame: string) {
  return patchLabel(heatMap, side, token, frame, HIGHLIGHTED_PATCH_SIZE);
}

/**
 * Return a strip with the pictures of all visible patches along the cells, for cells that are too
 * small for labels.
 */
function stripMarks(heatMap: HeatMap, side: Side): Mark[] {
  const { layout, images } = heatMap;
  const across = side === "key";
  const axis = across ? layout.viewport.columns : layout.viewport.rows;
  const tokens = across ? heatMap.keys : heatMap.queries;
  const step = tokenStep(layout.viewport, across ? "columns" : "rows");
  if (labelsOf(layout, side).patchSize === 0 || step < 2) return [];
  const marks: Mark[] = [];
  for (let token = axis.window[0]; token < axis.window[1]; token++) {
    const patch = patchOf(tokens, token);
    const image = patch && images[patch.grid.image];
    if (!image) continue;
    const along = (token - axis.window[0]) * step;
    const box = across
      ? {
          x: layout.left + along,
          y: labelsEnd(layout) - STRIP_THICKNESS - 1,
          width: step,
          height: STRIP_THICKNESS,
        }
      : {
          x: layout.left - STRIP_THICKNESS - 1,
          y: layout.top + along,
          width: STRIP_THICKNESS,
          height: step,
        };
    marks.push(pictureMark(cropOf(image, patch), box));
  }
  return marks;
}
