/**
 * Positions of the cells, labels and bars of a heat map. The effect of a key is a signed number
 * that is drawn as a bar above its column. All functions are pure.
 */

import type { Range, TokenList } from "../../client/protocol";
import { PRINT_FONT_SIZE } from "../../draw/figure-request";
import { fontOf } from "../../draw/marks";
import type { PatchAspect } from "../../draw/patches";
import { AXIS_HEIGHT } from "../plot/bars";
import { fitLabel, type Label, type Measure } from "../text/labels";
import type { Selection } from "../view/record";
import {
  MAX_CELL,
  type Room,
  roomOf,
  stageOf,
  type Viewport,
  type ViewportState,
  viewportOf,
} from "./viewport";

/** Direction of the labels above the columns: horizontal, diagonal or vertical. */
type Slope = "level" | "slanted" | "upright";

/** Labels of the queries or of the keys. */
export interface Labels {
  /** Whether the labels are tokens. If false, some tokens have their index as label. */
  tokens: boolean;
  size: number;
  /** Maximum length of a label, in pixels. Longer texts are shortened. */
  limit: number;
  /** Longer side of the picture of a patch in pixels, or 0 without patches. */
  patchSize: number;
}

export interface Layout {
  viewport: Viewport;
  width: number;
  height: number;
  /** Position of the upper left corner of the cells, and size of all cells together, in pixels. */
  left: number;
  top: number;
  cellsWidth: number;
  cellsHeight: number;
  queryLabels: Labels;
  keyLabels: Labels & { slope: Slope };
  /** Space for bars below the cells and to their right, in pixels, or 0 without these bars. */
  barsBelow: number;
  barsBeside: number;
  /** Space for bars of effects above the cells, in pixels. Undefined without effects. */
  effects?: number;
  /**
   * Height of the labels above the cells at the current zoom. `top` reserves the largest height of
   * any zoom.
   */
  above: number;
  /** Space in which the cells must fit. */
  room: Room;
}

export interface LayoutInput {
  selection: Selection;
  state: ViewportState;
  width: number;
  mostHeight: number;
  ratio: number;
  /**
   * Whether a query is pinned, whose weights are bars below the cells, and whether a key is pinned,
   * whose weights are bars beside the cells.
   */
  below: boolean;
  beside: boolean;
  /** Whether keys have bars of effects. */
  effects?: boolean;
  /**
   * Ratio of width to height of each patch among the queries and the keys. null if none of these
   * tokens is a patch.
   */
  shapes?: Record<"query" | "key", PatchAspect | null>;
  /** Whether the layout is for a figure. A figure has a fixed width, one text size and no zoom. */
  printed?: boolean;
  measure: Measure;
}

/** Smallest height of a row, or width of a column, at which a token has a label, in pixels. */
export const MIN_LABEL_STEP = 9;
const MAX_LABEL = 13;
const MIN_LABEL = 8.5;
/**
 * Smallest width of a column at which its label is diagonal, in pixels. Diagonal labels are easier
 * to read than vertical ones.
 */
const SLANTED_STEP = 17;
const SLANT = Math.SQRT1_2;
export const AXIS_NAME = 22;
export const GAP = 8;
/** Space for token indices, to the left of the cells and above them, in pixels. */
const NUMBERS_LEFT = 60;
const NUMBERS_TOP = 18;
/** Space for bars of effects between key labels and cells, in pixels. */
const EFFECTS = 44;
const BARS = 62;
const BARS_WIDTH = 120;
/** Smallest width of the plot, in pixels, at which bars beside the cells are drawn. */
const WITH_BARS_BESIDE = 720;
/** Space below the cells for the axis and the title of the bars beside the cells, in pixels. */
const TITLE = AXIS_HEIGHT + 20;
const MIN_CELLS = 120;
const MIN_LEFT = 48;
const MAX_LEAN = 60;
const MAX_PATCH = 32;
/** Maximum label length, in pixels, if token labels appear only after zooming in. */
const MAX_LABEL_AFTER_ZOOM = 64;
const BELOW = 6;

