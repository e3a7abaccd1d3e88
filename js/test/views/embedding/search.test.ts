// @vitest-environment node

import { describe, expect, it } from "vitest";
import { EMBEDDING_VIEW_TRAITS } from "../../../src/client/traits";
import { readHash } from "../../../src/ui/view/state";
import { findPoints } from "../../../src/views/embedding/search";
import { corpusWith } from "./kernel";

const corpus = corpusWith();

/** Return the different tokens of all points that a search finds, in the order of the points. */
function tokensWith(searchText: string, searched = corpus): string[] {
  const { points } = findPoints(searched, searchText) ?? { points: new Uint8Array(0) };
  const matching = [...points.keys()].filter((point) => points[point] === 1);
  return [...new Set(matching.map((point) => searched.tokenOf(point)))];
}

describe("a search", () => {
  it.each<[string, string[]]>([
    ["THE", ["the", "The"]],
    ['"cat"', [" cat"]],
    ['"at"', []],
    // A quotation mark without a second one is searched as text, and all text is taken literally.
    ['"', []],
    [".*", []],
  ])("for %j finds %j", (searchText, tokens) => {
    expect(tokensWith(searchText)).toEqual(tokens);
  });

  it.each([
    [" cat", ["·cat"]],
    ["·cat", ["·cat"]],
    ['"cat"', ["·cat", "##cat"]],
    ["a b", ["a·b"]],
  ])("for %j matches a space with the dot that is shown for it", (searchText, tokens) => {
    const dotted = corpusWith({ vocabulary: ["the", "·cat", ",", "##cat", "dog", "a·b"] });
    expect(tokensWith(searchText, dotted)).toEqual(tokens);
  });

  it("marks all points of a token, and counts them", () => {
    const the = findPoints(corpus, "the");
    // Queries 0 and 3 are "the", query 4 is "The", and each of these tokens is also a key.
    expect([...(the?.points ?? [])]).toEqual([1, 0, 0, 1, 1, 0, 1, 0, 0, 1, 1, 0]);
    expect(the).toMatchObject({ count: 6 });
    // " dog" is in the vocabulary but has no point, so "dog" has no match.
    expect(findPoints(corpus, "dog")).toMatchObject({ count: 0 });
    expect(findPoints(corpus, "")).toBeNull();
  });
});

describe("the state", () => {
  it("ignores invalid values in a URL", () => {
    const hash = "#shown=all&points=none&text=-1&layer=x&enlarged=maybe";
    expect(readHash(hash, EMBEDDING_VIEW_TRAITS)).toEqual({});
  });
});
