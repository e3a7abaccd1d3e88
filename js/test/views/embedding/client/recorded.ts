/** This file reads `tests/fixtures/embedding.json`, a corpus with expected numbers, as a page. */

import {
  type RecordedPage,
  type RecordedReply,
  RecordedTransport,
} from "../../../../src/client/page/recorded";
import { described, readFixture, stackOf } from "../../../builders";

interface LiveReply {
  arguments: Record<string, unknown>;
  header: object;
  data?: string | null;
}

export interface Values {
  /** Indexed by [point][axis]. */
  coordinates: [number, number][];
  norms: number[];
  /** Indexed by [text][query][key]. */
  weights: number[][][];
}

interface Fixture {
  layers: number[];
  texts: { tokens: string[] }[];
  corpus: object;
  live: Record<string, LiveReply[]>;
  page: { top_keys: number; replies: RecordedReply[] };
  /** Indexed by layer and head, such as "2:0". */
  values: Record<string, Values>;
}

/** Replies and page of Python, and `values` that a script computed without the package. */
export const FIXTURE = readFixture<Fixture>("embedding.json");

export const PLACING = { scaling: "norms" as const, translate: true, lift: false };

export const PCA = {
  method: "pca" as const,
  dimensions: 2 as const,
  perplexity: 50,
  neighbors: 15,
  seed: 0,
};

/** Return the transport of a page with `replies` before those of the fixture. */
export function page(replies: RecordedReply[] = []): RecordedTransport {
  const description = described(stackOf({ causal: true }));
  const data: RecordedPage & { description: typeof description } = {
    format: 1,
    description,
    replies: [...replies, ...structuredClone(FIXTURE.page.replies)],
  };
  return new RecordedTransport(data);
}