/**
 * Widths of a column, in pixels, at which labels need the most height. The maximum for each
 * direction of labels is at one of these widths.
 */
const LABEL_STEPS = [MIN_LABEL_STEP, SLANTED_STEP - 0.01, SLANTED_STEP, MAX_CELL];

function sizeOf(step: number): number {
  return Math.max(MIN_LABEL, Math.min(MAX_LABEL, step - 1.5));
}

const widths = new WeakMap<TokenList, Map<string, number>>();
/**
 * Maximum number of tokens whose labels are measured. In longer texts, only the tokens with the
 * most characters are measured.
 */
const MAX_MEASURED = 2000;

function longestOf(texts: readonly string[]): readonly number[] {
  const all = texts.map((_, token) => token);
  if (texts.length <= MAX_MEASURED) return all;
  const lengths = texts.map((text) => text.length);
  return all.sort((a, b) => (lengths[b] as number) - (lengths[a] as number)).slice(0, MAX_MEASURED);
}

/**
 * Return the width of the widest label among all queries or all keys, in pixels. The result is
 * cached. It does not change while panning.
 */
function widest(
  tokens: TokenList,
  size: number,
  limit: number,
  measure: Measure,
  shapeOf?: PatchAspect | null,
): number {
  const key = `${size} ${limit}`;
  const cached = widths.get(tokens) ?? new Map<string, number>();
  widths.set(tokens, cached);
  let widestLabel = cached.get(key);
  if (widestLabel === undefined) {
    const font = fontOf({ size, font: "token" });
    const widthOf = (token: number): number =>
      fitLabel(tokens.text[token] as string, limit, font, measure).width;
    widestLabel = longestOf(tokens.text)
      .filter((token) => (shapeOf?.(token) ?? null) === null)
      .reduce((widestSoFar, token) => Math.max(widestSoFar, widthOf(token)), 0);
    cached.set(key, widestLabel);
  }
  return widestLabel;
}

export function labelOf(text: string, labels: Labels, measure: Measure, bold = false): Label {
  return fitLabel(text, labels.limit, fontOf({ size: labels.size, font: "token", bold }), measure);
}

/**
 * Return the label size for rows or columns of the given size, or null if labels do not fit. All
 * values are in pixels.
 */
function labelSizeAt(step: number): number | null {
  return step >= MIN_LABEL_STEP ? sizeOf(step) : null;
}

/**
 * Compute the layout.
 *
 * The position of the cells and the total size depend only on the selection and the width.
 * Therefore zooming and pinning do not move the cells below the pointer or the content below the
 * plot.
 */
