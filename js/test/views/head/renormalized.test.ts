// @vitest-environment node

import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { type PageData, PageTransport } from "../../../src/client/page";
import { Source } from "../../../src/client/source";
import { roundedTo, writtenError } from "../../../src/ui/exports/csv";
import {
  type Combine,
  computeLines,
  type LineOptions,
  shownMatrices,
  type Weights,
} from "../../../src/views/head/lines";
import { described, pageOf, stackOf, tokensOf } from "../../builders";

interface Case {
  name: string;
  weights: number[][][];
  renormalized: number[][][];
  blocks: Record<string, PageData["blocks"][number]>;
  vectors: PageData["vectors"];
}

/** Weights from the formula in double precision. Tests in Python read the same file. */
const file = new URL("../../../../tests/fixtures/renormalized.json", import.meta.url);
const { cases } = JSON.parse(readFileSync(file, "utf8")) as { cases: Case[] };

function sourceOf({ weights, blocks, vectors }: Case, form: string): Source {
  const count = weights[0]?.length ?? 0;
  const stack = stackOf({
    heads_per_layer: [weights.length],
    query_tokens: tokensOf(Array.from({ length: count }, String)),
    vectors: true,
  });
  const block = blocks[form];
  const page = pageOf({
    description: described(stack),
    blocks: block ? [block] : [],
    ...(!block && vectors && { vectors }),
  });
  return new Source(new PageTransport(page));
}

async function weightsOf(example: Case, form: string, heads: number[]): Promise<Weights> {
  const numKeys = example.weights[0]?.length ?? 0;
  const all: [number, number] = [0, numKeys];
  const request = { stack: "self", layer: 0, heads, rows: all, columns: all };
  const piece = await sourceOf(example, form).block({ ...request });
  return { heads, ...piece, rows: all, columns: all, numReached: numKeys, normalized: true };
}

function options(numKeys: number, combine: Combine, more: Partial<LineOptions> = {}): LineOptions {
  const every = new Uint8Array(numKeys).fill(1);
  const leftOut = new Uint8Array(numKeys);
  leftOut[0] = 1;
  return {
    ...{ combine, topK: null, threshold: 0, leftOut, pairQueries: every, pairKeys: every },
    ...{ renormalize: true, queryWindow: [0, numKeys], keyWindow: [0, numKeys], ...more },
  };
}

/**
 * Return the row of a head, or of a combination of heads, that is renormalised without key 0. It is
 * computed from exact weights.
 */
function exactRow(example: Case, combine: Combine, head: number | null, row: number): number[] {
  if (head !== null) return example.renormalized[head]?.[row] as number[];
  const rows = example.weights.map((of) => of[row] as number[]);
  const combined = (...weights: number[]): number =>
    combine === "max"
      ? Math.max(...weights)
      : weights.reduce((sum, one) => sum + one, 0) / rows.length;
  const together =
    rows[0]?.map((_, key) => (key === 0 ? 0 : combined(...rows.map((of) => of[key] as number)))) ??
    [];
  const sum = together.reduce((all, one) => all + one, 0);
  return together.map((one) => one / sum);
}

const FORMS = ["all", "strongest", "vectors"];
const COMBINES: Combine[] = ["separate", "mean", "max"];

describe.each(cases)("renormalised without $name", (example) => {
  const numKeys = example.weights[0]?.length ?? 0;

  it.each(FORMS)("weights of a page of %s are within the stated error", async (form) => {
    const weights = await weightsOf(example, form, [0, 1]);
    for (const combine of COMBINES) {
      const shown = shownMatrices(weights, combine, combine !== "separate");
      const lineOptions = options(numKeys, combine);
      const lines = computeLines(weights, lineOptions, shown);
      for (const series of lines.series) {
        for (let row = 0; row < numKeys; row++) {
          const exact = exactRow(example, combine, series.head, row);
          for (let key = 0; key < numKeys; key++) {
            const value = series.matrix[row * numKeys + key] as number;
            const off = Math.abs(value - (exact[key] as number));
            expect(off).toBeLessThanOrEqual(lines.error);
            const written = Math.abs(roundedTo(value, lines.error) - (exact[key] as number));
            expect(written).toBeLessThanOrEqual(writtenError(lines.error));
          }
        }
      }
    }
  });

  it("has the original error without renormalisation", async () => {
    const weights = await weightsOf(example, "all", [0, 1]);
    const shown = shownMatrices(weights, "separate", false);
    const lines = computeLines(
      weights,
      options(numKeys, "separate", { renormalize: false }),
      shown,
    );
    expect(lines.error).toBe(weights.error);
  });
});

describe("the bound of renormalised weights", () => {
  const boundOf = (row: number[], more: Partial<Weights> = {}): number => {
    const weights: Weights = {
      ...{ heads: [0], matrices: [Float32Array.from(row)], rows: [0, 1], columns: [0, 4] },
      ...{ numReached: 4, normalized: true, maximum: 1, error: 0.004, ...more },
    };
    const lineOptions = options(4, "separate", { queryWindow: [0, 1] });
    return computeLines(weights, lineOptions, shownMatrices(weights, "separate", false)).error;
  };

  it("follows from the errors of a weight and of the remaining sum", () => {
    // The weight of the left-out key has an error of 0.004. The sum of the others, 0.5, has the
    // same error, because the row sums to 1.
    expect(boundOf([0.5, 0.25, 0.125, 0.125])).toBeCloseTo((0.004 + 0.5 * 0.004) / 0.496, 9);
    // The row sums to 0.99, so the sum of the others may be wrong by 0.01 more.
    expect(boundOf([0.49, 0.25, 0.125, 0.125])).toBeCloseTo((0.004 + 0.5 * 0.014) / 0.486, 6);
    // If the row may have any sum, the sum of the others has three times the error of a weight.
    const any = boundOf([0.5, 0.25, 0.125, 0.125], { normalized: false });
    expect(any).toBeCloseTo((0.004 + 0.5 * 0.012) / 0.488, 9);
  });

  it("is 1 if the error exceeds the remaining sum, and unchanged for an empty row", () => {
    expect(boundOf([0.997, 0.003, 0, 0])).toBe(1);
    expect(boundOf([1, 0, 0, 0])).toBe(0.004);
    expect(boundOf([0.997, 0.003, 0, 0], { error: 0 })).toBe(0);
  });
});

describe("exact weights", () => {
  it("are renormalised without the rounding of a strong sink", () => {
    // In single precision, 1 - 2e-9 is 1, so 1 minus the sink would be 0.
    const rest = [4e-10, 6e-10, 1e-9];
    const matrix = Float32Array.from([1 - 2e-9, ...rest]);
    const weights: Weights = {
      ...{ heads: [0], matrices: [matrix], rows: [0, 1], columns: [0, 4], numReached: 4 },
      ...{ normalized: true, maximum: 1, error: 0 },
    };
    for (const topK of [null, 2]) {
      const lineOptions = options(4, "separate", { topK, queryWindow: [0, 1] });
      const { series, error } = computeLines(
        weights,
        lineOptions,
        shownMatrices(weights, "separate", false),
      );
      expect(error).toBe(0);
      const [, ...shown] = series[0]?.matrix ?? [];
      if (topK === null)
        for (const [i, expected] of [0.2, 0.3, 0.5].entries())
          expect(shown[i]).toBeCloseTo(expected, 6);
      else
        expect([...(series[0]?.weight ?? [])].map((each) => each.toFixed(6))).toEqual([
          "0.500000",
          "0.300000",
        ]);
    }
  });
});
