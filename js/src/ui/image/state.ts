/** A record's images, and which weights lie over one: what is asked for, and the loading of it. */

import type { ReadonlySignal, Signal } from "@preact/signals";
import type { PatchGrid } from "../../client/protocol";
import type { RecordImage } from "../../client/requests/images";
import { largestOf } from "../../client/signs";
import type { Source } from "../../client/source";
import { gridEnd } from "../../draw/patches";
import type { Selection } from "../view/record";

/** The record's images by their number; null for those that are not asked for, or on their way. */
export type Images = readonly (RecordImage | null)[];

/** Images, and how a picture shares its width with the panel that lays weights over them. */
export interface ImageRoom {
  images: ReadonlySignal<Images>;
  /** Whether all images of the tokens at this place are there. */
  ready: ReadonlySignal<boolean>;
  /** Whether keys are patches of an image, over which weights can lie. */
  shown: ReadonlySignal<boolean>;
  beside: ReadonlySignal<boolean>;
  plotWidth: ReadonlySignal<number>;
  panelWidth: ReadonlySignal<number>;
  /** Whether the panel is drawn, or there is none. */
  drawn: Signal<boolean>;
}

/** What has a heat-map of its own: a head, or several together. */
export interface HeatSeries {
  name: string;
  color: string;
  /** The same for text, which needs more contrast. */
  textColor: string;
  heads: number[];
  how: "mean" | "max";
}

/** The token whose weights lie over the image. */
export interface Focus {
  query: number | null;
  key: number | null;
}

/**
 * What is asked for: the weights of a query to all keys, or of all queries to a key; of no token,
 * what the keys receive in the mean over all queries.
 */
export interface HeatQuestion {
  stack: string;
  layer: number;
  side: "query" | "key" | null;
  token: number;
  numQueries: number;
  numKeys: number;
  series: HeatSeries[];
}

/** One heat-map: the weights of all tokens, not of patches alone. */
export interface Heat {
  series: HeatSeries;
  values: Float32Array;
}

/** The mean over queries is asked for where it takes no more weights than this. */
const MOST_VALUES = 4_000_000;
/** More heat-maps would be too small to read: there is their mean. */
const MOST_MAPS = 16;

/** The grid of queries that are the same patches as a grid of keys; null where there is none. */
export function queryGridOf(
  selection: Pick<Selection, "queries">,
  grid: PatchGrid,
): PatchGrid | null {
  const same = (other: PatchGrid): boolean =>
    other.image === grid.image && other.rows === grid.rows && other.columns === grid.columns;
  const grids = selection.queries.grids ?? [];
  // Of the same tokens it is the very same grid, though an image may be there twice.
  return grids.find((each) => same(each) && each.start === grid.start) ?? grids.find(same) ?? null;
}

/** As many heat-maps as can be read. */
export function fewSeries(series: readonly HeatSeries[]): HeatSeries[] {
  const first = series[0];
  if (!first || series.length <= MOST_MAPS) return [...series];
  const heads = series.flatMap((each) => each.heads);
  return [{ ...first, name: `mean of ${heads.length} heads`, heads, how: "mean" }];
}

/** What to ask for at a place; null where it would be too much. */
export function heatQuestion(
  selection: Selection,
  grid: PatchGrid,
  focus: Focus,
  series: HeatSeries[],
): HeatQuestion | null {
  const numQueries = selection.queries.text.length;
  const numKeys = selection.keys.text.length;
  const of = { stack: selection.stack.name, layer: selection.layer, numQueries, numKeys, series };
  if (focus.query !== null) return { ...of, side: "query", token: focus.query };
  if (focus.key !== null && queryGridOf(selection, grid))
    return { ...of, side: "key", token: focus.key };
  return selection.heads.length * numQueries * numKeys > MOST_VALUES
    ? null
    : { ...of, side: null, token: 0 };
}

/** The mean over the rows of a matrix. */
function meanRow(matrix: Float32Array, columns: number): Float32Array {
  const sums = new Float64Array(columns);
  for (let i = 0; i < matrix.length; i++)
    sums[i % columns] = (sums[i % columns] as number) + (matrix[i] as number);
  return Float32Array.from(sums, (sum) => (sum * columns) / matrix.length);
}

/** The mean over heads, or the largest in size. */
function together(rows: Float32Array[], how: HeatSeries["how"]): Float32Array {
  return Float32Array.from(rows[0] ?? [], (_, i) => {
    const values = rows.map((row) => row[i] as number);
    return how === "max"
      ? largestOf(values)
      : values.reduce((sum, value) => sum + value, 0) / values.length;
  });
}

/** Loads heat-maps. */
export async function loadHeat(
  source: Source,
  asked: HeatQuestion,
  ended: AbortSignal,
): Promise<Heat[]> {
  const { stack, layer, side, token, numQueries, numKeys, series } = asked;
  const heads = [...new Set(series.flatMap((each) => each.heads))];
  const one: [number, number] = [token, token + 1];
  const piece = await source.block(
    {
      stack,
      layer,
      heads,
      rows: side === "query" ? one : [0, numQueries],
      columns: side === "key" ? one : [0, numKeys],
    },
    ended,
  );
  const rows = new Map<number, Float32Array>();
  heads.forEach((head, i) => {
    const matrix = piece.matrices[i] as Float32Array;
    rows.set(head, side === null ? meanRow(matrix, numKeys) : matrix);
  });
  return series.map((each) => ({
    series: each,
    values: together(
      each.heads.map((head) => rows.get(head) as Float32Array),
      each.how,
    ),
  }));
}

/** The part of a heat-map that lies on a grid. */
export function onGrid(heat: Heat, grid: PatchGrid): Float32Array {
  return heat.values.subarray(grid.start, gridEnd(grid));
}
