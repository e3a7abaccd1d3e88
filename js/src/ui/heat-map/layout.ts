/**
 * Positions of the cells, labels and bars of a heat map. The effect of a key is a signed number
 * that is drawn as a bar above its column. All functions are pure.
 */

import type { Range, TokenList } from "../../client/protocol";
import { measureText } from "../../draw/canvas";
import { PRINT_FONT_SIZE } from "../../draw/figure-request";
import { fontOf } from "../../draw/marks";
import { patchOf } from "../../draw/patches";
import { type BySide, bySide, type Focus, type Side, sectionsOf, sizeOf, tokenIn } from "../axis";
import { AXIS_HEIGHT, NUMBERS_APART } from "../plot/bars";
import { indicesOf, neededIndices, repeatedIn } from "../text/captions";
import { fitLabel } from "../text/labels";
import { axisLabel, hasSteps, spanOf as spanText } from "../text/places";
import type { Selection } from "../view/record";
import {
  cellsSize,
  edgeOf,
  MAX_CELL,
  pixelOf,
  roomOf,
  stageOf,
  tokenStep,
  type Viewport,
  type ViewportState,
  viewportOf,
  WHOLE,
} from "./viewport";

/**
 * Direction of the labels of keys: horizontal, diagonal or vertical. Labels of queries are always
 * horizontal ("level").
 */
type Slope = "level" | "slanted" | "upright";

/** Kind, size and direction of the labels of the queries or of the keys. */
export interface Labels {
  /** Whether each label is a token. If false, the labels are indices of some of the tokens. */
  tokens: boolean;
  size: number;
  /** Maximum length of a label, in pixels. Longer texts are shortened. */
  limit: number;
  slope: Slope;
  /**
   * Longer side, in pixels, of the picture that labels a token if the token is an image patch. 0 if
   * no token is a patch.
   */
  patchSize: number;
  /**
   * Width of the widest name at a tick, in pixels. Ticks replace labels if cells are small.
   * `indexed` says whether names at ticks have indices, because they are words and not positions.
   */
  tickWidth: number;
  indexed: boolean;
}

export interface Layout {
  viewport: Viewport;
  width: number;
  height: number;
  /**
   * `left` and `top` are the position of the upper left corner of the first cell. `cellsWidth` and
   * `cellsHeight` are the size of all cells together. All are in pixels.
   */
  left: number;
  top: number;
  cellsWidth: number;
  cellsHeight: number;
  labels: BySide<Labels>;
  /**
   * Space in pixels for the bars of a pinned query, below the cells, and for those of a pinned key,
   * beside the cells. 0 without these bars.
   */
  bars: BySide<number>;
  /**
   * Space for bars of effects above the cells, in pixels, or 0 without effects. `numbers` is the
   * part of it, next to the cells, for the numbers of the bars, and `upright` is whether these are
   * turned, because they are wider than the columns.
   */
  effects: { room: number; numbers: number; upright: boolean };
  /** Distance in pixels from the cells to the names of groups of tokens. 0 without groups. */
  sections: BySide<number>;
  /**
   * Height of the key labels, the names of groups and the bars of effects at the current zoom. It may be less than the
   * space above the cells, because a view reserves the largest height that they have at any zoom.
   */
  above: number;
  printed: boolean;
  /** Space in which the cells must fit, in pixels: its height (`query`) and its width (`key`). */
  room: BySide<number>;
}

export interface LayoutInput {
  selection: Selection;
  state: ViewportState;
  width: number;
  mostHeight: number;
  ratio: number;
  /** Smallest size of a cell in pixels: 1 on the screen, and less in a figure of more pixels. */
  minCell?: number;
  /** Width of the widest number of the bars of effects, or null if keys have no such bars. */
  widestEffect?: number | null;
  /** Whether the record has images, whose patches may be tokens. */
  images?: boolean;
  /**
   * Whether the layout is for a printed figure: an exported figure with a requested width or text
   * size. All its texts have one size, and readers cannot zoom it. Other figures have the texts and
   * cells of the view.
   */
  printed?: boolean;
}

