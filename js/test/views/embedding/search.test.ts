// @vitest-environment node
import { describe, expect, it } from "vitest";
import { readHash, writeHash } from "../../../src/ui/view/state";
import { findPoints } from "../../../src/views/embedding/search";
import {
  EMBEDDING_DEFAULTS,
  EMBEDDING_HASH,
  type EmbeddingState,
  inTurn,
  neighbourOf,
  overviewGroups,
  projectingOf,
} from "../../../src/views/embedding/state";
import { corpusWith, stackOf } from "./kernel";

const corpus = corpusWith();

/** Return the points whose token matches. It checks all points. */
function matching(matches: (token: string) => boolean): number[] {
  return Array.from({ length: corpus.count }, (_, point) => point).filter((point) =>
    matches(corpus.tokenOf(point)),
  );
}

function found(searchText: string, matchCase = false): number[] {
  const { points } = findPoints(corpus, searchText, matchCase) ?? { points: new Uint8Array(0) };
  return [...points.keys()].filter((point) => points[point] === 1);
}

describe("a search", () => {
  it("finds tokens that contain a text, ignoring case", () => {
    expect(found("THE")).toEqual(matching((token) => token.toLowerCase() === "the"));
    expect(found("a")).toEqual(matching((token) => token === " cat"));
    expect(found("xyz")).toEqual([]);
  });

  it("finds tokens with matching case on request", () => {
    expect(found("The", true)).toEqual(matching((token) => token === "The"));
    expect(found("tHe", true)).toEqual([]);
  });

  it("finds whole tokens in quotes", () => {
    expect(found('"cat"')).toEqual(matching((token) => token === " cat"));
    expect(found('"at"')).toEqual([]);
    expect(found('"The"', true)).toEqual(matching((token) => token === "The"));
    // A quotation mark without a second one is searched as text.
    expect(found('"')).toEqual([]);
  });

  it("matches a space with the sign that is shown for it", () => {
    const vocabulary = ["the", "·cat", ",", "##cat", "dog", "a·b"];
    const shown = corpusWith({ vocabulary });
    const tokens = (searchText: string): string[] => {
      const { points } = findPoints(shown, searchText, false) ?? { points: new Uint8Array(0) };
      const marked = [...points.keys()].filter((point) => points[point] === 1);
      return [...new Set(marked.map((point) => shown.tokenOf(point)))];
    };
    expect(tokens(" cat")).toEqual(["·cat"]);
    expect(tokens("·cat")).toEqual(["·cat"]);
    expect(tokens("cat")).toEqual(["·cat", "##cat"]);
    expect(tokens('"cat"')).toEqual(["·cat", "##cat"]);
    expect(tokens("a b")).toEqual(["a·b"]);
  });

  it("counts points, queries, different tokens and occurrences", () => {
    const the = findPoints(corpus, "the", false);
    // " dog" is in the vocabulary but has no point, so "dog" has no match.
    expect(the).toMatchObject({ count: 6, queries: 3, tokens: 2, occurrences: 10 + 2 });
    expect(findPoints(corpus, "dog", false)).toMatchObject({ count: 0, tokens: 0, occurrences: 0 });
    expect(findPoints(corpus, "", false)).toBeNull();
  });

  it("treats the text literally", () => {
    expect(found(".*")).toEqual([]);
    expect(found("</s>")).toEqual([5, 11]);
  });
});

describe("neighbouring heads", () => {
  const stack = stackOf();

  it("are clipped at the first and last layer", () => {
    expect(neighbourOf(stack, { layer: 5, head: 0 }, 0, 1)).toEqual({ layer: 5, head: 1 });
    expect(neighbourOf(stack, { layer: 5, head: 2 }, 0, 1)).toEqual({ layer: 5, head: 2 });
    expect(neighbourOf(stack, { layer: 5, head: 0 }, 0, -1)).toEqual({ layer: 5, head: 0 });
    expect(neighbourOf(stack, { layer: 0, head: 1 }, -1, 0)).toEqual({ layer: 0, head: 1 });
    expect(neighbourOf(stack, { layer: 6, head: 1 }, 1, 0)).toEqual({ layer: 6, head: 1 });
  });

  it("have the nearest number in another layer", () => {
    expect(neighbourOf(stack, { layer: 5, head: 2 }, 1, 0)).toEqual({ layer: 6, head: 1 });
    expect(neighbourOf(stack, { layer: 6, head: 0 }, -2, 0)).toEqual({ layer: 0, head: 0 });
  });
});

