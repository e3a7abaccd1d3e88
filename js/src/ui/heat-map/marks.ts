/**
 * Marks of a heat map: cells, labels, bars and highlights. A pinned query or key has bars for its
 * weights. The effect of a key is a signed number that is drawn as a bar above its column. A row or
 * column is highlighted if it is pinned, or at the pointer or the keyboard cursor.
 */

import type { Range } from "../../client/protocol";
import { pool } from "../../client/signs";
import { zeroInWords } from "../../client/zeros";
import { measureText } from "../../draw/canvas";
import { textMark } from "../../draw/figure";
import { hatchMark, TINT_OPACITY } from "../../draw/hatch";
import { fontOf, type Mark, type TextMark, transposed } from "../../draw/marks";
import { aspectRatio, cropOf, patchOf, pictureMark } from "../../draw/patches";
import {
  type Axis,
  type BySide,
  bySide,
  type Focus,
  indexIn,
  isInside,
  isVisible,
  otherSide,
  positionOf,
  SIDES,
  type Side,
  sectionsOf,
  shownTokens,
  type Tick,
  ticksOf,
  tokensAt,
} from "../axis";
import {
  type ColorScale,
  inkColor,
  pixelsOf,
  type SignColors,
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
import {
  effectMarks,
  effectNumbers,
  endText,
  type TokenEffects,
  tokenEffect,
} from "../effects/effects";
import { answerStart } from "../generated-token/state";
import type { Images } from "../image/state";
import { AXIS_HEIGHT, type BarScale, barEnd, barGroupMarks } from "../plot/bars";
import { isTiny, quantityOf, quoted, written } from "../text/captions";
import { fitLabel } from "../text/labels";
import { axisLabel } from "../text/places";
import {
  AXIS_NAME,
  borderOf,
  cellMiddle,
  GAP,
  type Layout,
  labelOf,
  middleOf,
  SECTIONS,
  spanLabel,
  spanOf,
  TICK_SIZE,
} from "./layout";
import type { Grid } from "./tiles";
import { isPooled, tokenStep, type Viewport } from "./viewport";

/**
 * Weights of a pinned query on the keys of `window`, or weights of the queries of `window` on a
 * pinned key. `token` is the pinned token.
 */
export interface Line {
  token: number;
  window: Range;
  values: Float32Array;
  error: number;
}

/** Everything that determines the marks and the captions of a heat map. */
export interface HeatMap {
  layout: Layout;
  palette: Palette;
  theme: ThemeName;
  grid: Grid;
  scale: ColorScale;
  /**
   * `end` is the upper end of the colour scale. `beyond` is true if some visible weights exceed it
   * in absolute value.
   */
  end: number;
  beyond: boolean;
  /** Images of the record. Their patches may be tokens. */
  images: Images;
  /** Effects of the keys, which are drawn as bars above the cells. */
  effects: TokenEffects | null;
  /**
   * `pins` are the pinned tokens. `lines` are their weights, which are null until they are loaded.
   */
  pins: Focus;
  lines: BySide<Line | null>;
  /**
   * Function that returns whether the text of a token matches the search, or null without a search.
   */
  isFound: ((token: string) => boolean) | null;
  /** Sentences about numbers of the pinned query, or "" (see `query-numbers.ts`). */
  queryNumbers: string;
}

/** Smallest width and height of a cell in which a number fits, in pixels. */
const MIN_NUMBER_COLUMN = 30;
const MIN_NUMBER_ROW = 20;
const NUMBER_SIZE = 10;
/** Smallest width and height of a cell in which a minus sign fits, in pixels. */
const MIN_SIGN_CELL = 9;
/**
 * Smallest weight whose number is written into its cell. Numbers at bars are muted below it. Signed
 * numbers have another limit (see `leastNumber`).
 */
const MIN_NUMBER = 0.005;
/** Smallest width and height of a cell with hatching, in pixels. Smaller cells have a tint. */
const MIN_HATCHED_CELL = 8;
/** Smallest distance between ticks, in pixels. Names of keys need more if they are long. */
const TICKS_APART: BySide<number> = { query: 26, key: 44 };

/**
 * Return the marks that do not depend on the pointer: the cells with their numbers and their frame,
 * and the borders between texts.
 */
export function backMarks(heatMap: HeatMap): Mark[] {
  const { layout, palette, grid, theme, end, scale } = heatMap;
  const { left, top, cellsWidth, cellsHeight } = layout;
  const box = { x: left, y: top, width: cellsWidth, height: cellsHeight };
  const pixels = pixelsOf(grid.values, theme, end, scale, palette.rule, signsOf(heatMap));
  const notChosen = notChosenCells(heatMap);
  const hatched = notChosen && hatchesCells(layout);
  const tint = [...rgbOf(palette.notChosen), Math.round(255 * TINT_OPACITY)];
  notChosen?.forEach((flag, i) => {
    if (flag && !hatched) pixels.set(tint, 4 * i);
  });
  const { columns, rows } = grid;
  return [
    { kind: "image", ...box, pixels, columns, rows, averaged: true },
    ...(hatched ? [hatchMark({ ...box, columns, rows }, notChosen, palette.notChosen)] : []),
    ...numberMarks(heatMap, pixels),
    ...borderMarks(heatMap),
    {
      ...{ kind: "rect", x: left - 0.5, y: top - 0.5, stroke: palette.rule },
      ...{ width: cellsWidth + 1, height: cellsHeight + 1 },
    },
  ];
}

/**
 * Return 1 for each cell in which no key was scored by the softmax and some were not chosen, and 0
 * for the other cells. Return null if no cell is of this kind.
 */
export function notChosenCells({
  layout,
  grid,
}: Pick<HeatMap, "grid"> & { layout: { viewport: Viewport } }): Uint8Array | null {
  const { stack } = layout.viewport;
  if (!stack.chooses_keys) return null;
  const flags = Uint8Array.from(grid.values, (weight) =>
    zeroInWords(stack, weight) === "not chosen" ? 1 : 0,
  );
  return flags.includes(1) ? flags : null;
}

/** Return whether cells are large enough for hatching. */
export function hatchesCells({ viewport }: { viewport: Viewport }): boolean {
  return SIDES.every((side) => viewport.axes[side].cell >= MIN_HATCHED_CELL);
}

/** Return the colours of signed numbers, or undefined if the heat map shows weights. */
export function signsOf({ layout, palette }: HeatMap): SignColors | undefined {
  return layout.viewport.stack.signed ? palette : undefined;
}

/**
 * A negative cell without a number has a minus sign if its distance from 0 on the colour scale is
 * at least this share of the distance from 0 to the lower end.
 */
const MIN_SIGNED_SHARE = 0.2;

/**
 * Return the marks of the numbers in the cells. If cells cover several weights or are too small for
 * numbers, negative cells have a minus sign (see `MIN_SIGNED_SHARE`).
 *
 * @param pixels colours of the cells, which decide between dark and light numbers.
 */
function numberMarks(heatMap: HeatMap, pixels: Uint8ClampedArray): Mark[] {
  const { layout, grid, end, scale, palette } = heatMap;
  const { query: rows, key: columns } = layout.viewport.axes;
  const quantity = quantityOf(layout.viewport.stack);
  const hasNumbers =
    !isPooled(layout.viewport) && rows.cell >= MIN_NUMBER_ROW && columns.cell >= MIN_NUMBER_COLUMN;
  const hasSigns = quantity.signed && Math.min(rows.cell, columns.cell) >= MIN_SIGN_CELL;
  if (!hasNumbers && !hasSigns) return [];
  const minNumber = leastNumber(heatMap, end);
  const ground = rgbOf(palette.background);
  const textOf = (weight: number): string => {
    if (hasNumbers)
      return Math.abs(weight) < minNumber || isTiny(quantity, weight)
        ? ""
        : written(quantity, weight).replace(/^([+−]?)0(?=\.)/, "$1");
    return (signedShareOf(weight, end, scale) ?? 0) <= -MIN_SIGNED_SHARE ? "−" : "";
  };
  const marks: Mark[] = [];
  grid.values.forEach((weight, i) => {
    const text = weight === 0 || Number.isNaN(weight) ? "" : textOf(weight);
    if (text === "") return;
    const opacity = (pixels[4 * i + 3] as number) / 255;
    const color = ground.map(
      (below, part) => (pixels[4 * i + part] as number) * opacity + below * (1 - opacity),
    ) as [number, number, number];
    const x = cellMiddle(layout, "key", i % grid.columns);
    const y = cellMiddle(layout, "query", Math.floor(i / grid.columns));
    const fill = luminance(color) > 0.238 ? "#16181d" : "#ffffff";
    marks.push(textMark(text, x, y, fill, NUMBER_SIZE, { align: "middle" }));
  });
  return marks;
}

/**
 * Return the visible tokens with which another text begins. The first visible token is omitted,
 * because no border is drawn there.
 */
export function borders(axis: Pick<Axis, "tokens" | "groups">): number[] {
  const out: number[] = [];
  let before: number | null = null;
  axis.tokens.sequence.forEach((now, token) => {
    if (now === null) return;
    if (before !== null && now !== before && isInside(axis, token)) out.push(token);
    before = now;
  });
  return out;
}

function borderMarks(heatMap: HeatMap): Mark[] {
  const { layout, palette } = heatMap;
  const lines = SIDES.flatMap((side) => {
    const [start, size] = spanOf(layout, otherSide(side));
    const sections = visibleSections(layout, side).map(({ tokens: [first] }) => first);
    const axis = layout.viewport.axes[side];
    const tokens = [...borders(axis), ...sections.filter((token) => isInside(axis, token))];
    return [...new Set(tokens)].map((token): Mark => {
      const y = borderOf(layout, side, token);
      const ends = { x0: start - 4, y0: y, x1: start + size, y1: y };
      return { kind: "line", ...transposed(ends, side === "key"), stroke: palette.muted };
    });
  });
  return [
    ...lines,
    ...SIDES.flatMap((side) => sectionNames(heatMap, side)),
    ...answerNames(heatMap),
  ];
}

/** Width in pixels to which a token in a title is shortened at most. */
const SHORT_TOKEN = 48;

/** Smallest size of a section that has a border, in pixels. */
const MIN_SECTION = 6;

/** Return the sections of an axis that are large enough for borders, with their edges in pixels. */
function visibleSections(layout: Layout, side: Side) {
  const axis = layout.viewport.axes[side];
  const [first, size] = spanOf(layout, side);
  const sections = sectionsOf(axis).map(({ name, tokens }) => {
    const stop = tokens[1] < axis.window[1] ? borderOf(layout, side, tokens[1]) : first + size;
    return { name, tokens, start: borderOf(layout, side, tokens[0]), stop };
  });
  return sections.filter(({ start, stop }) => stop - start >= MIN_SECTION);
}

/** Return the names of groups of tokens beyond the labels, each with a line along its tokens. */
function sectionNames({ layout, palette }: HeatMap, side: Side): Mark[] {
  const distance = layout.sections[side];
  const font = fontOf({ size: NAME_SIZE, font: "text" });
  const across = spanOf(layout, otherSide(side))[0] - distance;
  return visibleSections(layout, side).flatMap(({ name, start, stop }): Mark[] => {
    const { text, width } = fitLabel(name, stop - start - 4, font, measureText);
    if (name === "" || width > stop - start) return [];
    const y = across + SECTIONS / 2 - 1;
    const line = transposed({ x0: y, y0: start + 2, x1: y, y1: stop - 2 }, side === "key");
    const middle = (start + stop) / 2;
    const [x, down] = side === "key" ? [middle, across] : [across, middle];
    const more = { align: "middle", rotate: side === "key" ? 0 : -90 } as const;
    return [
      { kind: "line", ...line, stroke: palette.muted },
      textMark(text, x, down, palette.ink, NAME_SIZE, more),
    ];
  });
}

const NAME_SIZE = 11;

/**
 * Return the labels "answer" of an answer to a prompt: one at the top left of its columns, and
 * one at the right end of its first row. Both are in the blank cells above the diagonal. Without a
 * causal mask, these cells are not blank, so return no labels.
 */
function answerNames({ layout, palette }: HeatMap): Mark[] {
  const { left, top, cellsWidth, viewport } = layout;
  const { query: rows, key: columns } = viewport.axes;
  const [query, key] = [answerStart(rows.tokens), answerStart(columns.tokens)];
  if (!viewport.stack.causal || query === null || key === null) return [];
  const name = (x: number, y: number, more: Partial<TextMark>): Mark =>
    textMark("answer", x, y + NAME_SIZE, palette.muted, NAME_SIZE, more);
  const down = borderOf(layout, "key", key);
  const marks: Mark[] = [];
  // In fewer pixels, the labels would extend beyond the columns of the answer.
  if (isVisible(columns, key) && left + cellsWidth - down < 64) return marks;
  if (isInside(columns, key) && isInside(rows, key)) marks.push(name(down + 6, top, {}));
  // In a row that is thinner than the label, the outline of a pinned row would cross the label.
  const room = tokenStep(rows) >= NAME_SIZE + 4;
  if (room && isInside(rows, query) && isInside(columns, query))
    marks.push(name(left + cellsWidth - 6, borderOf(layout, "query", query), { align: "end" }));
  return marks;
}

/**
 * Return the marks that may change with the pointer: labels, outlines and all bars.
 *
 * @param hovered cell under the pointer. It is highlighted.
 * @param cursor tokens at the keyboard cursor. They are highlighted if the pointer is at no cell.
 */
export function frontMarks(
  heatMap: HeatMap,
  hovered: Focus | null = null,
  cursor: Focus | null = null,
): Mark[] {
  const { layout, palette, pins, lines } = heatMap;
  const { left, top, viewport } = layout;
  const { axes } = viewport;
  const cellsOf = (tokens: Focus | null): Focus =>
    bySide((side) => positionOf(axes[side], tokens?.[side] ?? null));
  // `hovered` may be a cell of an earlier grid that had more cells.
  const isInGrid =
    hovered && SIDES.every((side) => (hovered[side] ?? 0) < axes[side].groups.length);
  const focus = isInGrid ? hovered : cellsOf(cursor);
  const pinned = cellsOf(pins);
  const labelled = SIDES.flatMap((side) => {
    const draw = layout.labels[side].tokens ? tokenLabels : tickLabels;
    return draw(heatMap, side, focus[side], pinned[side]);
  });
  const bars = SIDES.flatMap((side) => {
    const line = lines[side];
    return line && layout.bars[side] > 0 ? pinnedBars(heatMap, line, side) : [];
  });
  return [
    textMark("query ↓", left - GAP, top - 13, palette.muted, 12, { align: "end" }),
    layout.printed
      ? textMark("key →", left - GAP, top - 28, palette.muted, 12, { align: "end" })
      : textMark("key →", left, top - layout.above - AXIS_NAME / 2 - 2, palette.muted, 12),
    ...outlines(layout, pinned, signsOf(heatMap) ? palette.ink : pinColor(palette), 2),
    ...outlines(layout, focus, palette.ink, 1),
    ...labelled,
    ...effectBars(heatMap),
    ...bars,
  ];
}

/** Return outlines of the row `at.query` and the column `at.key`. null has no outline. */
function outlines(layout: Layout, at: Focus, stroke: string, strokeWidth: number): Mark[] {
  return SIDES.flatMap((side): Mark[] => {
    const cell = at[side];
    if (cell === null) return [];
    const { cell: size } = layout.viewport.axes[side];
    const [start] = spanOf(layout, side);
    const [x, width] = spanOf(layout, otherSide(side));
    const grow = strokeWidth / 2;
    const box = {
      ...{ x: x - grow, y: start + cell * size - grow },
      ...{ width: width + strokeWidth, height: size + strokeWidth },
    };
    return [{ kind: "rect", ...transposed(box, side === "key"), stroke, strokeWidth }];
  });
}

/**
 * Return a label with the token for each visible query (or key), for rows (or columns) that are
 * large enough. `tickLabels` returns the labels of smaller ones.
 */
function tokenLabels(
  heatMap: HeatMap,
  side: Side,
  focus: number | null,
  pinned: number | null,
): Mark[] {
  const { layout, palette, isFound } = heatMap;
  const axis = layout.viewport.axes[side];
  const { tokens } = axis;
  const labels = layout.labels[side];
  const special = new Set(tokens.special);
  const marks: Mark[] = [];
  for (const [cell, token] of shownTokens(axis).entries()) {
    const text = axisLabel(tokens, token);
    const isStrong = cell === focus || cell === pinned;
    const matches = isFound?.(tokens.text[token] ?? "") ?? false;
    const bold = isStrong || (matches && side === "key");
    const plain = special.has(token) ? palette.muted : palette.ink;
    const fill = isStrong ? strongFill(heatMap, cell === pinned) : plain;
    const patch = patchLabel(heatMap, side, token, bold ? fill : null);
    if (patch) {
      marks.push(...patch);
      continue;
    }
    const label: TextMark = {
      ...{ kind: "text", text: labelOf(text, labels, bold), ...labelPosition(layout, side, token) },
      ...{ fill, bold, size: labels.size, font: "token" },
    };
    if (matches && side === "query") {
      const [width, height] = [
        measureText(label.text, fontOf({ ...label, bold: false })),
        labels.size + 3,
      ];
      const box = { x: label.x - width - 2, y: label.y - height / 2, width: width + 4, height };
      marks.push({ kind: "rect", ...box, fill: palette.searchMatch, radius: 3 });
    }
    marks.push(label);
  }
  return marks;
}

/** Return the colour of the label of a highlighted row or column. */
function strongFill(heatMap: HeatMap, isPinned: boolean): string {
  const { palette } = heatMap;
  // Among signed numbers, the pin colour would look like the colour of negative numbers.
  return isPinned && !signsOf(heatMap) ? headTextColor(palette, 0, 1) : palette.ink;
}

function labelPosition(
  layout: Layout,
  side: Side,
  token: number,
): Pick<TextMark, "x" | "y" | "align" | "rotate"> {
  const middle = middleOf(layout, side, token);
  if (side === "query") return { x: layout.left - GAP, y: middle, align: "end" };
  const y = labelsEnd(layout, "key") - GAP + 2;
  const { slope } = layout.labels.key;
  if (slope === "level") return { x: middle, y: y - 3, align: "middle" };
  return { x: middle, y, align: "start", rotate: slope === "slanted" ? -45 : -90 };
}

const LIFTED_SIZE = 12;
/** Maximum width of the label of a highlighted column, in pixels. */
const MAX_LIFTED_KEY = 190;
/** Smallest gap between two names at ticks or of highlighted rows (or columns), in pixels. */
const NAMES_APART: BySide<number> = { query: 2, key: 6 };

/**
 * Return the labels for rows (or columns) that are too small for a label each: ticks with the names
 * of some tokens, and the labels of highlighted rows. Where two labels would touch, the one at the
 * pointer or cursor is drawn, then that of a pin, then that of a tick.
 */
function tickLabels(
  heatMap: HeatMap,
  side: Side,
  focus: number | null,
  pinned: number | null,
): Mark[] {
  const { layout, palette } = heatMap;
  const axis = layout.viewport.axes[side];
  const isKey = side === "key";
  const { tickWidth, indexed } = layout.labels[side];
  const apart = NAMES_APART[side];
  const end = labelsEnd(layout, side);
  const limit = isKey ? MAX_LIFTED_KEY : layout.left - GAP - 2;
  /** Return half the size of a name along the axis, and its position inside the plot. */
  const placed = (text: string, at: number, size: number, bold = false) => {
    if (!isKey) return { half: size / 2, at };
    const half = measureText(text, fontOf({ size, font: "token", bold })) / 2;
    // Keep the name away from the name of the query axis.
    return { half, at: Math.max(layout.left + half - 3, Math.min(layout.width - half - 2, at)) };
  };
  const lifted = [...new Set([pinned, focus])].flatMap((cell) => {
    if (cell === null) return [];
    const pin = heatMap.pins[side];
    const tokens: Range = cell === pinned && pin !== null ? [pin, pin + 1] : tokensAt(axis, cell);
    const text = spanLabel(axis.tokens, tokens, {
      ...{ limit, indexed, size: LIFTED_SIZE, bold: true },
    });
    const middle = cellMiddle(layout, side, cell);
    const fill = strongFill(heatMap, cell === pinned);
    const patch =
      axis.level === 0 ? patchLabel(heatMap, side, tokens[0], fill, HIGHLIGHTED_PATCH_SIZE) : null;
    return [{ text, ...placed(text, middle, LIFTED_SIZE, true), fill, patch }];
  });
  const write = (
    text: string,
    at: number,
    fill: string,
    size: number,
    more: Partial<TextMark> = {},
  ) =>
    isKey
      ? textMark(text, at, end - 13, fill, size, { align: "middle", font: "token", ...more })
      : textMark(text, end - GAP, at, fill, size, { align: "end", font: "token", ...more });
  const marks = stripMarks(heatMap, side);
  const drawn: { at: number; half: number }[] = [...lifted];
  for (const { at: place, text: label, token } of ticksIn(heatMap, side)) {
    const at = borderOf(layout, side, place);
    const look = { limit: tickWidth, indexed, size: TICK_SIZE };
    const text = token === null ? label : spanLabel(axis.tokens, [token, token + 1], look, label);
    const name = placed(text, at, TICK_SIZE);
    const isCovered = drawn.some(
      (label) => Math.abs(label.at - name.at) < label.half + name.half + apart,
    );
    if (isCovered) continue;
    drawn.push(name);
    const line = transposed({ x0: end - 5, y0: at, x1: end - 1, y1: at }, isKey);
    marks.push({ kind: "line", ...line, stroke: palette.muted });
    marks.push(write(text, name.at, palette.muted, TICK_SIZE));
  }
  const last = lifted.at(-1);
  for (const label of lifted) {
    const { text, at, half, fill, patch } = label;
    const isCovered = last && label !== last && Math.abs(last.at - at) < last.half + half + apart;
    if (isCovered) continue;
    marks.push(...(patch ?? [write(text, at, fill, LIFTED_SIZE, { bold: true })]));
  }
  return marks;
}

/**
 * Return the ticks of an axis, the most important first: tokens at equal distances, or times. A
 * printed figure, which the reader cannot zoom, names the words with the largest weights instead.
 */
function ticksIn({ layout, grid }: HeatMap, side: Side): Tick[] {
  const axis = layout.viewport.axes[side];
  const { tickWidth, indexed } = layout.labels[side];
  const apart = Math.max(TICKS_APART[side], side === "key" ? tickWidth + 8 : 0);
  if (!layout.printed || !indexed || axis.level > 0) return ticksOf(axis, tokenStep(axis), apart);
  const largest = new Float32Array(axis.groups.length);
  grid.values.forEach((value, i) => {
    const cell = side === "key" ? i % grid.columns : Math.floor(i / grid.columns);
    largest[cell] = Math.max(largest[cell] as number, Math.abs(value) || 0);
  });
  const cells = Array.from(largest.keys()).filter((cell) => (largest[cell] as number) > 0);
  cells.sort((one, other) => (largest[other] as number) - (largest[one] as number));
  const tokens = shownTokens(axis);
  return cells.map((cell): Tick => {
    const token = tokens[cell] as number;
    return { at: token + 0.5, text: axisLabel(axis.tokens, token), token };
  });
}

/**
 * Return the edge beside which the labels are: for queries, the left edge of the cells, and for
 * keys, the upper edge of the bars of effects or, without them, of the cells.
 */
function labelsEnd({ left, top, effects }: Layout, side: Side): number {
  return side === "query" ? left : top - effects.room;
}

const EFFECT_SIZE = 11;

/**
 * Return the bars of effects above the columns, with their numbers. A column with several keys shows the effect that
 * has the largest absolute value.
 */
function effectBars({ layout, palette, effects }: HeatMap): Mark[] {
  const { room, numbers, upright } = layout.effects;
  if (!effects || room === 0) return [];
  const columns = layout.viewport.axes.key;
  const width = Math.max(0.5, Math.min(11, columns.cell - (columns.cell > 3 ? 2 : 0)));
  const font = fontOf({ size: EFFECT_SIZE, font: "text" });
  const [x, y] = [layout.left - GAP, layout.top - room];
  const title = (text: string, down: number): Mark =>
    textMark(text, x, y + down, palette.muted, EFFECT_SIZE, { align: "end" });
  const bars = columns.groups.map((tokens, cell) => ({
    middle: cellMiddle(layout, "key", cell),
    value: tokenEffect(effects, tokens),
  }));
  const start = layout.top - numbers;
  const [form, at] = upright ? (["upright", start + 1] as const) : (["level", start + 7] as const);
  return [
    title(fitLabel(effects.name, x, font, measureText).text, 5),
    title(`±${endText(effects)}`, 18),
    ...bars.flatMap(({ middle, value }) => {
      const box = { x: middle - width / 2, y, width, height: room - numbers - 2 };
      return effectMarks({ ...box, standing: true }, value, effects.end, palette);
    }),
    ...effectNumbers(effects, bars, form, { at, limit: layout.width }, palette),
  ];
}

/**
 * Sizes in pixels of the bars of a pinned query (below the cells) and of a pinned key (beside
 * them). `longest` and `thickest` are the maximum length and thickness of a bar. `number` is the
 * space for the number at the end of a signed bar.
 */
const BAR_SIZES = {
  query: { longest: 30, thickest: 16, number: 13 },
  key: { longest: 62, thickest: 12, number: 34 },
};

/**
 * Return the absolute value below which numbers are omitted in cells and muted at bars. Signed
 * numbers have no fixed range, so their limit is relative to `end`, the end of their scale.
 */
function leastNumber(heatMap: HeatMap, end: number): number {
  return signsOf(heatMap) ? end / 100 : MIN_NUMBER;
}

/**
 * Distance in pixels from the first column to the axis, which is to its left, of the bars of a
 * pinned query. Numbers are centred below their columns. If the first column is thin, its number
 * needs this space.
 */
const BEFORE_FIRST_NUMBER = 16;
/** Size of the title of the bars of a pinned token, in pixels. */
const TITLE_SIZE = 11.5;

/**
 * Return the bars of a pinned token. The weights of a query are vertical bars below the cells, and
 * the weights on a key are horizontal bars beside the cells. A bar for several tokens shows the
 * number with the largest absolute value.
 */
function pinnedBars(heatMap: HeatMap, line: Line, side: Side): Mark[] {
  const { layout, palette } = heatMap;
  const { viewport } = layout;
  const standing = side === "query";
  const axis = viewport.axes[otherSide(side)];
  const quantity = quantityOf(viewport.stack);
  const signs = signsOf(heatMap);
  const end = barEnd(viewport.stack.maximum, viewport.keys.text.length);
  // For a pinned query, `first` and `last` are the left and the right edge of the cells, and the
  // space for bars begins below the cells, at the y coordinate `away`. For a pinned key, they are
  // the upper and the lower edge, and the space begins to the right, at the x coordinate `away`.
  const [first, length] = spanOf(layout, otherSide(side));
  const last = first + length;
  const [start, thickness] = spanOf(layout, side);
  const away = start + thickness + GAP;
  const { longest, thickest, number } = BAR_SIZES[side];
  const scale: BarScale = {
    // Bars of signed numbers extend to both sides of 0. Positive ones extend up or to the right.
    ...(signs
      ? { zero: away + number + longest / 3, reach: ((standing ? -1 : 1) * longest) / 3 }
      : { zero: away, reach: longest }),
    ...{ end, standing, signs: signs && "both" },
  };
  const thick = Math.max(0.75, Math.min(thickest, axis.cell - (axis.cell > 3 ? 1 : 0)));
  const bars = axis.groups.map((tokens, cell) => {
    // A number at a bar is one weight, which the caption may have too, however the cells are pooled.
    const range = tokens.map((token) => Math.max(0, indexIn(line.window, token)));
    const value = pool(line.values.subarray(...range), "max");
    const middle = cellMiddle(layout, otherSide(side), cell);
    const color = signs ? inkColor(signs, value) : palette.neutral;
    return { position: cell, value, middle, from: middle - thick / 2, thick, color };
  });
  const text = quoted(viewport.axes[side].tokens.text[line.token] ?? "");
  const largest = axis.level === 0 ? "" : `: largest of ${2 ** axis.level}`;
  const titleOf = (token: string) =>
    standing
      ? `${quantity.name} from ${token}${largest}${largest && " keys"}`
      : `to ${token}${largest}`;
  const [x, y] = standing ? [first, away + longest + 22] : [away, last + AXIS_HEIGHT + GAP + 5];
  const font = fontOf({ size: TITLE_SIZE, font: "text" });
  // Shorten only the token, because the rest says what the numbers are. If the rest is too long for
  // the space beside the matrix, begin further left.
  const room = layout.width - x - measureText(titleOf(""), font);
  const shown = fitLabel(text, Math.max(room, SHORT_TOKEN), font, measureText).text;
  const title = titleOf(shown);
  const left = Math.min(x, layout.width - measureText(title, font));
  return [
    ...barGroupMarks({
      ...{ scale, bars, quantity, palette, step: axis.cell },
      line: [first, last],
      axisAt: standing ? first - BEFORE_FIRST_NUMBER : last + 4,
      minProminent: leastNumber(heatMap, end),
    }),
    textMark(title, left, y, palette.muted, TITLE_SIZE),
  ];
}

/**
 * Longer side in pixels of the picture that labels a highlighted row or column (see `LIFTED`), if
 * its token is an image patch.
 */
const HIGHLIGHTED_PATCH_SIZE = 24;
/** Thickness in pixels of the strip of pictures along the cells (see `stripMarks`). */
const STRIP_THICKNESS = 5;

/**
 * Return the picture of a patch as a label whose longer side has `size` pixels. Return null if the
 * token is not a patch, or if the record has no images.
 *
 * @param frame colour of the frame of a highlighted patch, or null without a frame.
 */
function patchLabel(
  { layout, images, palette }: HeatMap,
  side: Side,
  token: number,
  frame: string | null,
  size = layout.labels[side].patchSize,
): Mark[] | null {
  const patch = patchOf(layout.viewport.axes[side].tokens, token);
  if (!patch || layout.labels[side].patchSize === 0) return null;
  const image = images[patch.grid.image];
  const shape = image ? aspectRatio(image, patch.grid) : 1;
  const [width, height] = [size * Math.min(1, shape), size / Math.max(1, shape)];
  const middle = middleOf(layout, side, token);
  const end = labelsEnd(layout, side) - GAP;
  const box =
    side === "query"
      ? { x: end - width, y: middle - height / 2, width, height }
      : { x: middle - width / 2, y: end - height, width, height };
  const marks: Mark[] = [
    image ? pictureMark(cropOf(image, patch), box) : { kind: "rect", ...box, fill: palette.raised },
  ];
  if (frame) marks.push({ kind: "rect", ...box, stroke: frame, strokeWidth: 1.6 });
  return marks;
}

/**
 * Return the pictures of all visible image patches as a strip along the cells, for cells that are
 * too small for labels.
 */
function stripMarks({ layout, images }: HeatMap, side: Side): Mark[] {
  const axis = layout.viewport.axes[side];
  const step = tokenStep(axis);
  if (layout.labels[side].patchSize === 0 || step < 2) return [];
  const marks: Mark[] = [];
  for (const token of shownTokens(axis)) {
    const patch = patchOf(axis.tokens, token);
    const image = patch && images[patch.grid.image];
    if (!image) continue;
    const box = {
      ...{ x: labelsEnd(layout, side) - STRIP_THICKNESS - 1, width: STRIP_THICKNESS },
      ...{ y: borderOf(layout, side, token), height: step },
    };
    marks.push(pictureMark(cropOf(image, patch), transposed(box, side === "key")));
  }
  return marks;
}
