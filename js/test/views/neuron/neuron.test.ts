// @vitest-environment node

import { describe, expect, it } from "vitest";
import type { RowHeader } from "../../../src/client/protocol";
import type { Vectors } from "../../../src/client/requests/vectors";
import { readVectors } from "../../../src/client/requests/vectors";
import { type Selection, selectionOf as selectionIn } from "../../../src/ui/view/record";
import {
  additionOf,
  formatSigned,
  hintInWords,
  queryGateInWords,
  scaleInWords,
  sentenceOf,
} from "../../../src/views/neuron/captions";
import { neuronCsv } from "../../../src/views/neuron/figure";
import { tokenOf } from "../../../src/views/neuron/state";
import { questionOf } from "../../../src/views/neuron/store";
import {
  dimensionsOf,
  scaleOf,
  type Table,
  tableOf,
  weightElsewhere,
} from "../../../src/views/neuron/table";
import { described, sentences, stackOf } from "../../builders";

const HEADER: RowHeader = {
  ...{ scale: 0.5, softcap: null, has_bias: false, sink: null, num_allowed: 2 },
  ...{ head: 1, num_heads: 2, key_head: 1, num_key_heads: 2 },
  log_sum_exp: Math.log(Math.exp(1) + Math.exp(-2)),
  strongest: [
    [0, 0.9526],
    [1, 0.0474],
  ],
  error: 0,
  logit_error: 0,
};

/** Return the vectors of a query and of three keys. Key 2 is masked. */
function vectors(header: Partial<RowHeader> = {}, more: Partial<Vectors> = {}): Vectors {
  return {
    header: { ...HEADER, ...header },
    keys: [0, 3],
    headDim: 4,
    query: Float32Array.of(1, 2, -1, 0),
    keyVectors: Float32Array.of(2, 1, 2, 5, -2, -1, 0, 1, 9, 9, 9, 9),
    bias: new Float32Array(3),
    allowed: Float32Array.of(1, 1, 0),
    logits: Float32Array.of(1, -2, Number.NEGATIVE_INFINITY),
    weights: Float32Array.of(0.9526, 0.0474, 0),
    weightInRange: 1,
    ...more,
  };
}

function selectionOf(text: string[], more: Partial<Selection> = {}): Selection {
  const tokens = { text, special: [], sequence: text.map(() => 0) };
  const stack = stackOf({ layers: [3], query_tokens: tokens, causal: true, vectors: true });
  const state = { stack: "self", layer: 3, heads: [1], token: 1, key: null };
  return { ...selectionIn(described(stack), state), ...more };
}

const TEXTS = ["one", "two", "three"];

function tableWith(vectorsOfQuery: Vectors = vectors(), key: number | null = null): Table {
  return tableOf(vectorsOfQuery, { ...selectionOf(TEXTS), head: 1, token: 1, key });
}

describe("rows", () => {
  it("have the keys of the window, and cap their sum", () => {
    const { rows } = tableWith(vectors({ softcap: 2 }, { keys: [10, 13] }));
    expect(rows.map(({ key }) => key)).toEqual([10, 11, 12]);
    expect(rows[0]?.capped).toBeCloseTo(2 * Math.tanh(0.5), 12);
  });

  it("highlight a masked key only if it is pinned", () => {
    expect(tableWith(vectors(), 2).highlighted?.key).toBe(2);
    const masked = vectors({ num_allowed: 0 }, { allowed: new Float32Array(3) });
    expect(tableWith(masked).highlighted).toBeNull();
  });

  it("show the largest shares, sorted or in the order of the dimensions", () => {
    const table = tableWith(vectors({}, { query: Float32Array.of(1, 2, -4, 3) }), 0);
    // The products of the query with key 0, times 0.5, have the absolute values 1, 1, 4 and 7.5.
    expect(dimensionsOf(table, true, 4).shown).toEqual([3, 2, 0, 1]);
    expect(dimensionsOf(table, true, 2)).toMatchObject({ shown: [3, 2], others: [0, 1] });
    expect(dimensionsOf(table, false, 2)).toMatchObject({ shown: [2, 3], others: [0, 1] });
  });

  it("have a range of colours for nearly all numbers, and mark numbers beyond it", () => {
    const numbers = Array.from({ length: 1000 }, (_, i) => i / 1000);
    expect(scaleOf([...numbers, 50])).toEqual({ limit: 0.98, beyond: true });
    expect(scaleOf([1, 1, 1])).toEqual({ limit: 1, beyond: false });
    expect(scaleOf([0, 0])).toEqual({ limit: 1, beyond: false });
    expect(scaleOf([...new Array(999).fill(0), 3])).toEqual({ limit: 3, beyond: false });
  });

  it("state the weight of keys that are not shown", () => {
    const sink = { logit: 0, weight: 0.25 };
    expect(weightElsewhere(vectors({ sink }, { weightInRange: 0.5 }))).toBeCloseTo(0.25);
    expect(weightElsewhere(vectors({ log_sum_exp: null, num_allowed: 0 }))).toBe(0);
  });
});

