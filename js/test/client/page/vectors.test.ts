// @vitest-environment node

import { describe, expect, it } from "vitest";
import { attentionRow } from "../../../src/client/attention";
import { type PageData, PageTransport } from "../../../src/client/page";
import { fromHalf, readNumbers } from "../../../src/client/page/vectors";
import type { ReadRequest } from "../../../src/client/protocol";
import { requestVectors } from "../../../src/client/requests/vectors";
import { Source } from "../../../src/client/source";
import { zeroInWords } from "../../../src/client/zeros";
import { described, pageOf, pieceOf, readFixture, stackOf } from "../../builders";

interface Case {
  name: string;
  saved: NonNullable<PageData["saved"]>;
  errors: NonNullable<PageData["errors"]>;
  chosen?: PageData["chosen"];
  rows: {
    head: number;
    token: number;
    logits: (number | null)[];
    weights: number[];
    sink_weight: number | null;
    gate: number | null;
    left_out?: number[];
    lost?: number;
  }[];
}

// Layers as a page contains them, with logits and weights that `tests/fixtures/make_vectors.py`
// computed by formula.
const { cases } = readFixture<{ cases: Case[] }>("vectors.json");

/** Return the parts of a page about the keys that were chosen. */
function chosenIn(chosen: PageData["chosen"]): Partial<PageData> {
  return chosen ? { chosen, description: described(stackOf({ chooses_keys: true })) } : {};
}

function sourceOf({ saved, errors, chosen }: Case): Source {
  return new Source(new PageTransport(pageOf({ saved, errors, ...chosenIn(chosen) })));
}

/** Return the numbers of heads, queries, key heads and keys of a layer. */
function sizesOf({ saved: { arrays } }: Case): [number, number, number, number] {
  const [heads = 0, queries = 0] = arrays["self/3/queries"]?.shape ?? [];
  const [keyHeads = 0, keys = 0] = arrays["self/3/keys"]?.shape ?? [];
  return [heads, queries, keyHeads, keys];
}

