// @vitest-environment node
import { deflateSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import type { RecordedReply } from "../../../../src/client/page/recorded";
import { Source } from "../../../../src/client/source";
import {
  corpusOf,
  normsOf,
  projectionOf,
  smallPlotsOf,
  trustOf,
} from "../../../../src/views/embedding/client/requests";
import { corpusWith, trustFor } from "../kernel";
import { FIXTURE, PCA, PLACING, page } from "./recorded";

const HEAD = { stack: "self", layer: 5, head: 1 };
const COUNT = FIXTURE.values["5:1"]?.coordinates.length as number;

function packed(bytes: ArrayLike<number>): string {
  return deflateSync(Uint8Array.from(bytes)).toString("base64");
}

function sourceOf(...replies: RecordedReply[]): Source {
  return new Source(page(replies));
}

/** Settings of a t-SNE plot in three dimensions. */
const TSNE = { method: "tsne" as const, dimensions: 3 as const, perplexity: 30, seed: 4 };
const REQUEST = { ...HEAD, placing: PLACING, ...TSNE, neighbors: 15 };
/** Return a `Source` that reads a page with the plot of `REQUEST`. */
function sourceWithPlot(): Source {
  const work = { state: "done" as const, done: 5, num_total: 5, words: "" };
  const header = {
    ...{ dimensions: 3 as const, count: COUNT, low: [0, 0, 0], size: 1, explained: null },
    ...{ factor: 1.5, problem: null, work },
  };
  const { head, ...layer } = HEAD;
  const of = { ...layer, method: "tsne", dimensions: 3 };
  const data = packed(new Uint8Array(6 * COUNT).fill(255));
  const trust = { heads: [trustFor(7, head)] };
  return sourceOf(
    { request: "plot", arguments: { ...of, head }, header, data },
    { request: "trust", arguments: { ...of, head }, header: trust },
  );
}

describe("an exported page", () => {
  it("samples points of small plots if there are many", async () => {
    const count = 25_000;
    /** Return the two-byte code of the y coordinate of a point of `HEAD`. */
    const codeOf = (point: number): number => (point * 1237) % 65_536;
    // Eight arrays: the high bytes of x of both heads, the high bytes of y of both heads, and then
    // the low bytes in the same order.
    const unused = new Array<number>(count).fill(0);
    const high = Array.from(unused, (_, point) => codeOf(point) >> 8);
    const data = packed([unused, unused, unused, high, unused, unused, unused, unused].flat());
    const args = { stack: "self", layer: 5 };
    const header = [0, 1].map(() => ({ count, problem: null }));
    const many = { request: "plot", arguments: args, header, data, planes: 4 };
    const example = corpusWith({ stride: 3 });
    const request = { layer: 5, placing: PLACING };
    const plots = await smallPlotsOf(sourceOf(many), { ...example, count }, request);
    // A small plot has every third of 25,000 points, so its point 100 is point 300.
    expect(plots[1]?.coordinates).toHaveLength(2 * 8334);
    expect(plots[1]?.coordinates[8334 + 100]).toBe(codeOf(300) >> 8);
  });

  it("has the plot that was shown", async () => {
    const plot = await projectionOf(sourceWithPlot(), REQUEST);
    expect([...plot.coordinates]).toEqual(new Array(3 * COUNT).fill(1));
    const [trust] = await trustOf(sourceWithPlot(), REQUEST);
    expect(trust?.plot).toBe(-0.7);
  });

  it("has principal components of heads whose plot it does not contain, and reports this", async () => {
    const source = sourceWithPlot();
    for (const other of [{ head: 0 }, { dimensions: 2 as const }]) {
      const request = { ...REQUEST, ...other };
      const components = await projectionOf(source, { ...request, ...PCA });
      const plot = await projectionOf(source, request);
      expect(plot.dimensions).toBe(2);
      expect(plot.coordinates).toEqual(components.coordinates);
      expect(plot.work?.state).toBe("failed");
      expect(plot.work?.words).toContain("does not contain this plot. The principal");
    }
  });

  it("has trust figures of all heads and of one", async () => {
    const { head: _, ...layer } = HEAD;
    const header = { heads: [null, trustFor(5, 1)] };
    const source = sourceOf({ request: "trust", arguments: layer, header });
    const request = { ...layer, placing: PLACING, ...PCA };
    expect(await trustOf(source, request)).toEqual(header.heads);
    for (const head of [0, 1])
      expect(await trustOf(source, { ...request, head })).toEqual([header.heads[head]]);
  });

  it("reports what it does not contain", async () => {
    const source = sourceOf();
    const requests: [Promise<unknown>, string][] = [
      [corpusOf(source, { stack: "cross" }), "not contain “points” of stack cross."],
      [
        normsOf(source, { ...HEAD, layer: 0 }),
        "not contain “norms” of stack self, layer 0, head 1.",
      ],
      [normsOf(source, { ...HEAD, head: 2 }), "contains no head 2"],
    ];
    for (const [request, message] of requests) await expect(request).rejects.toThrow(message);
  });
});
