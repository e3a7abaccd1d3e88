/** State of the embedding view, and functions that derive the settings of requests from it. */

import type { Placing } from "../../client/protocol";
import { EMBEDDING_VIEW_TRAITS, type StateOf } from "../../client/traits";
import type { HeadIndex } from "../../ui/head-grid/grid";
import type { ViewContext } from "../../ui/view/define-view";
import { type RecordState, viewTraits } from "../../ui/view/record";
import { defaultsOf } from "../../ui/view/state";
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

const DEFAULTS = defaultsOf<EmbeddingState>(viewTraits(EMBEDDING_VIEW_TRAITS));

/**
 * Return only the settings of the projection. A setting that the method does not use gets its
 * default value, so that its value cannot change the request.
 */
export function projectingOf(state: Projecting): Projecting {
  const { method, dimensions } = state;
  const { perplexity, neighbors, seed } = DEFAULTS;
  return {
    method,
    dimensions,
    perplexity: method === "tsne" ? state.perplexity : perplexity,
    neighbors: method === "umap" ? state.neighbors : neighbors,
    seed: method === "pca" ? seed : state.seed,
  };
}
