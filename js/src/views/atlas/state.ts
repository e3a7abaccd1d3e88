/** State of the atlas. */

import type {
  AtlasDescription,
  AtlasStack,
  Description,
  StackDescription,
} from "../../client/protocol";
import { RECORD_DEFAULTS, RECORD_HASH, type RecordState } from "../../ui/view/record";
import { type HashFields, readIndex } from "../../ui/view/state";

/** List of edges that is shown. */
export type EdgeList = "sampled" | "strongest";

/** Traits of the atlas, with the names of the Python traits. It has no `token` and `key`. */
export interface AtlasState extends RecordState {
  /** Colouring of heads: "role" or the name of a statistic. */
  color: string;
  edges: EdgeList;
  /** Range of offsets of the listed edges, or null for all. */
  offsets: [number, number] | null;
  /** Search texts for queries and keys: a part of a token, or "class:value". */
  query_search: string;
  key_search: string;
  /** Index of the open text, and query and key of the edge in it. */
  text: number | null;
  edge: [number, number] | null;
}

export const ATLAS_DEFAULTS: AtlasState = {
  ...RECORD_DEFAULTS,
  color: "role",
  edges: "sampled",
  offsets: null,
  query_search: "",
  key_search: "",
  text: null,
  edge: null,
};

/** Parse two integers with a comma between them. */
function readPair(text: string): [number, number] | undefined {
  const match = /^(-?\d{1,9}),(-?\d{1,9})$/.exec(text);
  return match ? [Number(match[1]), Number(match[2])] : undefined;
}

function readEdge(text: string): [number, number] | undefined {
  const pair = readPair(text);
  return pair && Math.min(...pair) >= 0 ? pair : undefined;
}

const { stack, layer, heads } = RECORD_HASH as Required<HashFields<RecordState>>;

/** Fields in the URL of a page. */
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

/** Convert a stack of an atlas to the description of a record's stack, without tokens. */
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

/** Description of an atlas in the form of a record's description. */
export type DescribedAtlas = Description & { atlas: AtlasDescription };

export function describedAtlas(atlas: AtlasDescription): DescribedAtlas {
  return { ...atlas, atlas, stacks: atlas.stacks.map(stackOf) };
}
