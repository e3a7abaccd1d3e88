/**
 * Layout and marks (shapes to draw) of the heat map of mean weights by query and key position. Pure
 * functions.
 *
 * A cell of the heat map is a bin: a range of query positions and a range of key positions.
 */

import type { Range } from "../../../client/protocol";
import { measureText } from "../../../draw/canvas";
import { type LegendScale, textMark } from "../../../draw/figure";
import { fontOf, type Mark } from "../../../draw/marks";
import { type ColorScale, niceMaximum, pixelsOf } from "../../../ui/colors/color-scales";
import type { Palette, ThemeName } from "../../../ui/colors/palette";
import { ticks } from "../../../ui/heat-map/layout";
import { weightScale } from "../../../ui/heat-map/legend";
import { formatSmall, positionsInWords, several } from "../../../ui/text/captions";
import type { Aggregate, Corpus } from "../client/requests";

/** Row and column of a bin. */
export interface Bin {
  row: number;
  column: number;
}

const DOWN = "query position ↓";
const ACROSS = "key position →";
const TICK_SIZE = 10.5;
const NAME_SIZE = 12;
const TICKS_ACROSS = 44;
const TICKS_DOWN = 26;
const TOP = 42;
const MAX_WIDTH = 560;
const MIN_WIDTH = 160;

/** Return the number of positions on an axis, at least 1. */
function lengthOf(edges: readonly number[]): number {
  return Math.max(1, (edges.at(-1) ?? 0) - (edges[0] ?? 0));
}

/**
 * Lay out the heat map in a picture of the given width. The ratio of its height to its width is the
 * ratio of the number of query positions to the number of key positions, clipped to [0.35, 1.6].
 */
export function meanMapOf(
  aggregate: Aggregate,
  options: { width: number; palette: Palette; theme: ThemeName; scale: ColorScale },
) {
  const { query_edges: queryEdges, key_edges: keyEdges } = aggregate;
  const { width, ...look } = options;
  const font = fontOf({ size: TICK_SIZE, font: "text" });
  const left = Math.ceil(measureText(String(queryEdges.at(-1) ?? 0), font) + 14);
  const cellsWidth = Math.max(MIN_WIDTH, Math.min(MAX_WIDTH, Math.floor(width - left - 8)));
  const share = Math.max(0.35, Math.min(1.6, lengthOf(queryEdges) / lengthOf(keyEdges)));
  const cellsHeight = Math.round(cellsWidth * share);
  return {
    ...look,
    aggregate,
    /** Upper end of the colour scale: a round number that no mean weight exceeds. */
    end: Math.min(1, niceMaximum(largestOf(aggregate)?.weight ?? 0)),
    /** Size of the picture, in pixels. */
    width: left + cellsWidth + 8,
    height: TOP + cellsHeight + 8,
    /** Position and size of the cells in the picture. */
    left,
    top: TOP,
    cellsWidth,
    cellsHeight,
  };
}

export type MeanMap = ReturnType<typeof meanMapOf>;

/**
 * Return the largest mean weight and its bin, or null if no bin has a mean weight.
 *
 * @param firstRow first row of bins to compare.
 */
export function largestOf(aggregate: Aggregate, firstRow = 0): (Bin & { weight: number }) | null {
  let best = -1;
  aggregate.weights.forEach((weight, i) => {
    const isIn = i >= firstRow * aggregate.columns;
    if (isIn && weight > (aggregate.weights[best] ?? -1)) best = i;
  });
  if (best < 0) return null;
  return {
    row: Math.floor(best / aggregate.columns),
    column: best % aggregate.columns,
    weight: aggregate.weights[best] as number,
  };
}

/** Return the legend of the colours of mean weights. */
export function meanScale(map: Pick<MeanMap, "theme" | "scale" | "end">): LegendScale {
  return weightScale(map, `mean weight${map.scale === "log" ? ", logarithmic" : ""}`);
}

/** Return the first position of a bin, and its end (exclusive). */
function positionsOf(edges: readonly number[], at: number): Range {
  return [edges[at] ?? 0, edges[at + 1] ?? edges[at] ?? 0];
}

/**
 * Return the positions that have a label, and the distance of each from the start of the axis. All
 * bins are equally long, although they may have different numbers of positions.
 *
 * @param length length of the axis in pixels.
 * @param apart minimum distance between two labels in pixels.
 */
function ticksOf(edges: readonly number[], length: number, apart: number) {
  const bins = edges.length - 1;
  return ticks([edges[0] ?? 0, edges.at(-1) ?? 0], length / lengthOf(edges), apart).map(
    (position) => {
      const bin = edges.filter((edge) => edge <= position).length - 1;
      const [first, stop] = positionsOf(edges, bin);
      const share = (bin + (position - first) / Math.max(1, stop - first)) / bins;
      return { position, along: share * length };
    },
  );
}

/** Value that stands for a mean weight of 0 in the picture, where 0 itself stands for no colour. */
const SMALLEST = 1e-30;

