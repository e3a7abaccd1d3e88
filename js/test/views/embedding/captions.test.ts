// @vitest-environment node
import { describe, expect, it } from "vitest";
import { formatNumber } from "../../../src/ui/text/captions";
import {
  aggregateInWords,
  corpusInWords,
  explainedInWords,
  linesCoverageInWords,
  linesInWords,
  methodInWords,
  type PointFacts,
  placingInWords,
  type SentenceInput,
  sentence,
  summary,
  workInWords,
} from "../../../src/views/embedding/captions";
import type { HeadTrust } from "../../../src/views/embedding/client/requests";
import { formatCorrelation, stepsInWords, trustInWords } from "../../../src/views/embedding/trust";
import { sentences } from "../../builders";

const PCA = { method: "pca", dimensions: 2, perplexity: 50, neighbors: 15, seed: 0 } as const;
const PLACING = { scaling: "norms", translate: true, lift: false } as const;

describe("trust", () => {
  const trust: HeadTrust = {
    ...{ head: 3, before: -0.312, placed: -0.553, plot: -0.6149, recall: 0.38 },
    ...{ recall_baseline: 0.09, num_queries: 512, num_total: 5000 },
  };
  sentences({
    // A number that is rounded to zero has no minus sign.
    "−0.61 0.30 0.00": [-0.6149, 0.3, -0.001].map(formatCorrelation).join(" "),
    "−1.25 0 −1.23e−4 12,300 0 unknown": [-1.25, 0, -0.0001234, 12345.6, -0, Number.NaN]
      .map(formatNumber)
      .join(" "),
    "On this plot distance follows q·k with r = −0.61 over keys that a query may attend to; 38% of a query’s ten strongest keys are among its ten nearest (chance 9%).":
      trustInWords(trust),
    "r of the original vectors −0.31, as placed −0.55, on the plot −0.61. Measured on 512 of 5,000 queries.":
      stepsInWords(trust),
    "": trustInWords(undefined) + stepsInWords({ ...trust, before: null }),
  });
});

describe("coverage", () => {
  const corpus = {
    ...{ numQueries: 2000, numKeys: 2000, inAll: 120_000, texts: 12, totalTexts: 800 },
    ...{ whole: true, seed: 7, unit: "text" as const, leftOut: 0, stopped: true },
  };
  sentences({
    "4,000 of 120,000 points: 12 of 800 texts, all of their tokens, drawn at random with seed 7.":
      corpusInWords(corpus),
    "The three axes show 50% of the variance.": explainedInWords([0.3, 0.1, 0.1]),
    "": explainedInWords(null) + explainedInWords([Number.NaN, 0]),
  });

  const mean = {
    ...{ texts: 12, ofTexts: 800, queries: 64, ofQueries: 512, numInLastRow: null, error: 0 },
    bin: [4, 2] as [number, number],
  };
  sentences({
    "Mean over 12 of 800 texts, 64 of their 512 queries; few texts reach the last positions. A cell is the mean over at most 4 × 2 positions.":
      aggregateInWords(mean),
  });

  const lines = { strongest: null, count: 5, covered: 0.934, numTotal: 40 };
  const strongest = { token: "a", position: 0, weight: 0.62 };
  const error = { weight: 0.0031, covered: 0.0072 };
  const query = { kind: "query" } as const;
  sentences({
    // The lines have all of the weight, so the other 35 keys are masked and are not mentioned.
    "5 lines: 100% of the query’s weight.": linesCoverageInWords(query, { ...lines, covered: 1 }),
    "5 of 40 lines: 93.4% ± 0.8% of the query’s weight. Opacity = weight ÷ 0.62. Weights are exact to 0.004.":
      linesCoverageInWords(query, { ...lines, strongest, error }),
  });
});

describe("the method", () => {
  const plain = { ...PCA, lift: false };
  const work = { state: "running", done: 250, num_total: 750, words: "" } as const;
  sentences({
    "t-SNE of cosine distance, perplexity 50, seed 3": methodInWords(
      { ...plain, method: "tsne", seed: 3 },
      true,
    ),
    "UMAP of Euclidean distance": methodInWords({ ...plain, method: "umap", lift: true }),
    "scaled by their norms (c = 1.3), keys moved onto the queries": placingInWords(PLACING, 1.3),
    "Step 250 of 750.": workInWords(work),
    "": workInWords(null) + workInWords({ ...work, state: "done", words: "t-SNE" }),
  });
});

describe("the main caption", () => {
  const input = (changed: Partial<SentenceInput> = {}): SentenceInput => ({
    ...{ stack: "self", at: { layer: 2, head: 1 }, layers: 6, heads: 72 },
    ...{ numQueries: 1200, numKeys: 1200, problem: null, point: null, lines: null },
    ...{ waiting: false, matches: null, selected: 0, aggregate: null, live: true },
    state: { ...PCA, ...PLACING, content: "plot", points: "both" },
    ...changed,
  });
  const point: PointFacts = {
    kind: "query",
    token: "it",
    text: 3,
    name: "The animal",
    unit: "text",
    position: 10,
  };
  const key: PointFacts = { ...point, kind: "key" };
  const strongest = { token: "animal", position: 2, weight: 0.681 };
  const lines = { strongest, count: 5, covered: 0.9, numTotal: 11 };
  const problem = "queries or keys are not finite numbers";
  const matches = { search: "the", count: 240, points: 2400 };
  const head = "Layer 2, head 1: 1,200 queries and 1,200 keys by principal components";
  sentences({
    "Self-attention, all 72 heads of 6 layers: queries and keys by principal components. Near points attend to each other if r is close to −1. Click a head, or press Enter on it, to enlarge it.":
      sentence(input({ at: null })),
    [`${head}. 240 of 2,400 points contain “the”. 1 point in the lasso.`]: sentence(
      input({ matches, selected: 1 }),
    ),
    "Layer 2, head 1. Query “it”, position 10 of text 3, attends most to “animal” (2): 0.68.":
      sentence(input({ point, lines })),
    "Key “it”, position 10 of text 3, gets most weight from “animal” (2): 0.68.": linesInWords(
      key,
      lines,
    ),
    "Layer 2, head 1: queries or keys are not finite numbers, so there is no plot.": sentence(
      input({ problem }),
    ),
  });

  it("is followed by trust captions for screen readers", () => {
    const trust = { head: 1, before: null, placed: null, plot: -0.6149, recall: null };
    const counts = { recall_baseline: null, num_queries: 512, num_total: 5000 };
    const words = summary(input(), { ...trust, ...counts });
    expect(words).toMatch(/^Self-attention\. Layer 2, head 1: .*r = −0\.61/);
  });
});
