/** Positions of a heat map's cells, labels and bars. Pure functions. */

import type { Range, TokenList } from "../../client/protocol";
import { PRINT_TEXT } from "../../draw/figure-request";
import { fontOf } from "../../draw/marks";
import type { PatchShape } from "../../draw/patches";
import { fitLabel, type Label, type Measure } from "../labels";
import type { Place } from "../record";
import { type Room, type Viewport, type ViewportState, viewportOf } from "./viewport";

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
  /** Pixels that bars may take below and on the right; none where there is no bar. */
  barsBelow: number;
  barsBeside: number;
  /** What cells had room for. */
  room: Room;
}

export interface LayoutInput {
  place: Place;
  state: ViewportState;
  width: number;
  mostHeight: number;
  ratio: number;
  /** Whether the bars of a pinned query, below, and of a pinned key, beside, are drawn. */
  below: boolean;
  beside: boolean;
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
const BARS = 62;
const BARS_WIDTH = 120;
/** From this width on there is room for bars beside the cells. */
const WITH_BARS_BESIDE = 720;
const TITLE = 20;
const LEAST_CELLS = 120;
const LEAST_LEFT = 48;
const MOST_LEAN = 60;
const ROUNDS = 3;
const LARGEST_PATCH = 32;

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

/** Places everything. */
export function layOut(input: LayoutInput): Layout {
  const { place, state, width, measure, ratio, shapes } = input;
  const narrow = width < 560;
  const limit = narrow ? 64 : 110;
  const barRoom = width >= WITH_BARS_BESIDE ? BARS_WIDTH : 0;
  const beside = input.beside && barRoom > 0;
  // Whether labels fit depends on the cells, and the cells' room on the labels.
  let labelled = { rows: true, columns: true };
  const first = input.printed ? PRINT_TEXT : LARGEST_LABEL;
  const leastStep = input.printed ? PRINT_TEXT + 1 : LEAST_LABEL_STEP;
  let sizes = { rows: first, columns: first };
  let layout: Layout | null = null;
  for (let round = 0; round < ROUNDS; round++) {
    const queryWidth = widest(place.queries, sizes.rows, limit, measure, shapes?.query);
    const keyWidth = widest(place.keys, sizes.columns, limit, measure, shapes?.key);
    const left = (labelled.rows ? Math.max(LEAST_LEFT, queryWidth) : NUMBERS_LEFT) + GAP;
    const lean = !narrow && labelled.columns ? keyWidth * SLANT : 0;
    // Kept also where there are no bars yet: a pin must not move the cells.
    const right = Math.max(barRoom, Math.min(lean, MOST_LEAN), GAP);
    const room = {
      width: Math.max(LEAST_CELLS, Math.floor(width - left - right)),
      height: Math.max(LEAST_CELLS, input.mostHeight),
    };
    const viewport = viewportOf(place, state, room, ratio);
    const step = { rows: tokenStep(viewport, "rows"), columns: tokenStep(viewport, "columns") };
    const fits = {
      rows: step.rows >= leastStep,
      columns: step.columns >= leastStep,
    };
    const next = input.printed
      ? { rows: PRINT_TEXT, columns: PRINT_TEXT }
      : { rows: sizeOf(step.rows), columns: sizeOf(step.columns) };
    const cellsWidth = viewport.columns.cells * viewport.columns.cell;
    const cellsHeight = viewport.rows.cells * viewport.rows.cell;
    const patchSizeFor = (shapeOf: PatchShape | null | undefined, each: number): number =>
      shapeOf ? Math.max(SMALLEST_LABEL, Math.min(LARGEST_PATCH, each - 2)) : 0;
    const queryPatchSize = patchSizeFor(shapes?.query, step.rows);
    const queryLabels = { tokens: fits.rows, size: next.rows, limit, patchSize: queryPatchSize };
    const widestKey = widest(place.keys, next.columns, limit, measure, shapes?.key);
    const slope: Slope =
      widestKey <= step.columns - 4
        ? "level"
        : // Leaning over a patch's picture a text would hide it.
          step.columns >= SLANTED_STEP && !narrow && !shapes?.key
          ? "slanted"
          : "upright";
    const patchSize = patchSizeFor(shapes?.key, step.columns);
    const keyLabels = { tokens: fits.columns, size: next.columns, limit, patchSize, slope };
    const text = !fits.columns
      ? NUMBERS_TOP
      : slope === "level"
        ? next.columns + 6
        : widestKey * (slope === "slanted" ? SLANT : 1) + 10;
    const above = fits.columns ? Math.max(text, patchSize + GAP + 4) : text;
    const top = Math.ceil(AXIS_NAME + above);
    const below = input.below ? BARS : beside ? TITLE : 0;
    // In the middle, unless that leaves too little for the bars on the right.
    const spare = width - left - cellsWidth;
    const before = Math.max(0, Math.min(spare / 2, spare - right));
    layout = {
      viewport,
      width,
      height: Math.ceil(top + cellsHeight + below + 6),
      left: Math.round(left + before),
      top,
      cellsWidth,
      cellsHeight,
      queryLabels,
      keyLabels,
      barsBelow: input.below ? BARS : 0,
      barsBeside: beside ? barRoom : 0,
      room,
    };
    const settled =
      fits.rows === labelled.rows &&
      fits.columns === labelled.columns &&
      next.rows === sizes.rows &&
      next.columns === sizes.columns;
    if (settled) break;
    // Once without labels stays without: their room would take them away again.
    labelled = { rows: labelled.rows && fits.rows, columns: labelled.columns && fits.columns };
    sizes = next;
  }
  return layout as Layout;
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
  if (column !== null && y < top && y > AXIS_NAME - 4) return { row: null, column };
  // Bars belong to the column or the row that they stand in.
  if (column !== null && layout.barsBelow > 0 && y >= top + cellsHeight)
    return { row: null, column };
  if (row !== null && layout.barsBeside > 0 && x >= left + cellsWidth) return { row, column: null };
  return null;
}
