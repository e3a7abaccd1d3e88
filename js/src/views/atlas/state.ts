/** State of the atlas: its traits, their defaults, and the fields of a page's URL. */

import type {
  AtlasDescription,
  AtlasStack,
  Description,
  StackDescription,
} from "../../client/protocol";
import { RECORD_DEFAULTS, RECORD_HASH, type RecordState } from "../../ui/view/record";
import { type HashFields, readIndex } from "../../ui/view/state";

/**
 * Name of a list of edges: a random sample, or the edges with the largest weights. An edge is the
 * weight from one query to one key.
 */
export type EdgeList = "sampled" | "strongest";

/** Defaults of the traits, which are named as in Python. The atlas ignores `token` and `key`. */
export const ATLAS_DEFAULTS = {
  ...RECORD_DEFAULTS,
  /** Quantity that colours the heads: "role" or the name of a statistic. */
  color: "role",
  /** List of edges that is shown. */
  edges: "sampled" as EdgeList,
  /** Smallest and largest offset of the listed edges, or null for all offsets. */
  offsets: null as [number, number] | null,
  /**
   * Search text for queries: a part of a token, "system:class", "#position", or "*" for all tokens.
   */
  query_search: "",
  /** Search text for keys, in the same form. */
  key_search: "",
  /** Number of the open text in the corpus, or null if no text is open. */
  text: null as number | null,
  /** Positions of the selected edge's query and key in the open text, or null. */
  edge: null as [number, number] | null,
};

export type AtlasState = typeof ATLAS_DEFAULTS;

/** Parse two integers with a comma between them. Return undefined for any other text. */
function readPair(text: string): [number, number] | undefined {
  const match = /^(-?\d{1,9}),(-?\d{1,9})$/.exec(text);
  return match ? [Number(match[1]), Number(match[2])] : undefined;
}

function readEdge(text: string): [number, number] | undefined {
  const pair = readPair(text);
  return pair && Math.min(...pair) >= 0 ? pair : undefined;
}

const { stack, layer, heads } = RECORD_HASH as Required<HashFields<RecordState>>;

/** Parsers for the fields in the URL of a page. */
export const ATLAS_HASH: HashFields<AtlasState> = {
  stack,
  layer,
  heads,
  color: (text) => text,
  order: (text) => text,
  edges: (text) => (text === "sampled" || text === "strongest" ? text : undefined),
  offsets: readPair,
  query_search: (text) => text,
  key_search: (text) => text,
  text: readIndex,
  edge: readEdge,
};

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
  // Stacks of linear layers are siblings of causal self-attention (see `model-layers.ts`).
  const group = atlas.stacks
    .filter(({ linear, causal, same_tokens }) => linear || (causal && same_tokens))
    .map(({ name, linear }) => ({ name, linear }));
  const siblings = new Set(group.map(({ linear }) => linear)).size > 1 ? [group] : [];
  return { ...atlas, atlas, siblings, stacks: atlas.stacks.map(stackOf) };
}
