/** The weight that every head gives to the pinned tokens: heads can be ordered by it. */

import type { Range, StackDescription } from "../../client/protocol";
import type { Scores, Source } from "../../client/source";

/** The name of this order of heads. */
export const BY_PIN = "pinned";

/** The pinned query, and the pinned key if there is one. */
export interface Pin {
  query: number;
  key: number | null;
}

export function isSamePin(a: Pin | null, b: Pin | null): boolean {
  return a?.query === b?.query && a?.key === b?.key;
}

/** The words of a caption for an order of heads. */
export function orderLabel(order: string): string {
  return order === BY_PIN ? "weight of the pinned tokens" : order;
}

/**
 * The weight of every head of a stack from the pinned query to the pinned key, layer by layer.
 * Without a pinned key, the largest weight of the query.
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
    stack.layers.map(async (layer, i) => {
      const heads = Array.from({ length: stack.heads_per_layer[i] as number }, (_, head) => head);
      const where = { stack: stack.name, layer, heads, rows, columns };
      const piece = await source.block(where, signal);
      return piece.matrices.map(largest);
    }),
  );
}

/** The number that is largest in size, with its sign. */
function largest(row: Float32Array): number {
  return row.reduce((most, each) => (Math.abs(each) > Math.abs(most) ? each : most), 0);
}
