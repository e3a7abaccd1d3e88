// @vitest-environment node
import { describe, expect, it } from "vitest";
import type { Prediction, TokenList } from "../../../src/client/source";
import { formatProbability } from "../../../src/ui/captions";
import {
  answerStart,
  predictingInWords,
  settled,
  type Walk,
} from "../../../src/ui/generated-token/state";
import { keysInWords, pairChoices, pairInWords } from "../../../src/ui/pairs";

function prediction(query: number, row: number | null): Prediction {
  const token = { text: `t${query + 1}`, id: query, probability: 0.5 };
  return { query, token, candidates: [token], row };
}

/** Two tokens of a prompt; the third and the fourth were produced, and one that was never read. */
const PREDICTIONS = [prediction(1, 2), prediction(2, 3), prediction(3, null)];
const TOKENS: TokenList = {
  text: ["t0", "t1", "t2", "t3"],
  special: [],
  sequence: [0, 0, 1, 1],
  predictions: PREDICTIONS,
};

type Values = [number | null, number | null, boolean];

function walk([token, prediction, as_query]: Values): Walk {
  return { token, prediction, as_query };
}

// As in tests/unit/views/test_generated_token.py: what holds in Python holds here.
const CASES: [Values, Values, Values][] = [
  [
    [null, null, false],
    [null, null, false],
    [null, null, false],
  ],
  [
    [null, null, false],
    [null, null, true],
    [null, null, true],
  ],
  [
    [null, null, false],
    [null, 1, false],
    [2, 1, false],
  ],
  [
    [0, null, false],
    [0, 0, false],
    [1, 0, false],
  ],
  [
    [1, 0, false],
    [1, 2, false],
    [3, 2, false],
  ],
  [
    [null, null, true],
    [null, 0, true],
    [2, 0, true],
  ],
  [
    [1, 0, false],
    [1, 0, true],
    [2, 0, true],
  ],
  [
    [2, 0, true],
    [2, 0, false],
    [1, 0, false],
  ],
  [
    [2, 0, true],
    [2, 2, true],
    [3, 2, false],
  ],
  [
    [3, 2, false],
    [3, 2, true],
    [3, 2, false],
  ],
  [
    [null, null, false],
    [2, null, false],
    [2, 1, false],
  ],
  [
    [1, 0, false],
    [3, 0, false],
    [3, 2, false],
  ],
  [
    [2, 0, true],
    [3, 0, true],
    [3, 1, true],
  ],
  [
    [1, 0, false],
    [0, 0, false],
    [0, null, false],
  ],
  [
    [2, 0, true],
    [1, 0, true],
    [1, null, true],
  ],
  [
    [2, 1, false],
    [null, 1, false],
    [null, null, false],
  ],
  [
    [2, 1, false],
    [2, null, false],
    [null, null, false],
  ],
  [
    [2, 0, true],
    [null, 0, true],
    [null, null, true],
  ],
  [
    [null, null, false],
    [2, 1, false],
    [2, 1, false],
  ],
  [
    [null, null, false],
    [2, 0, true],
    [2, 0, true],
  ],
  [
    [null, null, false],
    [0, 1, false],
    [0, null, false],
  ],
  [
    [null, null, false],
    [2, 9, false],
    [2, 1, false],
  ],
];

describe("walking through what a model produced", () => {
  it.each(CASES)("from %j, set to %j: %j", (before, now, after) => {
    const found = settled(PREDICTIONS, walk(before), walk(now));
    expect(found).toEqual(walk(after));
    expect(settled(PREDICTIONS, found, found)).toEqual(found);
    expect(settled(PREDICTIONS, walk(before), found)).toEqual(found);
  });

  it("takes an address's pin before a page's own prediction", () => {
    expect(settled(PREDICTIONS, null, walk([1, 2, false]))).toEqual(walk([1, 0, false]));
    expect(settled(PREDICTIONS, null, walk([null, 1, false]))).toEqual(walk([2, 1, false]));
    expect(settled([], null, walk([1, 2, true]))).toEqual(walk([1, null, true]));
  });

  it("knows where the answer begins", () => {
    expect(answerStart(TOKENS)).toBe(2);
    expect(answerStart({ ...TOKENS, predictions: [] })).toBeNull();
    // A decoder that began with a special token alone: there is no prompt.
    expect(answerStart({ ...TOKENS, special: [0, 1] })).toBeNull();
  });

  it("says what a query predicted, where it is shown as the one that did", () => {
    expect(predictingInWords({ queries: TOKENS }, 1)).toBe(", predicting “t2” (0.50),");
    expect(predictingInWords({ queries: TOKENS, asQuery: true }, 1)).toBe("");
    expect(predictingInWords({ queries: TOKENS }, 0)).toBe("");
  });

  it("calls the texts by what they are", () => {
    expect(pairInWords("b-a", TOKENS)).toBe("answer to prompt");
    expect(keysInWords("b-a", TOKENS)).toBe("the prompt");
    expect(pairChoices(TOKENS)[1]).toEqual(["a-a", "prompt to prompt"]);
    const pair = { ...TOKENS, predictions: [] };
    expect(pairInWords("a-b", pair)).toBe("sentence A to B");
    expect(keysInWords("a-b", pair)).toBe("sentence B");
    expect(pairChoices(pair)[0]).toEqual(["all", "all"]);
  });

  it("never calls a probability certain", () => {
    expect(formatProbability(0.9999)).toBe(">0.99");
    expect(formatProbability(1)).toBe("1.00");
    expect(formatProbability(0.994)).toBe("0.99");
    expect(formatProbability(0.001)).toBe("<0.01");
  });
});
