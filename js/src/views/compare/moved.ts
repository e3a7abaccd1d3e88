/** What moved in a head: of one query, from which key to which. */

import type { Range } from "../../client/protocol";
import { requestStrongest, totalWeight } from "../../client/requests/strongest";
import type { Source } from "../../client/source";

/** Values of a head that are loaded at most to find the query that changed most. */
const MOST_VALUES = 1 << 18;
/** Values that a kernel goes through for it: some tenths of a second. */
const MOST_COMPUTED = 1 << 24;

/** A key, and by how much its weight changed. */
export interface Change {
  key: number;
  change: number;
}

/** What moved in a row of a head. */
export interface Moved {
  query: number;
  /** Whether it is the query of the head that changed most, as none is pinned. */
  most: boolean;
  /** Half the sum of the sizes of all changes: what left one key and went to another. */
  total: number;
  /** The key that lost most and the one that gained most; null where none did. */
  from: Change | null;
  to: Change | null;
}

export interface MovedQuestion {
  /** Stacks of the first member and of the other. */
  a: string;
  b: string;
  /** The stack of what differs. */
  difference: string | null;
  layer: number;
  head: number;
  token: number | null;
  numQueries: number;
  numKeys: number;
  /** Queries that one of the two has not: they have nothing to compare. */
  missing: number[];
}

/** What moved in one row; what a sink took or gave counts as one more key. */
export function movedIn(changes: Float32Array): Pick<Moved, "total" | "from" | "to"> {
  let size = 0;
  let sum = 0;
  let from: Change | null = null;
  let to: Change | null = null;
  for (const [key, change] of changes.entries()) {
    size += Math.abs(change);
    sum += change;
    if (change < (from?.change ?? 0)) from = { key, change };
    if (change > (to?.change ?? 0)) to = { key, change };
  }
  return { total: (size + Math.abs(sum)) / 2, from, to };
}

/** What moved of the pinned query, or else of the one that changed most; null where that is long. */
export async function loadMoved(
  source: Source,
  asked: MovedQuestion,
  signal: AbortSignal,
): Promise<Moved | null> {
  const { layer, head, token, numQueries, numKeys } = asked;
  let rows: Range = token === null ? [0, numQueries] : [token, token + 1];
  if (token === null && numQueries * numKeys > MOST_VALUES) {
    const most = await mostChanged(source, asked, signal);
    if (most === null) return null;
    rows = [most, most + 1];
  }
  const changes = await loadChanges(
    source,
    asked,
    { layer, heads: [head], rows, columns: [0, numKeys] },
    signal,
  );
  const missing = new Set(asked.missing);
  let best: Moved | null = null;
  for (let row = 0; row < rows[1] - rows[0]; row++) {
    const query = rows[0] + row;
    if (missing.has(query)) continue;
    const [from, to] = [row * numKeys, (row + 1) * numKeys];
    const found = movedIn(changes.subarray(from, to));
    if (!best || found.total > best.total) best = { query, most: token === null, ...found };
  }
  return best;
}

/** What differs, row by row: the numbers that its own picture shows, where it has one. */
async function loadChanges(
  source: Source,
  { a, b, difference }: MovedQuestion,
  request: { layer: number; heads: number[]; rows: Range; columns: Range },
  signal: AbortSignal,
): Promise<Float32Array> {
  // In a page members are rounded, and their difference by itself: not by as much as both together.
  const stacks = difference === null ? [a, b] : [difference];
  const [first, second] = await Promise.all(
    stacks.map(async (stack) => {
      const piece = await source.block({ ...request, stack }, signal);
      return piece.matrices[0] as Float32Array;
    }),
  );
  const one = first as Float32Array;
  return second ? second.map((weight, at) => weight - (one[at] as number)) : one;
}

/** The query of a head whose changes are largest in sum; null where the text is too long to tell. */
async function mostChanged(
  source: Source,
  { difference, layer, head, numQueries, numKeys, missing }: MovedQuestion,
  signal: AbortSignal,
): Promise<number | null> {
  if (difference === null || numQueries * numKeys > MOST_COMPUTED) return null;
  const request = {
    stack: difference,
    layer,
    heads: [head],
    rows: [0, numQueries] as Range,
    k: 1,
    combine: "separate" as const,
    leave_out: [],
    pair: "all" as const,
  };
  const { matrices } = await requestStrongest(source, request, numKeys, signal);
  const [matrix] = matrices;
  if (!matrix) return null;
  const absent = new Set(missing);
  let best: number | null = null;
  for (let query = 0; query < numQueries; query++) {
    if (absent.has(query)) continue;
    if (best === null || totalWeight(matrix, query) > totalWeight(matrix, best)) best = query;
  }
  return best;
}