describe("the gate of the query", () => {
  const table = tableWith(vectors({ gate: 0.01 }));
  table.selection.stack.gates = [[0.2, 0.4]];

  sentences({
    "gate closed: 0.01": queryGateInWords(table),
    "gate 0.43": queryGateInWords(tableWith(vectors({ gate: 0.43 }))),
    "": queryGateInWords(tableWith()),
  });

  it("is beside the mean over all queries, and in the table", () => {
    expect(additionOf(table, dimensionsOf(table, true, 4))).toContain(
      "The gate multiplies the output of this query by 0.01 (mean over dimensions). Over all queries: mean gate 0.40.",
    );
    expect(neuronCsv(table)).toMatch(/"gate",,,,,0\.01,/);
  });
});

describe("the request", () => {
  it("is for the last query that is not special if none is pinned", () => {
    const selection = selectionOf(TEXTS, { token: null });
    const lastWith = (special: number[]): number =>
      tokenOf({ ...selection, queries: { ...selection.queries, special } });
    expect([lastWith([]), lastWith([2]), lastWith([0, 1, 2])]).toEqual([2, 1, 2]);
  });

  it("is for at most 64 keys around the pinned one", () => {
    const text = Array.from({ length: 300 }, (_, i) => `t${i}`);
    const keysOf = (key: number | null, moved: Parameters<typeof questionOf>[1] = null) =>
      questionOf(selectionOf(text, { key }), moved)?.keys;
    expect([5, 150, 299].map((key) => keysOf(key))).toEqual([
      [0, 64],
      [118, 182],
      [236, 300],
    ]);
    // The reader moved the window of keys while key 150 was pinned. If another key is pinned, the
    // moved window is ignored.
    const moved = { stack: "self", key: 150, start: 64 };
    expect(keysOf(150, moved)).toEqual([64, 128]);
    expect(keysOf(20, moved)).toEqual([0, 64]);
    // In a long text without a pinned key, the kernel chooses the keys.
    expect(keysOf(null)).toBeNull();
  });

  it("is for the chosen texts of a pair", () => {
    const selection = selectionOf(TEXTS, { token: null });
    const tokens = { ...selection.queries, sequence: [0, 0, 1] };
    const pair = { ...selection, queries: tokens, keys: tokens };
    expect(questionOf(pair, null, "a-b")).toMatchObject({ token: 1, keys: [2, 3] });
    expect(questionOf(pair, null, "b-a")).toMatchObject({ token: 2, keys: [0, 2] });
    // "b-b" is ignored for a single text.
    expect(questionOf(selection, null, "b-b")).toMatchObject({ token: 2, keys: [0, 3] });
  });

  it("has a reply that is read from any offset of a message", () => {
    const numbers = [1, 2, 0.5, -1, 0, 1, -1, 0.25];
    const message = new Uint8Array(3 + 4 * numbers.length);
    numbers.forEach((value, i) => {
      new DataView(message.buffer).setFloat32(3 + 4 * i, value, true);
    });
    const header = { ...HEADER, weight_in_range: 0.25 };
    const read = readVectors({ header, data: new DataView(message.buffer, 3) }, [7, 8]);
    const { query, keyVectors, bias, allowed, logits, weights } = read;
    const all = [query, keyVectors, bias, allowed, logits, weights];
    expect(all.flatMap((part) => [...part])).toEqual(numbers);
    const short = { header, data: new DataView(message.buffer, 3, 28) };
    expect(() => readVectors(short, [7, 8])).toThrow(/7 numbers, which do not fit 1 keys/);
  });
});

