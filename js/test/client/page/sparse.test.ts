// @vitest-environment node

import { readFileSync } from "node:fs";
import { deflateSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { type PageData, PageTransport } from "../../../src/client/page";
import type { EmbeddedKeys } from "../../../src/client/page/sparse";
import type { BlockRequest } from "../../../src/client/protocol";
import { Source } from "../../../src/client/source";
import { embeddedInWords, precision } from "../../../src/ui/text/captions";
import { described, pageOf, stackOf } from "../../builders";

interface Case {
  name: string;
  header: Omit<EmbeddedKeys, "stack" | "layer" | "error" | "data">;
  data: string;
  /** Head, row, column and weight of each nonzero weight. */
  cells: [number, number, number, number][];
}

/**
 * Rows that were encoded byte by byte, without the encoder. Tests in Python read the same file
 * (tests/unit/pages/test_sparse.py).
 */
const { cases } = JSON.parse(
  readFileSync(new URL("../../../../tests/fixtures/sparse.json", import.meta.url), "utf8"),
) as { cases: Case[] };

const STACK = stackOf({ layers: [3] });

function blockOf({ header, data }: Pick<Case, "header" | "data">): EmbeddedKeys {
  const deflated = deflateSync(Buffer.from(data, "base64")).toString("base64");
  return { stack: "self", layer: 3, error: 0.01, ...header, data: deflated };
}

function sourceOf(
  fixtureCase: Pick<Case, "header" | "data">,
  more: Partial<PageData> = {},
): Source {
  const block = blockOf(fixtureCase);
  const page = pageOf({
    description: described(STACK),
    blocks: [block],
    embedded: { form: "strongest", covered: 0.9521, error: 0.0041 },
    ...more,
  });
  return new Source(new PageTransport(page));
}

/** Return all weights as [head][row][column]. */
function denseOf({ header, cells }: Case): number[][][] {
  const [heads, rows, columns] = header.shape;
  const dense = Array.from({ length: heads }, () =>
    Array.from({ length: rows }, () => new Array<number>(columns).fill(0)),
  );
  for (const [head, row, column, weight] of cells) {
    (dense[head]?.[row] as number[])[column] = weight;
  }
  return dense;
}

const LAYER = { stack: "self", layer: 3 };
const NAMED_CASES = cases.map((fixtureCase) => [fixtureCase.name, fixtureCase] as const);

describe("the strongest keys of a page", () => {
  it.each(NAMED_CASES)(
    "%s: every weight, from the first key or a later one",
    async (_name, fixtureCase) => {
      const [count, numRows, numKeys] = fixtureCase.header.shape;
      const heads = Array.from({ length: count }, (_, head) => head);
      const source = sourceOf(fixtureCase);
      for (const left of [0, 1, Math.floor(numKeys / 2)]) {
        const area: Pick<BlockRequest, "rows" | "columns"> = {
          rows: [0, numRows],
          columns: [left, numKeys],
        };
        const block = await source.block({ ...LAYER, heads, ...area });
        expect(block.error).toBe(0.01);
        denseOf(fixtureCase).forEach((rows, head) => {
          const expected = rows.flatMap((row) => row.slice(left));
          const matrix = block.matrices[head] as Float32Array;
          const errors = expected.map((weight, i) => Math.abs((matrix[i] as number) - weight));
          expect(Math.max(...errors)).toBeLessThanOrEqual(1e-6 * fixtureCase.header.maximum);
        });
      }
    },
  );

  it.each(NAMED_CASES)("%s: pooled over all heads", async (_name, fixtureCase) => {
    const dense = denseOf(fixtureCase);
    const [count] = fixtureCase.header.shape;
    const heads = Array.from({ length: count }, (_, head) => head);
    const source = sourceOf(fixtureCase);
    const request = { ...LAYER, heads, level: 16, row: 0, column: 0 };
    const mean = await source.tile({ ...request, pooled: "mean" });
    const most = await source.tile({ ...request, pooled: "max" });
    const means = (dense[0] as number[][]).flatMap((line, row) =>
      line.map((_, key) => dense.reduce((sum, head) => sum + (head[row]?.[key] ?? 0), 0) / count),
    );
    // Positive and negative weights are summed separately, so they do not cancel each other.
    const above = means.map((weight) => Math.max(0, weight));
    const below = means.map((weight) => Math.max(0, -weight));
    const larger = (high: number, low: number): number => (low > 1.001 * high ? -low : high);
    const sum = (numbers: number[]): number => numbers.reduce((a, b) => a + b, 0) / numbers.length;
    expect(mean.matrices[0]?.[0]).toBeCloseTo(larger(sum(above), sum(below)), 6);
    const largest = (numbers: number[]): number => numbers.reduce((a, b) => Math.max(a, b), 0);
    expect(most.matrices[0]?.[0]).toBeCloseTo(larger(largest(above), largest(below)), 6);
  });

  it("state their share of the weight, rounded down", async () => {
    const source = sourceOf(cases[0] as Case);
    const { stacks } = await source.describe();
    expect(stacks[0]?.embedded).toEqual({ form: "strongest", covered: 0.9521, error: 0.0041 });
    expect(precision(0.0021, stacks[0])).toBe("95.2% of the weight, exact to 0.003");
    expect(precision(0, { embedded: { form: "vectors", covered: 1, error: 0 } })).toBe("exact");
    expect(embeddedInWords({ form: "strongest", covered: 0.95799, error: 0.0041 })).toBe(
      "This page contains each query’s strongest keys: 95.7% of the weight, largest error 0.005. " +
        "The remaining weight of a query is spread evenly over its other keys.",
    );
    expect(embeddedInWords({ form: "vectors", covered: 1, error: 0 })).toBe(
      "This page contains queries and keys, and computes the weights from them: exact.",
    );
    expect(embeddedInWords({ form: "all", covered: 1, error: 0.004 })).toBeNull();
  });

  it("are zero for a row that ends before it starts, as in Python", async () => {
    // The row stores no single keys. Its whole weight would be spread evenly over a range of keys,
    // but this range starts at 1 and ends at -2, so it is empty.
    const header: Case["header"] = {
      shape: [1, 1, 4],
      encoding: "strongest-keys",
      maximum: 1,
      max_rest: 1,
      reach: 0,
      runs: [1, 1, 1, 1, 0, 0],
    };
    const data = Buffer.from([0, 1, 3, 255]).toString("base64");
    const block = await sourceOf({ header, data }).block({
      ...{ ...LAYER, heads: [0] },
      rows: [0, 1],
      columns: [0, 4],
    });
    expect([...(block.matrices[0] as Float32Array)]).toEqual([0, 0, 0, 0]);
  });

  it("reject bytes that do not fit the rows", async () => {
    const { header, data } = cases[0] as Case;
    const runs = header.runs.map((length, i) =>
      i === 0 ? length - 1 : i === 1 ? length + 1 : length,
    );
    const source = sourceOf({ header: { ...header, runs }, data });
    const request = { ...LAYER, heads: [0] };
    await expect(source.block({ ...request, rows: [0, 1], columns: [0, 1] })).rejects.toThrow(
      /do not match the number of rows/,
    );
  });
});
