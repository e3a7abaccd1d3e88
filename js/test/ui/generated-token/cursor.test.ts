// @vitest-environment node
import { describe, expect, it } from "vitest";
import type { Prediction, TokenList } from "../../../src/client/protocol";
import {
  answerStart,
  type Cursor,
  predictingInWords,
  settled,
} from "../../../src/ui/generated-token/state";
import { formatProbability } from "../../../src/ui/text/captions";
import { readFixture } from "../../builders";

function prediction(query: number, row: number | null): Prediction {
  const token = { text: `t${query + 1}`, id: query, probability: 0.5 };
  return { query, token, candidates: [token], row };
}

// Predictions after a prompt of two tokens. The model generated tokens 2 and 3, and a last token
// that it did not read. tests/unit/views/test_positions.py tests the same cases.
const { predictions, cases } = readFixture<{
  predictions: [number, number | null][];
  cases: Case[];
}>("generated_token.json");
const PREDICTIONS = predictions.map(([query, row]) => prediction(query, row));
const TOKENS: TokenList = {
  text: ["t0", "t1", "t2", "t3"],
  special: [],
  sequence: [0, 0, 1, 1],
  predictions: PREDICTIONS,
};

type Values = [number | null, number | null, boolean];

function cursor([token, prediction, as_query]: Values): Cursor {
  return { token, prediction, as_query };
}

interface Case {
  why: string;
  before: Values;
  now: Values;
  after: Values;
}

describe("the cursor of a generated answer", () => {
  it.each(cases)("$why: from $before, set to $now: $after", ({ before, now, after }) => {
    const result = settled(PREDICTIONS, cursor(before), cursor(now));
    expect(result).toEqual(cursor(after));
    expect(settled(PREDICTIONS, result, result)).toEqual(result);
    expect(settled(PREDICTIONS, cursor(before), result)).toEqual(result);
  });

  it("prefers the pin in the URL to the prediction of the page", () => {
    expect(settled(PREDICTIONS, null, cursor([1, 2, false]))).toEqual(cursor([1, 0, false]));
    expect(settled(PREDICTIONS, null, cursor([null, 1, false]))).toEqual(cursor([2, 1, false]));
    expect(settled([], null, cursor([1, 2, true]))).toEqual(cursor([1, null, true]));
  });

  it("finds the start of the answer", () => {
    expect(answerStart(TOKENS)).toBe(2);
    expect(answerStart({ ...TOKENS, predictions: [] })).toBeNull();
    // If the prompt has only special tokens, the start of the answer is not marked.
    expect(answerStart({ ...TOKENS, special: [0, 1] })).toBeNull();
  });

  it("describes the prediction of a query that is shown as the predicting one", () => {
    expect(predictingInWords({ queries: TOKENS }, 1)).toBe(", predicting “t2” (0.50),");
    expect(predictingInWords({ queries: TOKENS, asQuery: true }, 1)).toBe("");
    expect(predictingInWords({ queries: TOKENS }, 0)).toBe("");
  });

  it("never calls a probability certain", () => {
    expect(formatProbability(0.9999)).toBe(">0.99");
    expect(formatProbability(1)).toBe("1.00");
    expect(formatProbability(0.994)).toBe("0.99");
    expect(formatProbability(0.001)).toBe("<0.01");
  });
});
