/** What the embedding view's state asks of a corpus. */

import type { StackDescription } from "../../client/protocol";
import { headsOf } from "../../client/source";
import type { HeadIndex } from "../../ui/head-grid/grid";
import { RECORD_DEFAULTS, RECORD_HASH, type RecordState } from "../../ui/view/record";
import { type HashFields, readIndex } from "../../ui/view/state";
import type { LeaveOut } from "../head";
import type { Method, Projecting, Scaling, Way } from "./client/requests";

/** What there is a plot of, or of the positions. */
export type Shown = "plot" | "aggregate";
export type PointsShown = "both" | "queries" | "keys";

/**
 * The embedding view's traits; the names are Python's.
 *
 * `token` and `key` are positions in `text`: the chosen point is a query or a key of it.
 */
export interface EmbeddingState extends RecordState {
  /** Index of a text of the corpus; null where none is chosen. */
  text: number | null;
  /** Whether one head is shown, the first chosen, and not all. */
  enlarged: boolean;
  shown: Shown;
  method: Method;
  dimensions: 2 | 3;
  scaling: Scaling;
  translate: boolean;
  lift: boolean;
  perplexity: number;
  neighbors: number;
  seed: number;
  /** What points are coloured by: a name of `COLORINGS` or a column's. */
  color: string;
  points: PointsShown;
  search: string;
  match_case: boolean;
  /** Points in the lasso. */
  selected: number[];
  /** Of the chosen text's head view. */
  leave_out: LeaveOut[];
  renormalize: boolean;
}

/** What points can be coloured by, whatever the corpus. */
export const COLORINGS = [
  "type",
  "position",
  "position mod 5",
  "norm",
  "frequency",
  "punctuation",
  "text",
] as const;

export const EMBEDDING_DEFAULTS: EmbeddingState = {
  ...RECORD_DEFAULTS,
  text: null,
  enlarged: false,
  shown: "plot",
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
  leave_out: [],
  renormalize: false,
};

/** Reads one of some words. */
function oneOf<T extends string>(...words: T[]): (text: string) => T | undefined {
  return (text) => words.find((word) => word === text);
}

/** What a page's URL keeps; not the lasso, which may hold any number of points. */
export const EMBEDDING_HASH: HashFields<EmbeddingState> = {
  ...RECORD_HASH,
  text: readIndex,
  enlarged: (text) => text === "true",
  shown: oneOf("plot", "aggregate"),
  color: (text) => text,
  order: (text) => text,
  points: oneOf("both", "queries", "keys"),
  search: (text) => text,
  match_case: (text) => text === "true",
};

/** A head's key in maps. */
export function headKey({ layer, head }: HeadIndex): string {
  return `${layer}:${head}`;
}

/** How points are placed. */
export function wayOf({ scaling, translate, lift }: Way): Way {
  return { scaling, translate, lift };
}

/** How they are projected; a setting that the method does not have is what it is by default. */
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

/** How an overview's plots are projected, whatever the enlarged head's method is. */
export const OVERVIEW_PROJECTING: Projecting = {
  method: "pca",
  dimensions: 2,
  perplexity: EMBEDDING_DEFAULTS.perplexity,
  neighbors: EMBEDDING_DEFAULTS.neighbors,
  seed: EMBEDDING_DEFAULTS.seed,
};

/** Layers that are asked for together, so that an answer holds about this many bytes. */
const BYTES_AT_ONCE = 500_000;
/** Points that the overview has of a head at most, as the kernel says. */
const MOST_POINTS = 10_000;

/** A stack's layers in groups whose small plots make one reply each. */
export function overviewGroups(stack: StackDescription, count: number): number[][] {
  const groups: number[][] = [];
  let room = 0;
  for (const layer of stack.layers) {
    const bytes = 2 * Math.min(count, MOST_POINTS) * headsOf(stack, layer).length;
    const last = groups.at(-1);
    if (last && bytes <= room) {
      last.push(layer);
      room -= bytes;
    } else {
      groups.push([layer]);
      room = BYTES_AT_ONCE - bytes;
    }
  }
  return groups;
}

/** The head so many layers and heads away, as far as there are any. */
export function neighbourOf(
  stack: StackDescription,
  from: HeadIndex,
  layers: number,
  heads: number,
): HeadIndex {
  const clip = (index: number, count: number): number => Math.max(0, Math.min(count - 1, index));
  const row = clip(Math.max(0, stack.layers.indexOf(from.layer)) + layers, stack.layers.length);
  const layer = stack.layers[row] ?? from.layer;
  return { layer, head: clip(from.head + heads, headsOf(stack, layer).length) };
}

/** Runs tasks, so many at once; the first that fails ends them all. */
export async function inTurn<T, R>(
  items: readonly T[],
  atOnce: number,
  run: (item: T) => Promise<R>,
): Promise<R[]> {
  const results: R[] = new Array(items.length);
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < items.length) {
      const i = next++;
      results[i] = await run(items[i] as T);
    }
  };
  try {
    await Promise.all(Array.from({ length: Math.min(atOnce, items.length) }, worker));
  } finally {
    next = items.length;
  }
  return results;
}

/** Waits, unless it is given up before. */
export function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = (): void => {
      clearTimeout(timer);
      reject(new DOMException("The answer is not awaited any more.", "AbortError"));
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", end);
      resolve();
    }, milliseconds);
    if (signal.aborted) end();
    else signal.addEventListener("abort", end, { once: true });
  });
}
