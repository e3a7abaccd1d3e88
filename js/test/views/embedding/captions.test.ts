import { describe, expect, it } from "vitest";
import type { HeadTrust } from "../../../src/client/protocol";
import { formatNumber } from "../../../src/ui/text/captions";
import {
  corpusInWords,
  explainedInWords,
  linesCoverageInWords,
  linesInWords,
  methodInWords,
  placingInWords,
  sentenceOf,
  summaryOf,
} from "../../../src/views/embedding/captions";
import type { Lines } from "../../../src/views/embedding/client/requests";
import type { EmbeddingState } from "../../../src/views/embedding/state";
import { formatCorrelation, trustInWords } from "../../../src/views/embedding/trust";
import { sentences } from "../../builders";
import { until, useFakeClock } from "../../dom";
import { corpusWith, Kernel, type Setup, setUp } from "./kernel";

const PCA = { method: "pca", dimensions: 2, perplexity: 50, neighbors: 15, seed: 0 } as const;
const PLACING = { scaling: "norms", translate: true, lift: false } as const;

describe("trust", () => {
  const trust: HeadTrust = {
    ...{ head: 3, plot: -0.6149, recall: 0.38 },
    ...{ recall_baseline: 0.09, num_queries: 512, num_total: 5000 },
  };
  sentences({
    // A number that is rounded to zero has no minus sign.
    "−0.61 0.30 0.00": [-0.6149, 0.3, -0.001].map(formatCorrelation).join(" "),
    "−1.25 0 −1.23e−4 12,300 0 unknown": [-1.25, 0, -0.0001234, 12345.6, -0, Number.NaN]
      .map(formatNumber)
      .join(" "),
    "Correlation of distance with q·k over keys that a query may attend to: r = −0.61; 38% of a query’s ten strongest keys are among its ten nearest (chance 9%).":
      trustInWords(trust),
  });
});

describe("coverage", () => {
  const corpus = corpusWith({
    ...{ total_points: 120_000, total_texts: 800, whole: true, stopped: true },
  });
  sentences({
    "12 of 120,000 points: 2 of 800 texts, all of their tokens, drawn at random with seed 7.":
      corpusInWords(corpus),
    "The three axes show 50% of the variance.": explainedInWords([0.3, 0.1, 0.1]),
    "": explainedInWords(null),
  });

  const lines: Lines = {
    ...{ point: 0, points: [7, 8, 9, 10, 11], weights: [0.62, 0.1, 0.1, 0.1, 0.014] },
    covered: 0.934,
  };
  sentences({
    "5 lines: 93% of the query’s weight. Opacity = weight ÷ 0.62.": linesCoverageInWords(
      false,
      lines,
    ),
    "5 lines: 93% of the weight on this key. Opacity = weight ÷ 0.62.": linesCoverageInWords(
      true,
      lines,
    ),
  });
});

describe("the method", () => {
  const plain = { ...PCA, lift: false };
  sentences({
    "t-SNE of cosine distance, perplexity 50, seed 3": methodInWords(
      { ...plain, method: "tsne", seed: 3 },
      true,
    ),
    "UMAP of Euclidean distance": methodInWords({ ...plain, method: "umap", lift: true }),
    "scaled by their norms (c = 1.3), keys moved onto the queries": placingInWords(PLACING, 1.3),
  });
});

describe("the main caption", () => {
  useFakeClock();

  /** Return a view whose points and attention lines are loaded. */
  async function loaded(changed: Partial<EmbeddingState>): Promise<Setup> {
    const setup = setUp(changed, new Kernel());
    const { store } = setup;
    await until(() => expect(store.corpus.value).not.toBeNull());
    await until(() => expect(store.settled.value).toBe(true));
    if (store.chosen.value !== null) await until(() => expect(store.lines.value).not.toBeNull());
    return setup;
  }

  const head = "Layer 0, head 0: 6 queries and 6 keys by principal components";
  it.each<[Partial<EmbeddingState>, string]>([
    [
      {},
      "Self-attention, all 7 heads of 3 layers: queries and keys by principal components. Near points attend to each other if r is close to −1. Click a head, or press Enter on it, to enlarge it.",
    ],
    [
      { enlarged: true, search: "the", selected: [3] },
      `${head}. 6 of 12 points match “the”. 1 point in the lasso.`,
    ],
    [
      { enlarged: true, text: 1, token: 3 },
      "Layer 0, head 0. Query “the”, position 3 of text 1, attends most to “the” (0): 0.75.",
    ],
    // The first query of a causal text may attend to the first key only.
    [
      { enlarged: true, text: 1, token: 0 },
      "Layer 0, head 0. Query “the”, position 0 of text 1, may attend only to “the” (0).",
    ],
    [
      { enlarged: true, layer: 6, heads: [1] },
      "Layer 6, head 1: 6 queries and 6 keys by principal components.",
    ],
  ])("of %j", async (changed, caption) => {
    const { context, store } = await loaded(changed);
    expect(sentenceOf(context, store)).toBe(caption);
  });

  it("is followed by trust captions for screen readers", async () => {
    const { context, store } = await loaded({ enlarged: true, layer: 5 });
    await until(() => expect(store.headTrust.value).not.toBeNull());
    expect(summaryOf(context, store)).toMatch(/^Self-attention\. Layer 5, head 0: .*r = −0\.50/);
  });
});

sentences({
  "Key “the”, position 0 of text 1, gets most weight from “ cat” (1): 0.68.": linesInWords(
    corpusWith(),
    6,
    { point: 6, points: [1], weights: [0.681], covered: 1 },
    true,
  ),
  "Key “the”, position 0 of text 1, gets most weight apart from the first query from “ cat” (1): 0.68.":
    linesInWords(
      corpusWith(),
      6,
      { point: 6, points: [0, 1], weights: [1, 0.681], covered: 1 },
      true,
    ),
  "Key “the”, position 0 of text 1: only “the” (0) attends to it, and to no other key.":
    linesInWords(corpusWith(), 6, { point: 6, points: [0], weights: [1], covered: 1 }, true),
  "Query “the”, position 0 of text 1, attends most to “ cat” (1): 0.68.": linesInWords(
    corpusWith(),
    0,
    { point: 0, points: [7], weights: [0.681], covered: 1 },
    false,
  ),
});
