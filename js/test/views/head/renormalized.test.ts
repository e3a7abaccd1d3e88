// @vitest-environment node

import { describe, expect, it } from "vitest";
import { type PageData, PageTransport } from "../../../src/client/page";
import { Source } from "../../../src/client/source";
import { roundedTo, writtenError } from "../../../src/ui/text/csv";
import type { Combine } from "../../../src/views/head/state";
import { described, pageOf, readFixture, stackOf, tokensOf } from "../../builders";
import { linesOf, marked, type Options, optionsOf, type Weights, weightsOf } from "./plots";

interface Case {
  name: string;
  weights: number[][][];
  renormalized: number[][][];
  blocks: Record<string, PageData["blocks"][number]>;
  saved: PageData["saved"];
  errors: PageData["errors"];
}

/** Weights that a script renormalised in double precision (tests/fixtures/make_renormalized.py). */
const { cases } = readFixture<{ cases: Case[] }>("renormalized.json");

function sourceOf({ weights, blocks, saved, errors }: Case, form: string): Source {
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
    ...(!block && saved && errors && { saved, errors }),
  });
  return new Source(new PageTransport(page));
}

async function pageWeights(example: Case, form: string, heads: number[]): Promise<Weights> {
  const numKeys = example.weights[0]?.length ?? 0;
  const all: [number, number] = [0, numKeys];
  const request = { stack: "self", layer: 0, heads, rows: all, columns: all };
  const piece = await sourceOf(example, form).block({ ...request });
  return { heads, ...piece, rows: all, columns: all, numReached: numKeys, normalized: true };
}

/** Return options that renormalise all rows without key 0. */
function options(numKeys: number, more: Partial<Options> = {}): Options {
  return optionsOf(numKeys, { leftOut: marked(numKeys, 0), renormalize: true, ...more });
}

/**
 * Return a row of exact weights, renormalised without key 0. If `head` is null, the weights of all
 * heads are combined first.
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
    const weights = await pageWeights(example, form, [0, 1]);
    for (const combine of COMBINES) {
      const lines = linesOf(weights, options(numKeys, { combine }), combine !== "separate");
      for (const series of lines.series) {
        for (let row = 0; row < numKeys; row++) {
          const exact = exactRow(example, combine, series.head, row);
          for (let key = 0; key < numKeys; key++) {
            const value = series.matrix[row * numKeys + key] as number;
            const error = Math.abs(value - (exact[key] as number));
            expect(error).toBeLessThanOrEqual(lines.error);
            const written = Math.abs(roundedTo(value, lines.error) - (exact[key] as number));
            expect(written).toBeLessThanOrEqual(writtenError(lines.error));
          }
        }
      }
    }
  });
});

describe("the bound of renormalised weights", () => {
  const boundOf = (row: number[], more: Partial<Weights> = {}): number => {
    const loaded: Partial<Weights> = { columns: [0, 4], numReached: 4, error: 0.004 };
    const weights = weightsOf([[row]], { ...loaded, ...more });
    return linesOf(weights, options(4, { queryWindow: [0, 1] })).error;
  };

  it("follows from the errors of a weight and of the remaining sum", () => {
    // Each weight has an error of 0.004. The sum of the remaining weights, 0.5, has the same error,
    // because the sum is 1 minus the left-out weight.
    expect(boundOf([0.5, 0.25, 0.125, 0.125])).toBeCloseTo((0.004 + 0.004) / 0.496, 9);
    // The row sums to 0.99, so the remaining sum may be wrong by 0.01 more.
    expect(boundOf([0.49, 0.25, 0.125, 0.125])).toBeCloseTo((0.004 + 0.014) / 0.486, 6);
    // If the row may have any sum, the errors of the three remaining weights add up to 0.012.
    const any = boundOf([0.5, 0.25, 0.125, 0.125], { normalized: false });
    expect(any).toBeCloseTo((0.004 + 0.012) / 0.488, 9);
  });

  it("is 1 if the error exceeds the remaining sum, and unchanged for an empty row", () => {
    expect(boundOf([0.997, 0.003, 0, 0])).toBe(1);
    expect(boundOf([1, 0, 0, 0])).toBe(0.004);
    expect(boundOf([0.997, 0.003, 0, 0], { error: 0 })).toBe(0);
  });
});

it("exact weights are renormalised without the rounding of a strong sink", () => {
  // In single precision, 1 - 2e-9 is 1, so 1 minus the sink would be 0.
  const weights = weightsOf([[[1 - 2e-9, 4e-10, 6e-10, 1e-9]]], { columns: [0, 4], numReached: 4 });
  const all = linesOf(weights, options(4, { queryWindow: [0, 1] }));
  const strongest = linesOf(weights, options(4, { queryWindow: [0, 1], top_k: 2 }));
  expect([all.error, strongest.error]).toEqual([0, 0]);
  const close = (numbers: number[]) => numbers.map((number) => expect.closeTo(number, 6));
  expect([...(all.series[0]?.matrix ?? [])].slice(1)).toEqual(close([0.2, 0.3, 0.5]));
  expect(strongest.drawn.map(({ weight }) => weight)).toEqual(close([0.5, 0.3]));
});
