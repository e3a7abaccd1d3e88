/** Marks of the overview: the points of one tile, and the whole grid as one scene. */

import { measureText } from "../../../draw/canvas";
import { DOTS_PAINTER } from "../../../draw/dots";
import { textMark, wrap } from "../../../draw/figure";
import { type DotsMark, fontOf, type Mark, type Scene } from "../../../draw/marks";
import type { Palette } from "../../../ui/colors/palette";
import type { HeadGrid, HeadIndex } from "../../../ui/head-grid/grid";
import { fittedName, type HeadRole } from "../../../ui/head-grid/head-roles";
import { gridMarks } from "../../../ui/head-grid/marks";
import { headName } from "../../../ui/text/captions";
import type { OverviewHead } from "../client/requests";
import { headKey } from "../state";
import { figuresInShort, strengthOf, type TrustMap } from "../trust";
import type { TileLayout } from "./layout";

/** Drawing order, colours and shapes of points. All tiles share them. */
export interface TileLook {
  /** Indices of the overview's points in drawing order. Points that stand out are last. */
  order: Uint32Array;
  color: Uint8Array;
  shape: Uint8Array;
  colors: readonly string[];
  /** Number of points that stand out, because they match the search or are in the lasso. */
  standing: number;
  /** Whether a search or a lasso is active, even if none of the overview's points match. */
  seeking: boolean;
}

/**
 * Return the appearance of the overview's points. Points that match the search or are in the lasso
 * stand out, and are drawn last.
 *
 * @param order indices of the overview's points in random order.
 * @param index colour index of each point of the corpus.
 * @param standsOut 1 for each point of the corpus that stands out, or null if neither a search nor
 *   a lasso is active.
 */
export function tileLook(options: {
  order: Uint32Array;
  stride: number;
  numQueries: number;
  index: Uint8Array;
  colors: readonly string[];
  standsOut: Uint8Array | null;
}): TileLook {
  const { stride, numQueries, index, colors, standsOut } = options;
  const count = options.order.length;
  const order = new Uint32Array(count);
  let [back, front] = [0, count];
  for (const point of options.order) {
    if (standsOut && standsOut[point * stride] === 1) order[--front] = point;
    else order[back++] = point;
  }
  const color = new Uint8Array(count);
  const shape = new Uint8Array(count);
  for (let i = 0; i < count; i++) {
    const point = (order[i] as number) * stride;
    color[i] = index[point] as number;
    shape[i] = point >= numQueries ? 1 : 0;
  }
  return { order, color, shape, colors, standing: count - front, seeking: standsOut !== null };
}

/** Pixels between the edge of a tile and its outermost points. */
const INSET = 4;
const SMALLEST_DOT = 0.62;
const LARGEST_DOT = 2.6;

/**
 * Return the radius of dots, in pixels, for `count` points on a tile with a side of `room` pixels.
 */
function dotOf(room: number, count: number): number {
  const apart = Math.sqrt((room * room) / Math.max(1, count));
  return Math.max(SMALLEST_DOT, Math.min(LARGEST_DOT, 0.6 * apart));
}

/** Top left corner and side of a tile, in pixels. */
export interface Square {
  x: number;
  y: number;
  side: number;
}

/**
 * Return the median crowding of points. The crowding of a point is the number of points in its
 * cell, on a grid of 16 by 16 cells.
 */
function crowdOf(coordinates: Uint8Array): number {
  const counts = new Uint16Array(256);
  const points = coordinates.length / 2;
  for (let at = 0; at < points; at++) {
    const cell = ((coordinates[points + at] as number) & 0xf0) | ((coordinates[at] as number) >> 4);
    counts[cell] = Math.min(65535, (counts[cell] as number) + 1);
  }
  const sorted = counts.filter((cellCount) => cellCount > 0).sort();
  let passed = 0;
  for (const inCell of sorted) {
    passed += inCell;
    if (passed * 2 >= points) return inCell;
  }
  return 0;
}

/**
 * Return the dots of a tile: first the points that do not stand out, then over them those that do.
 *
 * @param strength factor of the opacity, 0 to 1.
 */