/**
 * Smallest height of a query's row (or width of a key's column), in pixels, at which its label is
 * the token and not an index. Printed figures have the limit `PRINT_FONT_SIZE` instead.
 */
const MIN_LABEL_STEP = 9;
const MAX_LABEL = 13;
const MIN_LABEL = 8.5;
/**
 * Smallest width of a column in pixels at which the label of a key is diagonal. In thinner columns,
 * labels that do not fit horizontally are vertical, which is harder to read.
 */
const SLANTED_STEP = 17;
const SLANT = Math.SQRT1_2;
export const AXIS_NAME = 22;
/** Height in pixels of the names of both axes, one above the other, at the corner of the cells. */
const CORNER = 36;
export const GAP = 8;
/** Height in pixels of the space for ticks above the cells. */
const TICKS_TOP = 18;
export const TICK_SIZE = 10.5;
/** Maximum width of the name at a tick of a key, in pixels. */
const MAX_KEY_TICK = 110;
/**
 * Space in pixels for bars: of effects above the cells, of a pinned query below the cells, and of a
 * pinned key beside the cells.
 */
const EFFECTS = 40;
/** Space in pixels for the numbers of bars of effects that are not turned. */
const NUMBERS = 17;
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
/**
 * Maximum length of key labels in pixels, if columns have labels with tokens only after zooming in.
 * It is small because the space above the cells is reserved for these labels at every zoom.
 */
const MAX_LABEL_AFTER_ZOOM = 64;
const BELOW = 6;
/** Space in pixels for the names of groups of tokens, such as channels, beyond the labels. */
export const SECTIONS = 18;

/**
 * Column widths, in pixels, at which key labels may be highest: the smallest and the largest width
 * with vertical labels, the smallest width with diagonal labels, and the width at the largest zoom.
 * The space above the cells is the largest height at these widths.
 */
const LABEL_STEPS = [MIN_LABEL_STEP, SLANTED_STEP - 0.01, SLANTED_STEP, MAX_CELL];

function fontSizeOf(step: number): number {
  return Math.max(MIN_LABEL, Math.min(MAX_LABEL, step - 1.5));
}

const widths = new WeakMap<TokenList, Map<string, number>>();
/**
 * Maximum number of tokens whose labels are measured. In longer texts, only the tokens with the
 * most characters are measured.
 */
const MAX_MEASURED = 2000;

/**
 * Return the width of the widest label, shortened to `limit`, among all queries or all keys, in
 * pixels. Hidden tokens count, too, so that the layout does not change while panning. The result is
 * cached.
 *
 * @param skipPatches whether to skip tokens that are patches of an image.
 */
function widest(tokens: TokenList, size: number, limit: number, skipPatches: boolean): number {
  const key = `${size} ${limit} ${skipPatches}`;
  const cached = widths.get(tokens) ?? new Map<string, number>();
  widths.set(tokens, cached);
  let width = cached.get(key);
  if (width === undefined) {
    const font = fontOf({ size, font: "token" });
    const texts = tokens.text
      .map((_, token) => axisLabel(tokens, token))
      .filter((_, token) => !skipPatches || patchOf(tokens, token) === null);
    if (texts.length > MAX_MEASURED) texts.sort((one, other) => other.length - one.length);
    width = texts
      .slice(0, MAX_MEASURED)
      .reduce((most, text) => Math.max(most, fitLabel(text, limit, font, measureText).width), 0);
    cached.set(key, width);
  }
  return width;
}

/** Return the fields of `Labels` for ticks. Names at ticks have at most `limit` pixels. */
function ticksOf(tokens: TokenList, limit: number): Pick<Labels, "tickWidth" | "indexed"> {
  const { text, special } = tokens;
  const [repeated, specials] = [repeatedIn(text), new Set(special)];
  const indexed =
    repeated.size > 0 && text.some((name, token) => repeated.has(name) && !specials.has(token));
  const indices = indexed ? indicesOf([text.length - 1, text.length]) : "";
  const font = fontOf({ size: TICK_SIZE, font: "token" });
  const width = widest(tokens, TICK_SIZE, limit, false) + measureText(indices, font);
  return { tickWidth: Math.min(limit, Math.ceil(width)), indexed };
}

