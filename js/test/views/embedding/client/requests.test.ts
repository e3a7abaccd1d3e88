// @vitest-environment node

import { deflateSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { Source } from "../../../../src/client/source";
import type { Reply } from "../../../../src/client/transport";
import {
  corpusOf,
  type HeadPlot,
  projectionOf,
} from "../../../../src/views/embedding/client/requests";
import { transportOf } from "../../../builders";
import { ANSWER, corpusWith } from "../kernel";

/**
 * Return a source, and a list of the arguments of its requests. `reply` gets the arguments of a
 * request and the number of earlier requests.
 */
function recorded(reply: (args: Record<string, unknown>, turn: number) => Reply) {
  const asked: Record<string, unknown>[] = [];
  const transport = transportOf(async (_name, args) => {
    asked.push(args as Record<string, unknown>);
    return reply(args as Record<string, unknown>, asked.length - 1);
  });
  return { source: new Source(transport), asked };
}

const PLACING = { scaling: "norms" as const, translate: true, lift: false };

const REQUEST: HeadPlot = {
  stack: "self",
  layer: 3,
  head: 1,
  placing: PLACING,
  method: "tsne",
  dimensions: 2,
  perplexity: 50,
  neighbors: 15,
  seed: 0,
};

function plot(): object {
  const header = { dimensions: 2, count: 2, parts: 1, low: [-1, 10], size: 4, factor: 1 };
  return { ...header, explained: null, problem: null, work: null };
}

describe("a corpus", () => {
  it("is read from several deflated parts", async () => {
    const bytes = deflateSync(JSON.stringify(ANSWER));
    const cut = [0, 100, 200, bytes.length];
    const recorder = recorded(({ part = 0 }) => ({
      header: { parts: 3 },
      data: bytes.subarray(cut[part as number], cut[(part as number) + 1]),
    }));
    const corpus = await corpusOf(recorder.source, { stack: "self" });
    expect(recorder.asked.map(({ part }) => part)).toEqual([undefined, 1, 2]);
    expect([corpus.count, corpus.numQueries, corpus.numTexts]).toEqual([12, 6, 2]);
    expect(await corpusOf(recorder.source, { stack: "self" })).toBe(corpus);
  });

  it("finds the point of a token if it has one", () => {
    const corpus = corpusWith();
    // Text 0 has no points, text 2 has none at position 1, and there is no text 3.
    expect(corpus.pointOf("query", 0, 0)).toBe(-1);
    expect(corpus.pointOf("query", 2, 1)).toBe(-1);
    expect(corpus.pointOf("key", 3, 0)).toBe(-1);
    expect(corpus.pointsOf("query", 1)).toEqual([0, 4]);
    expect(corpus.pointsOf("key", 2)).toEqual([10, 12]);
    expect(corpus.pointsOf("key", 0)).toEqual([6, 6]);
  });
});

describe("a projection", () => {
  it("has the units of the data, at any byte offset of the message", async () => {
    // The high bytes of x of both points, then those of y, and then the low bytes.
    const message = new Uint8Array([9, 0, 255, 255, 128, 0, 255, 255, 0]);
    const data = new DataView(message.buffer, 1);
    const { coordinates } = await projectionOf(
      recorded(() => ({ header: plot(), data })).source,
      REQUEST,
    );
    const middle = expect.closeTo(10 + (4 * 32768) / 65535, 5);
    expect([...coordinates]).toEqual([-1, 14, 3, middle]);
  });
});
