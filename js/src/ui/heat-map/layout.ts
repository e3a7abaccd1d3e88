/** Positions of a heat map's cells, labels and bars. Pure functions. */

import type { Range, TokenList } from "../../client/protocol";
import { PRINT_TEXT } from "../../draw/figure-request";
import { fontOf } from "../../draw/marks";
import type { PatchShape } from "../../draw/patches";
import { AXIS_HEIGHT } from "../plot/bar-scale";
import { fitLabel, type Label, type Measure } from "../text/labels";
import type { Selection } from "../view/record";
import {
  LARGEST_CELL,
  type Room,
  roomOf,
  stageOf,
  type Viewport,
  type ViewportState,
  viewportOf,
} from "./viewport";

/** How labels of keys stand above their columns. */
type Slope = "level" | "slanted" | "upright";

/** A side's labels. */
export interface Labels {
  /** Whether every token has its label; otherwise some have their positions. */
  tokens: boolean;
  size: number;
  /** Pixels that a label may take along its text. */
  limit: number;
  /** The longer side of a patch's picture; 0 where no token is a patch. */
  patchSize: number;
}

export interface Layout {
  viewport: Viewport;
  width: number;
  height: number;
  /** The cells' upper left corner and size. */
  left: number;
  top: number;
  cellsWidth: number;
  cellsHeight: number;
  queryLabels: Labels;
  keyLabels: Labels & { slope: Slope };
  /** Pixels that bars take below and on the right; 0 without bars. */
  barsBelow: number;
  barsBeside: number;
  /** Pixels between labels of keys and the cells, for bars of effects; none without them. */
  effects?: number;
  /** Pixels that labels take above the cells, of those kept for the largest there can be. */
  above: number;
  /** What cells had room for. */
  room: Room;
}

export interface LayoutInput {
  selection: Selection;
  state: ViewportState;
  width: number;
  mostHeight: number;
  ratio: number;
  /** Whether the bars of a pinned query, below, and of a pinned key, beside, are drawn. */
  below: boolean;
  beside: boolean;
  /** Whether keys have bars of effects. */
  effects?: boolean;
  /** How wide patches are to their height; null where a side has none. */
  shapes?: Record<"query" | "key", PatchShape | null>;
  /** For a figure of a stated width, whose texts have one size. */
  printed?: boolean;
  measure: Measure;
}

/** A token has its label where its row or column is so thick. */
export const LEAST_LABEL_STEP = 9;
const LARGEST_LABEL = 13;
const SMALLEST_LABEL = 8.5;
/** From here on labels of keys lean, which reads better than upright. */
const SLANTED_STEP = 17;
const SLANT = Math.SQRT1_2;
export const AXIS_NAME = 22;
export const GAP = 8;
/** Room for numbers of positions. */
const NUMBERS_LEFT = 60;
const NUMBERS_TOP = 18;
/** Bars of effects between labels of keys and the cells. */
const EFFECTS = 44;
const BARS = 62;
const BARS_WIDTH = 120;
/** From this width on there is room for bars beside the cells. */
const WITH_BARS_BESIDE = 720;
/** Below cells: the axis of the bars beside them, and their title. */
const TITLE = AXIS_HEIGHT + 20;
const LEAST_CELLS = 120;
const LEAST_LEFT = 48;
const MOST_LEAN = 60;
const LARGEST_PATCH = 32;
/** Of a text with no room for labels as a whole less is kept for those of its parts. */
const PART_LABEL = 64;
const BELOW = 6;

/** The steps at which labels are highest, of their slope: those between are between. */
const LABEL_STEPS = [LEAST_LABEL_STEP, SLANTED_STEP - 0.01, SLANTED_STEP, LARGEST_CELL];

function sizeOf(step: number): number {
  return Math.max(SMALLEST_LABEL, Math.min(LARGEST_LABEL, step - 1.5));
}

const widths = new WeakMap<TokenList, Map<string, number>>();
/** Tokens that are measured at most: of a long text those of most characters. */
const MEASURED = 2000;

function longestOf(texts: readonly string[]): readonly number[] {
  const all = texts.map((_, token) => token);
  if (texts.length <= MEASURED) return all;
  const lengths = texts.map((text) => text.length);
  return all.sort((a, b) => (lengths[b] as number) - (lengths[a] as number)).slice(0, MEASURED);
}

/** The widest label of a side, kept: it must not change while the matrix is panned. */
function widest(
  tokens: TokenList,
  size: number,
  limit: number,
  measure: Measure,
  shapeOf?: PatchShape | null,
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
      .reduce((most, token) => Math.max(most, widthOf(token)), 0);
    cached.set(key, widestLabel);
  }
  return widestLabel;
}

export function labelOf(text: string, labels: Labels, measure: Measure, bold = false): Label {
  return fitLabel(text, labels.limit, fontOf({ size: labels.size, font: "token", bold }), measure);
}

/** The steps of a token at which it has a label, and its size there. */
function labelSizeAt(step: number): number | null {
  return step >= LEAST_LABEL_STEP ? sizeOf(step) : null;
}

/**
 * Places everything.
 *
 * Where the cells begin, and how much the whole takes, depends on the place and the width alone:
 * neither zooming nor a pin moves what the pointer is on, or what stands below.
 */
