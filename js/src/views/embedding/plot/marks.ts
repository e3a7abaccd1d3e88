/**
 * Marks (shapes to draw) of one head's plot: dots of all points, and dots, lines and labels of the
 * points that stand out. The chosen point, its text, the search result and the points in the lasso
 * stand out. Pure functions.
 */

import { measureText } from "../../../draw/canvas";
import { DOTS_PAINTER } from "../../../draw/dots";
import { type DotsMark, fontOf, type Mark } from "../../../draw/marks";
import type { Palette } from "../../../ui/colors/palette";
import { fitLabel } from "../../../ui/text/labels";
import type { Corpus, Lines } from "../client/requests";
import type { Look } from "../colors";
import { type Cloud, type Lasso, opacityOf, type Projected, type Room, radiusOf } from "./cloud";

/** A cloud on the screen, and everything else that its marks depend on. */
export interface Shown {
  corpus: Corpus;
  cloud: Cloud;
  /** Dots of all points. */
  dots: DotsMark;
  zoom: number;
  palette: Palette;
}

/** Return the dots of all points. Their radius and opacity depend on the number of points. */
export function cloudMark(
  cloud: Cloud,
  look: Look,
  projected: Projected,
  room: Room,
  zoom: number,
): DotsMark {
  const radius = radiusOf(cloud.count, room, zoom);
  return {
    kind: "dots",
    painter: DOTS_PAINTER,
    count: cloud.count,
    ...projected,
    ...look,
    radius,
    opacity: opacityOf(cloud, room, zoom, radius),
    area: { x: 0, y: 0, width: room.width, height: room.height },
  };
}

/**
 * Return the dots of the points at some indices of the drawing order.
 *
 * @param more fields that replace those of the dots of all points.
 */
function dotsOf({ dots }: Shown, indices: readonly number[], more: Partial<DotsMark>): DotsMark {
  const picked = <T extends Float32Array | Uint8Array>(from: T): T => {
    const into = from.slice(0, indices.length) as T;
    indices.forEach((index, i) => {
      into[i] = from[index] as number;
    });
    return into;
  };
  return {
    ...dots,
    count: indices.length,
    x: picked(dots.x),
    y: picked(dots.y),
    color: picked(dots.color),
    shape: picked(dots.shape),
    ...(dots.near && { near: picked(dots.near) }),
    ...more,
  };
}

