/**
 * Order, positions and sizes of the overview's tiles. A tile is the small plot of one head. A role
 * names what a head does, as found over a corpus. Pure functions.
 */

import type { StackDescription } from "../../../client/protocol";
import {
  type GridLayout,
  galleryGrid,
  type HeadGrid,
  layerGrid,
  offeredHeads,
  rankedCells,
  SCROLLBAR,
} from "../../../ui/head-grid/grid";
import { BY_ROLE, type NamedHeads } from "../../../ui/head-grid/head-roles";
import { headKey } from "../state";
import type { FigureDetail, TrustMap } from "../trust";

/** Order of heads: by number, by a trust figure, or by role. */
export type TileOrder = "number" | "correlation" | "recall" | typeof BY_ROLE;

/** Whether an order depends on trust figures, which are measured after the plots are loaded. */
export function isMeasured(order: TileOrder): boolean {
  return order === "correlation" || order === "recall";
}

/** Return the order of this name, or by number if it is unknown or heads have no roles. */
export function tileOrder(named: string, hasRoles: boolean): TileOrder {
  if (named === "correlation" || named === "recall") return named;
  return named === BY_ROLE && hasRoles ? BY_ROLE : "number";
}

/**
 * Arrange heads in a grid of layers, or in a gallery of all heads: by role, or by a trust figure
 * with the best first.
 */
export function tileGrid(
  stack: StackDescription,
  order: TileOrder,
  trust: TrustMap,
  perRow: number,
  roles: NamedHeads | null = null,
): HeadGrid {
  const offered = offeredHeads(stack, null);
  if (order === BY_ROLE) {
    const cells = rankedCells(stack, offered, roles?.ranks ?? [], null);
    return galleryGrid(stack, offered, cells, order, perRow);
  }
  if (order === "number") return layerGrid(stack, offered);
  const scores = stack.layers.map((layer, at) => {
    const row: (number | null)[] = [];
    for (const head of offered[at] ?? []) {
      const figures = trust.get(headKey({ layer, head }));
      const value = (order === "correlation" ? figures?.plot : figures?.recall) ?? null;
      row[head] = value === null ? null : order === "correlation" ? -value : value;
    }
    return row;
  });
  return galleryGrid(stack, offered, rankedCells(stack, offered, scores, null), order, perRow);
}

/** Sizes of the tiles and their labels, in pixels. */
export interface TileLayout extends GridLayout {
  figures: FigureDetail;
  /**
   * Whether each tile shows the name of its head, because the columns do not stand for head
   * numbers.
   */
  named: boolean;
  /** Whether a line below each tile is reserved for the role of its head. */
  roles: boolean;
}

const MIN_CELL = 40;
/**
 * Minimum side of a plot in an exported figure, in pixels. The trust figures below it need this
 * width.
 */
const MIN_PRINTED = 34;
const SMALL_CELL = 78;
const MAX_CELL = 220;
/** Preferred side of a plot in a gallery, in pixels. A gallery has as many plots per row as fit. */
const GALLERY_CELL = 104;
const MIN_GAP = 6;
const FIGURE_HEIGHT = 15;
const NAME_HEIGHT = 15;
/** Maximum height in pixels of a grid without a scroll bar. */
const WHOLE_HEIGHT = 1400;

function labelWidth(width: number): number {
  return width < 560 ? 26 : 62;
}

/** Return the number of tiles per row in a gallery of the given width. */
export function tilesInRow(width: number): number {
  const cell = width < 560 ? 76 : GALLERY_CELL;
  return Math.max(1, Math.floor((width - SCROLLBAR) / (cell + MIN_GAP)));
}

/**
 * Lay out tiles in the given width. The grid scrolls if tiles would be smaller than their minimum
 * size.
 */
export function layOutTiles(options: {
  columns: number;
  rows: number;
  named: boolean;
  width: number;
  /** Maximum height of the scrolling box in pixels. */
  mostHeight: number;
  /**
   * Whether this is an exported figure with a given width or text size. A figure does not scroll.
   */
  printed?: boolean;
  /** Whether a line below each tile is reserved for the role of its head. */
  roles?: boolean;
}): TileLayout {
  const { columns, rows, named, width, mostHeight, printed, roles = false } = options;
  const least = printed ? MIN_PRINTED : MIN_CELL;
  const whole = printed ? Number.POSITIVE_INFINITY : WHOLE_HEIGHT;
  const left = named ? 1 : labelWidth(width);
  const top = named ? 1 : 22;
  const at = (available: number): TileLayout => {
    const pitch = Math.floor((available - left) / Math.max(1, columns));
    const gap = pitch > 110 ? 12 : MIN_GAP;
    const below = FIGURE_HEIGHT + 2 + (named ? NAME_HEIGHT : 0) + (roles ? NAME_HEIGHT : 0);
    // Limit the size of tiles to the size at which all rows fit without scrolling, unless this is
    // too small.
    const high = Math.floor((WHOLE_HEIGHT - SCROLLBAR - top) / rows) - gap - below;
    const most = high >= SMALL_CELL && !named ? Math.min(MAX_CELL, high) : MAX_CELL;
    const cell = Math.max(least, Math.min(most, pitch - gap));
    const across = named ? Math.max(pitch, cell + gap) : cell + gap;
    const down = cell + gap + below;
    const size = { width: left + columns * across, height: top + rows * down };
    const sideways = size.width > available;
    const needed = size.height + (sideways ? SCROLLBAR : 0);
    const boxHeight = needed <= whole ? needed : Math.min(needed, mostHeight);
    const upright = needed > boxHeight;
    return {
      cell,
      across,
      down,
      left,
      top,
      // The frame of a plot is drawn inside the plot and needs no additional space.
      frame: 0,
      figures: cell >= 78 ? "words" : cell >= 57 ? "short" : "least",
      named,
      roles,
      columns,
      ...size,
      boxWidth: Math.min(size.width + (upright ? SCROLLBAR : 0), width),
      boxHeight,
    };
  };
  const free = at(width);
  return free.height > free.boxHeight ? at(width - SCROLLBAR) : free;
}