/**
 * Return the name of a token or a range of tokens without quotation marks, shortened to a width of
 * `limit` pixels. Indices are not shortened. If a name does not fit, the label of the first token is
 * written.
 */
export function spanLabel(
  tokens: TokenList,
  range: Range,
  { limit, indexed, ...look }: { limit: number; indexed: boolean; size: number; bold?: boolean },
  name = spanText(tokens, range),
): string {
  const font = fontOf({ ...look, font: "token" });
  const indices = indexed ? indicesOf(range) : neededIndices(tokens.text, range);
  if (measureText(name + indices, font) <= limit) return name + indices;
  const rest = (sizeOf(range) > 1 ? " …" : "") + indices;
  const room = limit - measureText(rest, font);
  return fitLabel(axisLabel(tokens, tokenIn(range, 0)), room, font, measureText).text + rest;
}

/** Return the text of a label, shortened to its maximum length. */
export function labelOf(text: string, { size, limit }: Labels, bold = false): string {
  return fitLabel(text, limit, fontOf({ size, font: "token", bold }), measureText).text;
}

/**
 * Compute the layout.
 *
 * In a view, the position of the cells and the total size do not depend on the zoom and the pins.
 * Therefore zooming and pinning do not move the cells below the pointer or the content below the
 * plot.
 */