describe("words", () => {
  const masked = vectors({ num_allowed: 0 }, { allowed: new Float32Array(3) });
  const lost = { num_allowed: 1, num_left_out: 1, lost: 0.123 };
  const leftOut = vectors(lost, { allowed: Float32Array.of(1, 0, -1) });
  const table = tableWith();
  const two = dimensionsOf(table, true, 2);
  const hintOf = (cell: number | "others" | null) =>
    hintInWords(table, two, table.rows[0] ?? null, cell)?.rows.map(({ text }) => text) ?? [];
  sentences({
    "+3.83 −1.38 +0.00 −0.001 +123.5 −12346": [3.829, -1.384, 0, -0.00123, 123.456, -12345.6]
      .map(formatSigned)
      .join(" "),
    " / √32, / √80,, × 0.3": [1 / Math.sqrt(32), Math.fround(1 / Math.sqrt(80)), 1, 0.3]
      .map(scaleInWords)
      .join(),
    "“two” gives 0.95 of its attention to “one”: q·k / √4 = +1.00, dimensions 0, 1, 2 carry 100% of it (by size).":
      sentenceOf(tableWith()),
    "“two” may attend only to “one”: q·k / √4 = +1.00, dimensions 0, 1, 2 carry 100% of it (by size).":
      sentenceOf(tableWith(vectors({ num_allowed: 1 }))),
    "“two” may not attend to “three”: the key is masked.": sentenceOf(tableWith(vectors(), 2)),
    "“two” attends to nothing: all of its keys are masked.": sentenceOf(tableWith(masked)),
    "“two” does not attend to “three”: the key was not chosen, so the softmax did not score it.":
      sentenceOf(tableWith(leftOut, 2)),
    "dimension 1: q +2.00 × k +1.00 × 0.5 = +1.00, 33% of |cells|": hintOf(1)[0] ?? "",
    "other 2 dimensions: together −1.00, 33% of |cells|": hintOf("others")[0] ?? "",
    "q·k / √4 = +1.00; weight e^(+1.00 − 1.05) = 0.953": hintOf(null).join("; "),
  });

  const sink = { logit: 1.5, weight: 0.25 };
  const measured = { error: 0.00012, logit_error: 0.0031, measured: 64 };
  const withAll = vectors({ softcap: 2, has_bias: true }, { bias: Float32Array.of(-0.5, 0, 0) });
  const withSink = vectors({ sink });
  it.each([
    [
      "q·k / √4 = +1.00, capped at 2: +0.92, bias −0.50, logit +1.00",
      sentenceOf(tableWith(withAll)),
    ],
    [
      "1 of 3 keys are masked, 1 not chosen. Keys that were not chosen would have 12.3% of the weight.",
      additionOf(tableWith(leftOut), two),
    ],
    [
      "The sink, a learned logit of +1.50, takes 0.25 of the row.",
      additionOf(tableWith(withSink), two),
    ],
    [
      "Largest error measured on 64 queries of each head: weights 0.0002, logits 0.004.",
      additionOf(tableWith(vectors(measured)), two),
    ],
  ])("contain “%s”", (part, words) => expect(words).toContain(part));
});

describe("the table of numbers", () => {
  // This value is rounded to 1 in binary16 (float16).
  const exact = 1 + 2 ** -11 - 2 ** -20;
  const ones = Float32Array.of(1, 1, 1, 1);
  const rowsOf = (header: Partial<RowHeader>): string[][] => {
    const of = vectors(header, { query: ones, keyVectors: new Float32Array(12).fill(1) });
    return neuronCsv(tableWith(of))
      .split("\r\n")
      .slice(1)
      .map((line) => line.split(","));
  };
  const errors = (rows: string[][], quantity: string, key: string): number[] =>
    rows
      .filter((row) => row[7] === `"${quantity}"` && row[5] === key)
      .map((row) => Number(row[13]));

  it("states the errors of products and sums of rounded queries and keys", () => {
    const rows = rowsOf({ error: 0.0001, logit_error: 0.002, softcap: 2 });
    const moved = 0.5 * (exact ** 2 - 1);
    for (const error of errors(rows, "product", "0")) expect(error).toBeGreaterThanOrEqual(moved);
    expect(Math.max(...errors(rows, "product", "0"))).toBeLessThan(2.1 * moved);
    // `logit_error` is the bound for capped logits of allowed keys. Sums before the cap, and
    // numbers of the masked key 2, can have larger errors.
    for (const key of ["0", "2"])
      expect(errors(rows, "sum", key)[0]).toBeGreaterThanOrEqual(4 * moved);
    expect(errors(rows, "capped", "2")[0]).toBeGreaterThanOrEqual(4 * moved);
    expect(errors(rows, "capped", "0")).toEqual([0.002]);
    expect(errors(rowsOf({ error: 0.0001, logit_error: 0.002 }), "sum", "0")).toEqual([0.002]);
    // If `logit_error` was measured on only 64 queries, other queries can have larger errors.
    const sampled = rowsOf({ error: 0.0001, logit_error: 1e-9, measured: 64 });
    expect(errors(sampled, "sum", "0")[0]).toBeGreaterThanOrEqual(4 * moved);
  });

  it("states no error of exact numbers", () => {
    for (const row of rowsOf({ softcap: 2 })) expect(row[13]).toBe("0");
  });
});
