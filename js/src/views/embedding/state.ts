/** State of the embedding view, and functions that derive the settings of requests from it. */

import type { Placing } from "../../client/protocol";
import type { EMBEDDING_VIEW_TRAITS, StateOf } from "../../client/traits";
import type { HeadIndex } from "../../ui/head-grid/grid";
import type { ViewContext } from "../../ui/view/define-view";
import type { RecordState } from "../../ui/view/record";
import type { Projecting } from "./client/requests";

/**
 * `token` and `key` are positions in the text with index `text`. The chosen point is the query at
 * `token` or the key at `key`.
 */
export type EmbeddingState = RecordState & StateOf<typeof EMBEDDING_VIEW_TRAITS> & Projecting;

export type Context = ViewContext<EmbeddingState>;

/** Return a string that identifies a head, for use as a key of maps. */
export function headKey({ layer, head }: HeadIndex): string {
  return `${layer}:${head}`;
}

/** Return only the settings of the placing. */
export function placingOf({ scaling, translate, lift }: Placing): Placing {
  return { scaling, translate, lift };
}

/** Return only the settings of the projection. */
export function projectingOf(state: Projecting): Projecting {
  const { method, dimensions, perplexity, neighbors, seed } = state;
  return { method, dimensions, perplexity, neighbors, seed };
}
