/**
 * Order, positions and sizes of the overview's tiles. A tile is the small plot of one head. A trust
 * figure measures how well distances on a plot follow q·k. A role names what a head does, as found
 * over a corpus. Pure functions.
 */

import type { StackDescription } from "../../../client/protocol";
import { headsOf } from "../../../client/source";
import type { NamedHeads } from "../../../client/traits";
import {
  galleryGrid,
  type HeadGrid,
  inScrollBox,
  layerGrid,
  rankedCells,
  SCROLLBAR,
} from "../../../ui/head-grid/grid";
import { BY_ROLE } from "../../../ui/head-grid/head-roles";
import { layersOf } from "../../../ui/view/model-layers";
import { headKey } from "../state";
import type { FigureDetail, TrustMap } from "../trust";

/** Order of heads: by number, by a trust figure, or by role. */
export type TileOrder = "number" | "correlation" | "recall" | typeof BY_ROLE;

/**
 * Return the order with the name `named`. Return "number" if no order has this name, or if it is
 * the order by role and heads have no roles.
 */
export function tileOrder(named: string, hasRoles: boolean): TileOrder {
  if (named === "correlation" || named === "recall") return named;
  return named === BY_ROLE && hasRoles ? BY_ROLE : "number";
}

/**
 * Arrange heads by number in a grid with one row per layer, or in a gallery: heads of all layers in
 * reading order, by role, or by a trust figure with the best first.
 */
export function tileGrid(
  stack: StackDescription,
  order: TileOrder,
  trust: TrustMap,
  perRow: number,
  roles: NamedHeads | null = null,
): HeadGrid {
  if (order === "number") return layerGrid(layersOf({}, [stack]));
  const scoreOf = (layer: number, head: number): number | null => {
    const { plot = null, recall = null } = trust.get(headKey({ layer, head })) ?? {};
    if (order === "recall") return recall;
    return plot === null ? null : -plot;
  };
  const scores =
    order === BY_ROLE
      ? (roles?.ranks ?? [])
      : stack.layers.map((layer) => headsOf(stack, layer).map((head) => scoreOf(layer, head)));
  return galleryGrid(stack, rankedCells(stack, scores), order, perRow);
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

/** Return the number of tiles per row in a gallery of the given width. */
export function tilesInRow(width: number): number {
  const cell = width < 560 ? 76 : GALLERY_CELL;
  return Math.max(1, Math.floor((width - SCROLLBAR) / (cell + MIN_GAP)));
}

/**
 * Lay out tiles in the given width. The grid scrolls if tiles would be smaller than their minimum
 * size, or if it is higher than `WHOLE_HEIGHT`.
 *
 * @param printed whether this is an exported figure with a given width or text size. A figure does
 *   not scroll.
 * @param roles whether a line below each tile is reserved for the role of its head.
 */
export function layOutTiles(grid: HeadGrid, width: number, printed: boolean, roles: boolean) {
  // In a gallery, the columns do not stand for head numbers, so each tile shows the name of its head.
  const named = grid.columns === null;
  const columns = grid.columns?.length ?? tilesInRow(width);
  const rows = grid.rows.length;
  const left = named ? 1 : width < 560 ? 26 : 62;
  const top = named ? 1 : 22;
  const below = FIGURE_HEIGHT + 2 + (named ? NAME_HEIGHT : 0) + (roles ? NAME_HEIGHT : 0);
  const layOutIn = (available: number) => {
    const pitch = Math.floor((available - left) / Math.max(1, columns));
    const gap = pitch > 110 ? 12 : MIN_GAP;
    // Limit the size of tiles to the size at which all rows fit without scrolling, unless this is
    // too small.
    const high = Math.floor((WHOLE_HEIGHT - SCROLLBAR - top) / rows) - gap - below;
    const most = high >= SMALL_CELL && !named ? Math.min(MAX_CELL, high) : MAX_CELL;
    const cell = Math.max(printed ? MIN_PRINTED : MIN_CELL, Math.min(most, pitch - gap));
    const across = named ? Math.max(pitch, cell + gap) : cell + gap;
    return {
      cell,
      across,
      down: cell + gap + below,
      below,
      left,
      top,
      columns,
      named,
      // The frame of a plot is drawn inside the plot and needs no additional space.
      frame: 0,
      figures: (cell >= 78 ? "words" : cell >= 57 ? "short" : "least") as FigureDetail,
      width: left + columns * across,
      height: top + rows * (cell + gap + below),
    };
  };
  const scrolls = !printed && layOutIn(width).height > WHOLE_HEIGHT;
  const boxHeight = Math.max(480, Math.floor((globalThis.innerHeight || 900) * 0.85));
  return inScrollBox(layOutIn, width, scrolls ? boxHeight : Number.POSITIVE_INFINITY);
}

export type TileLayout = ReturnType<typeof layOutTiles>;