export function layOut(input: LayoutInput): Layout {
  const { selection, state, width, measure, ratio, shapes } = input;
  const narrow = width < 560;
  const limit = narrow ? 64 : 110;
  const barRoom = width >= WITH_BARS_BESIDE ? BARS_WIDTH : 0;
  const beside = input.beside && barRoom > 0;
  const { printed = false } = input;
  const largest = printed ? PRINT_FONT_SIZE : MAX_LABEL;
  const labelSize = (step: number): number | null =>
    printed ? (step > PRINT_FONT_SIZE ? PRINT_FONT_SIZE : null) : labelSizeAt(step);
  const keyWidth = widest(selection.keys, largest, limit, measure, shapes?.key);
  /** Return the sizes of all parts, with space for token labels or with space for indices. */
  const sizesFor = (labelled: boolean) => {
    const queryWidth = widest(selection.queries, largest, limit, measure, shapes?.query);
    const left = GAP + Math.ceil(labelled ? Math.max(MIN_LEFT, queryWidth) : NUMBERS_LEFT);
    const lean = narrow || !labelled ? 0 : keyWidth * SLANT;
    const right = Math.max(barRoom, Math.min(lean, MAX_LEAN), GAP);
    const maxRoom = {
      width: Math.max(MIN_CELLS, Math.floor(width - left - right)),
      height: Math.max(MIN_CELLS, input.mostHeight),
    };
    const room = roomOf(selection, state, maxRoom, ratio);
    const viewport = viewportOf(selection, state, room, ratio);
    const steps = { rows: tokenStep(viewport, "rows"), columns: tokenStep(viewport, "columns") };
    const sizes = labelled
      ? { rows: labelSize(steps.rows), columns: labelSize(steps.columns) }
      : { rows: null, columns: null };
    return { left, right, room, viewport, steps, sizes };
  };
  const withLabels = sizesFor(true);
  // A figure cannot be zoomed. If no label fits, it therefore needs no space for labels.
  const labelless = printed && withLabels.sizes.rows === null && withLabels.sizes.columns === null;
  const { left, right, room, viewport, steps, sizes } = labelless ? sizesFor(false) : withLabels;
  const whole = viewportOf(
    selection,
    { ...state, query_window: null, key_window: null },
    room,
    ratio,
  );
  const stage = stageOf(whole, room);
  const wholeWidth = Math.max(stage.width, whole.columns.cells * whole.columns.cell);
  const wholeHeight = Math.max(stage.height, whole.rows.cells * whole.rows.cell);
  const patchSizeFor = (shapeOf: PatchAspect | null | undefined, tokenSize: number): number =>
    shapeOf ? Math.max(MIN_LABEL, Math.min(MAX_PATCH, tokenSize - 2)) : 0;
  const wholeStep = tokenStep(whole, "columns");
  const keyLimit =
    !printed && labelSize(wholeStep) === null ? Math.min(limit, MAX_LABEL_AFTER_ZOOM) : limit;
  // A diagonal label would cover the picture of a patch.
  const leans = !narrow && !shapes?.key;
  // Shorten vertical labels to the height that diagonal labels have.
  const mostText = leans && !printed ? keyLimit * SLANT : keyLimit;
  const aboveFor = (step: number): { slope: Slope; limit: number; above: number } => {
    const size = labelless ? null : labelSize(step);
    const patch = shapes?.key ? patchSizeFor(shapes.key, step) + GAP + 4 : 0;
    if (size === null) return { slope: "upright", limit: keyLimit, above: NUMBERS_TOP };
    const text = widest(selection.keys, size, keyLimit, measure, shapes?.key);
    const slope =
      text <= step - 4 ? "level" : step >= SLANTED_STEP && leans ? "slanted" : "upright";
    const along = slope === "upright" ? Math.min(mostText, text) : text;
    const high = slope === "level" ? size + 6 : along * (slope === "slanted" ? SLANT : 1) + 10;
    return {
      slope,
      limit: slope === "upright" ? Math.min(keyLimit, mostText) : keyLimit,
      above: Math.max(high, patch),
    };
  };
  const { slope, limit: textLimit, above } = aboveFor(steps.columns);
  // If zooming in enlarges the labels, reserve the largest height that they need at any zoom.
  const zooms = Math.max(whole.rows.cell, whole.columns.cell) < MAX_CELL;
  const mostAbove = zooms
    ? Math.max(
        ...[wholeStep, ...LABEL_STEPS]
          .filter((step) => step >= wholeStep)
          .map((step) => aboveFor(step).above),
      )
    : aboveFor(wholeStep).above;
  const effects = input.effects ? EFFECTS : 0;
  const top = Math.ceil(AXIS_NAME + Math.max(mostAbove, above) + effects);
  const [cellsWidth, cellsHeight] = [viewport.columns, viewport.rows].map(
    ({ cells, cell }) => cells * cell,
  ) as [number, number];
  // Centre the cells, unless that leaves too little space for the bars on the right.
  const spare = width - left - Math.max(wholeWidth, cellsWidth);
  const before = Math.max(0, Math.min(spare / 2, spare - right));
  const layout: Layout = {
    viewport,
    width,
    height: Math.ceil(top + Math.max(wholeHeight, cellsHeight) + BARS + BELOW),
    left: Math.round(left + before),
    top,
    cellsWidth,
    cellsHeight,
    queryLabels: {
      tokens: sizes.rows !== null,
      size: printed ? PRINT_FONT_SIZE : sizeOf(steps.rows),
      limit,
      patchSize: patchSizeFor(shapes?.query, steps.rows),
    },
    keyLabels: {
      tokens: sizes.columns !== null,
      size: printed ? PRINT_FONT_SIZE : sizeOf(steps.columns),
      limit: textLimit,
      patchSize: patchSizeFor(shapes?.key, steps.columns),
      slope,
    },
    barsBelow: input.below ? BARS : 0,
    barsBeside: beside ? barRoom : 0,
    above: Math.ceil(above + effects),
    ...(effects > 0 && { effects }),
    room,
  };
  return printed ? withoutSpareRoom(layout) : layout;
}

