/** State of the atlas: its traits, their defaults, and the fields of a page's URL. */

import type {
  AtlasDescription,
  AtlasStack,
  Description,
  StackDescription,
} from "../../client/protocol";
import type { ATLAS_VIEW_TRAITS, StateOf } from "../../client/traits";
import type { RecordState } from "../../ui/view/record";

/**
 * Name of a list of edges: a random sample, or the edges with the largest weights. An edge is the
 * weight from one query to one key.
 */
export type EdgeList = "sampled" | "strongest";

/** The atlas ignores `token` and `key`. */
export type AtlasState = RecordState & StateOf<typeof ATLAS_VIEW_TRAITS>;

const NO_TOKENS = { text: [], special: [], sequence: [] };

/**
 * Describe a stack of an atlas as if it were a stack of a record, with empty token lists. The frame
 * and the selection of heads work on such descriptions.
 */
export function stackOf(stack: AtlasStack): StackDescription {
  return {
    name: stack.name,
    layers: stack.layers,
    heads_per_layer: stack.heads_per_layer,
    query_tokens: NO_TOKENS,
    key_tokens: stack.same_tokens ? null : NO_TOKENS,
    normalized: true,
    maximum: 1,
    causal: stack.causal,
    vectors: false,
    patterns: [],
  };
}

/** Description of an atlas with the fields of a record's description. */
export type DescribedAtlas = Description & { atlas: AtlasDescription };

/** Convert the reply to the request "describe" to a description like that of a record. */
export function describedAtlas(answer: unknown): DescribedAtlas {
  const atlas = answer as AtlasDescription;
  return { ...atlas, atlas, stacks: atlas.stacks.map(stackOf) };
}
