/** What the atlas's state asks of the statistics of a corpus. */

import type {
  AtlasDescription,
  AtlasStack,
  Description,
  StackDescription,
} from "../../client/protocol";
import { RECORD_DEFAULTS, RECORD_HASH, type RecordState } from "../../ui/view/record";
import { type HashFields, readIndex } from "../../ui/view/state";

/** Which edges of a head are listed. */
export type EdgeList = "sampled" | "strongest";

/** The atlas's traits, under Python's names. It has no traits `token` and `key`. */
export interface AtlasState extends RecordState {
  /** What heads are coloured by: "role" or the name of a statistic. */
  color: string;
  edges: EdgeList;
  /** From which offset to which edges are shown; null for all. */
  offsets: [number, number] | null;
  /** What is sought at both ends of edges: a part of a token, or "class:value". */
  query_search: string;
  key_search: string;
  /** The text that is open, and of it the edge's query and key. */
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

/** Two whole numbers, which may be negative, with a comma between. */
function readPair(text: string): [number, number] | undefined {
  const found = /^(-?\d{1,9}),(-?\d{1,9})$/.exec(text);
  return found ? [Number(found[1]), Number(found[2])] : undefined;
}

function readEdge(text: string): [number, number] | undefined {
  const pair = readPair(text);
  return pair && Math.min(...pair) >= 0 ? pair : undefined;
}

const { stack, layer, heads } = RECORD_HASH as Required<HashFields<RecordState>>;

/** What a page's URL keeps. */
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

/** A stack of the atlas as views know stacks: it has no tokens of its own. */
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

/** An atlas as views know what they are of, with all that it says of itself. */
export type DescribedAtlas = Description & { atlas: AtlasDescription };

export function describedAtlas(atlas: AtlasDescription): DescribedAtlas {
  return { ...atlas, atlas, stacks: atlas.stacks.map(stackOf) };
}
