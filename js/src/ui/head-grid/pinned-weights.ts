/**
 * Weight of each head from the pinned query to the pinned key. The reader can order the heads by
 * these weights.
 */

import type { Range, StackDescription } from "../../client/protocol";
import { largestOf } from "../../client/signs";
import { headsOf, type Scores, type Source } from "../../client/source";

/** Index of the pinned query token, and of the pinned key token or null if no key is pinned. */
export interface Pin {
  query: number;
  key: number | null;
}

/**
 * Return the weight of every head of a stack from the pinned query to the pinned key, in one list
 * per layer. Without a pinned key, return for every head the weight of the pinned query that has
 * the largest absolute value.
 */
export async function pinnedWeights(
  source: Source,
  stack: StackDescription,
  { query, key }: Pin,
  signal?: AbortSignal,
): Promise<Scores> {
  const rows: Range = [query, query + 1];
  const columns: Range =
    key === null ? [0, (stack.key_tokens ?? stack.query_tokens).text.length] : [key, key + 1];
  return Promise.all(
    stack.layers.map(async (layer) => {
      const where = { stack: stack.name, layer, heads: headsOf(stack, layer), rows, columns };
      const piece = await source.block(where, signal);
      return piece.matrices.map(largestOf);
    }),
  );
}
