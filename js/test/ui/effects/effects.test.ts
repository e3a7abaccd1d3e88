import { describe, expect, it } from "vitest";
import type { LineMark, RectMark } from "../../../src/draw/marks";
import { PALETTES } from "../../../src/ui/colors/palette";
import {
  effectColumns,
  effectMarks,
  effectsInWords,
  effectText,
  headEffectsOf,
  positionOn,
  scoreColumn,
  shortEffectText,
  tokenEffect,
  tokenEffectsOf,
} from "../../../src/ui/effects/effects";
import { csvText } from "../../../src/ui/text/csv";
import { sentences, stackOf, tokensOf } from "../../builders";

const palette = PALETTES.light;

const stack = stackOf({
  layers: [0, 4],
  heads_per_layer: [2, 3],
  query_tokens: tokensOf(["a", "b", "c"]),
});

const signed = [
  [-14.85, 0.5],
  [null, 0.001, -2],
];
const shares = [
  [0.1, 0.5],
  [0.2, 0.9, 0.3],
];

const stateOf = (scores: object, order = "number", score_notes = {}) =>
  ({ scores, order, score_notes, score_errors: {} }) as Parameters<typeof headEffectsOf>[1];

describe("scores that are effects", () => {
  it("have both signs, and those that order the heads come first", () => {
    const scores = { shares: { self: shares }, one: { self: signed }, two: { self: signed } };
    expect(headEffectsOf(stack, stateOf(scores))?.name).toBe("one");
    expect(headEffectsOf(stack, stateOf(scores, "two"))?.name).toBe("two");
    expect(headEffectsOf(stack, stateOf({ shares: { self: shares } }, "shares"))).toBeNull();
    // Scores of one sign, such as log-likelihoods, are effects only if they have a description.
    const below = { mine: { self: [[-1, -2], [-3]] } };
    expect(headEffectsOf(stack, stateOf(below, "mine"))).toBeNull();
    expect(headEffectsOf(stack, stateOf(below, "mine", { mine: "effect" }))?.end).toBe(3);
    expect(headEffectsOf(stack, stateOf({ one: { cross: signed } }))).toBeNull();
  });

  it("are those of the layer's number, and have a scale up to the largest absolute value", () => {
    const effects = headEffectsOf(stack, stateOf({ one: { self: signed } }));
    if (!effects) throw new Error("There are effects.");
    expect(effects.end).toBe(14.85);
    expect(effects.of({ layer: 4, head: 2 }).value).toBe(-2);
    expect(effects.of({ layer: 3, head: 0 }).value).toBeNull();
  });
});

describe("a bar", () => {
  it("has a zero line, and is absent without a number", () => {
    const box = { x: 100, y: 20, width: 40, height: 6 };
    const [bar, line] = effectMarks(box, -5, 10, palette) as [RectMark, LineMark];
    expect([bar.x, bar.width, bar.fill]).toEqual([110, 10, palette.negative]);
    expect([line.x0, line.x1]).toEqual([120, 120]);
    const [above] = effectMarks(box, 10, 10, palette) as [RectMark];
    expect([above.x, above.width, above.fill]).toEqual([120, 20, palette.positive]);
    expect(effectMarks(box, 0, 10, palette).map(({ kind }) => kind)).toEqual(["line"]);
    expect(effectMarks(box, null, 10, palette)).toEqual([]);
  });
});

describe("descriptions of effects", () => {
  const note = "effect of x; noise 0.01, which 3 of 12 effects do not exceed";
  const scale = { name: "effect", note, end: 14.86 };
  sentences({
    "−14.9": effectText(scale, -14.86),
    none: effectText(scale, null),
    "−14.9 −<0.1 +<0.1 0.0 –": [-14.86, -0.042, 4e-5, 0, null]
      .map((value) => shortEffectText(scale, value))
      .join(" "),
    "+0.012 −<0.001 +<0.001 +0.002": [0.0117, -0.00042, 4e-5, 0.0016]
      .map((value) => shortEffectText({ ...scale, end: 0.0117 }, value))
      .join(" "),
    "Bars below heads: effect, negative to the left, positive to the right. A full bar is 14.9. Effect of x; noise 0.01, which 3 of 12 effects do not exceed.":
      effectsInWords(scale, "below heads"),
  });
});

describe("standard errors", () => {
  const errors = [
    [0.15, 0],
    [null, 0.25, null],
  ];
  const state = { ...stateOf({ one: { self: signed } }), score_errors: { one: { self: errors } } };
  const effects = headEffectsOf(stack, state);
  if (!effects) throw new Error("There are effects.");

  it("are included in the scale and described", () => {
    expect([effects.end, effects.spread]).toEqual([15, true]);
    expect(effects.of({ layer: 4, head: 1 }).error).toBe(0.25);
    expect(effects.of({ layer: 4, head: 0 }).error).toBeNull();
    expect(effectText(effects, -14, 0.15)).toBe("−14.0 ± 0.15");
    expect(effectsInWords(effects, "below heads")).toContain("one standard error on each side.");
  });

  it("are drawn as lines around the ends of bars", () => {
    const at = (end: number, ...values: number[]) => values.map((value) => positionOn(end, value));
    expect(at(15, -14.85 - 0.15, -14.85 + 0.15)).toEqual([0, expect.closeTo(0.01)]);
    // The line is from 1 - 2 to 1 + 2. On a scale from -2 to 2, it begins at a quarter and is cut
    // off.
    expect(at(2, 1 - 2, 1 + 2)).toEqual([0.25, 1]);
    const box = { x: 10, y: 0, width: 100, height: 5 };
    const marks = effectMarks(box, -7.5, 15, PALETTES.light, 3);
    expect(marks.at(-1)).toMatchObject({ x0: 25, x1: 45, y0: 2.5, y1: 2.5 });
  });
});

describe("effects of keys", () => {
  const effects = tokenEffectsOf(stack, {
    token_scores: { other: { cross: [1] }, effect: { self: [0.5, -3, null] } },
    token_score_notes: { effect: "measured" },
    token_score: null,
  });
  if (!effects) throw new Error("There are effects.");

  it("are the chosen ones if the stack has them", () => {
    const token_scores = { one: { self: [1, 2, 3] }, far: { cross: [1] }, two: { self: [4] } };
    const chosen = (token_score: string | null) =>
      tokenEffectsOf(stack, { token_scores, token_score_notes: {}, token_score });
    const names = [null, "two", "far", "gone"].map((name) => chosen(name)?.name);
    expect(names).toEqual(["one", "two", "one", "one"]);
    expect(chosen(null)?.names).toEqual(["one", "two"]);
  });

  it("are pooled to the largest absolute value", () => {
    expect(tokenEffect(effects, [0, 3])).toBe(-3);
    expect(tokenEffect(effects, [2, 3])).toBeNull();
  });

  it("have columns in tables, for any name", () => {
    expect(effectColumns(effects).names).toEqual(["key score: effect", "key_score_measure"]);
    expect(effectColumns(effects).cells([1, 2])).toEqual([-3, "measured"]);
    // The column name starts with "score", so that a spreadsheet does not take it for a formula.
    expect(csvText([scoreColumn('="1"\u202e')], [])).toBe('"score: =""1""‹U+202E›"');
  });
});
