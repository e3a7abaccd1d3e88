/**
 * Marks (shapes to draw) of the overview: the points of one tile, which is the small plot of a
 * head, and the whole grid as one scene.
 */

import { DOTS_PAINTER } from "../../../draw/dots";
import { textMark } from "../../../draw/figure";
import { type DotsMark, type Mark, type Scene, sceneOf } from "../../../draw/marks";
import type { Palette } from "../../../ui/colors/palette";
import type { HeadGrid, HeadIndex } from "../../../ui/head-grid/grid";
import { gridMarks, type Square } from "../../../ui/head-grid/marks";
import type { Corpus, SmallPlot } from "../client/requests";
import { type Coloring, lookOf } from "../colors";
import { opacityAt } from "../plot/cloud";
import { headKey } from "../state";
import { figuresInShort, strengthOf, type TrustMap } from "../trust";
import type { TileLayout } from "./layout";

/**
 * Return the appearance of the overview's points. All tiles share it. Points that match the search
 * or are in the lasso stand out, and are drawn last.
 *
 * @param mixed indices of the overview's points in random order.
 * @param stride the overview contains every `stride`-th point of the corpus.
 * @param standing 1 for each point of the corpus that stands out, or null if neither a search nor a
 *   lasso is active.
 */
export function tileLook(
  mixed: Uint32Array,
  stride: number,
  corpus: Pick<Corpus, "isKey">,
  coloring: Pick<Coloring, "index" | "palette">,
  standing: Uint8Array | null,
) {
  const isFront = (point: number): boolean => standing?.[point * stride] === 1;
  const front = mixed.filter(isFront).reverse();
  const order = Uint32Array.from([...mixed.filter((point) => !isFront(point)), ...front]);
  return {
    /** Indices of the overview's points in drawing order. */
    order,
    ...lookOf(order, corpus, coloring, stride),
    /** Number of points that stand out, which are the last ones. */
    numStanding: front.length,
    /** Whether a search or a lasso is active, even if none of the overview's points match. */
    seeking: standing !== null,
  };
}

export type TileLook = ReturnType<typeof tileLook>;

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

/**
 * Return the dots of a tile. Points that stand out are drawn over the other points.
 *
 * @param square top left corner and side of the tile, in pixels.
 * @param strength factor of the opacity, 0 to 1.
 */
export function tileDots(
  { coordinates }: SmallPlot,
  look: TileLook,
  square: Square,
  strength: number,
): DotsMark[] {
  const { order, color, shape, colors, numStanding } = look;
  const count = order.length;
  const inset = INSET + dotOf(square.side, count);
  const room = square.side - 2 * inset;
  const [left, top, scale] = [square.x + inset, square.y + inset, room / 255];
  const points = coordinates.length / 2;
  // The callback of `Float32Array.from` would take a hundred times as long as this loop.
  const [x, y] = [new Float32Array(count), new Float32Array(count)];
  for (let i = 0; i < count; i++) {
    const point = order[i] as number;
    x[i] = left + (coordinates[point] as number) * scale;
    y[i] = top + (255 - (coordinates[points + point] as number)) * scale;
  }
  const radius = dotOf(room, count);
  const opacity = opacityAt((count * radius ** 2) / room ** 2);
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
  const back = count - numStanding;
  const marks: DotsMark[] = [
    { ...part(0, back), radius, opacity: opacity * strength * (look.seeking ? 0.35 : 1) },
  ];
  if (numStanding > 0) {
    const emphasis = Math.max(opacity, Math.min(0.95, 60 / numStanding));
    marks.push({
      ...part(back, count),
      radius: Math.max(1.3, radius * 1.3),
      opacity: emphasis * Math.max(strength, 0.6),
    });
  }
  return marks;
}

/**
 * Return a function that returns the marks of a head: its dots, and its trust figures below them.
 */
export function tileMarks(
  { muted }: Palette,
  layout: TileLayout,
  look: TileLook | null,
  plots: ReadonlyMap<string, SmallPlot>,
  trust: TrustMap,
): (head: HeadIndex, square: Square) => Mark[] {
  return (head, square) => {
    const { x, y, side } = square;
    const plot = plots.get(headKey(head));
    const figures = trust.get(headKey(head));
    const write = (text: string, line: number, size: number): Mark =>
      textMark(text, x + side / 2, y + line, muted, size, { align: "middle" });
    if (plot?.problem) return [write("no plot", side / 2, 10)];
    const size = layout.figures === "words" ? 10.5 : 9.5;
    return [
      ...(plot && look ? tileDots(plot, look, square, strengthOf(figures)) : []),
      write(figuresInShort(figures, layout.figures), side + 9, size),
    ];
  };
}

/** Return the scene of the complete grid, including tiles outside of the visible part. */
export function overviewScene(
  palette: Palette,
  grid: HeadGrid,
  layout: TileLayout,
  look: TileLook,
  plots: ReadonlyMap<string, SmallPlot>,
  trust: TrustMap,
): Scene {
  const marksOf = tileMarks(palette, layout, look, plots, trust);
  const front = gridMarks(grid, layout, palette, (head, square) => {
    const { x, y, side } = square;
    const bounds = { x: x + 0.5, y: y + 0.5, width: side - 1, height: side - 1 };
    return [{ kind: "rect", ...bounds, stroke: palette.rule }, ...marksOf(head, square)];
  });
  return sceneOf(layout, [], front);
}
