// @vitest-environment node

import { deflateSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { type PageData, PageTransport } from "../../src/client/page";
import type { BlockRequest, Description, TileRequest } from "../../src/client/protocol";
import { Source, splitRequest } from "../../src/client/source";
import type { Transport } from "../../src/client/transport";
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

const value = (code: number): number => (code / 255) ** 2;

describe("the transport of a page", () => {
  it("returns heads, rows and columns of an embedded layer", async () => {
    const source = new Source(new PageTransport(pageData()));
    const block = await source.block({
      stack: "cross",
      layer: 4,
      heads: [1, 0],
      rows: [1, 3],
      columns: [1, 2],
    });
    expect([block.rows, block.columns]).toEqual([2, 1]);
    [111, 121].forEach((code, i) => {
      expect(block.matrices[0]?.[i]).toBeCloseTo(value(code), 6);
    });
    [11, 21].forEach((code, i) => {
      expect(block.matrices[1]?.[i]).toBeCloseTo(value(code), 6);
    });
  });

  it("returns embedded maps of the requested heads", async () => {
    const source = new Source(new PageTransport(pageData()));
    const block = await source.maps({ stack: "cross", layer: 4, size: 2, heads: [1] });
    expect(block.matrices).toHaveLength(1);
    expect(block.matrices[0]?.[5]).toBeCloseTo(value(121), 6);
  });

  it("pools a part of a map, or a finer map, from the embedded weights", async () => {
    const data = pageData();
    const small = pieceOf([2, 1, 1], [121, 121], { stack: "cross", layer: 4 });
    const source = new Source(new PageTransport({ ...data, maps: [small] }));
    const where = { stack: "cross", layer: 4 };
    const coarse = await source.maps({ ...where, size: 1 });
    expect(coarse.matrices[0]).toHaveLength(1);
    const finer = await source.maps({ ...where, size: 2, heads: [0] });
    expect([finer.rows, finer.columns]).toEqual([2, 2]);
    // The first pooled row is row 0. The second is the maximum of rows 1 and 2.
    [0, 1, 20, 21].forEach((code, i) => {
      expect(finer.matrices[0]?.[i]).toBeCloseTo(value(code), 6);
    });
    // If the page contains only the strongest keys, the embedded maps are more exact than maps from
    // these keys.
    const embedded = { form: "strongest", covered: 0.9, error: 0.004 } as const;
    const sparse = new Source(new PageTransport({ ...data, maps: [small], embedded }));
    expect((await sparse.maps({ ...where, size: 2 })).rows).toBe(1);
    const part = await source.maps({
      ...where,
      size: 1,
      heads: [1],
      rows: [0, 2],
      columns: [0, 1],
    });
    expect(part.matrices[0]?.[0]).toBeCloseTo(value(110), 6);
  });

  it("returns embedded scores, and names missing ones", async () => {
    const scores = [[0.5, null]];
    const data = { ...pageData(), scores: [{ stack: "cross", pattern: "first token", scores }] };
    const source = new Source(new PageTransport(data));
    expect(await source.scores("cross", "first token")).toEqual(scores);
    await expect(source.scores("cross", "induction")).rejects.toThrow("scores for “induction”");
  });

  it("names a missing layer and an unknown format", async () => {
    const source = new Source(new PageTransport(pageData()));
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
    let numRequests = 0;
    const sent: Float32Array[] = [];
    const answer: Transport["request"] = async (_name, args) => {
      numRequests++;
      const { heads, rows, columns } = args as BlockRequest;
      const shape = [heads.length, rows[1] - rows[0], columns[1] - columns[0]];
      const count = (shape[0] as number) * (shape[1] as number) * (shape[2] as number);
      // Every weight is the number of its row.
      const width = shape[2] as number;
      const data = Float32Array.from(
        { length: count },
        (_, i) => rows[0] + (Math.floor(i / width) % (shape[1] as number)),
      );
      sent.push(data);
      return { header: { shape, encoding: "float32", maximum: 1, error: 0 }, data };
    };
    const transport = transportOf(answer, { live });
    const source = new Source(transport);
    const largeRequest: BlockRequest = {
      ...request,
      heads: [0, 1],
      rows: [0, 600],
      columns: [0, 600],
    };
    const block = await source.block(largeRequest);
    expect(numRequests).toBe(expectedRequests);
    expect(block.matrices).toHaveLength(2);
    // A page sends complete matrices, which are not copied.
    block.matrices.forEach((matrix, i) => {
      expect(matrix.buffer === sent[i]?.buffer).toBe(!live);
    });
    expect(block.matrices[1]?.[599 * 600]).toBe(599);
    expect(block.matrices[0]?.[416 * 600 + 5]).toBe(416);
    await source.block({ ...largeRequest, heads: [1] });
    expect(numRequests).toBe(expectedRequests);
  });

  it("have different answers if any field differs", async () => {
    let numRequests = 0;
    const transport = transportOf(async (_name, args) => {
      numRequests++;
      const { heads, rows, columns } = args as BlockRequest;
      const shape = rows
        ? [heads.length, rows[1] - rows[0], columns[1] - columns[0]]
        : [heads.length, 2, 2];
      const header = { shape, encoding: "uint8-sqrt", maximum: 1, error: 0 };
      return { header, data: new Uint8Array(shape.reduce((a, b) => a * b, 1)).fill(numRequests) };
    });
    const source = new Source(transport);
    const block = { ...request, heads: [1], rows: [0, 2], columns: [0, 2] } satisfies BlockRequest;
    const tile: TileRequest = {
      ...{ stack: "self", layer: 0, heads: [1], level: 0, row: 0, column: 0 },
      pooled: "mean",
    };
    const firsts = new Set<number | undefined>();
    const blocks: Partial<BlockRequest>[] = [
      ...[{}, { stack: "cross" }, { layer: 1 }, { heads: [2] }],
      ...[{ rows: [1, 3] as [number, number] }, { columns: [1, 3] as [number, number] }],
    ];
    // Each answer has another number. In the second round, all answers come from the cache.
    for (let again = 0; again < 2; again++) {
      for (const changed of blocks) {
        firsts.add((await source.block({ ...block, ...changed })).matrices[0]?.[0]);
      }
      const tiles: Partial<TileRequest>[] = [
        ...[{}, { stack: "cross" }, { layer: 1 }, { heads: [2] }, { level: 1 }, { row: 1 }],
        ...[{ column: 1 }, { pooled: "max" as const }],
      ];
      for (const changed of tiles) {
        firsts.add((await source.tile({ ...tile, ...changed })).matrices[0]?.[0]);
      }
      expect([numRequests, firsts.size]).toEqual([14, 14]);
    }
  });

  it("are answered from cached blocks with more rows", async () => {
    const requests: unknown[] = [];
    const transport = transportOf(async (_name, args) => {
      const { rows, heads } = args as BlockRequest;
      requests.push([heads, rows]);
      const shape = [heads.length, rows[1] - rows[0], 2];
      const data = new Float32Array(shape.reduce((a, b) => a * b, 1)).map((_, i) => i);
      return { header: { shape, encoding: "float32", maximum: 1, error: 0 }, data };
    });
    const source = new Source(transport);
    const blockOf = (heads: number[], rows: [number, number]) =>
      source.block({ ...request, heads, rows, columns: [0, 2] });
    await blockOf([0, 1], [2, 6]);
    expect([...((await blockOf([1], [3, 5])).matrices[0] as Float32Array)]).toEqual([
      10, 11, 12, 13,
    ]);
    expect(requests).toHaveLength(1);
    // Weights of other rows and of another head are not cached, so they are requested.
    await blockOf([0], [1, 3]);
    await blockOf([0], [5, 7]);
    await blockOf([2], [3, 5]);
    expect(requests).toHaveLength(4);
  });

  it("are answered from a block in use, although others were dropped", async () => {
    const requests: unknown[] = [];
    const transport = transportOf(async (_name, args) => {
      const { rows } = args as BlockRequest;
      requests.push(rows);
      const shape = [1, rows[1] - rows[0], 2];
      const data = new Float32Array((shape[1] as number) * 2);
      return { header: { shape, encoding: "float32", maximum: 1, error: 0 }, data };
    });
    // The first ten rows have 80 bytes in total. Only one more row, of 8 bytes, fits into the
    // cache.
    const source = new Source(transport, 90);
    const blockOf = (rows: [number, number]) =>
      source.block({ ...request, heads: [0], rows, columns: [0, 2] });
    await blockOf([0, 10]);
    for (let row = 20; row < 40; row++) {
      await blockOf([row, row + 1]);
      await blockOf([3, 5]);
    }
    expect(requests).toHaveLength(1 + 20);
  });

  describe("during a request for the same weights", () => {
    /** Return a source whose requests stay open until the test answers them, and these requests. */
    function pausedSource() {
      const requests: { heads: number[]; answer: () => void; fail: (reason: Error) => void }[] = [];
      const transport = transportOf(
        (_name, args, signal) =>
          new Promise((resolve, reject) => {
            const { heads } = args as BlockRequest;
            const header = { shape: [heads.length, 1, 1], encoding: "float32" };
            const data = Float32Array.from(heads);
            const answer = () => resolve({ header: { ...header, maximum: 9, error: 0 }, data });
            requests.push({ heads, answer, fail: reject });
            signal?.addEventListener("abort", () => reject(signal.reason));
          }),
      );
      const source = new Source(transport);
      const blockOf = (heads: number[], signal?: AbortSignal) =>
        source.block({ ...request, heads, rows: [0, 1], columns: [0, 1] }, signal);
      return { requests, blockOf };
    }
    const heads = ({ matrices }: { matrices: Float32Array[] }) => matrices.map(([head]) => head);

    it("are sent once, with a second request only for other heads", async () => {
      const { requests, blockOf } = pausedSource();
      const [first, second, same] = [blockOf([0, 1]), blockOf([2, 1]), blockOf([0, 1])];
      expect(requests.map((sent) => sent.heads)).toEqual([[0, 1], [2]]);
      for (const sent of requests) sent.answer();
      expect(heads(await first)).toEqual([0, 1]);
      expect(heads(await second)).toEqual([2, 1]);
      expect(heads(await same)).toEqual([0, 1]);
      expect(requests).toHaveLength(2);
    });

    it("are sent again, once, when the first caller cancels", async () => {
      const { requests, blockOf } = pausedSource();
      const controller = new AbortController();
      const [first, second, third] = [blockOf([0], controller.signal), blockOf([0]), blockOf([0])];
      controller.abort();
      await expect(first).rejects.toThrow(expect.objectContaining({ name: "AbortError" }));
      await expect.poll(() => requests).toHaveLength(2);
      requests[1]?.answer();
      expect(heads(await second)).toEqual([0]);
      expect(heads(await third)).toEqual([0]);
      expect(requests).toHaveLength(2);
    });
  });

  it("are dropped from a full cache, the oldest first", async () => {
    const layers: number[] = [];
    const transport = transportOf(
      async (_name, args) => {
        const { layer } = args as BlockRequest;
        layers.push(layer);
        const header = { shape: [1, 2, 2], encoding: "uint8-sqrt", maximum: 1, error: 0 };
        return { header, data: new Uint8Array(4) };
      },
      { live: false },
    );
    // A cached matrix of 2 x 2 weights has 16 bytes. Two matrices fit into the cache.
    const source = new Source(transport, 40);
    const requestLayer = (layer: number): Promise<unknown> =>
      source.block({ ...request, layer, heads: [0], rows: [0, 2], columns: [0, 2] });
    for (const layer of [1, 2, 1, 3, 1, 2]) await requestLayer(layer);
    expect(layers).toEqual([1, 2, 3, 2]);
  });
});

describe("a question during the same question", () => {
  /**
   * Return a function that asks a question, and the requests, which stay open until the test
   * answers them.
   */
  function pausedSource() {
    const requests: { answer: (scores: number[][]) => void; fail: (reason: Error) => void }[] = [];
    const transport = transportOf(
      (_name, _args, signal) =>
        new Promise((resolve, reject) => {
          const answer = (scores: number[][]) => resolve({ header: { scores }, data: null });
          requests.push({ answer, fail: reject });
          signal?.addEventListener("abort", () => reject(signal.reason));
        }),
    );
    const source = new Source(transport);
    const scoresOf = (pattern: string, signal?: AbortSignal) =>
      source.scores("self", pattern, signal);
    return { requests, scoresOf };
  }

  it("is sent once", async () => {
    const { requests, scoresOf } = pausedSource();
    const [first, same, other] = [
      scoresOf("induction"),
      scoresOf("induction"),
      scoresOf("first token"),
    ];
    expect(requests).toHaveLength(2);
    requests[0]?.answer([[0.5]]);
    requests[1]?.answer([[0.25]]);
    expect(await Promise.all([first, same, other])).toEqual([[[0.5]], [[0.5]], [[0.25]]]);
    expect(await scoresOf("induction")).toEqual([[0.5]]);
    expect(requests).toHaveLength(2);
  });

  it("is sent again, once, when the first caller cancels", async () => {
    const { requests, scoresOf } = pausedSource();
    const controller = new AbortController();
    const [first, second, third] = [scoresOf("a", controller.signal), scoresOf("a"), scoresOf("a")];
    controller.abort();
    await expect(first).rejects.toThrow(expect.objectContaining({ name: "AbortError" }));
    await expect.poll(() => requests).toHaveLength(2);
    requests[1]?.answer([[1]]);
    expect(await Promise.all([second, third])).toEqual([[[1]], [[1]]]);
    expect(requests).toHaveLength(2);
  });

  it("has no answer for a caller who cancelled", async () => {
    const { requests, scoresOf } = pausedSource();
    const controller = new AbortController();
    const [first, second] = [scoresOf("a"), scoresOf("a", controller.signal)];
    controller.abort();
    requests[0]?.answer([[1]]);
    expect(await first).toEqual([[1]]);
    await expect(second).rejects.toThrow(expect.objectContaining({ name: "AbortError" }));
  });

  it("fails for both callers, and is sent again for the next", async () => {
    const { requests, scoresOf } = pausedSource();
    const both = [scoresOf("a"), scoresOf("a")];
    requests[0]?.fail(new Error("no such pattern"));
    for (const answer of both) await expect(answer).rejects.toThrow("no such pattern");
    const next = scoresOf("a");
    expect(requests).toHaveLength(2);
    requests[1]?.answer([[1]]);
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
        // The data starts inside a larger buffer, as in a message.
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
