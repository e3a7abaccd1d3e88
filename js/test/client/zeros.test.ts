// @vitest-environment node
import { expect, it } from "vitest";
import { cellsOf, rowsOf } from "../../src/client/page/reductions";
import { combineHeads } from "../../src/client/signs";
import { SCORED_ZERO, zeroInWords } from "../../src/client/zeros";

const STACK = { chooses_keys: true };
const [MASKED, NOT_CHOSEN] = [-0, 0];

it("zeros say why only in stacks that choose keys", () => {
  const read = [MASKED, NOT_CHOSEN, SCORED_ZERO, 0.5, Number.NaN];
  expect(read.map((weight) => zeroInWords(STACK, weight))).toEqual([
    ...["masked", "not chosen"],
    ...[null, null, null],
  ]);
  expect(read.map((weight) => zeroInWords({}, weight))).toEqual(read.map(() => null));
});

/** Pairs of weights, and what is known of both together. */
const TOGETHER: [number, number, string | null][] = [
  [MASKED, MASKED, "masked"],
  [MASKED, NOT_CHOSEN, "not chosen"],
  [NOT_CHOSEN, MASKED, "not chosen"],
  [NOT_CHOSEN, NOT_CHOSEN, "not chosen"],
  [NOT_CHOSEN, SCORED_ZERO, null],
  [0.5, MASKED, null],
];

it.each(["mean", "max"] as const)("the %s of several zeros keeps their kind", (how) => {
  const heads = [0, 1].map((side) => Float32Array.from(TOGETHER, (pair) => pair[side] as number));
  const combined = combineHeads(heads, how);
  const rows = TOGETHER.map(([a, b]) =>
    cellsOf(
      rowsOf({ add: (_heads, _row, _left, line) => line.set([a, b]) }, [0], "separate", 0),
      { rows: [0, 1], columns: [0, 2] },
      how,
    ),
  );
  const expected = TOGETHER.map(([, , reason]) => reason);
  expect(Array.from(combined, (weight) => zeroInWords(STACK, weight))).toEqual(expected);
  expect(rows.map(([cell]) => zeroInWords(STACK, cell as number))).toEqual(expected);
});
