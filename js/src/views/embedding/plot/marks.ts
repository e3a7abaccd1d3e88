/**
 * Marks of one head's plot: dots of all points, and dots, lines and labels of the points that stand
 * out. These are the chosen point with its text, the search result and the lasso. Pure functions.
 */

import { measureText } from "../../../draw/canvas";
import { DOTS_PAINTER } from "../../../draw/dots";
import {
  type DotsMark,
  fontOf,
  type LineMark,
  type Mark,
  type TextFont,
} from "../../../draw/marks";
import type { Palette } from "../../../ui/colors/palette";
import { fitLabel } from "../../../ui/text/labels";
import type { Corpus, Lines } from "../client/requests";
import type { Coloring } from "../colors";
import {
  anyWithin,
  type Cloud,
  type HitGrid,
  hitGrid,
  type Lasso,
  opacityOf,
  type Projected,
  type Room,
  radiusOf,
} from "./cloud";

/** Colours and shapes of a cloud, in drawing order. */
export interface CloudLook {
  color: Uint8Array;
  shape: Uint8Array;
  colors: readonly string[];
}

/** Return the colours and shapes of a cloud. */
export function lookOf(
  cloud: Cloud,
  corpus: Corpus,
  coloring: Coloring | null,
  palette: Palette,
): CloudLook {
  const color = new Uint8Array(cloud.count);
  const shape = new Uint8Array(cloud.count);
  for (let index = 0; index < cloud.count; index++) {
    const point = cloud.points[index] as number;
    color[index] = coloring?.index[point] ?? 0;
    shape[index] = corpus.isKey(point) ? 1 : 0;
  }
  return { color, shape, colors: coloring?.palette ?? [palette.neutral] };
}

/** A cloud on the screen, and everything else that its marks depend on. */
export interface Shown {
  corpus: Corpus;
  cloud: Cloud;
  look: CloudLook;
  projected: Projected;
  room: Room;
  zoom: number;
  palette: Palette;
}

/** Return the dots of all points. Their radius and opacity depend on the number of points. */
export function cloudMark(shown: Shown): DotsMark {
  const { cloud, look, projected, room, zoom } = shown;
  const radius = radiusOf(cloud.count, room, zoom);
  return {
    kind: "dots",
    painter: DOTS_PAINTER,
    count: cloud.count,
    x: projected.x,
    y: projected.y,
    color: look.color,
    colors: look.colors,
    shape: look.shape,
    radius,
    opacity: opacityOf(cloud, room, zoom, radius),
    ...(projected.near ? { near: projected.near } : {}),
    area: { x: 0, y: 0, width: room.width, height: room.height },
  };
}

/**
 * Return the dots of the points at some indices of the drawing order.
 *
 * @param more fields that replace those of the dots of all points.
 */
function dotsOf(shown: Shown, indices: readonly number[], more: Partial<DotsMark>): DotsMark {
  const { look, projected } = shown;
  const picked = <T extends Float32Array | Uint8Array>(from: T): T => {
    const into = new (from.constructor as new (length: number) => T)(indices.length);
    indices.forEach((index, i) => {
      into[i] = from[index] as number;
    });
    return into;
  };
  const whole = cloudMark(shown);
  return {
    ...whole,
    count: indices.length,
    x: picked(projected.x),
    y: picked(projected.y),
    color: picked(look.color),
    shape: picked(look.shape),
    ...(projected.near ? { near: picked(projected.near) } : {}),
    ...more,
  };
}

/** The points of a cloud that stand out, and the lines of the chosen point. */
export interface Standing {
  /** 1 for each point in the search result or the lasso. Null if neither exists. */
  points: Uint8Array | null;
  chosen: number | null;
  lines: Lines | null;
}

/**
 * Return the factor for the opacity of the dots of all points. It is below 1 while some points
 * stand out.
 */
export function backOpacity(standing: Standing): number {
  return standing.points ? 0.22 : standing.chosen !== null ? 0.42 : 1;
}

/**
 * Maximum number of points in a chosen text whose points have rings. More rings would hide the
 * points.
 */
const MAX_RINGS = 800;
const LABEL = { size: 11.5, font: "token" as TextFont };
const LABEL_HEIGHT = 16;
const LABEL_WIDTH = 150;
/**
 * Points have labels if at most `FEW_IN_SIGHT` are visible, or if the zoom is at least
 * `NAMED_FROM`.
 */
const FEW_IN_SIGHT = 260;
const NAMED_FROM = 3;
const MAX_NAMES = 30;
/** Maximum number of labels at the other ends of a chosen point's lines. */
const NAMED_KEYS = 6;