export function layOut(input: LayoutInput): Layout {
  const { selection, state, width, ratio, minCell = 1, printed = false } = input;
  const narrow = width < 560;
  // A date needs more room than most words.
  const dated = [selection.queries, selection.keys].some(hasSteps);
  const limit = narrow ? (dated ? 80 : 64) : 112;
  const barRoom = width >= WITH_BARS_BESIDE ? BARS_WIDTH : 0;
  const largest = printed ? PRINT_FONT_SIZE : MAX_LABEL;
  const tokens = { query: selection.queries, key: selection.keys };
  const patches = bySide((side) => input.images === true && tokens[side].grids !== undefined);
  const tickLabels = {
    query: ticksOf(tokens.query, limit),
    key: ticksOf(tokens.key, narrow ? limit : MAX_KEY_TICK),
  };
  const groupRoom = bySide((side): number => {
    const whole: Range = [0, tokens[side].text.length];
    return sectionsOf({ tokens: tokens[side], window: whole }).length > 0 ? SECTIONS : 0;
  });
  const tickRoom = Math.max(MIN_LEFT, tickLabels.query.tickWidth);
  const widestOf = (side: Side, size: number, most = limit): number =>
    widest(tokens[side], size, most, patches[side]);
  /**
   * Return the font size of labels in rows (or columns) with `step` pixels per token. Return null
   * if labels do not fit.
   */
  const fittingSize = (step: number): number | null => {
    if (printed) return step > PRINT_FONT_SIZE ? PRINT_FONT_SIZE : null;
    return step >= MIN_LABEL_STEP ? fontSizeOf(step) : null;
  };
  /**
   * Return the space for the cells beside query labels of a width, and the viewport in this space.
   * `labelled` says whether each row or column has a label at some zoom. If not, there are ticks.
   */
  const placed = (queryRoom: number, labelled = true) => {
    const left = GAP + Math.ceil(queryRoom) + groupRoom.query;
    const lean = narrow || !labelled ? 0 : widestOf("key", largest) * SLANT;
    const right = Math.max(barRoom, Math.min(lean, MAX_LEAN), GAP);
    const maxRoom = {
      query: Math.max(MIN_CELLS, input.mostHeight),
      key: Math.max(MIN_CELLS, Math.floor(width - left - right)),
    };
    const room = roomOf(selection, state, maxRoom, ratio, minCell);
    return { left, right, room, viewport: viewportOf(selection, state, room, ratio, minCell) };
  };
  const wholeIn = (room: BySide<number>) =>
    viewportOf(selection, { ...state, ...WHOLE }, room, ratio, minCell);
  const labelRoom = Math.max(MIN_LEFT, widestOf("query", largest));
  const withLabels = placed(labelRoom);
  // A view may have ticks at one zoom and labels at another. The reader cannot zoom a printed
  // figure. If its labels with tokens do not fit, it needs no space for them.
  const { axes } = printed ? withLabels.viewport : wholeIn(withLabels.room);
  const hasTicks = bySide((side) => fittingSize(tokenStep(axes[side])) === null);
  const labelless = printed && hasTicks.query && hasTicks.key;
  const { left, right, room, viewport } = labelless
    ? placed(tickRoom, false)
    : hasTicks.query
      ? placed(Math.max(labelRoom, tickRoom))
      : withLabels;
  const whole = wholeIn(room);
  const stage = stageOf(whole, room);
  const cells = bySide((side) => cellsSize(viewport.axes[side]));
  // Largest size of all cells together at any zoom.
  const mostCells = bySide((side) =>
    Math.max(stage[side], cellsSize(whole.axes[side]), cells[side]),
  );
  const patchSizeOf = (side: Side, step: number): number =>
    patches[side] ? Math.max(MIN_LABEL, Math.min(MAX_PATCH, step - 2)) : 0;
  const wholeStep = tokenStep(whole.axes.key);
  const keyLimit =
    !printed && fittingSize(wholeStep) === null ? Math.min(limit, MAX_LABEL_AFTER_ZOOM) : limit;
  // A diagonal label would cover the picture of a patch.
  const leans = !narrow && !patches.key;
  // Shorten vertical labels to the height of diagonal labels, so that `top` need not reserve more.
  const uprightLimit = leans && !printed ? keyLimit * SLANT : keyLimit;
  /**
   * Return the direction, the maximum length and the height of key labels, in columns with `step`
   * pixels per key.
   */
  const keyLabelsAt = (step: number): { slope: Slope; limit: number; above: number } => {
    const size = labelless ? null : fittingSize(step);
    if (size === null) return { slope: "upright", limit: keyLimit, above: TICKS_TOP };
    const text = widestOf("key", size, keyLimit);
    const patch = patches.key ? patchSizeOf("key", step) + GAP + 4 : 0;
    if (text <= step - 4) {
      return { slope: "level", limit: keyLimit, above: Math.max(size + 6, patch) };
    }
    if (step >= SLANTED_STEP && leans) {
      return { slope: "slanted", limit: keyLimit, above: Math.max(text * SLANT + 10, patch) };
    }
    const above = Math.max(Math.min(uprightLimit, text) + 10, patch);
    return { slope: "upright", limit: uprightLimit, above };
  };
  const keyLabels = keyLabelsAt(tokenStep(viewport.axes.key));
  // If the reader can zoom in, reserve the largest height that the labels need at any zoom.
  const zooms = Math.max(whole.axes.query.cell, whole.axes.key.cell) < MAX_CELL;
  const steps = zooms ? LABEL_STEPS.filter((step) => step >= wholeStep) : [];
  const heights = [wholeStep, ...steps].map((step) => keyLabelsAt(step).above);
  const widestEffect = input.widestEffect ?? null;
  const isUpright = (step: number): boolean => step < (widestEffect ?? 0) + NUMBERS_APART;
  // The space does not depend on the zoom. It is that for turned numbers if there are any.
  const numbers = isUpright(printed ? tokenStep(viewport.axes.key) : wholeStep)
    ? Math.ceil(widestEffect ?? 0) + 6
    : NUMBERS;
  const effects =
    widestEffect === null
      ? { room: 0, numbers: 0, upright: false }
      : { room: EFFECTS + numbers, numbers, upright: isUpright(viewport.axes.key.cell) };
  const added = effects.room + groupRoom.key;
  const above = Math.ceil(keyLabels.above + added);
  const top = Math.ceil(AXIS_NAME + Math.max(keyLabels.above, ...heights) + added);
  // Centre the cells, but leave at least `right` pixels beside them for bars and diagonal labels.
  const spare = width - left - mostCells.key;
  const before = Math.max(0, Math.min(spare / 2, spare - right));
  const labels = bySide((side): Labels => {
    const step = tokenStep(viewport.axes[side]);
    return {
      tokens: !labelless && fittingSize(step) !== null,
      size: printed ? PRINT_FONT_SIZE : fontSizeOf(step),
      limit: side === "query" ? limit : keyLabels.limit,
      slope: side === "query" ? "level" : keyLabels.slope,
      patchSize: patchSizeOf(side, step),
      ...tickLabels[side],
    };
  });
  const layout: Layout = {
    viewport,
    width,
    height: Math.ceil(top + mostCells.query + BARS + BELOW),
    left: Math.round(left + before),
    top,
    cellsWidth: cells.key,
    cellsHeight: cells.query,
    labels,
    bars: {
      query: selection.token === null ? 0 : BARS,
      key: selection.key === null ? 0 : barRoom,
    },
    effects,
    above,
    sections: {
      query: groupRoom.query && left - SECTIONS / 2,
      key: groupRoom.key && above - SECTIONS / 2,
    },
    ...{ printed, room },
  };
  return printed ? withoutSpareRoom(layout) : layout;
}