export function tileDots(
  head: OverviewHead,
  look: TileLook,
  square: Square,
  strength: number,
): DotsMark[] {
  const { coordinates } = head;
  const { order, color, shape, colors, standing } = look;
  const count = order.length;
  const inset = INSET + dotOf(square.side, count);
  const room = square.side - 2 * inset;
  const x = new Float32Array(count);
  const y = new Float32Array(count);
  const left = square.x + inset;
  const top = square.y + inset;
  const scale = room / 255;
  const points = coordinates.length / 2;
  for (let i = 0; i < count; i++) {
    const point = order[i] as number;
    x[i] = left + (coordinates[point] as number) * scale;
    y[i] = top + (255 - (coordinates[points + point] as number)) * scale;
  }
  const radius = dotOf(room, count);
  const onEachOther = (crowdOf(coordinates) / (room / 16) ** 2) * Math.PI * radius ** 2;
  const opacity = Math.max(0.26, Math.min(0.85, 1.6 / (1 + 0.6 * onEachOther)));
  const area = { x: square.x, y: square.y, width: square.side, height: square.side };
  const part = (start: number, stop: number) => ({
    kind: "dots" as const,
    painter: DOTS_PAINTER,
    count: stop - start,
    x: x.subarray(start, stop),
    y: y.subarray(start, stop),
    color: color.subarray(start, stop),
    shape: shape.subarray(start, stop),
    colors,
    area,
  });
  const back = count - standing;
  const marks: DotsMark[] = [
    { ...part(0, back), radius, opacity: opacity * strength * (look.seeking ? 0.35 : 1) },
  ];
  if (standing > 0) {
    const emphasis = Math.max(opacity, Math.min(0.95, 60 / standing));
    marks.push({
      ...part(back, count),
      radius: Math.max(1.3, radius * 1.3),
      opacity: emphasis * Math.max(strength, 0.6),
    });
  }
  return marks;
}

/**
 * Return the reason why a head has no plot, or "no plot" if the reason does not fit into the tile.
 */
export function problemInShort(problem: string, cell: number): string {
  return problem.length * 90 > cell * cell ? "no plot" : problem;
}

export interface OverviewPicture {
  grid: HeadGrid;
  layout: TileLayout;
  look: TileLook;
  heads: ReadonlyMap<string, OverviewHead>;
  trust: TrustMap;
  palette: Palette;
  roleOf: (head: HeadIndex) => HeadRole | null;
}

/** Return the scene of the complete grid, including tiles outside of the visible part. */
export function overviewScene(picture: OverviewPicture): Scene {
  const { grid, layout, look, heads, trust, palette } = picture;
  const { cell } = layout;
  const front = gridMarks(grid, layout, palette, (tile, x, y) => {
    const head = heads.get(headKey(tile));
    const measured = trust.get(headKey(tile));
    const bounds = { x: x + 0.5, y: y + 0.5, width: cell - 1, height: cell - 1 };
    const marks: Mark[] = [{ kind: "rect", ...bounds, stroke: palette.rule }];
    const square = { x, y, side: cell };
    if (head?.problem)
      marks.push(...problemMarks(problemInShort(head.problem, cell), square, palette));
    else if (head) marks.push(...tileDots(head, look, square, strengthOf(measured)));
    const size = layout.figures === "words" ? 10.5 : 9.5;
    let line = y + cell + 9;
    const label = (text: string, color: string, fontSize: number): void => {
      marks.push(textMark(text, x + cell / 2, line, color, fontSize, { align: "middle" }));
      line += 14;
    };
    if (layout.named) label(headName(tile), palette.ink, 10);
    label(head?.problem ? "" : figuresInShort(measured, layout.figures), palette.muted, size);
    const role = layout.roles ? picture.roleOf(tile) : null;
    if (role) label(fittedName(role.name, cell), palette.muted, 9.5);
    return marks;
  });
  const { width, height } = layout;
  return { width, height, background: null, back: [], backOpacity: 1, front };
}

function problemMarks(
  problem: string,
  square: { x: number; y: number; side: number },
  palette: Palette,
): Mark[] {
  const measure = (text: string): number => measureText(text, fontOf({ size: 10, font: "text" }));
  const lines = wrap(problem, square.side - 8, measure);
  const first = square.y + square.side / 2 - ((lines.length - 1) * 12) / 2;
  return lines.map((line, i) =>
    textMark(line, square.x + square.side / 2, first + i * 12, palette.muted, 10, {
      align: "middle",
    }),
  );
}
