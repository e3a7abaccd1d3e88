// @vitest-environment node
import { describe, expect, it } from "vitest";
import { formatNumber } from "../../../src/ui/text/captions";
import {
  aggregateInWords,
  caveatsInWords,
  corpusInWords,
  explainedInWords,
  layersInWords,
  linesCoverageInWords,
  linesInWords,
  methodInWords,
  type PointFacts,
  placingInWords,
  pointsInWords,
  type SentenceInput,
  sentence,
  summary,
  textInWords,
  workInWords,
} from "../../../src/views/embedding/captions";
import type { HeadTrust } from "../../../src/views/embedding/client/requests";
import { formatCorrelation, stepsInWords, trustInWords } from "../../../src/views/embedding/trust";

const PCA = { method: "pca", dimensions: 2, perplexity: 50, neighbors: 15, seed: 0 } as const;
const WAY = { scaling: "norms", translate: true, lift: false } as const;

const TRUST: HeadTrust = {
  head: 3,
  before: -0.312,
  placed: -0.553,
  plot: -0.6149,
  recall: 0.38,
  recall_baseline: 0.09,
  num_queries: 512,
  num_total: 5000,
};

const IT: PointFacts = {
  kind: "query",
  token: "it",
  text: 3,
  name: "The animal",
  unit: "text",
  position: 10,
};

function said(changed: Partial<SentenceInput> = {}): SentenceInput {
  return {
    stack: "self",
    at: { layer: 2, head: 1 },
    layers: 6,
    heads: 72,
    numQueries: 1200,
    numKeys: 1200,
    state: { ...PCA, ...WAY, content: "plot", points: "both" },
    problem: null,
    point: null,
    lines: null,
    waiting: false,
    matches: null,
    selected: 0,
    aggregate: null,
    live: true,
    ...changed,
  };
}

describe("formatting of numbers", () => {
  it("uses a true minus sign, but not for zero", () => {
    expect(formatCorrelation(-0.6149)).toBe("−0.61");
    expect(formatCorrelation(0.3)).toBe("0.30");
    expect(formatCorrelation(-0.001)).toBe("0.00");
    expect([-1.25, 0, -0.0001234, 12345.6, 0.5, -0].map(formatNumber)).toEqual([
      "−1.25",
      "0",
      "−1.23e−4",
      "12,300",
      "0.5",
      "0",
    ]);
    expect(formatNumber(Number.NaN)).toBe("unknown");
  });
});

describe("trust captions", () => {
  it("include the correlation over allowed keys, and recall with its chance level", () => {
    expect(trustInWords(TRUST)).toBe(
      "On this plot distance follows q·k with r = −0.61 over keys that a query may attend to; 38% of a query’s ten strongest keys are among its ten nearest (chance 9%).",
    );
  });

  it("do not claim that distance follows q·k if it hardly does", () => {
    const flat = { ...TRUST, plot: -0.001 };
    expect(trustInWords(flat)).toMatch(
      /^Correlation of distance with q·k on this plot: 0\.00 over keys that a query may attend to;/,
    );
  });

  it("include only the defined figures", () => {
    const short = { ...TRUST, recall: null, recall_baseline: null };
    expect(trustInWords(short)).toBe(
      "On this plot distance follows q·k with r = −0.61 over keys that a query may attend to.",
    );
    expect(trustInWords({ ...TRUST, plot: null })).toBe(
      "38% of a query’s ten strongest keys are among its ten nearest (chance 9%).",
    );
    const nothing = { ...short, plot: null };
    expect(trustInWords(nothing)).toBe("No query has enough keys for trust figures.");
    expect(trustInWords(undefined)).toBe("");
    expect(trustInWords(null)).toContain("no trust figures");
  });

  it("list the correlation of each step and the number of queries", () => {
    expect(stepsInWords(TRUST)).toBe(
      "r of the original vectors −0.31, as placed −0.55, on the plot −0.61. Measured on 512 of 5,000 queries.",
    );
    expect(stepsInWords({ ...TRUST, num_queries: 5000 })).not.toContain("Measured");
    expect(stepsInWords({ ...TRUST, before: null })).toBe("");
  });
});