/** Return a layout for a figure, without the space that is reserved for zooming and pinning. */
export function withoutSpareRoom(layout: Layout): Layout {
  const { cellsHeight, bars } = layout;
  // In print, the name "key" is in the corner, above the name "query", and needs no further line.
  const top = layout.printed ? Math.max(CORNER, layout.above) : AXIS_NAME + layout.above;
  const below = bars.query > 0 ? bars.query : bars.key > 0 ? TITLE : 0;
  return { ...layout, top, height: Math.ceil(top + cellsHeight + below + BELOW) };
}

/**
 * Return the position of the first row (or column) of cells, and the height (or width) of all cells
 * together, in pixels.
 */
export function spanOf(
  { left, top, cellsWidth, cellsHeight }: Layout,
  side: Side,
): [start: number, size: number] {
  return side === "query" ? [top, cellsHeight] : [left, cellsWidth];
}

/**
 * Return the vertical position of the centre of a query, or the horizontal position of the centre
 * of a key, in pixels.
 */
export function middleOf(layout: Layout, side: Side, token: number): number {
  const [start] = spanOf(layout, side);
  return start + pixelOf(layout.viewport.axes[side], token);
}

/** Return the centre of a row (or column) of cells, in pixels. */
export function cellMiddle(layout: Layout, side: Side, cell: number): number {
  const [start] = spanOf(layout, side);
  return start + (cell + 0.5) * layout.viewport.axes[side].cell;
}

/** Return the position of the upper edge of a query, or of the left edge of a key, in pixels. */
export function borderOf(layout: Layout, side: Side, token: number): number {
  const [start] = spanOf(layout, side);
  return start + edgeOf(layout.viewport.axes[side], token);
}

/**
 * Return the row and column of the cell at a point. On the label or bar of a row (or column),
 * return only this row (or column), and null for the other. Return null at other points.
 */
export function cellAt(layout: Layout, x: number, y: number): Focus | null {
  const { viewport, left, top, cellsWidth, cellsHeight, bars } = layout;
  const inRows = y >= top && y < top + cellsHeight;
  const inColumns = x >= left && x < left + cellsWidth;
  const query = inRows ? Math.floor((y - top) / viewport.axes.query.cell) : null;
  const key = inColumns ? Math.floor((x - left) / viewport.axes.key.cell) : null;
  if (inRows && inColumns) return { query, key };
  const onQueryLabel = x < left && x > left - GAP - layout.labels.query.limit;
  const onKeyLabel = y < top && y > top - layout.above - 4;
  // Bars belong to the column above them or to the row beside them.
  const besideCells = bars.key > 0 && x >= left + cellsWidth;
  const belowCells = bars.query > 0 && y >= top + cellsHeight;
  if (inRows && (onQueryLabel || besideCells)) return { query, key: null };
  if (inColumns && (onKeyLabel || belowCells)) return { query: null, key };
  return null;
}