/**
 * Return the marks that are drawn over the dots of all points. `hoverMarks` returns the mark of the
 * point under the pointer.
 */
export function standingMarks(shown: Shown, standing: Standing): Mark[] {
  const { corpus, cloud, palette, room } = shown;
  const { points, chosen, lines } = standing;
  const marks: Mark[] = [];
  const { radius, opacity } = cloudMark(shown);
  const solid = Math.min(0.95, Math.max(0.8, opacity));
  const indexOf = pointToIndex(cloud);
  const at = chosen === null ? -1 : (indexOf(chosen) ?? -1);

  // If thousands of points stand out, their dots are translucent, so that the density is visible.
  const crowd = (count: number): number =>
    Math.max(opacity, Math.min(solid, 1500 / Math.max(1, count)));
  if (points) {
    const indices: number[] = [];
    for (let i = 0; i < cloud.count; i++)
      if (points[cloud.points[i] as number] === 1) indices.push(i);
    const look = { radius: Math.max(1.8, radius * 1.25), opacity: crowd(indices.length) };
    marks.push(dotsOf(shown, indices, look));
  }
  if (chosen !== null) {
    const text = corpus.textOf(chosen);
    const ofText = (["query", "key"] as const).flatMap((kind) => {
      const [start, stop] = corpus.pointsOf(kind, text);
      return Array.from({ length: stop - start }, (_, i) => indexOf(start + i) ?? -1);
    });
    // Sort by drawing order. It is random, so keys do not hide queries.
    const indices = ofText.filter((index) => index >= 0).sort((a, b) => a - b);
    const wide = Math.max(2, radius * 1.15);
    if (at >= 0 && lines?.point === chosen) marks.push(...lineMarks(shown, at, lines, indexOf));
    marks.push(dotsOf(shown, indices, { radius: wide, opacity: crowd(indices.length) }));
    if (indices.length <= MAX_RINGS)
      marks.push(
        ring(dotsOf(shown, indices, { radius: wide + 1.6, opacity: 0.55, ring: 1.1 }), palette.ink),
      );
  }
  // If the reader hides the kind of the chosen point, the cloud does not contain this point. Its
  // text still stands out.
  if (at >= 0) {
    const wide = Math.max(2, radius * 1.15);
    const chosenDot = dotsOf(shown, [at], {
      radius: Math.max(5, wide + 2.5),
      opacity: 1,
      ring: 2.2,
    });
    // A circle in the background colour separates the chosen point from dots and lines around it.
    // Without `near`, distance does not make it fainter.
    const { near, ...flat } = chosenDot;
    marks.push(ring({ ...flat, radius: flat.radius + 2, ring: 2 }, palette.background));
    marks.push(ring(flat, palette.ink));
  }
  const words = namesOf(shown, standing, at, indexOf);
  for (const word of words) marks.push(...nameMarks(word, word.index === at, palette));
  return marks.filter((mark) => mark.kind !== "dots" || (mark.count > 0 && room.width > 0));
}

function ring(mark: DotsMark, color: string): DotsMark {
  return { ...mark, color: new Uint8Array(mark.count), colors: [color] };
}

// Cache for `pointToIndex`: for each cloud, the index of every point, or -1.
const tables = new WeakMap<Cloud, Int32Array>();

/**
 * Return a function that maps a point to its index in the drawing order, or to undefined if the
 * point is not drawn.
 */
export function pointToIndex(cloud: Cloud): (point: number) => number | undefined {
  let table = tables.get(cloud);
  if (!table) {
    const last = cloud.points.reduce((most, point) => Math.max(most, point), -1);
    table = new Int32Array(last + 1).fill(-1);
    cloud.points.forEach((point, index) => {
      (table as Int32Array)[point] = index;
    });
    tables.set(cloud, table);
  }
  const lookup = table;
  return (point) => {
    const index = lookup[point];
    return index === undefined || index < 0 ? undefined : index;
  };
}

/** Minimum weight of a drawn line, relative to the strongest line of the point. */
const MIN_SHARE = 0.01;
/** Minimum weight of a line with a label at its other end, relative to the strongest line. */
const NAMED_SHARE = 0.05;

/** Return the lines from the chosen query to its keys, or from the chosen key to its queries. */
function lineMarks(
  { projected, palette }: Shown,
  at: number,
  { points, weights }: Lines,
  indexOf: (point: number) => number | undefined,
): LineMark[] {
  const most = weights.reduce((largest, weight) => Math.max(largest, weight), 0);
  const marks: LineMark[] = [];
  const [x0, y0] = [projected.x[at] as number, projected.y[at] as number];
  points.forEach((point, i) => {
    const index = indexOf(point);
    if (index === undefined || !(most > 0)) return;
    const share = (weights[i] as number) / most;
    if (share < MIN_SHARE) return;
    marks.push({
      kind: "line",
      x0,
      y0,
      x1: projected.x[index] as number,
      y1: projected.y[index] as number,
      stroke: palette.ink,
      strokeWidth: 1 + share,
      opacity: share,
    });
  });
  // Draw stronger lines later, so that they are on top.
  return marks.sort((a, b) => (a.opacity as number) - (b.opacity as number));
}