describe("coverage captions", () => {
  const corpus = {
    numQueries: 2000,
    numKeys: 2000,
    inAll: 120_000,
    texts: 12,
    totalTexts: 800,
    whole: true,
    seed: 7,
    unit: "text" as const,
    leftOut: 0,
    stopped: true,
  };
  it("count points and texts, and include the seed if texts or points were sampled", () => {
    expect(corpusInWords(corpus)).toBe(
      "4,000 of 120,000 points: 12 of 800 texts, all of their tokens, drawn at random with seed 7.",
    );
    expect(corpusInWords({ ...corpus, texts: 1, totalTexts: 1, whole: false })).toBe(
      "4,000 of 120,000 points: 1 text, some of its tokens, drawn at random with seed 7.",
    );
    expect(corpusInWords({ ...corpus, inAll: 4000, totalTexts: 12, unit: "image" })).toBe(
      "All 4,000 points of 12 images.",
    );
  });

  it("mention no seed if the other texts could not be read", () => {
    const read = { ...corpus, inAll: 4000, texts: 3, totalTexts: 12, stopped: false };
    expect(corpusInWords({ ...read, leftOut: 9 })).toBe(
      "All 4,000 points of 3 texts. 9 texts are skipped: empty or too long.",
    );
    expect(corpusInWords(read)).toBe(
      "4,000 points: 3 of 12 texts, all of their tokens. The others are left out.",
    );
    const both = { ...corpus, leftOut: 1 };
    expect(corpusInWords(both)).toMatch(/with seed 7\. 1 text is skipped: empty or too long\.$/);
  });

  it("mention a seed for older data without `stopped`", () => {
    expect(corpusInWords({ ...corpus, stopped: null })).toContain("drawn at random with seed 7.");
  });

  it("include the variance of the axes", () => {
    expect(explainedInWords([0.3, 0.13])).toBe("The two axes show 43% of the variance.");
    expect(explainedInWords([0.3, 0.1, 0.1])).toBe("The three axes show 50% of the variance.");
    expect(explainedInWords(null)).toBe("");
    expect(explainedInWords([Number.NaN, 0])).toBe("");
  });

  it("include the caveats of one layer or of some layers", () => {
    const all = [
      { layers: [0, 1], words: "Soft cap", kind: "moving" as const },
      { layers: [1], words: "Sinks." },
    ];
    expect(caveatsInWords(all, 0, 2, true)).toBe("Soft cap.");
    expect(caveatsInWords(all, 1, 2, true)).toBe("Soft cap. Sinks.");
    expect(caveatsInWords(all, null, 2, true)).toBe("Soft cap. Layer 1: Sinks.");
    expect(caveatsInWords(all, null, 2, false)).toBe("Layer 1: Sinks.");
    expect(layersInWords([0, 1, 2])).toBe("Layers 0 to 2");
    expect(layersInWords([0, 2, 4])).toBe("Layers 0, 2, 4");
  });

  it("describe what a mean by position covers", () => {
    const mean = {
      texts: 12,
      ofTexts: 800,
      queries: 64,
      ofQueries: 512,
      numInLastRow: null,
      error: 0,
    };
    expect(aggregateInWords({ ...mean, bin: [4, 2] })).toBe(
      "Mean over 12 of 800 texts, 64 of their 512 queries; few texts reach the last positions. A cell is the mean over at most 4 × 2 positions.",
    );
    const short = { ...mean, ofTexts: 12, queries: 9, ofQueries: 9, bin: [1, 1] as [1, 1] };
    expect(aggregateInWords({ ...short, numInLastRow: 12, error: 0.00151 })).toBe(
      "Mean over 12 texts. Means are exact to 0.002.",
    );
    expect(aggregateInWords({ ...short, numInLastRow: 1 })).toBe(
      "Mean over 12 texts; 1 of them reaches the last row.",
    );
    expect(aggregateInWords({ ...short, numInLastRow: 12 })).toBe("Mean over 12 texts.");
    expect(aggregateInWords({ ...short, texts: 1, ofTexts: 1, numInLastRow: 1 })).toBe(
      "Mean over 1 text.",
    );
  });

  it("include the share that lines show", () => {
    const lines = { strongest: null, count: 5, covered: 0.934, numTotal: 40 };
    expect(linesCoverageInWords({ kind: "query" }, lines)).toBe(
      "5 of 40 lines: 93% of the query’s weight.",
    );
    expect(linesCoverageInWords({ kind: "query" }, { ...lines, numTotal: 5, covered: 1 })).toBe(
      "5 lines: 100% of the query’s weight.",
    );
    // The lines have all of the weight. The mask excludes all other keys.
    expect(linesCoverageInWords({ kind: "query" }, { ...lines, covered: 1 })).toBe(
      "5 lines: 100% of the query’s weight.",
    );
    expect(linesCoverageInWords({ kind: "key" }, lines)).toContain("queries that give it most");
    expect(linesCoverageInWords({ kind: "key" }, null)).toBe("");
    const strongest = { token: "a", position: 0, weight: 0.62 };
    expect(linesCoverageInWords({ kind: "query" }, { ...lines, strongest })).toBe(
      "5 of 40 lines: 93% of the query’s weight. Opacity = weight ÷ 0.62.",
    );
    const error = { weight: 0.0031, covered: 0.0072 };
    expect(linesCoverageInWords({ kind: "query" }, { ...lines, strongest, error })).toBe(
      "5 of 40 lines: 93.4% ± 0.8% of the query’s weight. Opacity = weight ÷ 0.62. " +
        "Weights are exact to 0.004.",
    );
  });
});

