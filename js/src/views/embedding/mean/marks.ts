/** Layout and marks of the heat map of mean weights by query and key position. Pure functions. */

import type { Range } from "../../../client/protocol";
import { measureText } from "../../../draw/canvas";
import { textMark } from "../../../draw/figure";
import { fontOf, type Mark } from "../../../draw/marks";
import type { ColorScale } from "../../../ui/colors/color-scales";
import { niceMaximum, pixelsOf } from "../../../ui/colors/color-scales";
import type { Palette, ThemeName } from "../../../ui/colors/palette";
import { ticks } from "../../../ui/heat-map/layout";
import { formatSmall, rangeInWords, several } from "../../../ui/text/captions";
import type { Aggregate, Corpus } from "../client/requests";

/** Row and column of a bin. */
export interface Bin {
  row: number;
  column: number;
}

/** Size of the picture, and position and size of the heat map in it, in pixels. */
interface MeanLayout {
  width: number;
  height: number;
  left: number;
  top: number;
  cellsWidth: number;
  cellsHeight: number;
}

/** Inputs of the marks of the heat map. */
export interface MeanMap {
  layout: MeanLayout;
  palette: Palette;
  theme: ThemeName;
  aggregate: Aggregate;
  scale: ColorScale;
  /** Upper end of the colour scale. */
  end: number;
  hovered: Bin | null;
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

/** Return the first position of the first bin, and the end of the last bin (exclusive). */
function extentOf(edges: readonly number[]): Range {
  return [edges[0] ?? 0, edges.at(-1) ?? 0];
}

/**
 * Lay out the heat map in a picture of the given width. The heat map has the ratio of height to
 * width that the numbers of queries and keys have, clipped to [0.35, 1.6].
 */
export function layOutMean(aggregate: Aggregate, width: number): MeanLayout {
  const { query_edges: queryEdges, key_edges: keyEdges } = aggregate;
  const [, last] = extentOf(queryEdges);
  const font = fontOf({ size: TICK_SIZE, font: "text" });
  const left = Math.ceil(measureText(String(last), font) + 14);
  const cellsWidth = Math.max(MIN_WIDTH, Math.min(MAX_WIDTH, Math.floor(width - left - 8)));
  const [queries, keys] = [queryEdges, keyEdges].map((edges) => {
    const [first, stop] = extentOf(edges);
    return Math.max(1, stop - first);
  }) as [number, number];
  const share = Math.max(0.35, Math.min(1.6, queries / keys));
  const cellsHeight = Math.round(cellsWidth * share);
  return {
    width: left + cellsWidth + 8,
    height: TOP + cellsHeight + 8,
    left,
    top: TOP,
    cellsWidth,
    cellsHeight,
  };
}

/** Return the largest mean weight and its bin, or null if no pair is allowed. */
export function largestOf(aggregate: Aggregate): (Bin & { weight: number }) | null {
  let best = -1;
  aggregate.weights.forEach((weight, i) => {
    if (weight > (aggregate.weights[best] ?? -1)) best = i;
  });
  if (best < 0) return null;
  return {
    row: Math.floor(best / aggregate.columns),
    column: best % aggregate.columns,
    weight: aggregate.weights[best] as number,
  };
}

/**
 * Return the upper end of the colour scale: a round number, at most 1, that no mean weight exceeds.
 */
export function endOf(aggregate: Aggregate): number {
  return Math.min(1, niceMaximum(largestOf(aggregate)?.weight ?? 0));
}

/** Return the first position of a bin, and its end (exclusive). */
function positionsOf(edges: readonly number[], at: number): Range {
  return [edges[at] ?? 0, edges[at + 1] ?? edges[at] ?? 0];
}

/** Return how far along its axis a position is drawn, from 0 to 1. All bins have the same width. */
function wayTo(edges: readonly number[], position: number): number {
  const bins = edges.length - 1;
  for (let at = 0; at < bins; at++) {
    const [first, stop] = positionsOf(edges, at);
    if (position < stop) return (at + (position - first) / Math.max(1, stop - first)) / bins;
  }
  return 1;
}

/** Value that stands for a mean weight of 0 in the picture, where 0 itself stands for no colour. */
const SMALLEST = 1e-30;

/** Return the cells and axes, which do not depend on the pointer. */
export function meanMarks(mean: MeanMap): Mark[] {
  const { layout, palette, aggregate, theme, end, scale } = mean;
  const { left, top, cellsWidth, cellsHeight } = layout;
  const { query_edges: queryEdges, key_edges: keyEdges, rows, columns } = aggregate;
  // A bin without allowed pairs gets the value 0, which has no colour. A mean weight of 0 gets a
  // tiny value, which has the first colour of the scale.
  const values = aggregate.weights.map((weight) => (Number.isNaN(weight) ? 0 : weight || SMALLEST));
  const bounds = { x: left, y: top, width: cellsWidth, height: cellsHeight };
  const named = measureText(DOWN, fontOf({ size: NAME_SIZE, font: "text" }));
  const marks: Mark[] = [
    {
      kind: "image",
      ...bounds,
      pixels: pixelsOf(values, theme, end, scale, palette.rule),
      columns,
      rows,
    },
    {
      kind: "rect",
      x: left - 0.5,
      y: top - 0.5,
      width: cellsWidth + 1,
      height: cellsHeight + 1,
      stroke: palette.rule,
    },
    textMark(DOWN, 0, 10, palette.muted, NAME_SIZE),
    textMark(ACROSS, Math.max(left, named + 18), 10, palette.muted, NAME_SIZE),
  ];
  const step = (edges: readonly number[], room: number): number => {
    const [first, stop] = extentOf(edges);
    return room / Math.max(1, stop - first);
  };
  for (const at of ticks(extentOf(keyEdges), step(keyEdges, cellsWidth), TICKS_ACROSS)) {
    const x = left + wayTo(keyEdges, at) * cellsWidth;
    marks.push({ kind: "line", x0: x, y0: top - 5, x1: x, y1: top, stroke: palette.muted });
    marks.push(textMark(String(at), x, top - 12, palette.muted, TICK_SIZE, { align: "middle" }));
  }
  for (const at of ticks(extentOf(queryEdges), step(queryEdges, cellsHeight), TICKS_DOWN)) {
    const y = top + wayTo(queryEdges, at) * cellsHeight;
    marks.push({ kind: "line", x0: left - 5, y0: y, x1: left, y1: y, stroke: palette.muted });
    // Keep the first label below the top edge, so that it does not overlap the name of the axis.
    const middle = Math.max(y, top + 5);
    marks.push(textMark(String(at), left - 9, middle, palette.muted, TICK_SIZE, { align: "end" }));
  }
  return marks;
}

/** Return the outline of the bin at the pointer or keyboard cursor. */
export function hoverMarks({ layout, palette, aggregate, hovered }: MeanMap): Mark[] {
  if (!hovered) return [];
  const [across, down] = [
    layout.cellsWidth / aggregate.columns,
    layout.cellsHeight / aggregate.rows,
  ];
  const bounds = {
    x: layout.left + hovered.column * across,
    y: layout.top + hovered.row * down,
    width: across,
    height: down,
  };
  return [
    { kind: "rect", ...bounds, stroke: palette.background, strokeWidth: 4 },
    { kind: "rect", ...bounds, stroke: palette.ink, strokeWidth: 1.6 },
  ];
}

/** Return the bin at a pixel of the picture, or null outside of the heat map. */
export function binAt(
  layout: MeanLayout,
  { rows, columns }: Pick<Aggregate, "rows" | "columns">,
  x: number,
  y: number,
): Bin | null {
  const row = Math.floor(((y - layout.top) / layout.cellsHeight) * rows);
  const column = Math.floor(((x - layout.left) / layout.cellsWidth) * columns);
  const inside = row >= 0 && row < rows && column >= 0 && column < columns;
  return inside ? { row, column } : null;
}

/**
 * Return the number of queries and of keys of each text with points. The numbers are exact if all
 * tokens of these texts are points.
 */
export function lengthsOf(corpus: Corpus): [number, number][] {
  const lengths = new Map<number, [number, number]>();
  for (let point = 0; point < corpus.count; point++) {
    const text = corpus.textOf(point);
    const length = lengths.get(text) ?? [0, 0];
    const side = corpus.isKey(point) ? 1 : 0;
    length[side] = Math.max(length[side], corpus.positionOf(point) + 1);
    lengths.set(text, length);
  }
  return [...lengths.values()];
}

/** Return the number of texts that are long enough to have a pair in a bin. */
export function textsAt(
  lengths: readonly (readonly [number, number])[],
  { query_edges, key_edges }: Pick<Aggregate, "query_edges" | "key_edges">,
  { row, column }: Bin,
): number {
  const [query, key] = [positionsOf(query_edges, row)[0], positionsOf(key_edges, column)[0]];
  return lengths.filter(([queries, keys]) => queries > query && keys > key).length;
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
  const query = rangeInWords(positionsOf(aggregate.query_edges, row), "query", "queries");
  const key = rangeInWords(positionsOf(aggregate.key_edges, column), "key", "keys");
  const weight = aggregate.weights[row * aggregate.columns + column] ?? Number.NaN;
  const over = texts === null ? "" : ` over ${several(texts, "text")}`;
  return [
    `${query} → ${key}`,
    Number.isNaN(weight)
      ? "no query may attend to this"
      : `mean weight ${formatSmall(weight)}${over}`,
  ];
}