/** Return the cells and axes, which do not depend on the pointer. */
export function meanMarks(map: MeanMap): Mark[] {
  const { left, top, cellsWidth, cellsHeight, palette, aggregate, theme, end, scale } = map;
  const { query_edges: queryEdges, key_edges: keyEdges, rows, columns } = aggregate;
  // A bin without allowed pairs gets the value 0, which has no colour. A mean weight of 0 gets a
  // tiny value, which has the first colour of the scale.
  const values = aggregate.weights.map((weight) => (Number.isNaN(weight) ? 0 : weight || SMALLEST));
  const pixels = pixelsOf(values, theme, end, scale, palette.rule);
  const bounds = { x: left, y: top, width: cellsWidth, height: cellsHeight };
  const outline = { width: cellsWidth + 1, height: cellsHeight + 1, stroke: palette.rule };
  const named = measureText(DOWN, fontOf({ size: NAME_SIZE, font: "text" }));
  const stroke = palette.muted;
  return [
    { kind: "image", ...bounds, pixels, columns, rows },
    { kind: "rect", x: left - 0.5, y: top - 0.5, ...outline },
    textMark(DOWN, 0, 10, stroke, NAME_SIZE),
    textMark(ACROSS, Math.max(left, named + 18), 10, stroke, NAME_SIZE),
    ...ticksOf(keyEdges, cellsWidth, TICKS_ACROSS).flatMap(({ position, along }): Mark[] => {
      const x = left + along;
      return [
        { kind: "line", x0: x, y0: top - 5, x1: x, y1: top, stroke },
        textMark(String(position), x, top - 12, stroke, TICK_SIZE, { align: "middle" }),
      ];
    }),
    ...ticksOf(queryEdges, cellsHeight, TICKS_DOWN).flatMap(({ position, along }): Mark[] => {
      const y = top + along;
      // Keep the first label below the top edge, so that it does not overlap the name of the axis.
      const middle = Math.max(y, top + 5);
      return [
        { kind: "line", x0: left - 5, y0: y, x1: left, y1: y, stroke },
        textMark(String(position), left - 9, middle, stroke, TICK_SIZE, { align: "end" }),
      ];
    }),
  ];
}

/** Return the bounds of a bin in the picture. */
export function boundsOf({ left, top, cellsWidth, cellsHeight, aggregate }: MeanMap, bin: Bin) {
  const [width, height] = [cellsWidth / aggregate.columns, cellsHeight / aggregate.rows];
  return { x: left + bin.column * width, y: top + bin.row * height, width, height };
}

/** Return the outline of the bin at the pointer or keyboard cursor. */
export function hoverMarks(map: MeanMap, bin: Bin | null): Mark[] {
  if (!bin) return [];
  const bounds = boundsOf(map, bin);
  return [
    { kind: "rect", ...bounds, stroke: map.palette.background, strokeWidth: 4 },
    { kind: "rect", ...bounds, stroke: map.palette.ink, strokeWidth: 1.6 },
  ];
}

/** Return the bin at a pixel of the picture, or null outside of the heat map. */
export function binAt(map: MeanMap, x: number, y: number): Bin | null {
  const { rows, columns } = map.aggregate;
  const row = Math.floor(((y - map.top) / map.cellsHeight) * rows);
  const column = Math.floor(((x - map.left) / map.cellsWidth) * columns);
  const inside = row >= 0 && row < rows && column >= 0 && column < columns;
  return inside ? { row, column } : null;
}

/**
 * Return the number of texts that are long enough to have a pair in a bin. All tokens of these texts
 * must be points.
 */
export function textsAt(
  corpus: Corpus,
  { query_edges, key_edges }: Pick<Aggregate, "query_edges" | "key_edges">,
  { row, column }: Bin,
): number {
  const [query, key] = [positionsOf(query_edges, row)[0], positionsOf(key_edges, column)[0]];
  const [withQuery, withKey] = [new Set<number>(), new Set<number>()];
  for (let point = 0; point < corpus.count; point++) {
    const isKey = corpus.isKey(point);
    if (corpus.positionOf(point) < (isKey ? key : query)) continue;
    (isKey ? withKey : withQuery).add(corpus.textOf(point));
  }
  return [...withQuery].filter((text) => withKey.has(text)).length;
}

/**
 * Return two descriptions of a bin: its positions, and its mean weight.
 *
 * @param texts number of texts in the mean, or null if unknown.
 */
export function binCaption(
  aggregate: Aggregate,
  { row, column }: Bin,
  texts: number | null = null,
): [string, string] {
  const query = positionsInWords(positionsOf(aggregate.query_edges, row), "query");
  const key = positionsInWords(positionsOf(aggregate.key_edges, column), "key");
  const weight = aggregate.weights[row * aggregate.columns + column] ?? Number.NaN;
  const over = texts === null ? "" : ` over ${several(texts, "text")}`;
  return [
    `${query} → ${key}`,
    Number.isNaN(weight)
      ? "no query may attend to this"
      : `mean weight ${formatSmall(weight)}${over}`,
  ];
}
