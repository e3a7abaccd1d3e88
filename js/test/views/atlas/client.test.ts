// @vitest-environment node
import { describe, expect, it } from "vitest";
import type { AtlasEdgeColumns } from "../../../src/client/protocol";
import { headsOf, Source } from "../../../src/client/source";
import {
  Edges,
  edgesOf,
  offsetsOf,
  Texts,
  tableOf,
  textsOf,
} from "../../../src/views/atlas/client/atlas";
import { FIXTURE, Kernel, pageTransport, STACK } from "./kernel";

const { values } = FIXTURE;

/** Return edges (pairs of a query and a key) of a layer as columns, in the order of the fixture. */
function columnsOf(edges: Edges, heads: number): AtlasEdgeColumns {
  const columns: AtlasEdgeColumns = { head: [], weight: [], text: [], query: [], key: [] };
  for (let head = 0; head < heads; head++) {
    for (const i of edges.of(head)) {
      const { weight, text, query, key } = edges.edge(i);
      columns.head.push(head);
      columns.weight.push(Number(weight.toPrecision(4)));
      columns.text.push(text);
      columns.query.push(query);
      columns.key.push(key);
    }
  }
  return columns;
}

describe.each([
  ["a kernel", () => new Kernel()],
  ["a page", pageTransport],
])("an atlas from %s", (_, transportOf) => {
  const source = new Source(transportOf());

  it("has the statistics of every head under the model's numbers", async () => {
    const table = await tableOf(source, STACK);
    const { means, standard_errors, baselines, texts, roles } = values.table;
    STACK.layers.forEach((layer, at) => {
      headsOf(STACK, layer).forEach((head) => {
        STACK.statistics.forEach((_, i) => {
          expect(table.figure(i, { layer, head })).toEqual({
            mean: means[i]?.[at]?.[head],
            error: standard_errors[i]?.[at]?.[head],
            baseline: baselines[i]?.[at]?.[head] ?? null,
            texts: texts[i]?.[at]?.[head],
          });
        });
        expect(table.roles({ layer, head })).toEqual(roles[at]?.[head]);
      });
    });
    expect(table.figure(0, { layer: 5, head: 2 })).toEqual({
      mean: null,
      error: null,
      baseline: null,
      texts: 0,
    });
    expect(table.roles({ layer: 9, head: 9 })).toEqual([]);
  });

  it("has the mean weights by offset, to half a code in a page", async () => {
    const expectWeights = (loaded: ArrayLike<number>, expected: (number | null)[]): void => {
      expect(loaded.length).toBe(expected.length);
      // A page stores the numbers ((code - 1) / 254)^2. The error is at most half the distance of
      // two such numbers, which is below 1 / 254.
      expected.forEach((weight, i) => {
        if (weight === null) expect(loaded[i]).toBeNaN();
        else expect(Math.abs((loaded[i] as number) - weight)).toBeLessThan(1 / 254);
      });
    };
    for (const [at, layer] of STACK.layers.entries()) {
      const offsets = await offsetsOf(source, STACK, layer);
      for (const head of headsOf(STACK, layer))
        expectWeights(offsets[head] ?? [], values.offsets[at]?.[head] ?? []);
    }
  });

  it("has the edges of a layer with their tokens", async () => {
    const texts = await textsOf(source, "self");
    for (const [at, layer] of STACK.layers.entries()) {
      const edges = await edgesOf(source, STACK, layer);
      for (const list of ["strongest", "sampled"] as const) {
        expect(columnsOf(edges[list], 2)).toEqual(values.edges[at]?.[list]);
        const { text, query, key } = edges[list].edge(1);
        const tokens = FIXTURE.texts[text]?.tokens ?? [];
        const nameAt = (position: number) =>
          texts.nameOf(texts.queries, texts.queries.at(text, position));
        expect([query, key].map(nameAt)).toEqual([tokens[query], tokens[key]]);
      }
    }
  });
});

describe("a page", () => {
  it("cannot answer requests for a layer that it does not contain", async () => {
    const edges = pageTransport().request("edges", { stack: "self", layer: 3 });
    await expect(edges).rejects.toThrow("not contain “edges” of stack self, layer 3.");
  });
});

describe("texts", () => {
  const queries = {
    positions: [[2, 5, 9], [0]],
    tokens: [[0, 1, 0], [1]],
  };
  const answer = { numbers: [4, 7], vocabulary: ["a", "b"], queries, keys: null };

  it("are rejected if they are inconsistent", () => {
    const wrong = { ...queries, tokens: [[0, 1], [1]] };
    expect(() => new Texts({ ...answer, queries: wrong })).toThrow(/without a position/);
  });

  it("separate heads without edges", () => {
    const columns = {
      ...{ head: [1, 1, 3], weight: [1, 1, 1], text: [4, 4, 7] },
      ...{ query: [5, 9, 0], key: [2, 2, 0] },
    };
    const edges = new Edges(columns, 5);
    expect([0, 1, 2, 3, 4].map((head) => edges.of(head))).toEqual([[], [0, 1], [], [2], []]);
  });
});
