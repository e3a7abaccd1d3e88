// @vitest-environment node

import { deflateSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { PageTransport } from "../../../src/client/page";
import { type EmbeddedRows, readRows } from "../../../src/client/page/rows";
import type { ReadRequest } from "../../../src/client/protocol";
import { Source } from "../../../src/client/source";
import { precision } from "../../../src/ui/text/captions";
import { described, pageOf, pieceOf, readFixture, stackOf } from "../../builders";

interface Case {
  name: string;
  header: Omit<EmbeddedRows, "stack" | "layer" | "error" | "data">;
  data: string;
  /** [head, row, column, weight] of each nonzero weight. */
  cells: [number, number, number, number][];
}

/** Weights that `tests/fixtures/make_rows.py` encoded without attnviz's encoder. */
const { cases } = readFixture<{ cases: Case[] }>("rows.json");

const STACK = stackOf({ layers: [3] });

function blockOf({ header, data }: Pick<Case, "header" | "data">): EmbeddedRows {
  const deflated = deflateSync(Buffer.from(data, "base64")).toString("base64");
  return { stack: "self", layer: 3, error: 0.01, ...header, data: deflated };
}

function sourceOf(fixtureCase: Pick<Case, "header" | "data">): Source {
  const embedded = { form: "strongest", covered: 0.9521, error: 0.0041 } as const;
  const blocks = [blockOf(fixtureCase)];
  return new Source(
    new PageTransport(
      pageOf({ description: described(STACK), blocks, embedded: { [STACK.name]: embedded } }),
    ),
  );
}

/** Return all weights as [head][row][column]. */
function denseOf({ header, cells }: Case): number[][][] {
  const { shape, start = 0 } = header;
  const [heads, rows, columns] = shape;
  const dense = Array.from({ length: heads }, () =>
    Array.from({ length: rows }, () => new Array<number>(columns).fill(0)),
  );
  for (const [head, row, column, weight] of cells) {
    (dense[head]?.[row - start] as number[])[column] = weight;
  }
  return dense;
}

const LAYER = { stack: "self", layer: 3 };

describe("the rows of a page", () => {
  it.each(cases)("decode to every weight, from any key on: $name", async (fixtureCase) => {
    const { shape, maximum, start = 0 } = fixtureCase.header;
    const [numHeads, numRows, numKeys] = shape;
    const range: [number, number] = [start, start + numRows];
    const heads = Array.from({ length: numHeads }, (_, head) => head);
    const dense = denseOf(fixtureCase);
    const source = sourceOf(fixtureCase);
    const expectWeights = (matrix: Float32Array | undefined, weights: number[]): void => {
      const errors = weights.map((weight, i) => Math.abs((matrix?.[i] as number) - weight));
      expect(Math.max(...errors)).toBeLessThanOrEqual(1e-6 * maximum);
    };
    for (const left of [0, 1, Math.floor(numKeys / 2)]) {
      const columns: [number, number] = [left, numKeys];
      const block = await source.block({ ...LAYER, heads, rows: range, columns });
      expect(block.error).toBe(0.01);
      dense.forEach((rows, head) => {
        expectWeights(
          block.matrices[head],
          rows.flatMap((row) => row.slice(left)),
        );
      });
    }
    const whole = { rows: range, columns: [0, numKeys] } satisfies Partial<ReadRequest>;
    const [mean] = await source.read({ ...LAYER, heads, ...whole, combine: "mean" });
    const means = (dense[0] as number[][]).flatMap((line, row) =>
      line.map(
        (_, key) => dense.reduce((sum, head) => sum + (head[row]?.[key] ?? 0), 0) / numHeads,
      ),
    );
    expectWeights(mean?.values, means);
  });

  it("are read from the parts that contain them", async () => {
    // Query q attends to key q only. The data of the parts that are not read are damaged.
    const parts = [0, 2, 4, 6].map((start) => {
      const codes = [0, 1].flatMap((row) =>
        Array.from({ length: 8 }, (_, key) => (key === start + row ? 255 : 0)),
      );
      const part = pieceOf([1, 2, 8], codes, { start, layer: 3, error: start / 1000 });
      return start === 2 || start === 4 ? part : { ...part, data: "damaged" };
    });
    const source = new Source(
      new PageTransport(pageOf({ description: described(STACK), blocks: parts })),
    );
    const columns: [number, number] = [0, 8];
    const block = await source.block({ ...LAYER, heads: [0], rows: [3, 5], columns });
    expect([...(block.matrices[0] as Float32Array)]).toEqual([
      0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0,
    ]);
    expect(block.error).toBe(0.004);
    const others = source.block({ ...LAYER, heads: [0], rows: [1, 3], columns });
    await expect(others).rejects.toThrow("damaged");
  });

  it("state their share of the weight, rounded down", async () => {
    const { stacks } = await sourceOf(cases[0] as Case).describe();
    expect(precision(0.0021, stacks[0])).toBe("95.2% of the weight, exact to 0.003");
  });

  it("are zero for a row that ends before it starts, as in Python", async () => {
    // The row begins at key 1 and ends three keys before the last key that its mask allows. The
    // mask allows one key, so the end is 1 - 3 = -2.
    const header: Case["header"] = {
      ...{ shape: [1, 1, 4], maximum: 1, max_rest: 1, reach: 0 },
      runs: [1, 1, 1, 1, 0, 0],
    };
    const data = Buffer.from([0, 1, 3, 255]).toString("base64");
    const request = { ...LAYER, heads: [0], rows: [0, 1], columns: [0, 4] } as ReadRequest;
    const block = await sourceOf({ header, data }).block(request);
    expect([...(block.matrices[0] as Float32Array)]).toEqual([0, 0, 0, 0]);
  });

  it("reject integers that do not fit the rows", async () => {
    const { header, data } = cases[0] as Case;
    const [first = 0, second = 0, ...others] = header.runs;
    const runs = [first - 1, second + 1, ...others];
    const source = sourceOf({ header: { ...header, runs }, data });
    const request = { ...LAYER, heads: [0], rows: [0, 1], columns: [0, 1] } as ReadRequest;
    await expect(source.block(request)).rejects.toThrow(/do not match the number of rows/);
  });

  it.each([11, 13])("reject %i codes of 12 weights", async (count) => {
    const block = pieceOf([2, 2, 3], new Uint8Array(count));
    await expect(readRows(block)).rejects.toThrow(`has ${count} weights, but its rows need 12`);
  });
});
