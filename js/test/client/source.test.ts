// @vitest-environment node

import { deflateSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { type PageData, PageTransport } from "../../src/client/page";
import type { Cells, Description, Range, ReadRequest } from "../../src/client/protocol";
import { type Matrix, mapsRead, Source, splitRead } from "../../src/client/source";
import { MAX_REPLY_BYTES } from "../../src/client/transport";
import { pageOf, pieceOf, stackOf, transportOf } from "../builders";

describe("the transport of a page", () => {
  const layer = { stack: "cross", layer: 4 };
  // The codes of two heads, three queries and two keys are 100 * head + 10 * query + key.
  const codes = [0, 1, 10, 11, 20, 21, 100, 101, 110, 111, 120, 121];
  const block = pieceOf([2, 3, 2], codes, layer);
  const stack = stackOf({ name: "cross" });
  const sourceOf = (fields: Partial<PageData> = {}): Source =>
    new Source(new PageTransport(pageOf({ blocks: [block], maps: [block], ...fields })));
  const close = (...codes: number[]) => codes.map((code) => expect.closeTo((code / 255) ** 2, 6));

  it("returns heads, rows and columns of an embedded layer, with the error of its weights", async () => {
    const request: ReadRequest = { ...layer, heads: [1, 0], rows: [1, 3], columns: [1, 2] };
    const { matrices, rows, columns, error } = await sourceOf().block(request);
    expect([rows, columns, error]).toEqual([2, 1, 0.00392]);
    expect(matrices.map((matrix) => [...matrix])).toEqual([close(111, 121), close(11, 21)]);
  });

  it("returns embedded maps, and pools a part of a map or a finer map from the weights", async () => {
    const small = pieceOf([2, 1, 1], [121, 121], layer);
    const source = sourceOf({ maps: [small] });
    const whole = { ...layer, heads: [0], rows: [0, 3] as Range, columns: [0, 2] as Range };
    const mapOf = async (request: object) => {
      const [map] = await source.maps(stack, mapsRead({ ...whole, size: 1, ...request }));
      return [...(map as Matrix).values];
    };
    expect(await mapOf({})).toEqual(close(121));
    // The map has two rows: row 0 of the weights, and the maximum of rows 1 and 2.
    expect(await mapOf({ size: 2 })).toEqual(close(0, 1, 20, 21));
    expect(await mapOf({ heads: [1], rows: [0, 2], columns: [0, 1] })).toEqual(close(110));
    // A page with only the strongest keys returns its own maps, even if another size is requested.
    // Maps that are pooled from the strongest keys would be less exact.
    const embedded = { form: "strongest", covered: 0.9, error: 0.004 } as const;
    const sparse = sourceOf({ maps: [small], embedded: { [layer.stack]: embedded } });
    const [map] = await sparse.maps(stack, mapsRead({ ...whole, size: 2 }));
    expect(map?.rows).toBe(1);
  });

  it("names what it does not contain, and an unknown format", async () => {
    const source = sourceOf();
    await expect(source.scores("cross", "induction")).rejects.toThrow("scores for “induction”");
    const unknown = { stack: "self", layer: 9, heads: [0] };
    const missing = source.block({ ...unknown, rows: [0, 1], columns: [0, 1] });
    await expect(missing).rejects.toThrow(/layer 9.*“self”/);
    expect(() => sourceOf({ format: 3 } as unknown as PageData)).toThrow(/format 3/);
  });
});

describe("large requests", () => {
  const request: ReadRequest = {
    ...{ stack: "self", layer: 0, heads: [0, 1, 2, 3, 4] },
    ...{ rows: [10, 20], columns: [0, 10] },
  };

  it("are split by heads, and by rows if one head is too large", () => {
    const partsOf = (maxRows: number, combine: ReadRequest["combine"] = "separate") =>
      splitRead({ ...request, combine }, maxRows)
        .flat()
        .map(({ heads, rows }) => `${heads}: ${rows}`);
    expect(partsOf(25)).toEqual(["0,1: 10,20", "2,3: 10,20", "4: 10,20"]);
    expect(partsOf(6).slice(0, 3)).toEqual(["0: 10,16", "0: 16,20", "1: 10,16"]);
    // Heads that are combined are in the same part.
    expect(partsOf(25, "mean")).toEqual(["0,1,2,3,4: 10,15", "0,1,2,3,4: 15,20"]);
  });

  it.each([
    ["a kernel", { maxReplyBytes: MAX_REPLY_BYTES }, 4],
    ["a page, without a limit on replies", { live: false }, 2],
  ])("are joined from %s, and cached", async (_name, properties, expectedRequests) => {
    const sent: Float32Array[] = [];
    const transport = transportOf(async (_name, args) => {
      const { heads, rows, columns } = args as ReadRequest;
      const [numRows, width] = [rows[1] - rows[0], columns[1] - columns[0]];
      // Every weight is the number of its row.
      const data = Float32Array.from({ length: heads.length * numRows * width }, (_, i) => {
        return rows[0] + (Math.floor(i / width) % numRows);
      });
      sent.push(data);
      const shape = [heads.length, numRows, width];
      return { header: { shape, encoding: "float32", maximum: 1, error: 0 }, data };
    }, properties);
    const source = new Source(transport);
    const span: [number, number] = [0, 600];
    const whole = { ...request, heads: [0, 1], rows: span, columns: span };
    const block = await source.block(whole);
    expect(sent).toHaveLength(expectedRequests);
    expect(block.matrices).toHaveLength(2);
    block.matrices.forEach((matrix, i) => {
      // A kernel sends each matrix in parts, which are copied into a new matrix. A page's matrices
      // are not copied.
      expect(matrix.buffer === sent[i]?.buffer).toBe(!("maxReplyBytes" in properties));
      expect([matrix[416 * 600 + 5], matrix[599 * 600]]).toEqual([416, 599]);
    });
    await source.block({ ...whole, heads: [1] });
    expect(sent).toHaveLength(expectedRequests);
  });

  /**
   * Return a source with a cache of `cacheBytes`, the list of the requests that it sends, and a
   * function that requests a block. The replies begin with the weights 1000, 2000, 3000 and so on.
   */
  function counting(cacheBytes?: number) {
    const requests: ReadRequest[] = [];
    const transport = transportOf(async (_name, args) => {
      const request = args as ReadRequest;
      const { heads, rows = [0, 2], columns = [0, 2] } = request;
      const count = request.combine === "mean" ? 1 : heads.length;
      const shape = [count, rows[1] - rows[0], columns[1] - columns[0]];
      const size = shape.reduce((a, b) => a * b, 1);
      const start = 1000 * requests.push(request);
      const data = Float32Array.from({ length: size }, (_, i) => start + i);
      const largest = heads.map((head) => [0, head]);
      return { header: { shape, encoding: "float32", maximum: 1, error: 0, largest }, data };
    });
    const source = new Source(transport, cacheBytes);
    const blockOf = (changed: Partial<ReadRequest>) =>
      source.block({ ...request, heads: [0], columns: [0, 2], ...changed });
    return { source, requests, blockOf };
  }

  it("have different answers if any field differs", async () => {
    const { source, requests, blockOf } = counting();
    const blocks: Partial<ReadRequest>[] = [
      ...[{}, { stack: "cross" }, { layer: 1 }, { heads: [2] }],
      ...[{ rows: [11, 13] as [number, number] }, { columns: [1, 3] as [number, number] }],
    ];
    const cells = (more: Partial<Cells> = {}) => {
      const reduce: Cells = { kind: "cells", pooled: "mean", length: 1, ...more };
      return { rows: [10, 12] as Range, reduce };
    };
    const others: Partial<ReadRequest>[] = [
      ...[cells(), cells({ length: 2 }), cells({ pooled: "max" })],
      ...[
        { ...cells(), rows: [10, 11] as Range },
        { rows: [10, 12] as Range, heads: [0, 1] },
      ],
      { rows: [10, 12], heads: [0, 1], combine: "mean" },
      { rows: [10, 12], reduce: { kind: "strongest", k: 1 } },
      { rows: [10, 12], reduce: { kind: "strongest", k: 2 } },
    ];
    const firsts = new Set<number | undefined>();
    // Each of the 14 requests has its own answer. In the second round, nothing is requested again.
    // Heads 0 and 1 together need only head 1.
    for (let round = 0; round < 2; round++) {
      for (const changed of blocks)
        firsts.add((await blockOf({ rows: [10, 12], ...changed })).matrices[0]?.[0]);
      for (const changed of others) {
        const answers = await source.read({ ...request, heads: [0], columns: [0, 2], ...changed });
        firsts.add(answers.at(-1)?.values[0]);
      }
      expect([requests.length, firsts.size]).toEqual([14, 14]);
    }
  });

  it("are answered from cached blocks with more rows", async () => {
    const { requests, blockOf } = counting();
    await blockOf({ heads: [0, 1], rows: [2, 6] });
    const inner = await blockOf({ heads: [1], rows: [3, 5] });
    expect([...(inner.matrices[0] ?? [])]).toEqual([1010, 1011, 1012, 1013]);
    expect(requests).toHaveLength(1);
    // Each of these blocks has a row or a head that is not cached.
    await blockOf({ heads: [0], rows: [1, 3] });
    await blockOf({ heads: [0], rows: [5, 7] });
    await blockOf({ heads: [2], rows: [3, 5] });
    expect(requests).toHaveLength(4);
  });

  it("have maps of each head, which are cached for each part and size", async () => {
    const { source, requests } = counting();
    const stack = stackOf({ name: "self" });
    const where = { stack: "self", layer: 0, rows: [0, 2] as Range, columns: [0, 2] as Range };
    const mapsOf = (heads: number[], other: object = {}) =>
      mapsRead({ ...where, heads, size: 2, ...other });
    await source.maps(stack, mapsOf([0, 1]));
    await source.maps(stack, mapsOf([1, 2]));
    expect(requests.map(({ heads }) => heads)).toEqual([[0, 1], [2]]);
    expect(source.cached(mapsOf([1]))?.values[0]).toBe(1004);
    expect(source.cached(mapsOf([2]))?.largest).toEqual([0, 2]);
    for (const other of [{ size: 1 }, { layer: 1 }, { stack: "cross" }, { rows: [0, 1] as Range }])
      expect(source.cached(mapsOf([1], other))).toBeUndefined();
  });

  it("are dropped from a full cache, the oldest first", async () => {
    // A block of 2 x 2 weights has 16 bytes, so the cache of 40 bytes has room for two blocks.
    const { requests, blockOf } = counting(40);
    for (const layer of [1, 2, 1, 3, 1, 2]) await blockOf({ layer, rows: [0, 2] });
    expect(requests.map(({ layer }) => layer)).toEqual([1, 2, 3, 2]);
  });
});

describe("requests whose answers have not come yet", () => {
  /** Return functions that send requests, and the requests, which wait for `answer` or `fail`. */
  function paused() {
    const requests: { args: object; answer: () => void; fail: (reason: Error) => void }[] = [];
    const replyTo = (args: object) => {
      const { heads = [], pattern = "" } = args as { heads?: number[]; pattern?: string };
      const header = { shape: [heads.length, 1, 1], encoding: "float32", maximum: 9, error: 0 };
      return { header: { ...header, scores: [[pattern.length]] }, data: Float32Array.from(heads) };
    };
    const transport = transportOf(
      (_name, args, signal) =>
        new Promise((resolve, reject) => {
          requests.push({ args, answer: () => resolve(replyTo(args)), fail: reject });
          signal?.addEventListener("abort", () => reject(signal.reason));
        }),
    );
    const source = new Source(transport);
    const headsOf = async (heads: number[], signal?: AbortSignal) => {
      const area = { stack: "self", layer: 0, rows: [0, 1], columns: [0, 1] };
      const { matrices } = await source.block({ ...area, heads } as ReadRequest, signal);
      return matrices.map(([head]) => head);
    };
    const scoresOf = (pattern: string, signal?: AbortSignal) =>
      source.scores("self", pattern, signal);
    return { requests, headsOf, scoresOf };
  }

  const aborted = expect.objectContaining({ name: "AbortError" });

  it("are sent once, with a second request only for other heads", async () => {
    const { requests, headsOf } = paused();
    const answers = [headsOf([0, 1]), headsOf([2, 1]), headsOf([0, 1])];
    expect(requests.map(({ args }) => (args as ReadRequest).heads)).toEqual([[0, 1], [2]]);
    for (const { answer } of requests) answer();
    const heads = await Promise.all(answers);
    expect(heads.map(String)).toEqual(["0,1", "2,1", "0,1"]);
    expect(requests).toHaveLength(2);
  });

  it.each(["weights", "scores"])(
    "are cancelled when all callers of %s have cancelled",
    async (kind) => {
      const { requests, headsOf, scoresOf } = paused();
      const ask = async (signal: AbortSignal) =>
        String(kind === "weights" ? await headsOf([1], signal) : await scoresOf("a", signal));
      const [first, second, third] = Array.from({ length: 3 }, () => new AbortController());
      const answers = [first, second].map((caller) => ask((caller as AbortController).signal));
      first?.abort();
      // A question that replaces another one at once takes over its request.
      second?.abort();
      const next = ask((third as AbortController).signal);
      await Promise.resolve();
      expect(requests).toHaveLength(1);
      requests[0]?.answer();
      expect(await next).toBe("1");
      for (const answer of answers) await expect(answer).rejects.toThrow(aborted);
      const fourth = new AbortController();
      const other = headsOf([5], fourth.signal);
      fourth.abort();
      await expect(other).rejects.toThrow(aborted);
    },
  );

  it("give no answer to a caller who cancelled", async () => {
    const { requests, scoresOf } = paused();
    const controller = new AbortController();
    const [first, second] = [scoresOf("a"), scoresOf("a", controller.signal)];
    controller.abort();
    requests[0]?.answer();
    expect(await first).toEqual([[1]]);
    await expect(second).rejects.toThrow(aborted);
  });

  it("fail for both callers, and are sent again for the next", async () => {
    const { requests, scoresOf } = paused();
    const both = [scoresOf("a"), scoresOf("a")];
    requests[0]?.fail(new Error("no such pattern"));
    for (const answer of both) await expect(answer).rejects.toThrow("no such pattern");
    const next = scoresOf("a");
    expect(requests).toHaveLength(2);
    requests[1]?.answer();
    expect(await next).toEqual([[1]]);
  });
});

it("the description of a long text is joined from its parts", async () => {
  const description = { model: "日本", notes: ['"', "\ud800"], stacks: [] } satisfies Description;
  const bytes = deflateSync(JSON.stringify(description));
  const cuts = [0, 5, 11, bytes.length];
  const requests: object[] = [];
  const transport = transportOf(async (_name, args) => {
    requests.push(args);
    const { part = 0 } = args as { part?: number };
    return { header: { parts: 3 }, data: bytes.subarray(cuts[part], cuts[part + 1]) };
  });
  expect(await new Source(transport).describe()).toEqual(description);
  expect(requests).toEqual([{}, { part: 1 }, { part: 2 }]);
});
