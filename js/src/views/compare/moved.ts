/**
 * Changes of one head's attention from the first member to the compared member. Members are the
 * compared records. The weight of a query is said to move from the keys that have less weight in
 * the compared member to the keys that have more.
 */

import type { Range } from "../../client/protocol";
import { strongestIn } from "../../client/requests/strongest";
import type { Source } from "../../client/source";
import { groupsOf, rowOf } from "../../ui/axis";

/**
 * Maximum number of weights of a head that are loaded to find the query that changed most. For a
 * head with more weights, `mostChanged` finds the query.
 */
const MAX_VALUES = 1 << 18;
/**
 * Maximum number of weights of a head in which the kernel searches for the query that changed most.
 * A search in this many weights takes some tenths of a second.
 */
const MAX_COMPUTED = 1 << 24;

/** Change of the weight of one key. */
export interface KeyChange {
  key: number;
  change: number;
}

/** Attention of one query that moved between keys. */
export interface Moved {
  query: number;
  /** Whether `query` was chosen because it changed most. False if it is pinned. */
  most: boolean;
  /** Weight that moved: half the sum of the absolute changes of all keys and the sink. */
  total: number;
  /** Key that lost the most weight, or null if no key lost weight. */
  from: KeyChange | null;
  /** Key that gained the most weight, or null if no key gained weight. */
  to: KeyChange | null;
}

export interface MovedQuestion {
  /** Name of the stack of the first member. */
  a: string;
  /** Name of the stack of the compared member. */
  b: string;
  /** Name of the stack of their difference, or null if the record does not contain it. */
  difference: string | null;
  layer: number;
  head: number;
  /** Index of the pinned query, or null if no query is pinned. */
  token: number | null;
  numQueries: number;
  numKeys: number;
  /** Queries that only one of the two members has. */
  missing: number[];
}

/**
 * Return the weight that moved in one row, and the keys with the largest decrease and increase.
 *
 * A row has the same sum in both members if the sink is included. The change of the sink is
 * therefore the negative sum of the other changes. `total` includes this change.
 *
 * @param changes weights in the compared member minus weights in the first member.
 */
export function movedIn(changes: Float32Array): Pick<Moved, "total" | "from" | "to"> {
  let size = 0;
  let sum = 0;
  let from: KeyChange | null = null;
  let to: KeyChange | null = null;
  for (const [key, change] of changes.entries()) {
    size += Math.abs(change);
    sum += change;
    if (change < (from?.change ?? 0)) from = { key, change };
    if (change > (to?.change ?? 0)) to = { key, change };
  }
  return { total: (size + Math.abs(sum)) / 2, from, to };
}

/**
 * Load the attention that moved for the pinned query. Without a pinned query, load it for the query
 * that changed most. Return null if `mostChanged` does not find this query, or if one of the
 * members does not have the pinned query.
 */
export async function loadMoved(
  source: Source,
  asked: MovedQuestion,
  signal: AbortSignal,
): Promise<Moved | null> {
  const { layer, head, token, numQueries, numKeys } = asked;
  let rows: Range = token === null ? [0, numQueries] : [token, token + 1];
  if (token === null && numQueries * numKeys > MAX_VALUES) {
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
  const columns: Range = [0, numKeys];
  for (const [query] of groupsOf(rows)) {
    if (missing.has(query)) continue;
    const rowMoved = movedIn(rowOf(changes, { rows, columns }, query));
    if (!best || rowMoved.total > best.total) best = { query, most: token === null, ...rowMoved };
  }
  return best;
}

/**
 * Load the changes of weights: those of `b` minus those of `a`. They are read from the stack of the
 * difference if the record contains it. Otherwise they are computed from the weights of both
 * members.
 */
async function loadChanges(
  source: Source,
  { a, b, difference }: MovedQuestion,
  request: { layer: number; heads: number[]; rows: Range; columns: Range },
  signal: AbortSignal,
): Promise<Float32Array> {
  // A page rounds the members and their difference separately. Its difference is therefore more
  // accurate than a subtraction of rounded members.
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

/**
 * Return the query with the largest sum of absolute changes. Return null if the head has more than
 * `MAX_COMPUTED` weights, or if the record does not contain the difference.
 */
async function mostChanged(
  source: Source,
  { difference, layer, head, numQueries, numKeys, missing }: MovedQuestion,
  signal: AbortSignal,
): Promise<number | null> {
  if (difference === null || numQueries * numKeys > MAX_COMPUTED) return null;
  const [matrix] = await source.read(
    {
      ...{ stack: difference, layer, heads: [head], rows: [0, numQueries], columns: [0, numKeys] },
      reduce: { kind: "strongest", k: 1 },
    },
    signal,
  );
  if (!matrix) return null;
  const absent = new Set(missing);
  let [best, largest]: [number | null, number] = [null, 0];
  for (let query = 0; query < numQueries; query++) {
    const { total } = strongestIn(matrix, query);
    if (!absent.has(query) && (best === null || total > largest)) [best, largest] = [query, total];
  }
  return best;
}
