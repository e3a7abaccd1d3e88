/**
 * Images of a record, and the request for the weights over one image. A grid has the patches of an
 * image, which are tokens, in rows and columns.
 */

import type { ReadonlySignal, Signal } from "@preact/signals";
import type { PatchGrid } from "../../client/protocol";
import type { RecordImage } from "../../client/requests/images";
import { largestOf } from "../../client/signs";
import type { Source } from "../../client/source";
import { gridEnd } from "../../draw/patches";
import type { Selection } from "../view/record";

/** Images of the record, by their number. An image is null until it is loaded. */
export type Images = readonly (RecordImage | null)[];

/** Images of a view, and the division of its width into plot and image panel. */
export interface ImageRoom {
  images: ReadonlySignal<Images>;
  /** Whether all images among the selected tokens are loaded. */
  ready: ReadonlySignal<boolean>;
  /** Whether the panel is shown. It is shown if keys are patches of an image. */
  shown: ReadonlySignal<boolean>;
  beside: ReadonlySignal<boolean>;
  plotWidth: ReadonlySignal<number>;
  panelWidth: ReadonlySignal<number>;
  /** Whether the panel is drawn. The value has no meaning if the panel is not shown. */
  drawn: Signal<boolean>;
}

/** One head or several combined heads, which are shown as one heat map. */
export interface HeatSeries {
  name: string;
  color: string;
  /** Variant of `color` with more contrast, for text. */
  textColor: string;
  heads: number[];
  how: "mean" | "max";
}

/** Tokens whose weights are shown over the image. A field is null without such a token. */
export interface Focus {
  query: number | null;
  key: number | null;
}

/**
 * Request for the weights of a query on all keys (`side` is "query"), or of all queries on a key
 * ("key"). If `side` is null, the mean over all queries is requested.
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

/** Values of one heat map. They include the values of tokens that are not patches. */
export interface Heat {
  series: HeatSeries;
  values: Float32Array;
}

/** Maximum number of weights that are loaded to compute a mean over queries. */
const MAX_VALUES = 4_000_000;
/**
 * Maximum number of heat maps. If there were more, they would be too small, so one heat map shows
 * the mean of their heads.
 */
const MAX_HEAT_MAPS = 16;

/**
 * Return the grid of queries that has the same image, rows and columns as a grid of keys, or null
 * if there is none.
 */
export function queryGridOf(
  selection: Pick<Selection, "queries">,
  grid: PatchGrid,
): PatchGrid | null {
  const same = (other: PatchGrid): boolean =>
    other.image === grid.image && other.rows === grid.rows && other.columns === grid.columns;
  const grids = selection.queries.grids ?? [];
  // Prefer the grid at the same position, because an image may occur twice among the tokens.
  return (
    grids.find((candidate) => same(candidate) && candidate.start === grid.start) ??
    grids.find(same) ??
    null
  );
}

/**
 * Return `series` or, if there are more than `MAX_HEAT_MAPS`, one series with the mean of all their
 * heads.
 */
export function fewSeries(series: readonly HeatSeries[]): HeatSeries[] {
  const first = series[0];
  if (!first || series.length <= MAX_HEAT_MAPS) return [...series];
  const heads = series.flatMap((item) => item.heads);
  return [{ ...first, name: `mean of ${heads.length} heads`, heads, how: "mean" }];
}

/** Return the request for a selection, or null if a mean would need too many weights. */
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
  return selection.heads.length * numQueries * numKeys > MAX_VALUES
    ? null
    : { ...of, side: null, token: 0 };
}

/** Return the mean over the rows of a matrix. */
function meanRow(matrix: Float32Array, columns: number): Float32Array {
  const sums = new Float64Array(columns);
  for (let i = 0; i < matrix.length; i++)
    sums[i % columns] = (sums[i % columns] as number) + (matrix[i] as number);
  return Float32Array.from(sums, (sum) => (sum * columns) / matrix.length);
}

/**
 * Combine the rows of several heads. Return for each token the mean of the heads ("mean"), or the
 * value with the largest absolute value ("max").
 */
function combineHeads(rows: Float32Array[], how: HeatSeries["how"]): Float32Array {
  return Float32Array.from(rows[0] ?? [], (_, i) => {
    const values = rows.map((row) => row[i] as number);
    return how === "max"
      ? largestOf(values)
      : values.reduce((sum, value) => sum + value, 0) / values.length;
  });
}

/** Load the values of all heat maps of a request. */
export async function loadHeat(
  source: Source,
  question: HeatQuestion,
  ended: AbortSignal,
): Promise<Heat[]> {
  const { stack, layer, side, token, numQueries, numKeys, series } = question;
  const heads = [...new Set(series.flatMap((item) => item.heads))];
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
  return series.map((item) => ({
    series: item,
    values: combineHeads(
      item.heads.map((head) => rows.get(head) as Float32Array),
      item.how,
    ),
  }));
}

/** Return the values of a heat map that belong to the patches of a grid. */
export function onGrid(heat: Heat, grid: PatchGrid): Float32Array {
  return heat.values.subarray(grid.start, gridEnd(grid));
}
