// @vitest-environment node

import { describe, expect, it } from "vitest";
import type { StrongestHeader, StrongestRequest } from "../../../src/client/protocol";
import {
  readStrongest,
  requestStrongest,
  splitStrongest,
  strongestOf,
  type TokenFilter,
} from "../../../src/client/requests/strongest";
import { Source } from "../../../src/client/source";
import type { Reply } from "../../../src/client/transport";
import { transportOf } from "../../builders";

// Weights whose rows sum to 1. The expected results below are computed by hand.
const ROWS = [
  [0.5, 0.25, 0, 0, 0.25, 0],
  [0.125, 0, 0.5, 0.25, 0, 0.125],
  [0, 0, 0, 0, 0, 1],
];
const rowAt = (row: number): Float32Array => Float32Array.from(ROWS[row] ?? []);

const request: StrongestRequest = {
  stack: "self",
  layer: 0,
  heads: [0],
  rows: [0, 3],
  k: 2,
  combine: "separate",
  leave_out: [],
  pair: "all",
};

function meant(more: Partial<TokenFilter> = {}, keys = 6): TokenFilter {
  return {
    leftOut: new Uint8Array(keys),
    pairQueries: new Uint8Array(keys).fill(1),
    pairKeys: new Uint8Array(keys).fill(1),
    ...more,
  };
}

/** Return a kernel's reply, whose data are all keys, then all weights, then all sums. */
function replyOf(part: StrongestRequest): Reply<StrongestHeader> {
  const [top, bottom] = part.rows;
  const matrices = part.heads.map(() => strongestOf(rowAt, part, 6, meant()));
  const buffers = [
    ...matrices.map((matrix) => matrix.keys),
    ...matrices.map((matrix) => matrix.weights),
    ...matrices.map((matrix) => matrix.sums),
  ];
  const bytes = new Uint8Array(buffers.reduce((sum, buffer) => sum + buffer.byteLength, 0) + 1);
  let at = 1;
  for (const buffer of buffers) {
    bytes.set(new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength), at);
    at += buffer.byteLength;
  }
  // In a message, the data may start at any byte.
  const data = new DataView(bytes.buffer, 1);
  return { header: { shape: [matrices.length, bottom - top, part.k] }, data };
}

describe("the strongest keys", () => {
  it("are found in complete rows, with all sums", () => {
    const strongest = strongestOf(rowAt, request, 6, meant());
    expect([...strongest.keys]).toEqual([0, 1, 2, 3, 5, -1]);
    expect([...strongest.weights]).toEqual([0.5, 0.25, 0.5, 0.25, 1, 0]);
    expect([...strongest.sums]).toEqual([1, 0, 0, 1, 0, 0, 1, 0, 0]);
  });

  it("exclude left-out keys and other texts, whose sums are stated", () => {
    const leftOut = Uint8Array.from([1, 0, 0, 0, 0, 0]);
    const pairKeys = Uint8Array.from([1, 1, 1, 1, 0, 1]);
    const pairQueries = Uint8Array.from([1, 1, 0, 1, 1, 1]);
    const strongest = strongestOf(rowAt, request, 6, meant({ leftOut, pairKeys, pairQueries }));
    expect([...strongest.keys]).toEqual([1, -1, 2, 3, 5, -1]);
    expect([...strongest.sums]).toEqual([0.25, 0.5, 0.25, 0.875, 0.125, 0, 1, 0, 0]);
  });

  it.each([
    ["separate", 6, 6],
    ["separate", 131_072, 10],
    ["mean", 5000, 1500],
    ["mean", 131_072, 10],
  ] as const)("are requested in parts of limited size: %s, %i keys, %i", (combine, numKeys, k) => {
    const heads = Array.from({ length: 32 }, (_, head) => head);
    const requested: StrongestRequest = { ...request, heads, rows: [100, 164], combine, k };
    const pairs: string[] = [];
    for (const part of splitStrongest(requested, numKeys)) {
      const numRows = part.rows[1] - part.rows[0];
      // To compute the mean of a row, a request needs all heads.
      if (combine === "mean") expect(part.heads).toEqual(heads);
      expect(part.heads.length * numRows * numKeys).toBeLessThanOrEqual(1 << 23);
      // For each row, the reply has k keys, k weights and three sums. Each number has 4 bytes.
      const numMatrices = combine === "mean" ? 1 : part.heads.length;
      expect(numMatrices * numRows * (8 * k + 12)).toBeLessThanOrEqual(1_000_000);
      for (const head of part.heads)
        for (let row = part.rows[0]; row < part.rows[1]; row++) pairs.push(`${head} ${row}`);
    }
    expect([new Set(pairs).size, pairs.length]).toEqual([32 * 64, 32 * 64]);
  });

  it("are assembled from all parts", async () => {
    const transport = transportOf(async (_: string, part: object) =>
      replyOf(part as StrongestRequest),
    );
    // A request computes at most 1 << 23 weights. A row of one head has 1 << 22 of them, so the
    // three rows of two heads need several requests.
    const numKeys = 1 << 22;
    const source = new Source(transport);
    const { signal } = new AbortController();
    const answer = await requestStrongest(source, { ...request, heads: [0, 1] }, numKeys, signal);
    const strongest = strongestOf(rowAt, request, 6, meant());
    expect(answer).toMatchObject({ rows: [0, 3], k: 2, matrices: [strongest, strongest] });
  });

  it("are rejected if the reply is too short", () => {
    const { header, data } = replyOf({ ...request, heads: [0, 1], rows: [1, 3] });
    const short = new DataView((data as DataView).buffer, 1, 100);
    expect(() => readStrongest({ header, data: short })).toThrow(/has 100 bytes/);
  });
});
