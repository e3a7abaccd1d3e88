// @vitest-environment node

import { deflateSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { type PageData, PageTransport } from "../../src/client/page";
import type { BlockRequest, Description, TileRequest } from "../../src/client/protocol";
import { Source, splitRequest } from "../../src/client/source";
import type { Reply } from "../../src/client/transport";
import { pageOf, pieceOf, transportOf } from "../builders";

/**
 * Return a page with two heads, 3 queries and 2 keys. Each code contains its position: 100 * head +
 * 10 * row + column.
 */
function pageData(): PageData {
  const codes = new Uint8Array(12);
  for (let head = 0; head < 2; head++)
    for (let row = 0; row < 3; row++)
      for (let column = 0; column < 2; column++)
        codes[(head * 3 + row) * 2 + column] = 100 * head + 10 * row + column;
  const block = pieceOf([2, 3, 2], codes, { stack: "cross", layer: 4 });
  return pageOf({ blocks: [block], maps: [block] });
}

describe("the transport of a page", () => {
  const source = new Source(new PageTransport(pageData()));
  const layer = { stack: "cross", layer: 4 };
  const close = (...codes: number[]) => codes.map((code) => expect.closeTo((code / 255) ** 2, 6));

  it("returns heads, rows and columns of an embedded layer, with the error of its weights", async () => {
    const block = await source.block({ ...layer, heads: [1, 0], rows: [1, 3], columns: [1, 2] });
    expect([block.rows, block.columns, block.error]).toEqual([2, 1, 0.00392]);
    expect(block.matrices.map((matrix) => [...matrix])).toEqual([close(111, 121), close(11, 21)]);
  });

  it("returns embedded maps of the requested heads", async () => {
    const { matrices } = await source.maps({ ...layer, size: 2, heads: [1] });
    expect(matrices.map((matrix) => [...matrix].slice(4))).toEqual([close(120, 121)]);
  });

  it("pools a part of a map, or a finer map, from the embedded weights", async () => {
    const data = pageData();
    const small = pieceOf([2, 1, 1], [121, 121], layer);
    const pooling = new Source(new PageTransport({ ...data, maps: [small] }));
    const coarse = await pooling.maps({ ...layer, size: 1 });
    expect(coarse.matrices[0]).toHaveLength(1);
    const finer = await pooling.maps({ ...layer, size: 2, heads: [0] });
    // The first pooled row is row 0. The second is the maximum of rows 1 and 2.
    expect([finer.rows, finer.columns, [...(finer.matrices[0] ?? [])]]).toEqual([
      2,
      2,
      close(0, 1, 20, 21),
    ]);
    // If the page contains only the strongest keys, its embedded maps are used, since they are more
    // exact than maps that are computed from these keys.
    const embedded = { form: "strongest", covered: 0.9, error: 0.004 } as const;
    const sparse = new Source(new PageTransport({ ...data, maps: [small], embedded }));
    expect((await sparse.maps({ ...layer, size: 2 })).rows).toBe(1);
    const window = { rows: [0, 2] as [number, number], columns: [0, 1] as [number, number] };
    const part = await pooling.maps({ ...layer, size: 1, heads: [1], ...window });
    expect([...(part.matrices[0] ?? [])]).toEqual(close(110));
  });

  it("returns embedded scores", async () => {
    const scores = [[0.5, null]];
    const data = { ...pageData(), scores: [{ stack: "cross", pattern: "first token", scores }] };
    const scored = new Source(new PageTransport(data));
    expect(await scored.scores("cross", "first token")).toEqual(scores);
  });

  it("names what it does not contain, and an unknown format", async () => {
    await expect(source.scores("cross", "induction")).rejects.toThrow("scores for “induction”");
    await expect(source.maps({ stack: "self", layer: 9, size: 32 })).rejects.toThrow(
      /layer 9.*“self”/,
    );
    const later = { ...pageData(), format: 3 } as unknown as PageData;
    expect(() => new PageTransport(later)).toThrow(/format 3/);
  });
});

describe("large requests", () => {
  const request: BlockRequest = {
    stack: "self",
    layer: 0,
    heads: [0, 1, 2, 3, 4],
    rows: [10, 20],
    columns: [0, 10],
  };

  it("are split by heads", () => {
    // A head has 100 weights of 4 bytes. Two heads fit into 1,000 bytes.
    const parts = splitRequest(request, 1000);
    expect(parts.map((part) => part.heads)).toEqual([[0, 1], [2, 3], [4]]);
  });

  it("are split by rows if one head is too large, with four bytes per exact value", () => {
    // A row has 40 bytes. Three rows fit into 130 bytes.
    const parts = splitRequest({ ...request, heads: [7] }, 130);
    expect(parts.map((part) => part.rows)).toEqual([
      [10, 13],
      [13, 16],
      [16, 19],
      [19, 20],
    ]);
  });

  it.each([
    ["a kernel", true, 4],
    ["a page, without a limit on replies", false, 2],
  ])("are joined from %s, and cached", async (_name, live, expectedRequests) => {
    const sent: Float32Array[] = [];
    const transport = transportOf(
      async (_name, args) => {
        const { heads, rows, columns } = args as BlockRequest;
        const shape = [heads.length, rows[1] - rows[0], columns[1] - columns[0]];
        const [, numRows = 0, width = 0] = shape;
        // Every weight is the number of its row.
        const data = Float32Array.from({ length: heads.length * numRows * width }, (_, i) => {
          return rows[0] + (Math.floor(i / width) % numRows);
        });
        sent.push(data);
        return { header: { shape, encoding: "float32", maximum: 1, error: 0 }, data };
      },
      { live },
    );
    const source = new Source(transport);
    const span: [number, number] = [0, 600];
    const whole = { ...request, heads: [0, 1], rows: span, columns: span };
    const block = await source.block(whole);
    expect(sent).toHaveLength(expectedRequests);
    expect(block.matrices).toHaveLength(2);
    // A page replies with complete matrices, which the source uses without copying.
    block.matrices.forEach((matrix, i) => {
      expect(matrix.buffer === sent[i]?.buffer).toBe(!live);
    });
    expect(block.matrices[1]?.[599 * 600]).toBe(599);
    expect(block.matrices[0]?.[416 * 600 + 5]).toBe(416);
    await source.block({ ...whole, heads: [1] });
    expect(sent).toHaveLength(expectedRequests);
  });

  /**
   * Return a source with a cache of at most `cacheBytes`, and the list of its requests. The weights
   * of reply n count up from 1000 n, where the first reply is 1.
   */
  function counting(cacheBytes?: number) {
    const requests: BlockRequest[] = [];
    const transport = transportOf(async (_name, args) => {
      const request = args as BlockRequest;
      const { heads, rows = [0, 2], columns = [0, 2] } = request;
      const shape = [heads.length, rows[1] - rows[0], columns[1] - columns[0]];
      const size = shape.reduce((a, b) => a * b, 1);
      const start = 1000 * requests.push(request);
      const data = Float32Array.from({ length: size }, (_, i) => start + i);
      return { header: { shape, encoding: "float32", maximum: 1, error: 0 }, data };
    });
    const source = new Source(transport, cacheBytes);
    const blockOf = (changed: Partial<BlockRequest>) =>
      source.block({ ...request, heads: [0], columns: [0, 2], ...changed });
    return { source, requests, blockOf };
  }

  it("have different answers if any field differs", async () => {
    const { source, requests, blockOf } = counting();
    const blocks: Partial<BlockRequest>[] = [
      ...[{}, { stack: "cross" }, { layer: 1 }, { heads: [2] }],
      ...[{ rows: [11, 13] as [number, number] }, { columns: [1, 3] as [number, number] }],
    ];
    const tile = { stack: "self", layer: 0, heads: [1], level: 0, row: 0, column: 0 };
    const tiles: Partial<TileRequest>[] = [
      ...[{}, { stack: "cross" }, { layer: 1 }, { heads: [2] }, { level: 1 }, { row: 1 }],
      ...[{ column: 1 }, { pooled: "max" as const }],
    ];
    const firsts = new Set<number | undefined>();
    // All 14 answers differ. In the second round, every answer comes from the cache.
    for (let round = 0; round < 2; round++) {
      for (const changed of blocks)
        firsts.add((await blockOf({ rows: [10, 12], ...changed })).matrices[0]?.[0]);
      for (const changed of tiles)
        firsts.add((await source.tile({ ...tile, pooled: "mean", ...changed })).matrices[0]?.[0]);
      expect([requests.length, firsts.size]).toEqual([14, 14]);
    }
  });

  it("are answered from cached blocks with more rows", async () => {
    const { requests, blockOf } = counting();
    await blockOf({ heads: [0, 1], rows: [2, 6] });
    const inner = await blockOf({ heads: [1], rows: [3, 5] });
    expect([...(inner.matrices[0] ?? [])]).toEqual([1010, 1011, 1012, 1013]);
    expect(requests).toHaveLength(1);
    // Each of these blocks has a row or a head that is not cached, so it is requested.
    await blockOf({ heads: [0], rows: [1, 3] });
    await blockOf({ heads: [0], rows: [5, 7] });
    await blockOf({ heads: [2], rows: [3, 5] });
    expect(requests).toHaveLength(4);
  });

  it("are answered from a block in use, although others were dropped", async () => {
    // The first ten rows have 80 bytes in total. Only one more row, of 8 bytes, fits into the
    // cache.
    const { requests, blockOf } = counting(90);
    await blockOf({ rows: [0, 10] });
    for (let row = 20; row < 40; row++) {
      await blockOf({ rows: [row, row + 1] });
      await blockOf({ rows: [3, 5] });
    }
    expect(requests).toHaveLength(1 + 20);
  });

  it("are dropped from a full cache, the oldest first", async () => {
    // A matrix of 2 x 2 weights has 16 bytes, so two matrices fit into the cache of 40 bytes.
    const { requests, blockOf } = counting(40);
    for (const layer of [1, 2, 1, 3, 1, 2]) await blockOf({ layer, rows: [0, 2] });
    expect(requests.map(({ layer }) => layer)).toEqual([1, 2, 3, 2]);
  });
});

/** Return a source whose requests stay open until the test answers them, and these requests. */
function pausedSource(replyTo: (args: object) => Reply) {
  const requests: { args: object; answer: () => void; fail: (reason: Error) => void }[] = [];
  const transport = transportOf(
    (_name, args, signal) =>
      new Promise((resolve, reject) => {
        requests.push({ args, answer: () => resolve(replyTo(args)), fail: reject });
        signal?.addEventListener("abort", () => reject(signal.reason));
      }),
  );
  return { requests, source: new Source(transport) };
}

const aborted = expect.objectContaining({ name: "AbortError" });

describe("requests for weights that are being loaded", () => {
  function paused() {
    const { requests, source } = pausedSource((args) => {
      const { heads } = args as BlockRequest;
      const header = { shape: [heads.length, 1, 1], encoding: "float32", maximum: 9, error: 0 };
      return { header, data: Float32Array.from(heads) };
    });
    const area = { stack: "self", layer: 0, rows: [0, 1], columns: [0, 1] };
    const headsOf = async (heads: number[], signal?: AbortSignal) => {
      const { matrices } = await source.block({ ...area, heads } as BlockRequest, signal);
      return matrices.map(([head]) => head);
    };
    return { requests, headsOf };
  }

  it("are sent once, with a second request only for other heads", async () => {
    const { requests, headsOf } = paused();
    const answers = [headsOf([0, 1]), headsOf([2, 1]), headsOf([0, 1])];
    expect(requests.map(({ args }) => (args as BlockRequest).heads)).toEqual([[0, 1], [2]]);
    for (const { answer } of requests) answer();
    expect(await Promise.all(answers)).toEqual([
      [0, 1],
      [2, 1],
      [0, 1],
    ]);
    expect(requests).toHaveLength(2);
  });

  it("are sent again, once, when the first caller cancels", async () => {
    const { requests, headsOf } = paused();
    const controller = new AbortController();
    const [first, ...others] = [headsOf([0], controller.signal), headsOf([0]), headsOf([0])];
    controller.abort();
    await expect(first).rejects.toThrow(aborted);
    await expect.poll(() => requests).toHaveLength(2);
    requests[1]?.answer();
    expect(await Promise.all(others)).toEqual([[0], [0]]);
    expect(requests).toHaveLength(2);
  });
});

describe("a question that is being answered", () => {
  function paused() {
    const { requests, source } = pausedSource((args) => {
      return { header: { scores: [[(args as { pattern: string }).pattern.length]] }, data: null };
    });
    const scoresOf = (pattern: string, signal?: AbortSignal) =>
      source.scores("self", pattern, signal);
    return { requests, scoresOf };
  }

  it("is sent once", async () => {
    const { requests, scoresOf } = paused();
    const answers = [scoresOf("first"), scoresOf("first"), scoresOf("other one")];
    expect(requests).toHaveLength(2);
    for (const { answer } of requests) answer();
    expect(await Promise.all(answers)).toEqual([[[5]], [[5]], [[9]]]);
    expect(await scoresOf("first")).toEqual([[5]]);
    expect(requests).toHaveLength(2);
  });

  it("is sent again, once, when the first caller cancels", async () => {
    const { requests, scoresOf } = paused();
    const controller = new AbortController();
    const [first, ...others] = [scoresOf("a", controller.signal), scoresOf("a"), scoresOf("a")];
    controller.abort();
    await expect(first).rejects.toThrow(aborted);
    await expect.poll(() => requests).toHaveLength(2);
    requests[1]?.answer();
    expect(await Promise.all(others)).toEqual([[[1]], [[1]]]);
    expect(requests).toHaveLength(2);
  });

  it("has no answer for a caller who cancelled", async () => {
    const { requests, scoresOf } = paused();
    const controller = new AbortController();
    const [first, second] = [scoresOf("a"), scoresOf("a", controller.signal)];
    controller.abort();
    requests[0]?.answer();
    expect(await first).toEqual([[1]]);
    await expect(second).rejects.toThrow(aborted);
  });

  it("fails for both callers, and is sent again for the next", async () => {
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

describe("the description of a long text", () => {
  it("is joined from its parts", async () => {
    const description = { model: "日本", notes: ['"', "\ud800"], stacks: [] } satisfies Description;
    const bytes = deflateSync(JSON.stringify(description));
    const cuts = [0, 5, 11, bytes.length];
    const requests: object[] = [];
    const transport = transportOf(
      async (name, args) => {
        requests.push([name, args]);
        const { part = 0 } = args as { part?: number };
        // In a message, the data starts inside a larger buffer. Here, it starts at byte 1.
        const data = new DataView(
          Uint8Array.from([0, ...bytes.subarray(cuts[part], cuts[part + 1])]).buffer,
          1,
        );
        return { header: { parts: 3 }, data };
      },
      { live: false },
    );
    expect(await new Source(transport).describe()).toEqual(description);
    expect(requests).toEqual([
      ["describe", {}],
      ["describe", { part: 1 }],
      ["describe", { part: 2 }],
    ]);
  });
});
