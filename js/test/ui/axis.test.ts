// @vitest-environment node

import { describe, expect, it } from "vitest";
import {
  type Axis,
  canShow,
  countedTokens,
  type Exclusion,
  groupsOf,
  nearestVisible,
  neighbourOf,
  positionOf,
  shownTokens,
  tokenAxis,
  uncountedRanges,
  windowAround,
  windowAt,
} from "../../src/ui/axis";
import { tokensOf } from "../builders";

const TOKENS = tokensOf(Array.from({ length: 12 }, (_, i) => `t${i}`));

/** Return an exclusion of some of the tokens. */
function without(look: Exclusion["look"], ...indices: number[]): Exclusion {
  return { words: "", look, flags: Uint8Array.from(TOKENS.text, (_, i) => +indices.includes(i)) };
}

/** Return an axis of keys with the given tokens at each position. */
function axisWith(groups: [number, number][]): Axis {
  return { ...tokenAxis("key", TOKENS, [2, 9]), groups };
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

it("tokens that do not count have no lines, and hidden ones have no position", () => {
  const exclusions = [
    without("hidden", 0, 3, 4, 8, 9),
    without("struck", 4, 5),
    without("muted", 10),
  ];
  const axis = tokenAxis("key", TOKENS, [2, 9], exclusions);
  expect(shownTokens(axis)).toEqual([2, 5, 6, 7]);
  expect(countedTokens(axis)).toEqual([2, 6, 7]);
  expect(uncountedRanges(axis)).toEqual([
    [0, 1],
    [3, 6],
    [8, 11],
  ]);
  expect([3, 4, 5, 10, 12].map((token) => canShow(axis, token))).toEqual([
    ...[false, false, true, true, false],
  ]);
  // Steps skip hidden tokens outside the window, and stay at the last token that can be shown.
  expect([2, 5, 7, 11].map((token) => neighbourOf(axis, token, 1))).toEqual([5, 6, 10, 11]);
  expect([5, 2, 1].map((token) => neighbourOf(axis, token, -1))).toEqual([2, 1, 1]);
});

it("a window with only hidden tokens shows them", () => {
  const axis = tokenAxis("key", TOKENS, [2, 4], [without("hidden", 2, 3)]);
  expect(shownTokens(axis)).toEqual([2, 3]);
  expect(countedTokens(axis)).toEqual([]);
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