/**
 * Return the label of a point's token without spaces around it, and the width of the label in
 * pixels.
 */
export function labelOf(corpus: Corpus, point: number): { text: string; width: number } {
  const name = corpus.tokenOf(point);
  const { text, width } = fitLabel(name.trim() || name, LABEL_WIDTH, fontOf(LABEL), measureText);
  return { text, width };
}

/**
 * Return the labels of the chosen point and of the other ends of its strongest lines. With a search
 * or a lasso, also label its points if they are few. If neither a search nor a lasso nor a chosen
 * point exists, label the visible points if they are few.
 */
function namesOf(
  shown: Shown,
  { points, chosen, lines }: Standing,
  at: number,
  indexOf: (point: number) => number | undefined,
): PlacedLabel[] {
  const { corpus, cloud, projected, room, zoom } = shown;
  const textOf = (index: number) => labelOf(corpus, cloud.points[index] as number);
  const radius = radiusOf(cloud.count, room, zoom);
  const options = { room, height: LABEL_HEIGHT, away: radius + 6 };
  const names: PlacedLabel[] = [];
  let grid: HitGrid | null = null;
  const covers = (left: number, middle: number, width: number): boolean => {
    grid ??= hitGrid(projected, room);
    const [up, down] = [middle - LABEL_HEIGHT / 2, middle + LABEL_HEIGHT / 2];
    return anyWithin(grid, projected, [left - radius, up - radius, left + width + radius, down]);
  };
  const add = (indices: number[], most: number, least: boolean): void => {
    const more = { most, taken: names, covers, least };
    names.push(...placeLabels(indices, projected, textOf, { ...options, ...more }));
  };
  if (at >= 0) add([at], 1, true);
  if (at >= 0 && lines && lines.point === chosen) {
    const most = lines.weights.reduce((largest, weight) => Math.max(largest, weight), 0);
    const strongest = Array.from(lines.points, (point, i) => ({
      point,
      weight: lines.weights[i] as number,
    }))
      .filter(({ weight }) => weight >= NAMED_SHARE * most)
      .sort((a, b) => b.weight - a.weight)
      .slice(0, NAMED_KEYS);
    add(
      strongest.flatMap(({ point }) => indexOf(point) ?? []).filter((index) => index !== at),
      NAMED_KEYS,
      true,
    );
  }
  if (points) {
    const standing: number[] = [];
    for (let i = 0; i < cloud.count && standing.length < 2000; i++)
      if (points[cloud.points[i] as number] === 1) standing.push(i);
    // If all labels are equal, add none, because they would only repeat the search text.
    const words = new Set(standing.slice(0, FEW_IN_SIGHT).map((index) => textOf(index).text));
    const few = standing.length <= FEW_IN_SIGHT || zoom >= NAMED_FROM;
    if (few && words.size > 1) add(standing, MAX_NAMES, false);
  } else if (
    chosen === null &&
    (zoom >= NAMED_FROM || inSight(projected, room, FEW_IN_SIGHT + 1).length <= FEW_IN_SIGHT)
  ) {
    add(inSight(projected, room, 2000), MAX_NAMES, false);
  }
  return names;
}

function nameMarks(word: PlacedLabel, bold: boolean, palette: Palette): Mark[] {
  return [
    {
      kind: "rect",
      x: word.x - 2,
      y: word.y - LABEL_HEIGHT / 2 + 1,
      width: word.width + 4,
      height: LABEL_HEIGHT - 2,
      fill: palette.background,
      opacity: 0.78,
      radius: 3,
    },
    { kind: "text", x: word.x, y: word.y, text: word.text, fill: palette.ink, ...LABEL, bold },
  ];
}

/** Return a ring around the point under the pointer. */
export function hoverMarks(shown: Shown, point: number | null): Mark[] {
  const index = point === null ? undefined : pointToIndex(shown.cloud)(point);
  if (index === undefined) return [];
  const radius = Math.max(4.5, cloudMark(shown).radius + 2.5);
  const { near, ...dot } = dotsOf(shown, [index], { radius, opacity: 1, ring: 1.6 });
  return [ring(dot, shown.palette.ink)];
}