/** Return the dots in one colour. With the field `ring`, they are outlines. */
function ring(mark: DotsMark, color: string): DotsMark {
  return { ...mark, color: new Uint8Array(mark.count), colors: [color] };
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

/** Return the indices of the points in the search result or the lasso. */
function indicesOf({ points }: Cloud, standing: Uint8Array): number[] {
  const indices: number[] = [];
  points.forEach((point, index) => {
    if (standing[point] === 1) indices.push(index);
  });
  return indices;
}

/**
 * If the text of the chosen point has at most this many drawn points, each of these points has a
 * ring. More rings would hide the points.
 */
const MAX_RINGS = 800;

/**
 * Return the marks that are drawn over the dots of all points. `hoverMarks` returns the mark of the
 * point under the pointer.
 */
export function standingMarks(shown: Shown, standing: Standing): Mark[] {
  const { corpus, cloud, palette } = shown;
  const { points, chosen, lines } = standing;
  const marks: Mark[] = [];
  const { radius, opacity, x, y } = shown.dots;
  const solid = Math.min(0.95, Math.max(0.8, opacity));
  const wide = Math.max(2, radius * 1.15);
  // If thousands of points stand out, their dots are translucent, so that the density is visible.
  const crowd = (count: number): number =>
    Math.max(opacity, Math.min(solid, 1500 / Math.max(1, count)));
  if (points) {
    const indices = indicesOf(cloud, points);
    const look = { radius: Math.max(1.8, radius * 1.25), opacity: crowd(indices.length) };
    marks.push(dotsOf(shown, indices, look));
  }
  // If the reader hides the kind of the chosen point, the cloud does not contain this point. Its
  // text still stands out.
  const at = chosen === null ? -1 : (cloud.indexOf[chosen] ?? -1);
  if (chosen !== null) {
    const text = corpus.textOf(chosen);
    const ofText = (["query", "key"] as const).flatMap((kind) => {
      const [start, stop] = corpus.pointsOf(kind, text);
      return [...cloud.indexOf.subarray(start, stop)];
    });
    // Sort by drawing order. It is random, so keys do not hide queries.
    const indices = ofText.filter((index) => index >= 0).sort((a, b) => a - b);
    // Draw stronger lines later, so that they are on top.
    for (const { index, share } of at < 0 ? [] : endsOf(cloud, lines, MIN_SHARE).reverse()) {
      const [x0, y0, x1, y1] = [x[at], y[at], x[index], y[index]] as [
        number,
        number,
        number,
        number,
      ];
      const style = { stroke: palette.ink, strokeWidth: 1 + share, opacity: share };
      marks.push({ kind: "line", x0, y0, x1, y1, ...style });
    }
    marks.push(dotsOf(shown, indices, { radius: wide, opacity: crowd(indices.length) }));
    const outline = { radius: wide + 1.6, opacity: 0.55, ring: 1.1 };
    if (indices.length <= MAX_RINGS) marks.push(ring(dotsOf(shown, indices, outline), palette.ink));
  }
  if (at >= 0) {
    const outline = { radius: Math.max(5, wide + 2.5), opacity: 1, ring: 2.2 };
    // A circle in the background colour separates the chosen point from dots and lines around it.
    // Without `near`, distance does not make it fainter.
    const { near, ...flat } = dotsOf(shown, [at], outline);
    marks.push(ring({ ...flat, radius: flat.radius + 2, ring: 2 }, palette.background));
    marks.push(ring(flat, palette.ink));
  }
  for (const label of labelsOf(shown, standing, at)) {
    const { width, text } = label;
    const corner = { x: label.x - 2, y: label.y - LABEL_HEIGHT / 2 + 1 };
    const size = { width: width + 4, height: LABEL_HEIGHT - 2 };
    const style = { fill: palette.background, opacity: 0.78, radius: 3 };
    marks.push({ kind: "rect", ...corner, ...size, ...style });
    const bold = label.index === at;
    marks.push({ kind: "text", x: label.x, y: label.y, text, fill: palette.ink, ...LABEL, bold });
  }
  return marks.filter((mark) => mark.kind !== "dots" || mark.count > 0);
}

/** Minimum weight of a drawn line, relative to the strongest line of the point. */
const MIN_SHARE = 0.01;

/**
 * Return the other ends of the chosen point's lines, as indices in the drawing order, and the
 * weights of the lines relative to the strongest line. Lines with a weight below `minShare` and
 * ends that are not drawn are omitted.
 */
function endsOf({ indexOf }: Cloud, lines: Lines | null, minShare: number) {
  const { points, weights } = lines ?? { points: [], weights: [] };
  return points
    .map((point, i) => ({
      index: indexOf[point] ?? -1,
      share: (weights[i] as number) / (weights[0] as number),
    }))
    .filter(({ index, share }) => index >= 0 && share >= minShare);
}

const LABEL = { size: 11.5, font: "token" } as const;
const LABEL_HEIGHT = 16;
const LABEL_WIDTH = 150;
/**
 * Points have labels if at most `FEW_IN_SIGHT` are visible, or if the zoom is at least
 * `NAMED_FROM`.
 */
const FEW_IN_SIGHT = 260;
const NAMED_FROM = 3;
const MAX_NAMES = 30;
/** Maximum number of points for which a label is tried. */
const MAX_TRIED = 200;
/** Maximum number of labels at the other ends of a chosen point's lines. */
const NAMED_KEYS = 6;
/** Minimum weight of a line with a label at its other end, relative to the strongest line. */
const NAMED_SHARE = 0.05;

/** A label at a screen position: its left end and its vertical middle. */
interface PlacedLabel {
  /** Index of the labelled point in the drawing order. */
  index: number;
  x: number;
  y: number;
  text: string;
  width: number;
}

/**
 * Return the labels of the chosen point and of the other ends of its strongest lines. With a search
 * or a lasso, also label its points if they are few. If neither a search nor a lasso nor a chosen
 * point exists, label the visible points if they are few.
 *
 * @param at index of the chosen point in the drawing order, or -1.
 */
export function labelsOf(
  shown: Shown,
  { points, chosen, lines }: Standing,
  at: number,
): PlacedLabel[] {
  const { corpus, cloud, dots, zoom } = shown;
  const { x, y, radius, area: room } = dots;
  const away = radius + 6;
  const labels: PlacedLabel[] = [];
  const labelOf = (index: number): { text: string; width: number } => {
    const name = corpus.tokenOf(cloud.points[index] as number);
    return fitLabel(name.trim() || name, LABEL_WIDTH, fontOf(LABEL), measureText);
  };
  const isFree = (left: number, middle: number, width: number): boolean =>
    left >= 2 &&
    left + width <= room.width - 2 &&
    middle >= LABEL_HEIGHT / 2 &&
    middle <= room.height - LABEL_HEIGHT / 2 &&
    labels.every(
      (label) =>
        left > label.x + label.width + 4 ||
        left + width + 4 < label.x ||
        Math.abs(middle - label.y) >= LABEL_HEIGHT,
    );
  const hidesPoints = (left: number, middle: number, width: number): boolean => {
    const half = LABEL_HEIGHT / 2 + radius;
    return y.some((py, i) => {
      const px = x[i] as number;
      return Math.abs(py - middle) <= half && px >= left - radius && px <= left + width + radius;
    });
  };
  /**
   * Place at most `most` labels beside their points while there is room. Earlier indices take
   * precedence.
   *
   * @param always whether a label is placed even if it hides points at every free position.
   */
  const addLabels = (indices: readonly number[], most: number, always: boolean): void => {
    const full = labels.length + most;
    for (const index of indices) {
      if (labels.length >= full) return;
      const { text, width } = labelOf(index);
      const [px, py] = [x[index] as number, y[index] as number];
      // Prefer the right side of the point, then left, above, and below.
      const free = [
        [px + away, py] as const,
        [px - away - width, py] as const,
        [px - width / 2, py - away - LABEL_HEIGHT / 2] as const,
        [px - width / 2, py + away + LABEL_HEIGHT / 2] as const,
      ].filter(([left, middle]) => isFree(left, middle, width));
      const position = free.find(([left, middle]) => always || !hidesPoints(left, middle, width));
      if (position) labels.push({ index, x: position[0], y: position[1], text, width });
    }
  };
  if (at >= 0) {
    const ends = endsOf(cloud, lines, NAMED_SHARE).slice(0, NAMED_KEYS);
    addLabels([at, ...ends.map(({ index }) => index)], NAMED_KEYS + 1, true);
  }
  if (points) {
    const standing = indicesOf(cloud, points).slice(0, MAX_TRIED);
    // If all labels are equal, add none, because they would only repeat the search text.
    const words = new Set(standing.slice(0, FEW_IN_SIGHT).map((index) => labelOf(index).text));
    const few = standing.length <= FEW_IN_SIGHT || zoom >= NAMED_FROM;
    if (few && words.size > 1) addLabels(standing, MAX_NAMES, false);
  } else if (
    chosen === null &&
    (zoom >= NAMED_FROM || inSight(dots, FEW_IN_SIGHT + 1).length <= FEW_IN_SIGHT)
  ) {
    addLabels(inSight(dots, MAX_TRIED), MAX_NAMES, false);
  }
  return labels;
}

/** Return the indices of at most `most` points inside the picture, in drawing order. */
function inSight({ x, y, area }: DotsMark, most: number): number[] {
  const visible: number[] = [];
  for (let i = 0; i < x.length && visible.length < most; i++) {
    const [px, py] = [x[i] as number, y[i] as number];
    if (px >= 0 && py >= 0 && px < area.width && py < area.height) visible.push(i);
  }
  return visible;
}

/** Return a ring around the point under the pointer. */
export function hoverMarks(shown: Shown, point: number | null): Mark[] {
  const index = point === null ? -1 : (shown.cloud.indexOf[point] ?? -1);
  if (index < 0) return [];
  const radius = Math.max(4.5, shown.dots.radius + 2.5);
  const { near, ...dot } = dotsOf(shown, [index], { radius, opacity: 1, ring: 1.6 });
  return [ring(dot, shown.palette.ink)];
}

/** Return the outline of a lasso while it is drawn. The line that closes it is faint. */
export function lassoMarks(lasso: Lasso, palette: Palette): Mark[] {
  return lasso.map(([x1, y1], i) => {
    const [x0, y0] = lasso.at(i - 1) as Lasso[number];
    const opacity = i === 0 ? 0.4 : 1;
    return { kind: "line", x0, y0, x1, y1, stroke: palette.ink, strokeWidth: 1.5, opacity };
  });
}
