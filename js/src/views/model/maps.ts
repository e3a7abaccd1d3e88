/**
 * Maps of the view. A map is the attention matrix of one head, pooled to `size` by `size` cells if
 * the matrix is larger. The cell of a pooled map has the largest weight of its queries and keys.
 */

import type { Range, StackDescription } from "../../client/protocol";
import type { HeadMap, Source } from "../../client/source";

/** Part of the attention matrices that maps cover. */
export interface Part {
  /** Queries. */
  rows: Range;
  /** Keys. */
  columns: Range;
}

/** Maps of all heads of a stack with the same resolution and the same queries and keys. */
export interface MapSet {
  stack: string;
  /** Maximum number of cells per side. */
  size: number;
  /** Covered queries and keys, or null for all. */
  part: Part | null;
}

/** Resolutions of maps in cells per side, the finest first. */
const SIZES = [64, 32, 16] as const;

/** Load the maps of heads of a layer. Call `onArrival` whenever some of them have arrived. */
export function loadMaps(
  source: Source,
  { size, part }: MapSet,
  stack: StackDescription,
  [layer, heads]: [number, number[]],
  ended?: AbortSignal,
  onArrival?: () => void,
): Promise<HeadMap[]> {
  const request = { stack: stack.name, layer, size, heads, ...part };
  return source.maps(stack, request, ended, onArrival);
}

/**
 * Return the map of a head. Until it has arrived, return a cached map of another resolution, or
 * undefined if none is cached.
 */
export function cachedMap(
  source: Source,
  { stack, size, part }: MapSet,
  layer: number,
  head: number,
): HeadMap | undefined {
  for (const next of [size, ...SIZES]) {
    const map = source.cachedMap({ stack, layer, size: next, ...part }, head);
    if (map) return map;
  }
  return undefined;
}

/** Return the cell with the largest absolute weight, or null if all weights are 0. */
export function strongestCell(
  map: HeadMap,
): { row: number; column: number; weight: number } | null {
  let [best, weight] = map.largest ?? [-1, 0];
  if (weight === 0) best = -1;
  for (let i = 0; i < map.values.length && !map.largest; i++) {
    const value = map.values[i] as number;
    if (Math.abs(value) > Math.abs(weight)) {
      best = i;
      weight = value;
    }
  }
  if (best < 0) return null;
  return { row: Math.floor(best / map.columns), column: best % map.columns, weight };
}

/**
 * Return the range of queries that a row of a map covers. In a sample, a row is a single query.
 *
 * @param range queries that the map covers.
 */
export function queriesOf(
  row: number,
  { rows, sampled }: Pick<HeadMap, "rows" | "sampled">,
  range: Range,
): Range {
  const query = sampled?.[row];
  return query === undefined ? coveredRange(row, rows, range) : [query, query + 1];
}

/**
 * Return the range of queries (or keys) that one row (or column) of a map covers.
 *
 * @param index row or column.
 * @param cells number of rows or columns.
 * @param range queries or keys that the map covers.
 */
export function coveredRange(index: number, cells: number, [start, stop]: Range): Range {
  const count = stop - start;
  return [
    start + Math.floor((index * count) / cells),
    start + Math.floor(((index + 1) * count) / cells),
  ];
}
