/**
 * Maps of the view. A map is the attention matrix of one head, pooled to `size` by `size` cells if
 * the matrix is larger. The cell of a pooled map has the largest weight of its queries and keys.
 * For a long text, the rows of the map may be a sample of the queries, with one query per row.
 */

import type { Range, StackDescription } from "../../client/protocol";
import { type MapsRead, type Matrix, mapsRead, type Source } from "../../client/source";
import { dividedInto, oneToken, sizeOf } from "../../ui/axis";
import type { HeadIndex } from "../../ui/head-grid/grid";
import { hasForced } from "../../ui/text/captions";

/** Part of the attention matrices that maps cover: ranges of queries (rows) and of keys. */
export interface Part {
  rows: Range;
  columns: Range;
}

/** Stack, resolution, queries and keys that all maps of a grid have in common. */
export interface MapSet extends Part {
  stack: string;
  size: number;
}

/** Return the request of the maps of `heads`, which are heads of one layer. */
export function requestOf(set: MapSet, heads: readonly [HeadIndex, ...HeadIndex[]]): MapsRead {
  return mapsRead({ ...set, layer: heads[0].layer, heads: heads.map(({ head }) => head) });
}

/** Resolutions of maps in cells per side, the finest first. */
const SIZES = [64, 32, 16] as const;

/**
 * Return the map of a head. If it is not loaded, return a loaded map of another resolution, or
 * undefined if none is loaded.
 */
export function cachedMap(source: Source, set: MapSet, head: HeadIndex): Matrix | undefined {
  for (const size of [set.size, ...SIZES]) {
    const map = source.cached(requestOf({ ...set, size }, [head]));
    if (map) return map;
  }
  return undefined;
}

/**
 * Return the weight with the largest absolute value, and the queries and keys of its cell. Rows with
 * a forced query are skipped (see `StackNumbers.forced_queries`). Return null if all other weights
 * are 0.
 *
 * @param part queries and keys that the map covers.
 */
export function strongestOf(
  map: Matrix,
  part: Part,
  stack: Pick<StackDescription, "forced_queries">,
): (Part & { weight: number; isSingle: boolean }) | null {
  // In a map of sampled queries, a row is a single query.
  const queries = map.sampled?.map(oneToken) ?? dividedInto(part.rows, map.rows);
  const isForced = queries.map((group) => hasForced(stack, group));
  const rowOf = (cell: number): number => Math.floor(cell / map.columns);
  let [best, weight] = map.largest ?? [0, 0];
  if (!map.largest)
    map.values.forEach((value, i) => {
      if (Math.abs(value) > Math.abs(weight) && !isForced[rowOf(i)]) [best, weight] = [i, value];
    });
  if (weight === 0 || isForced[rowOf(best)]) return null;
  const rows = queries[rowOf(best)] as Range;
  const columns = dividedInto(part.columns, map.columns)[best % map.columns] as Range;
  return { rows, columns, weight, isSingle: sizeOf(rows) * sizeOf(columns) === 1 };
}