/** Return the outline of a lasso while it is drawn. */
export function lassoMarks(lasso: Lasso | null, palette: Palette): Mark[] {
  if (!lasso || lasso.length < 4) return [];
  const marks: Mark[] = [];
  for (let i = 0; i < lasso.length; i += 2) {
    const [x0, y0] = [lasso[i] as number, lasso[i + 1] as number];
    const closing = i + 2 >= lasso.length;
    const [x1, y1] = closing
      ? [lasso[0] as number, lasso[1] as number]
      : [lasso[i + 2] as number, lasso[i + 3] as number];
    const stroke = palette.ink;
    marks.push({
      kind: "line",
      x0,
      y0,
      x1,
      y1,
      stroke,
      strokeWidth: 1.5,
      opacity: closing ? 0.4 : 1,
    });
  }
  return marks;
}

/**
 * Return the three axes of a three-dimensional plot for a corner of the picture. They show how the
 * plot is rotated.
 */
export function axesMarks(turn: Float64Array, room: Room, palette: Palette): Mark[] {
  const [x, y, length] = [34, room.height - 34, 20];
  return [0, 1, 2].flatMap((axis): Mark[] => {
    const [dx, dy] = [turn[axis] as number, turn[3 + axis] as number];
    const [x1, y1] = [x + dx * length, y - dy * length];
    const line: Mark = {
      kind: "line",
      x0: x,
      y0: y,
      x1,
      y1,
      stroke: palette.muted,
      strokeWidth: 1.2,
    };
    const [tx, ty] = [x + dx * (length + 8), y - dy * (length + 8)];
    const text = String(axis + 1);
    return [
      line,
      {
        kind: "text",
        x: tx,
        y: ty,
        text,
        fill: palette.muted,
        size: 10,
        font: "text",
        align: "middle",
      },
    ];
  });
}

/** A label at a screen position. */
export interface PlacedLabel {
  index: number;
  /** Left end and vertical middle of the label. */
  x: number;
  y: number;
  text: string;
  width: number;
}

/**
 * Place labels beside their points while there is room. Earlier indices take precedence.
 *
 * @param textOf label of an index with its width in pixels, or null for no label.
 * @param most maximum number of labels.
 * @param height height of a label in pixels.
 * @param away distance from a point to its label in pixels.
 * @param taken labels that are already placed.
 * @param covers whether a label would hide something at a position. A position where it hides
 *   nothing is preferred.
 * @param least whether a label is placed even if it hides something at every free position. If
 *   false, such a label is omitted. Without `covers`, this option has no effect.
 */
export function placeLabels(
  indices: Iterable<number>,
  { x, y }: Projected,
  textOf: (index: number) => { text: string; width: number } | null,
  options: {
    room: Room;
    most: number;
    height: number;
    away: number;
    taken?: PlacedLabel[];
    covers?: (left: number, middle: number, width: number) => boolean;
    least?: boolean;
  },
): PlacedLabel[] {
  const { room, most, height, away, covers } = options;
  const occupied = [...(options.taken ?? [])];
  const placed: PlacedLabel[] = [];
  const free = (left: number, middle: number, width: number): boolean =>
    left >= 2 &&
    left + width <= room.width - 2 &&
    middle >= height / 2 &&
    middle <= room.height - height / 2 &&
    occupied.every(
      (label) =>
        left > label.x + label.width + 4 ||
        left + width + 4 < label.x ||
        Math.abs(middle - label.y) >= height,
    );
  for (const index of indices) {
    if (placed.length >= most) break;
    const word = textOf(index);
    if (!word) continue;
    const [atX, atY] = [x[index] as number, y[index] as number];
    // Prefer the right side of the point, then left, above, and below.
    const tries: [number, number][] = [
      [atX + away, atY],
      [atX - away - word.width, atY],
      [atX - word.width / 2, atY - away - height / 2],
      [atX - word.width / 2, atY + away + height / 2],
    ];
    const possible = tries.filter(([left, middle]) => free(left, middle, word.width));
    const position =
      possible.find(([left, middle]) => !covers?.(left, middle, word.width)) ??
      (options.least || !covers ? possible[0] : undefined);
    if (!position) continue;
    const one = { index, x: position[0], y: position[1], ...word };
    placed.push(one);
    occupied.push(one);
  }
  return placed;
}

/** Return the indices of at most `most` points inside the picture, in drawing order. */
export function inSight({ x, y }: Projected, room: Room, most: number): number[] {
  const visible: number[] = [];
  for (let i = 0; i < x.length && visible.length < most; i++) {
    const [px, py] = [x[i] as number, y[i] as number];
    if (px >= 0 && py >= 0 && px < room.width && py < room.height) visible.push(i);
  }
  return visible;
}
