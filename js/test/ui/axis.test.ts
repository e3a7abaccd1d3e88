// @vitest-environment node

import { describe, expect, it } from "vitest";
import {
  type Axis,
  groupsOf,
  nearestVisible,
  neighbourOf,
  positionOf,
  stateOf,
  tokenAxis,
  windowAround,
  windowAt,
} from "../../src/ui/axis";
import { tokensOf } from "../builders";

const TOKENS = tokensOf(Array.from({ length: 12 }, (_, i) => `t${i}`));
const EVERYTHING = { leaveOut: [], pair: "all" } as const;

/** Return an axis of keys with the given tokens at each position. */
function axisWith(groups: [number, number][]): Axis {
  return { ...tokenAxis("key", TOKENS, [2, 9], EVERYTHING), groups };
}

describe("positions of tokens", () => {
  const all = [null, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
  const where = (groups: [number, number][]) =>
    all.map((token) => positionOf(axisWith(groups), token));

  it("are those of one token each, of merged tokens, and of tokens beside hidden ones", () => {
    expect(where(groupsOf([2, 5]))).toEqual([
      null,
      null,
      null,
      0,
      1,
      2,
      null,
      null,
      null,
      null,
      null,
    ]);
    expect(groupsOf([2, 7], 2)).toEqual([
      [2, 4],
      [4, 6],
      [6, 7],
    ]);
    expect(where(groupsOf([2, 7], 2))).toEqual([null, null, null, 0, 0, 1, 1, 2, null, null, null]);
    expect(
      where([
        [2, 3],
        [5, 6],
        [8, 9],
      ]),
    ).toEqual([null, null, null, 0, null, null, 1, null, null, 2, null]);
    expect(where([])).toEqual(all.map(() => null));
  });

  it("are stepped through without hidden tokens, until a step leaves the axis", () => {
    const axis = axisWith([
      [2, 3],
      [5, 6],
      [8, 9],
    ]);
    expect([null, 2, 5, 8, 11].map((token) => neighbourOf(axis, token, 1))).toEqual([
      2, 5, 8, 9, 11,
    ]);
    expect([null, 8, 5, 2, 0].map((token) => neighbourOf(axis, token, -1))).toEqual([
      8, 5, 2, 1, 0,
    ]);
    expect([0, 2, 4, 5, 11].map((token) => nearestVisible(axis, token))).toEqual([2, 2, 2, 5, 8]);
  });
});

it("a token is left out, in the other text, visible, or outside the window", () => {
  const sequence = TOKENS.text.map((_, token) => Number(token >= 6));
  const tokens = { ...TOKENS, sequence };
  const [key, query] = (["key", "query"] as const).map((side) => {
    const axis = tokenAxis(side, tokens, [2, 9], { leaveOut: [4, 7], pair: "b-a" });
    return [1, 4, 5, 7, 8, 10].map((token) => stateOf(axis, token));
  });
  expect(key).toEqual(["outside", "leftOut", "inSight", "leftOut", "otherPair", "otherPair"]);
  expect(query).toEqual(["otherPair", "otherPair", "otherPair", "inSight", "inSight", "outside"]);
});

it("windows are moved into a range, and are smaller if it has fewer tokens", () => {
  expect([-5, 3, 936].map((start) => windowAt(start, 100, [0, 1000]))).toEqual([
    [0, 100],
    [3, 103],
    [900, 1000],
  ]);
  expect(windowAt(7, 100, [10, 30])).toEqual([10, 30]);
  expect(windowAround(500, 64, [0, 1000])).toEqual([468, 532]);
});
