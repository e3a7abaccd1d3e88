// @vitest-environment node
import { describe, expect, it } from "vitest";
import type { AtlasEdgeColumns } from "../../../src/client/protocol";
import { Source } from "../../../src/client/source";
import { edgesOf, textsOf } from "../../../src/views/atlas/client/atlas";
import {
  countMatches,
  parseSearch,
  searchOf,
  searchResult,
  wilson,
} from "../../../src/views/atlas/search";
import { FIXTURE, pageTransport, STACK } from "./kernel";

const CLASSES = STACK.classes;

describe("the search text", () => {
  it("is a part of a token, a class, a position, or anything", () => {
    const termOf = (typed: string) => parseSearch(typed, CLASSES).term;
    expect(termOf("  ")).toBeNull();
    expect(termOf("*")).toEqual({ kind: "any" });
    expect(termOf("#12")).toEqual({ kind: "position", position: 12 });
    expect(termOf("POS: verb")).toEqual({ kind: "class", system: 1, value: 3 });
    // No system of token classes has the name "http", so "http:x" is a text to search for.
    expect(termOf("http:x")?.kind).toBe("token");
    expect(termOf("pos")?.kind).toBe("token");
  });

  it("fails with the valid classes if a class does not exist", () => {
    expect(parseSearch("pos:XYZ", CLASSES).problem).toBe(
      "No pos is “XYZ”. Choose one of DET, NOUN, PUNCT, VERB.",
    );
  });
});

/** Count the sampled edges of a head for which `fits` is true. `at` is the index of the layer. */
function counted(
  at: number,
  head: number,
  fits: (query: { token: string; pos: string | null }, key: string, offset: number) => boolean,
): number {
  const edges = FIXTURE.values.edges[at]?.sampled as AtlasEdgeColumns;
  return edges.head.filter((headOfEdge, i) => {
    if (headOfEdge !== head) return false;
    const { tokens, pos } = FIXTURE.texts[edges.text[i] as number] as (typeof FIXTURE.texts)[0];
    const [query, key] = [edges.query[i] as number, edges.key[i] as number];
    const queryToken = { token: tokens[query] as string, pos: pos[query] as string | null };
    return fits(queryToken, tokens[key] as string, key - query);
  }).length;
}

it("a search counts the edges that match at both ends and in the offsets", async () => {
  const source = new Source(pageTransport());
  const texts = await textsOf(source, "self");
  const countsAtZero: number[] = [];
  for (const [at, layer] of STACK.layers.entries()) {
    const { sampled } = await edgesOf(source, STACK, layer, texts);
    const count = (query: string, key: string, offsets: [number, number] | null): number[] => {
      const [from, to] = [parseSearch(query, CLASSES).term, parseSearch(key, CLASSES).term];
      const counts = countMatches(sampled, 2, searchOf(texts, from, to, offsets));
      expect(counts.map(({ numTotal }) => numTotal)).toEqual([2, 2]);
      return counts.map(({ numFound }) => numFound);
    };
    const both = (fits: Parameters<typeof counted>[2]): number[] => [
      counted(at, 0, fits),
      counted(at, 1, fits),
    ];
    expect(count("*", "", null)).toEqual([2, 2]);
    expect(count("", "", null)).toEqual([2, 2]);
    expect(count("pos:NOUN", "", null)).toEqual(both(({ pos }) => pos === "NOUN"));
    expect(count("", "the", null)).toEqual(both((_, key) => key.includes("the")));
    expect(count("", "", [-1, 0])).toEqual(both((_, __, offset) => offset >= -1 && offset <= 0));
    expect(count("kind:special", "#0", [0, 0])).toEqual(
      both(({ token }, _, offset) => token === "[CLS]" && offset === 0),
    );
    expect(count("nowhere", "", null)).toEqual([0, 0]);
    countsAtZero.push(...both((_, __, offset) => offset === 0));
  }
  // The counts of heads differ, so that a count for the wrong head is detected.
  expect(new Set(countsAtZero).size).toBeGreaterThan(1);
});

it("heads are ranked by their share, and of equal shares the larger sample comes first", () => {
  const counts = [
    { numFound: 1, numTotal: 2 },
    { numFound: 3, numTotal: 4 },
    { numFound: 50, numTotal: 100 },
    { numFound: 0, numTotal: 3 },
  ];
  const stack = { ...STACK, layers: [5, 6] };
  const { ranked, matching, done, layers, of } = searchResult(stack, new Map([[5, counts]]));
  expect(ranked.map(({ head }) => head)).toEqual([1, 2, 0, 3]);
  expect(matching.map(({ head }) => head)).toEqual([1, 2, 0]);
  expect([done, layers]).toEqual([1, 2]);
  expect([of({ layer: 5, head: 1 }), of({ layer: 6, head: 1 })]).toEqual([counts[1], null]);
});

it.each([
  // The first four intervals are from Newcombe 1998, Statistics in Medicine 17, table I.
  [81, 263, 0.2553, 0.3662],
  [15, 148, 0.0624, 0.1605],
  [0, 20, 0, 0.1611],
  [1, 29, 0.0061, 0.1718],
  // Without edges, any share is possible.
  [0, 0, 0, 1],
])("Wilson's interval of %i of %i edges is from %f to %f", (numFound, numTotal, low, high) => {
  expect(wilson({ numFound, numTotal })).toEqual([expect.closeTo(low, 4), expect.closeTo(high, 4)]);
});