describe("attention of a page", () => {
  it.each(cases)("equals the formulas: $name", async (example) => {
    const source = sourceOf(example);
    const [heads, queries, keyHeads, keys] = sizesOf(example);
    expect(example.rows).toHaveLength(heads * queries);
    for (const { head, token, logits, weights, sink_weight, gate, ...row } of example.rows) {
      const request = { stack: "self", layer: 3, head, token };
      const vectors = await requestVectors(source, { ...request, keys: [0, keys] });
      const where = `head ${head}, query ${token}`;
      logits.forEach((logit, key) => {
        const unscored = row.left_out?.includes(key) ? -1 : 0;
        expect(vectors.allowed[key], where).toBe(logit === null ? unscored : 1);
        if (logit === null) expect(vectors.logits[key], where).toBe(Number.NEGATIVE_INFINITY);
        else expect(vectors.logits[key], where).toBeCloseTo(logit, 4);
        expect(vectors.weights[key], where).toBeCloseTo(weights[key] as number, 6);
      });
      const { header } = vectors;
      expect(header.gate, where).toBe(gate ?? undefined);
      expect(header.sink === null).toBe(sink_weight === null);
      if (sink_weight !== null) expect(header.sink?.weight, where).toBeCloseTo(sink_weight, 5);
      const total = weights.reduce((sum, weight) => sum + weight, 0);
      expect(vectors.weightInRange, where).toBeCloseTo(total, 5);
      expect(header.strongest[0]?.[1] ?? 0, where).toBeCloseTo(Math.max(...weights), 6);
      expect(header.key_head).toBe(Math.floor((head * keyHeads) / heads));
      expect(header.num_left_out ?? 0).toBe(row.left_out?.length ?? 0);
      // Pages store lost weights in half precision.
      if (header.num_left_out) expect(header.lost, where).toBeCloseTo(row.lost as number, 3);
    }
  });

  it.each(cases)("is computed if no weights are embedded: $name", async (example) => {
    const source = sourceOf(example);
    const [count, queries, , keys] = sizesOf(example);
    const heads = Array.from({ length: count }, (_, head) => head);
    const layerHeads = { stack: "self", layer: 3, heads };
    const block = await source.block({ ...layerHeads, rows: [0, queries], columns: [1, keys] });
    for (const { head, token, weights } of example.rows) {
      weights.slice(1).forEach((weight, i) => {
        const computed = block.matrices[head]?.[token * (keys - 1) + i];
        expect(computed, `head ${head}, query ${token}`).toBeCloseTo(weight, 6);
      });
    }
  });

  it.each(cases.filter(({ chosen }) => chosen))(
    "says which keys were not scored: $name",
    async (example) => {
      const [count, queries, , keys] = sizesOf(example);
      const heads = Array.from({ length: count }, (_, head) => head);
      // Codes of 0 stand for small weights, unless the masks say that the keys were not scored.
      const block = pieceOf([count, queries, keys], new Uint8Array(count * queries * keys), {
        layer: 3,
      });
      const page = pageOf({ blocks: [block], ...chosenIn(example.chosen) });
      const source = new Source(new PageTransport(page));
      const layerHeads = { stack: "self", layer: 3, heads };
      const { matrices } = await source.block({
        ...layerHeads,
        rows: [0, queries],
        columns: [0, keys],
      });
      const stack = { chooses_keys: true };
      for (const { head, token, logits, left_out } of example.rows) {
        const row = matrices[head]?.subarray(token * keys, (token + 1) * keys) ?? [];
        const expected = logits.map((logit, key) => {
          if (logit !== null) return null;
          return left_out?.includes(key) ? "not chosen" : "masked";
        });
        expect(Array.from(row, (weight) => zeroInWords(stack, weight))).toEqual(expected);
      }
    },
  );

  it.each(cases.filter(({ chosen }) => chosen))(
    "says the weight that keys lose: $name",
    async (example) => {
      const [count, queries, , keys] = sizesOf(example);
      const heads = Array.from({ length: count }, (_, head) => head);
      const source = sourceOf(example);
      const ask = {
        ...{ stack: "self", layer: 3, heads, rows: [1, queries], columns: [0, keys] },
        reduce: { kind: "lost" },
      } satisfies ReadRequest;
      // Pages store lost weights in half precision.
      const close = (numbers: number[]) => numbers.map((number) => expect.closeTo(number, 3));
      const lostIn = (head: number): number[] =>
        example.rows.flatMap((row) =>
          row.head === head && row.token > 0 ? [row.lost as number] : [],
        );
      const ofHeads = await source.read(ask);
      expect(ofHeads.map(({ columns, values }) => [columns, ...values])).toEqual(
        heads.map((head) => [1, ...close(lostIn(head))]),
      );
      const [ofMean] = await source.read({ ...ask, combine: "mean" });
      const means = lostIn(0).map((_, row) => {
        return heads.reduce((sum, head) => sum + (lostIn(head)[row] as number), 0) / count;
      });
      expect([...(ofMean?.values ?? [])]).toEqual(close(means));
    },
  );

  it("does not overflow with large logits", () => {
    const row = attentionRow({
      ...{ query: Float32Array.of(1000), keys: Float32Array.of(1, 0.999), numKeys: 2, scale: 1 },
      ...{ softcap: null, bias: () => 0, allowed: () => true, sink: null },
    });
    // The two logits differ by 1, so the ratio of the two weights is e.
    expect(row.weights[0]).toBeCloseTo(Math.E / (1 + Math.E), 4);
    expect(row.logSumExp).toBeGreaterThan(1000);
  });
});

describe("16-bit numbers", () => {
  it("are converted as IEEE 754 defines", () => {
    const examples: [number, number][] = [
      [0xc000, -2],
      [0x3555, 0.333251953125],
      [0x0001, 2 ** -24],
      [0x03ff, 6.097555160522461e-5],
      [0x0400, 6.103515625e-5],
      [0x7c00, Number.POSITIVE_INFINITY],
    ];
    for (const [bits, value] of examples) expect(fromHalf(bits)).toBe(value);
    expect(fromHalf(0x7e00)).toBeNaN();
  });

  it("are read from bytes as float16 and bfloat16", () => {
    const bytes = Uint8Array.of(0x00, 0x3c, 0x00, 0xc0);
    expect([...readNumbers(bytes, "F16")]).toEqual([1, -2]);
    // A bfloat16 is the upper half of a float32, which is 0x3fc0 for 1.5 and 0xc080 for -4.
    const brain = Uint8Array.of(0xc0, 0x3f, 0x80, 0xc0);
    expect([...readNumbers(brain, "BF16")]).toEqual([1.5, -4]);
  });
});