describe("requests for all heads", () => {
  it("contain a few layers each, and every layer once", () => {
    const layers = Array.from({ length: 12 }, (_, layer) => layer);
    const stack = stackOf({ layers, heads_per_layer: layers.map(() => 12) });
    // With 12 heads per layer, 10,000 points need 240 kB per layer, and 5,000 points need 120 kB.
    const sizes = (count: number): number[] =>
      overviewGroups(stack, count).map((group) => group.length);
    expect(sizes(10_000)).toEqual([2, 2, 2, 2, 2, 2]);
    expect(sizes(200_000)).toEqual(sizes(10_000));
    expect(sizes(5000)).toEqual([4, 4, 4]);
    expect(sizes(2)).toEqual([12]);
    expect(overviewGroups(stack, 5000).flat()).toEqual(layers);
  });

  it("contain one layer if it is large", () => {
    const stack = stackOf({ layers: [3, 4], heads_per_layer: [64, 64] });
    expect(overviewGroups(stack, 10_000)).toEqual([[3], [4]]);
  });

  it("run three at a time and return results in order", async () => {
    let [now, most] = [0, 0];
    const results = await inTurn([5, 1, 4, 2, 3], 3, async (item) => {
      most = Math.max(most, ++now);
      await new Promise((resolve) => setTimeout(resolve, item));
      now--;
      return 10 * item;
    });
    expect(results).toEqual([50, 10, 40, 20, 30]);
    expect(most).toBe(3);
  });

  it("stop after the first failure", async () => {
    const begun: number[] = [];
    const all = inTurn([0, 1, 2, 3, 4, 5, 6, 7], 2, async (item) => {
      begun.push(item);
      await new Promise((resolve) => setTimeout(resolve, 1));
      if (item === 1) throw new Error("no more");
    });
    await expect(all).rejects.toThrow("no more");
    await new Promise((resolve) => setTimeout(resolve, 10));
    expect(begun.length).toBeLessThan(5);
  });
});

describe("the state", () => {
  it("survives a page's URL", () => {
    const state: EmbeddingState = {
      ...EMBEDDING_DEFAULTS,
      stack: "self",
      layer: 5,
      heads: [2],
      text: 3,
      token: 7,
      enlarged: true,
      content: "aggregate",
      color: "position mod 5",
      points: "keys",
      search: 'a & "b"=#,1',
      match_case: true,
    };
    const back = {
      ...EMBEDDING_DEFAULTS,
      ...readHash(writeHash(state, EMBEDDING_HASH), EMBEDDING_HASH),
    };
    expect(back).toEqual(state);
  });

  it("ignores invalid values in a URL", () => {
    const hash = "#shown=all&points=none&text=-1&layer=x&enlarged=maybe";
    expect(readHash<EmbeddingState>(hash, EMBEDDING_HASH)).toEqual({ enlarged: false });
  });

  it("keeps only the settings of the current method", () => {
    const typed = { ...EMBEDDING_DEFAULTS, perplexity: 30, neighbors: 5, seed: 3 };
    const { perplexity, neighbors, seed } = EMBEDDING_DEFAULTS;
    const of = (method: EmbeddingState["method"]) => projectingOf({ ...typed, method });
    expect(of("pca")).toEqual({ method: "pca", dimensions: 2, perplexity, neighbors, seed });
    expect(of("tsne")).toEqual({
      method: "tsne",
      dimensions: 2,
      perplexity: 30,
      neighbors,
      seed: 3,
    });
    expect(of("umap")).toEqual({
      method: "umap",
      dimensions: 2,
      perplexity,
      neighbors: 5,
      seed: 3,
    });
  });
});
