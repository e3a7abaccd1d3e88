/** State of the embedding view, and functions that derive the settings of requests from it. */

import type { Method, Placing, Scaling } from "../../client/protocol";
import type { HeadIndex } from "../../ui/head-grid/grid";
import type { ViewContext } from "../../ui/view/define-view";
import { RECORD_DEFAULTS, RECORD_HASH, type RecordState } from "../../ui/view/record";
import { type HashFields, readIndex } from "../../ui/view/state";
import type { Projecting } from "./client/requests";

/**
 * Traits of the embedding view. The names are those of the Python traits.
 *
 * `token` and `key` are positions in the text with index `text`. The chosen point is the query at
 * `token` or the key at `key`.
 */
export interface EmbeddingState extends RecordState {
  /** Index of a text of the corpus, or null if none is chosen. */
  text: number | null;
  /** Whether one head is shown, which is the first chosen head. */
  enlarged: boolean;
  /** Content of an enlarged head: its points, or its mean weights by position. */
  content: "plot" | "aggregate";
  method: Method;
  dimensions: 2 | 3;
  scaling: Scaling;
  translate: boolean;
  lift: boolean;
  perplexity: number;
  neighbors: number;
  seed: number;
  /** Colouring of points: a name in `COLORINGS`, or the name of a column. */
  color: string;
  points: "both" | "queries" | "keys";
  search: string;
  match_case: boolean;
  /** Indices of the points in the lasso. */
  selected: number[];
}

export type Context = ViewContext<EmbeddingState>;

/** Built-in colourings, and their labels. */
export const COLORINGS: readonly (readonly [name: string, label: string])[] = [
  ["type", "query or key"],
  ["position", "position"],
  ["position mod 5", "position mod 5"],
  ["norm", "vector length"],
  ["frequency", "token frequency"],
  ["punctuation", "punctuation"],
  ["text", "text"],
];

export const EMBEDDING_DEFAULTS: EmbeddingState = {
  ...RECORD_DEFAULTS,
  text: null,
  enlarged: false,
  content: "plot",
  method: "pca",
  dimensions: 2,
  scaling: "norms",
  translate: true,
  lift: false,
  perplexity: 50,
  neighbors: 15,
  seed: 0,
  color: "type",
  points: "both",
  search: "",
  match_case: false,
  selected: [],
};

/** Return a parser that accepts only the given words. For any other text it returns undefined. */
function oneOf<T extends string>(...words: T[]): (text: string) => T | undefined {
  return (text) => words.find((word) => word === text);
}

const readText = (text: string): string => text;
const isTrue = (text: string): boolean => text === "true";

/** Fields in the URL of a page. The lasso is omitted, because it may contain very many points. */
export const EMBEDDING_HASH: HashFields<EmbeddingState> = {
  ...RECORD_HASH,
  text: readIndex,
  enlarged: isTrue,
  content: oneOf("plot", "aggregate"),
  color: readText,
  order: readText,
  points: oneOf("both", "queries", "keys"),
  search: readText,
  match_case: isTrue,
};

/** Content of the view: all heads, the points of one head, or its mean weights by position. */
export type Picture = "overview" | "plot" | "mean";

export function pictureOf({ enlarged, content }: Context["state"]): Picture {
  if (!enlarged.value) return "overview";
  return content.value === "aggregate" ? "mean" : "plot";
}

/** Return a string that identifies a head, for use as a key of maps. */
export function headKey({ layer, head }: HeadIndex): string {
  return `${layer}:${head}`;
}

/** Return only the settings of the placing. */
export function placingOf({ scaling, translate, lift }: Placing): Placing {
  return { scaling, translate, lift };
}

/**
 * Return only the settings of the projection. A setting that the method does not use gets its
 * default value, so that its value cannot change the request.
 */
export function projectingOf(state: Projecting): Projecting {
  const { method, dimensions } = state;
  const { perplexity, neighbors, seed } = EMBEDDING_DEFAULTS;
  return {
    method,
    dimensions,
    perplexity: method === "tsne" ? state.perplexity : perplexity,
    neighbors: method === "umap" ? state.neighbors : neighbors,
    seed: method === "pca" ? seed : state.seed,
  };
}