describe("method captions", () => {
  it("name the method with its settings", () => {
    const plain = { ...PCA, lift: false };
    expect(methodInWords(plain, true)).toBe("principal components");
    expect(methodInWords({ ...plain, method: "tsne", seed: 3 }, true)).toBe(
      "t-SNE of cosine distance, perplexity 50, seed 3",
    );
    expect(methodInWords({ ...plain, method: "umap", dimensions: 3 }, true)).toBe(
      "3D UMAP of cosine distance, 15 neighbours, seed 0",
    );
    expect(methodInWords({ ...plain, method: "umap", lift: true })).toBe(
      "UMAP of Euclidean distance",
    );
  });

  it("describe the placing of queries and keys", () => {
    expect(placingInWords(WAY, 1.3)).toBe(
      "scaled by their norms (c = 1.3), keys moved onto the queries",
    );
    const bare = { scaling: "none", translate: false, lift: true } as const;
    expect(placingInWords(bare, 1)).toBe(
      "not scaled, keys not moved, lifted, so that distances follow q·k exactly before the projection",
    );
  });

  it("describe the progress of a projection", () => {
    expect(workInWords(null)).toBe("");
    expect(workInWords({ state: "running", done: 250, num_total: 750, words: "" })).toBe(
      "Step 250 of 750.",
    );
    expect(
      workInWords({ state: "failed", done: 0, num_total: 0, words: "umap-learn is missing." }),
    ).toBe("umap-learn is missing.");
    expect(workInWords({ state: "done", done: 1, num_total: 1, words: "t-SNE" })).toBe("");
  });
});

describe("the main caption", () => {
  it("explains nearness and how to open a head, for all heads", () => {
    expect(sentence(said({ at: null }))).toBe(
      "Self-attention, all 72 heads of 6 layers: queries and keys by principal components. Near points attend to each other if r is close to −1. Click a head, or press Enter on it, to enlarge it.",
    );
    expect(sentence(said({ at: null, live: false }))).not.toContain("Click");
  });

  it("counts the points and the search matches of one head", () => {
    expect(sentence(said())).toBe(
      "Layer 2, head 1: 1,200 queries and 1,200 keys by principal components.",
    );
    const waiting = said({ waiting: true, state: { ...said().state, method: "tsne" } });
    expect(sentence(waiting)).toContain(
      "by principal components, until t-SNE has its first frame.",
    );
    expect(pointsInWords("keys", 5, 1)).toBe("1 key");
    const matches = { search: "the", count: 240, points: 2400 };
    expect(sentence(said({ matches, selected: 1 }))).toContain(
      "240 of 2,400 points contain “the”. 1 point in the lasso.",
    );
    expect(sentence(said({ matches: { ...matches, count: 0 } }))).toContain(
      "No point contains “the”.",
    );
    expect(sentence(said({ matches: { ...matches, search: '"the"' } }))).toContain(
      "240 of 2,400 points are “the”.",
    );
  });

  it("names the strongest key of a query, and the strongest query of a key", () => {
    const strongest = { token: "animal", position: 2, weight: 0.681 };
    const lines = { strongest, count: 5, covered: 0.9, numTotal: 11 };
    expect(sentence(said({ point: IT, lines }))).toBe(
      "Layer 2, head 1. Query “it”, position 10 of text 3, attends most to “animal” (2): 0.68.",
    );
    const key: PointFacts = { ...IT, kind: "key" };
    expect(linesInWords(key, lines)).toBe(
      "Key “it”, position 10 of text 3, gets most weight from “animal” (2): 0.68.",
    );
    expect(linesInWords(IT, null)).toBe("Query “it”, position 10 of text 3.");
    const none = { ...lines, strongest: null };
    expect(linesInWords(IT, none)).toContain("attends to no key");
    expect(linesInWords(key, none)).toContain("no query attends to it");
  });

  it("gives the reason for a missing plot", () => {
    const problem = "queries or keys are not finite numbers";
    expect(sentence(said({ problem }))).toBe(
      "Layer 2, head 1: queries or keys are not finite numbers, so there is no plot.",
    );
    expect(summary(said({ problem }), TRUST)).not.toContain("r =");
  });

  it("gives the position of the largest mean weight", () => {
    const of = {
      texts: 12,
      ofTexts: 12,
      queries: 9,
      ofQueries: 9,
      bin: [1, 1] as [number, number],
      numInLastRow: 12,
    };
    const state = { ...said().state, content: "aggregate" as const };
    const aggregate = { weight: 0.98, error: 0, at: "query 3 → key 0", ...of };
    expect(sentence(said({ state, aggregate }))).toBe(
      "Layer 2, head 1: mean weight by position. Largest, query 3 → key 0: 0.98.",
    );
  });

  it("is followed by trust captions for screen readers", () => {
    expect(summary(said(), TRUST)).toMatch(/^Self-attention\. Layer 2, head 1: .*r = −0\.61/);
    expect(textInWords("text 3", 3)).toBe("text 3");
    expect(textInWords("image 3", 3, "image")).toBe("image 3");
    expect(textInWords("The cat", 3)).toBe("text 3, “The cat”");
  });
});
