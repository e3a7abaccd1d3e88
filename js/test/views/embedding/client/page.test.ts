// @vitest-environment node
import { deflateSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import type { TileRequest } from "../../../../src/client/protocol";
import { Source } from "../../../../src/client/source";
import {
  type EmbeddingPageData,
  EmbeddingPageTransport,
} from "../../../../src/views/embedding/client/page";
import {
  aggregateOf,
  corpusOf,
  linesOf,
  meanError,
  normsOf,
  overviewOf,
  projectionOf,
  trustOf,
} from "../../../../src/views/embedding/client/requests";
import { TextTransport } from "../../../../src/views/embedding/client/text-transport";
import { ANSWER, COUNT, DESCRIPTION, trustFor } from "../kernel";

const WAY = { scaling: "norms" as const, translate: true, lift: false };
const PCA = {
  method: "pca" as const,
  dimensions: 2 as const,
  perplexity: 50,
  neighbors: 15,
  seed: 0,
};
const LAYER = 5;
/** Heads of the layer that the page contains. */
const HEADS = [0, 2];

function packed(bytes: ArrayLike<number>): string {
  return deflateSync(Uint8Array.from(bytes)).toString("base64");
}

/** Return an arbitrary code below 65536 for one axis of one point of a head. */
function codeOf(headIndex: number, axis: number, point: number): number {
  return (headIndex * 30_011 + axis * 7919 + point * 1237) % 65_536;
}

/**
 * Return the bytes of all codes: first the high bytes of x and y of all heads, then the low bytes.
 */
function planes(count: number): number[] {
  const bytes: number[] = [];
  for (const shift of [8, 0])
    for (const axis of [0, 1])
      for (const headIndex of HEADS.keys())
        for (let point = 0; point < count; point++)
          bytes.push((codeOf(headIndex, axis, point) >> shift) & 255);
  return bytes;
}

const AGGREGATE = {
  rows: 1,
  columns: 3,
  query_edges: [0, 4],
  key_edges: [0, 1, 2, 4],
  texts: 2,
  of_texts: 9,
  queries: 6,
  of_queries: 30,
  maximum: [1, 0.5],
  // One code per bin: 255 is the maximum of the head, 0 means no pair. The mean is proportional to
  // the square of code - 1.
  data: packed([255, 1, 0, 255, 128, 0]),
};

function pageData(changed: Partial<EmbeddingPageData["embedding"]> = {}): EmbeddingPageData {
  const heads = HEADS.map((head, headIndex) => ({
    head,
    low: [-1, headIndex] as [number, number],
    size: 2 + headIndex,
    explained: [0.5, 0.25],
    factor: 1.5,
    problem: headIndex === 0 ? "all keys are the same" : null,
  }));
  const norms = Array.from({ length: 2 * COUNT }, (_, i) => i);
  return {
    format: 2,
    view: "embedding",
    state: {},
    description: DESCRIPTION,
    blocks: [],
    maps: [],
    scores: [],
    embedding: {
      way: WAY,
      top_keys: 0,
      top_keys_add: null,
      stacks: [
        {
          stack: "self",
          corpus: deflateSync(JSON.stringify(ANSWER)).toString("base64"),
          count: COUNT,
          layers: [
            {
              layer: LAYER,
              heads,
              points: packed(planes(COUNT)),
              norms: { low: [1, 2], high: [2, 4], data: packed(norms) },
              trust: [null, trustFor(LAYER, 2)],
              aggregate: AGGREGATE,
              keys: null,
            },
          ],
        },
      ],
      projections: [
        {
          stack: "self",
          layer: LAYER,
          head: 2,
          method: "tsne",
          dimensions: 3,
          perplexity: 30,
          neighbors: 99,
          seed: 4,
          header: {
            dimensions: 3,
            count: COUNT,
            low: [0, 0, 0],
            size: 1,
            explained: null,
            factor: 1.5,
            problem: null,
            work: { state: "done", done: 5, num_total: 5, words: "" },
          },
          trust: trustFor(7, 2),
          data: packed(new Uint8Array(6 * COUNT).fill(255)),
        },
      ],
      images: [{ text: 1, index: 0, height: 1, width: 2, data: packed([1, 2, 3, 4, 5, 6]) }],
      ...changed,
    },
  };
}

function sourceOf(data = pageData()): Source {
  return new Source(new EmbeddingPageTransport(data));
}

const HEAD = { stack: "self", layer: LAYER, head: 2 };

describe("an exported page", () => {
  it("samples points of small plots if there are many", async () => {
    const data = pageData();
    const [stack] = data.embedding.stacks;
    const [layer] = stack?.layers ?? [];
    if (!stack || !layer) throw new Error("no layer");
    stack.count = 25_000;
    layer.points = packed(planes(stack.count));
    const overview = await overviewOf(sourceOf(data), { stack: "self", layers: [LAYER], way: WAY });
    // The overview has every third of 25,000 points.
    expect([overview.stride, overview.points]).toEqual([3, 8334]);
    expect(overview.heads[1]?.coordinates[2 * 100 + 1]).toBe(codeOf(1, 1, 300) >> 8);
  });

  it("has the plot that was shown, ignoring settings that its method does not use", async () => {
    const shown = { method: "tsne" as const, dimensions: 3 as const, perplexity: 30, seed: 4 };
    const request = { ...HEAD, way: WAY, ...shown, neighbors: 15 };
    const plot = await projectionOf(sourceOf(), request);
    expect([...plot.coordinates]).toEqual(new Array(3 * COUNT).fill(1));
    const { head, ...rest } = request;
    const [trust] = await trustOf(sourceOf(), { ...rest, heads: [head] });
    expect(trust?.plot).toBe(-0.7);
  });

  it("has principal components of heads whose plot it does not contain, and reports this", async () => {
    const shown = { method: "tsne" as const, dimensions: 3 as const, perplexity: 30, seed: 4 };
    const request = { ...HEAD, way: WAY, ...shown, neighbors: 15 };
    const flat = { ...request, method: "pca" as const, dimensions: 2 as const };
    const components = await projectionOf(sourceOf(), flat);
    for (const other of [{ perplexity: 50 }, { dimensions: 2 as const }]) {
      const plot = await projectionOf(sourceOf(), { ...request, ...other });
      expect(plot.dimensions).toBe(2);
      expect(plot.coordinates).toEqual(components.coordinates);
      expect(plot.work?.state).toBe("failed");
      expect(plot.work?.words).toContain("does not contain this plot. The principal");
    }
  });

  it("reports that it contains one placing only", async () => {
    const way = { ...WAY, lift: true };
    const asked = overviewOf(sourceOf(), { stack: "self", layers: [LAYER], way });
    await expect(asked).rejects.toThrow("one placing: scaling “norms”, keys moved, not lifted.");
  });

  it("has trust figures and mean weights of every head", async () => {
    const source = sourceOf();
    const { head: _, ...place } = HEAD;
    const trusts = await trustOf(source, { ...place, way: WAY, ...PCA, heads: [2, 0] });
    expect([trusts[0]?.plot, trusts[1]]).toEqual([-0.5, null]);
    const aggregate = await aggregateOf(source, { ...HEAD, size: 64 });
    expect(aggregate).toMatchObject({ rows: 1, columns: 3, texts: 2, ofTexts: 9, ofQueries: 30 });
    expect([...aggregate.weights]).toEqual([0.5, 0.125, -1]);
    // Compare every mean with the value of its code, 1 + round(254 sqrt(mean / 0.5)).
    for (let mean = 0; mean <= 0.5; mean += 0.0001) {
      const shown = 0.5 * (Math.round(254 * Math.sqrt(mean / 0.5)) / 254) ** 2;
      const error = meanError(aggregate, shown);
      expect(Math.abs(shown - mean)).toBeLessThanOrEqual(error);
      expect(error).toBeLessThan(0.002);
    }
    // Means that a kernel sends are exact.
    expect(meanError({}, 0.5)).toBe(0);
  });

  it("reports the size of strongest keys if it contains none", async () => {
    const top_keys_add = { count: 5, bytes: 3_440_000 };
    const data = pageData({ top_keys_add });
    const asked = linesOf(sourceOf(data), { ...HEAD, point: 1 });
    await expect(asked).rejects.toThrow("Pass top_keys=5 to add them (about 3.4 MB).");
    top_keys_add.bytes = 63_600;
    const small = linesOf(sourceOf(data), { ...HEAD, point: 1 });
    await expect(small).rejects.toThrow("Pass top_keys=5 to add them (about 64 kB).");
  });

  it("has the images of texts, but no other weights", async () => {
    const transport = new EmbeddingPageTransport(pageData());
    const text = new Source(new TextTransport(transport, 1));
    const image = await text.image(0);
    expect([image.width, image.height, ...image.pixels]).toEqual([
      2, 1, 1, 2, 3, 255, 4, 5, 6, 255,
    ]);
    await expect(text.describe()).rejects.toThrow("not all of their weights");
    const other = new Source(new TextTransport(transport, 2));
    await expect(other.image(0)).rejects.toThrow("image 0 of text 2");
  });

  it("reports what it does not contain", async () => {
    const source = sourceOf();
    await expect(corpusOf(source, "cross")).rejects.toThrow("no points of “cross”");
    await expect(normsOf(source, { ...HEAD, layer: 0 })).rejects.toThrow("layer 0 of “self”");
    await expect(normsOf(source, { ...HEAD, head: 1 })).rejects.toThrow("no head 1 of layer 5");
    await expect(source.transport.request("tile", {} as TileRequest)).rejects.toThrow(
      "cannot answer “tile”",
    );
    expect(source.transport.live).toBe(false);
  });

  it("rejects data of another format", () => {
    const data = { ...pageData(), format: 1 } as unknown as EmbeddingPageData;
    expect(() => new EmbeddingPageTransport(data)).toThrow(
      "format 1, but only format 2 is supported",
    );
  });
});
