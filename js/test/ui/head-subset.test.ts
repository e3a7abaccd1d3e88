// @vitest-environment node
import { readFileSync } from "node:fs";
import { deflateSync, inflateSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { PageCarrier, type PageData } from "../../src/client/page";
import type { EmbeddedLayer } from "../../src/client/page/vectors";
import type { StackDescription } from "../../src/client/protocol";
import { askVectors } from "../../src/client/requests/vectors";
import { keptHeads, Source } from "../../src/client/source";
import { layerGrid, offeredHeads, rankedCells } from "../../src/ui/head-grid/grid";
import { whatInWords } from "../../src/ui/heat-map/captions";
import { absentInWords, allInWords, between } from "../../src/ui/text/captions";
import { orderHeads, placeOf } from "../../src/ui/view/record";
import { shownMatrices } from "../../src/views/head/lines";
import { partOf, planOf, sameWeights } from "../../src/views/head/state";
import { layersInWords } from "../../src/views/model/captions";
import { headOf } from "../../src/views/neuron/state";

/** Twelve heads a layer, of which two, all, and one were kept. */
const ALL = Array.from({ length: 12 }, (_, head) => head);
const stack: StackDescription = {
  name: "self",
  layers: [2, 4, 7],
  heads_per_layer: [12, 12, 12],
  heads: [[1, 5], ALL, [11]],
  query_tokens: { text: ["a", "b"], special: [], sequence: [0, 0] },
  key_tokens: null,
  normalized: true,
  maximum: 1,
  causal: false,
  vectors: true,
  patterns: [],
};
const whole: StackDescription = (({ heads: _, ...rest }) => rest)(stack);
const description = { model: "m", notes: [], stacks: [stack] };
const at = (layer: number, heads: number[] = []) =>
  placeOf(description, { stack: "self", layer, heads, token: null, key: null });

describe("heads that were kept", () => {
  it("are all of them where nothing is said", () => {
    expect(keptHeads(whole, 4)).toEqual(ALL);
    expect([2, 4, 7].map((layer) => keptHeads(stack, layer).length)).toEqual([2, 12, 1]);
  });

  it("are those that a place shows and that can be chosen", () => {
    expect(at(2).heads).toEqual([1, 5]);
    expect(at(2, [5, 0, 12])).toMatchObject({ chosen: [5], absent: [0, 12], heads: [5] });
    expect([at(2).numHeads, at(2).kept]).toEqual([12, [1, 5]]);
    expect([headOf(at(2)), headOf(at(7)), headOf(at(2, [5])), headOf(at(4))]).toEqual([
      1, 11, 5, 0,
    ]);
  });

  it("are another picture where all of them are chosen than where none is", () => {
    const all = { query_window: null, key_window: null, leave_out: [], pair: "all" as const };
    const [none, chosen] = [planOf(at(2), all), planOf(at(2, [1, 5]), all)];
    expect([none.heads, chosen.heads]).toEqual([
      [1, 5],
      [1, 5],
    ]);
    expect(sameWeights(none, chosen)).toBe(false);
    expect(partOf(none)).not.toEqual(partOf(chosen));
  });

  it("are ordered by their own scores", () => {
    const scores = ALL.map((head) => (head === 5 ? 0.9 : head === 1 ? 0.2 : null));
    expect(orderHeads([1, 5], scores, null)).toEqual({ heads: [5, 1], scores: [0.9, 0.2] });
    expect(orderHeads([1, 5], null, null).heads).toEqual([1, 5]);
  });

  it("stand in the grid under their numbers", () => {
    const grid = layerGrid(stack, offeredHeads(stack, [1, 5, 11]));
    expect(grid.columns).toEqual([1, 5, 11]);
    expect(grid.rows.map((row) => row.map((cell) => cell?.head ?? null))).toEqual([
      [1, 5, null],
      [1, 5, 11],
      [null, null, 11],
    ]);
    // All that were kept, of which not all are offered.
    expect([grid.offered, grid.all]).toEqual([6, 15]);
    const scores = [ALL, ALL, ALL];
    const ranked = rankedCells(stack, offeredHeads(stack, null), scores, 11);
    expect(ranked.map(({ layer, head }) => [layer, head])).toEqual([
      [4, 11],
      [7, 11],
    ]);
  });
});

describe("what is said of them", () => {
  it("counts them among all that there are", () => {
    expect(allInWords(at(2))).toBe("2 of 12 heads, those kept");
    expect(allInWords(at(4))).toBe("12 heads");
    expect(whatInWords(at(2))).toBe("mean of 2 of 12 heads, those kept");
    expect(whatInWords(at(2, [1, 5]))).toBe("mean of 2 of 12 heads, those kept");
    expect(whatInWords(at(7))).toBe("head 11");
    expect(whatInWords(at(4, [1, 5]))).toBe("mean of heads 1, 5");
    expect(layersInWords(stack)).toBe("3 layers of 12 heads, 15 of 36 kept");
    expect(layersInWords(whole)).toBe("3 layers of 12 heads");
  });

  it("names a mean of them in the head view", () => {
    const weights = {
      heads: [1, 5],
      matrices: [Float32Array.of(1), Float32Array.of(0)],
      rows: [0, 1] as [number, number],
      columns: [0, 1] as [number, number],
      numKeys: 1,
      normalized: true,
      maximum: 1,
      error: 0,
    };
    const named = (noneChosen: boolean, layer: number): string[] =>
      shownMatrices(weights, "mean", noneChosen, at(layer)).map((each) => each.name);
    expect(named(true, 2)).toEqual(["mean of 2 of 12 heads, those kept"]);
    // Two that were chosen among twelve.
    expect(named(false, 4)).toEqual(["mean of 2 heads"]);
  });

  it("tells chosen heads that were not kept from those that the model has not", () => {
    expect(absentInWords(at(2, [5]))).toBe("");
    expect(absentInWords(at(2, [0, 5]))).toBe("Layer 2 was kept with heads 1, 5 of 12: no head 0.");
    expect(absentInWords(at(7, [3]))).toBe("Layer 7 was kept with head 11 of 12: no head 3.");
    expect(absentInWords(at(4, [12, 13]))).toBe("Layer 4 has 12 heads: no head 12, 13.");
    expect(absentInWords(at(2, [12]))).toBe("Layer 2 has 12 heads: no head 12.");
  });

  it("names what lies between two that are offered", () => {
    expect([between(-1, 0), between(4, 5)]).toEqual(["", ""]);
    expect([between(-1, 1), between(1, 5)]).toEqual(["head 0", "heads 2 to 4"]);
  });
});

/** Matrices of 2 x 2 codes, one for each head that was kept of layer 2. */
const CODES = [
  [255, 0, 0, 255],
  [0, 255, 128, 64],
];

function pageData(more: Partial<PageData> = {}): PageData {
  const piece = {
    stack: "self",
    layer: 2,
    shape: [2, 2, 2] as [number, number, number],
    encoding: "uint8-sqrt" as const,
    maximum: 1,
    error: 0.00392,
    data: deflateSync(Uint8Array.from(CODES.flat())).toString("base64"),
  };
  const base = { format: 2 as const, view: "head", state: {}, description };
  return { ...base, blocks: [piece], maps: [piece], ...more };
}

describe("a page that contains them", () => {
  const source = new Source(new PageCarrier(pageData()));
  const range: [number, number] = [0, 2];
  const place = { stack: "self", layer: 2 };
  const decoded = CODES.map((codes) => codes.map((code) => (code / 255) ** 2));

  it("answers by the model's numbers", async () => {
    const block = { ...place, rows: range, columns: range, precision: "uint8" as const };
    const swapped = await source.block({ ...block, heads: [5, 1] });
    for (const [i, codes] of [decoded[1], decoded[0]].entries())
      for (const [cell, value] of (codes ?? []).entries())
        expect(swapped.matrices[i]?.[cell]).toBeCloseTo(value, 6);
    const maps = await source.maps({ ...place, size: 2, heads: [5] });
    expect(maps.matrices).toHaveLength(1);
    expect(maps.matrices[0]?.[1]).toBeCloseTo(1, 6);
    // Without a list: all that were kept, in their order.
    expect((await source.maps({ ...place, size: 2 })).matrices).toHaveLength(2);
    const tile = { ...place, level: 0, row: 0, column: 0, pooled: "mean" as const };
    const mean = await source.tile({ ...tile, heads: [1, 5], precision: "uint8" });
    expect(mean.matrices[0]?.[0]).toBeCloseTo(0.5, 6);
    const part = await source.maps({ ...place, size: 1, heads: [5], rows: [1, 2] });
    expect(part.matrices[0]?.[0]).toBeCloseTo((128 / 255) ** 2, 6);
  });

  it("says that a head was not kept", async () => {
    const asked = source.maps({ ...place, size: 2, heads: [0] });
    await expect(asked).rejects.toThrow("Head 0 of layer 2 was not kept.");
  });
});

interface Case {
  name: string;
  layer: EmbeddedLayer;
  arrays: string[];
  rows: { head: number; token: number; logits: (number | null)[]; weights: number[] }[];
}

const fixture = new URL("../../../tests/fixtures/vectors.json", import.meta.url);
const { cases } = JSON.parse(readFileSync(fixture, "utf8")) as { cases: Case[] };

/** The arrays of some heads, cut out of those of all. */
function cut(text: string, heads: number[], floats: number): string {
  const all = inflateSync(Buffer.from(text, "base64"));
  const parts = heads.map((head) => all.subarray(head * floats * 4, (head + 1) * floats * 4));
  return deflateSync(Buffer.concat(parts)).toString("base64");
}

describe("queries and keys of them", () => {
  // Masks and biases of single heads are cut in Python, where they are known apart.
  const shared = cases.filter(
    ({ layer }) => (layer.mask?.kind !== "packed" || layer.mask.heads === 1) && !layer.bias,
  );
  const grouped = shared.filter(({ layer }) => layer.num_key_heads < layer.num_heads);

  it("has cases, some with grouped key heads", () => {
    expect(shared.length).toBeGreaterThan(3);
    expect(grouped.length).toBeGreaterThan(0);
  });

  it.each(shared)("give the model's own rows: $name", async ({ layer, arrays, rows }) => {
    const heads = [...new Set([layer.num_heads - 1, 0])].sort((a, b) => a - b);
    const group = layer.num_heads / layer.num_key_heads;
    const keyHeads = [...new Set(heads.map((head) => Math.floor(head / group)))];
    const embedded = {
      ...layer,
      heads,
      key_heads: heads.map((head) => keyHeads.indexOf(Math.floor(head / group))),
      queries: arrays.length,
      keys: arrays.length + 1,
      sinks: layer.sinks && heads.map((head) => layer.sinks?.[head] as number),
    };
    const cutArrays = [
      ...arrays,
      cut(arrays[layer.queries] as string, heads, layer.num_queries * layer.head_dim),
      cut(arrays[layer.keys] as string, keyHeads, layer.num_keys * layer.head_dim),
    ];
    const vectors = { layers: [embedded], arrays: cutArrays };
    const source = new Source(new PageCarrier(pageData({ vectors })));
    const place = { stack: layer.stack, layer: layer.layer };
    const keys: [number, number] = [0, layer.num_keys];
    for (const { head, token, weights } of rows.filter((each) => heads.includes(each.head))) {
      const found = await askVectors(source, { ...place, head, token, keys });
      for (const [key, weight] of weights.entries())
        expect(found.weights[key]).toBeCloseTo(weight, 5);
      expect(found.header).toMatchObject({
        head,
        num_heads: layer.num_heads,
        key_head: Math.floor(head / group),
        num_key_heads: layer.num_key_heads,
      });
    }
    if (layer.num_heads > 2) {
      const asked = askVectors(source, { ...place, head: 1, token: 0, keys });
      await expect(asked).rejects.toThrow("Head 1 of layer");
    }
  });
});
