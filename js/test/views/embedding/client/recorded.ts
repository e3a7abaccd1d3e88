/** This file reads `tests/fixtures/embedding.json`, a corpus with expected numbers, as a page. */

import {
  type EmbeddingPageData,
  EmbeddingPageTransport,
} from "../../../../src/views/embedding/client/page";
import { described, readFixture, stackOf } from "../../../builders";

interface RecordedReply {
  arguments: Record<string, unknown>;
  header: object;
  data?: string | null;
}

export interface Values {
  /** Indexed by [point][axis]. */
  coordinates: [number, number][];
  norms: number[];
  /** Indexed by [query position][key position]. Bins without an allowed pair are -1. */
  aggregate: number[][];
  /** Indexed by [text][query][key]. */
  weights: number[][][];
}

interface Fixture {
  layers: number[];
  texts: { tokens: string[] }[];
  corpus: object;
  live: Record<string, RecordedReply[]>;
  page: EmbeddingPageData["embedding"];
  /** Indexed by layer and head, such as "2:0". */
  values: Record<string, Values>;
}

/** Replies and page of Python, and `values` that a script computed without the package. */
export const FIXTURE = readFixture<Fixture>("embedding.json");

export const PLACING = FIXTURE.page.placing;

export const PCA = {
  method: "pca" as const,
  dimensions: 2 as const,
  perplexity: 50,
  neighbors: 15,
  seed: 0,
};

/** Return a copy of the data of the page, with the fields in `changed` replaced. */
export function pageData(changed: Partial<EmbeddingPageData["embedding"]> = {}): EmbeddingPageData {
  const description = described(stackOf({ causal: true }));
  const rest = { blocks: [], maps: [], scores: [], state: {}, view: "embedding", description };
  return { format: 2, ...rest, embedding: { ...structuredClone(FIXTURE.page), ...changed } };
}

export const page = (): EmbeddingPageTransport => new EmbeddingPageTransport(pageData());