/** Return a layout for a figure, without the space that is reserved for zooming and pinning. */
export function withoutSpareRoom(layout: Layout): Layout {
  const { cellsHeight, barsBelow, barsBeside } = layout;
  const top = AXIS_NAME + layout.above;
  const below = barsBelow > 0 ? barsBelow : barsBeside > 0 ? TITLE : 0;
  return { ...layout, top, height: Math.ceil(top + cellsHeight + below + BELOW) };
}

/** Return the height of a query ("rows") or the width of a key ("columns"), in pixels. */
export function tokenStep(viewport: Viewport, side: "rows" | "columns"): number {
  const axis = viewport[side];
  return axis.cell / 2 ** axis.level;
}

/**
 * Return the position of the centre of a token, in pixels: down for "rows", to the right for
 * "columns".
 */
export function middleOf(layout: Layout, side: "rows" | "columns", token: number): number {
  const start = side === "rows" ? layout.top : layout.left;
  return start + (token - layout.viewport[side].window[0] + 0.5) * tokenStep(layout.viewport, side);
}

/**
 * Return the token indices at which to draw labels. The labels are at least `apart` pixels apart.
 *
 * @param step size of a token, in pixels.
 */
export function ticks(window: Range, step: number, apart: number): number[] {
  const minInterval = apart / step;
  const power = 10 ** Math.floor(Math.log10(Math.max(1, minInterval)));
  const every =
    [1, 2, 5, 10].map((factor) => factor * power).find((interval) => interval >= minInterval) ?? 1;
  const out: number[] = [];
  for (let at = Math.ceil(window[0] / every) * every; at < window[1]; at += every) out.push(at);
  return out;
}

/**
 * Return the row and column of the cell at a point. On a label or a bar, one of them is null.
 * Outside all of these, return null.
 */
export function cellAt(
  layout: Layout,
  x: number,
  y: number,
): { row: number | null; column: number | null } | null {
  const { viewport, left, top, cellsWidth, cellsHeight } = layout;
  const inRows = y >= top && y < top + cellsHeight;
  const inColumns = x >= left && x < left + cellsWidth;
  const row = inRows ? Math.floor((y - top) / viewport.rows.cell) : null;
  const column = inColumns ? Math.floor((x - left) / viewport.columns.cell) : null;
  if (row !== null && column !== null) return { row, column };
  if (row !== null && x < left && x > left - GAP - layout.queryLabels.limit) {
    return { row, column: null };
  }
  if (column !== null && y < top && y > top - layout.above - 4) return { row: null, column };
  // Bars belong to the column above them or to the row beside them.
  if (column !== null && layout.barsBelow > 0 && y >= top + cellsHeight)
    return { row: null, column };
  if (row !== null && layout.barsBeside > 0 && x >= left + cellsWidth) return { row, column: null };
  return null;
}