export function layOut(input: LayoutInput): Layout {
  const { selection, state, width, measure, ratio, shapes } = input;
  const narrow = width < 560;
  const limit = narrow ? 64 : 110;
  const barRoom = width >= WITH_BARS_BESIDE ? BARS_WIDTH : 0;
  const beside = input.beside && barRoom > 0;
  const { printed = false } = input;
  const largest = printed ? PRINT_TEXT : LARGEST_LABEL;
  const labelSize = (step: number): number | null =>
    printed ? (step > PRINT_TEXT ? PRINT_TEXT : null) : labelSizeAt(step);
  const keyWidth = widest(selection.keys, largest, limit, measure, shapes?.key);
  /** The sizes of everything with room for labels, or without. */
  const sized = (labelled: boolean) => {
    const queryWidth = widest(selection.queries, largest, limit, measure, shapes?.query);
    const left = GAP + Math.ceil(labelled ? Math.max(LEAST_LEFT, queryWidth) : NUMBERS_LEFT);
    const lean = narrow || !labelled ? 0 : keyWidth * SLANT;
    const right = Math.max(barRoom, Math.min(lean, MOST_LEAN), GAP);
    const most = {
      width: Math.max(LEAST_CELLS, Math.floor(width - left - right)),
      height: Math.max(LEAST_CELLS, input.mostHeight),
    };
    const room = roomOf(selection, state, most, ratio);
    const viewport = viewportOf(selection, state, room, ratio);
    const steps = { rows: tokenStep(viewport, "rows"), columns: tokenStep(viewport, "columns") };
    const sizes = labelled
      ? { rows: labelSize(steps.rows), columns: labelSize(steps.columns) }
      : { rows: null, columns: null };
    return { left, right, room, viewport, steps, sizes };
  };
  const roomy = sized(true);
  // A figure has no other parts to keep room for.
  const without = printed && roomy.sizes.rows === null && roomy.sizes.columns === null;
  const { left, right, room, viewport, steps, sizes } = without ? sized(false) : roomy;
  const whole = viewportOf(
    selection,
    { ...state, query_window: null, key_window: null },
    room,
    ratio,
  );
  const stage = stageOf(whole, room);
  const wholeWidth = Math.max(stage.width, whole.columns.cells * whole.columns.cell);
  const wholeHeight = Math.max(stage.height, whole.rows.cells * whole.rows.cell);
  const patchSizeFor = (shapeOf: PatchShape | null | undefined, each: number): number =>
    shapeOf ? Math.max(SMALLEST_LABEL, Math.min(LARGEST_PATCH, each - 2)) : 0;
  const wholeStep = tokenStep(whole, "columns");
  const keyLimit = !printed && labelSize(wholeStep) === null ? Math.min(limit, PART_LABEL) : limit;
  // Leaning over a patch's picture a text would hide it.
  const leans = !narrow && !shapes?.key;
  // Upright ones are cut to what leaning ones take.
  const mostText = leans && !printed ? keyLimit * SLANT : keyLimit;
  const aboveFor = (step: number): { slope: Slope; limit: number; above: number } => {
    const size = without ? null : labelSize(step);
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
  // Where its tokens can be zoomed to, the room that their labels take at any step of it.
  const zooms = Math.max(whole.rows.cell, whole.columns.cell) < LARGEST_CELL;
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
  // In the middle, unless that leaves too little for the bars on the right.
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
      size: printed ? PRINT_TEXT : sizeOf(steps.rows),
      limit,
      patchSize: patchSizeFor(shapes?.query, steps.rows),
    },
    keyLabels: {
      tokens: sizes.columns !== null,
      size: printed ? PRINT_TEXT : sizeOf(steps.columns),
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

/** The same without the room that is kept for what is not there: for print. */
export function withoutSpareRoom(layout: Layout): Layout {
  const { cellsHeight, barsBelow, barsBeside } = layout;
  const top = AXIS_NAME + layout.above;
  const below = barsBelow > 0 ? barsBelow : barsBeside > 0 ? TITLE : 0;
  return { ...layout, top, height: Math.ceil(top + cellsHeight + below + BELOW) };
}

/** Pixels of a token along a side. */
export function tokenStep(viewport: Viewport, side: "rows" | "columns"): number {
  const axis = viewport[side];
  return axis.cell / 2 ** axis.level;
}

/** The middle of a token, along the picture. */
export function middleOf(layout: Layout, side: "rows" | "columns", token: number): number {
  const start = side === "rows" ? layout.top : layout.left;
  return start + (token - layout.viewport[side].window[0] + 0.5) * tokenStep(layout.viewport, side);
}

/** Positions at which numbers stand, at least `apart` pixels from each other. */
export function ticks(window: Range, step: number, apart: number): number[] {
  const least = apart / step;
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  const every = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= least) ?? 1;
  const out: number[] = [];
  for (let at = Math.ceil(window[0] / every) * every; at < window[1]; at += every) out.push(at);
  return out;
}

/** The cell under a point, by its place in the grid; one of the two where it is on a label. */
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
  // Bars belong to the column or the row that they stand in.
  if (column !== null && layout.barsBelow > 0 && y >= top + cellsHeight)
    return { row: null, column };
  if (row !== null && layout.barsBeside > 0 && x >= left + cellsWidth) return { row, column: null };
  return null;
}
