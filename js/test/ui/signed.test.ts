/** Tests of marks and captions of signed numbers, such as differences, in all views. */
import { describe, expect, it } from "vitest";
import type { StackDescription } from "../../src/client/protocol";
import { combineHeads } from "../../src/client/signs";
import type { CurvesMark, Mark, TextMark } from "../../src/draw/marks";
import { toSvg } from "../../src/draw/svg";
import { inkAt, pixelsOf, scaleEnd, signedShareOf } from "../../src/ui/colors/color-scales";
import { PALETTES, rgbOf, type ThemeName } from "../../src/ui/colors/palette";
import { heatPixels, inkOf } from "../../src/ui/head-grid/heat-pixels";
import { coverage, sentence } from "../../src/ui/heat-map/captions";
import { layOut } from "../../src/ui/heat-map/layout";
import { backMarks, frontMarks, type HeatMap } from "../../src/ui/heat-map/marks";
import type { Grid } from "../../src/ui/heat-map/tiles";
import { written, writtenSmall } from "../../src/ui/text/captions";
import { type LinePlot, legendOf } from "../../src/views/head/line-plot";
import { backMarks as lineMarksOf } from "../../src/views/head/marks";
import { sentences } from "../builders";
import { HEAT_MAP_DEFAULTS } from "../defaults";
import { distance, SIGHT } from "../sight";
import { plotOf } from "../views/head/plots";
import { selection } from "./heat-map/viewports";

const SIGNED: Partial<StackDescription> = {
  signed: true,
  measure: "difference",
  normalized: false,
  maximum: 0.8,
};
const palette = PALETTES.light;
const QUANTITY = { name: "difference", signed: true, maximum: 0.8 };

describe("signed numbers in text", () => {
  const effect = (maximum: number) => ({ name: "effect", signed: true, maximum });
  const weight = { name: "weight", signed: false, maximum: 1 };

  it("have a sign, with a minus as wide as a plus", () => {
    const words = [0.123, -0.3, 0, -0.001, Number.NaN].map((value) => written(QUANTITY, value));
    expect(words.join(" ")).toBe("+0.12 −0.30 0.00 −<0.01 …");
    expect([-0.0012, -0.25].map((value) => writtenSmall(QUANTITY, value))).toEqual([
      "−0.0012",
      "−0.25",
    ]);
    expect([written(weight, 0.3), writtenSmall(weight, 0.0012)]).toEqual(["0.30", "0.0012"]);
  });

  it("have decimals that fit their magnitude", () => {
    const numbers: [number, number][] = [
      [0.004, -0.00123],
      [4, 1.234],
      [40, 12.34],
      [4000, -1234],
      [0, 0],
    ];
    const words = numbers.map(([maximum, value]) => written(effect(maximum), value));
    expect(words.join(" ")).toBe("−0.0012 +1.23 +12.3 −1234 0.00");
  });
});

describe.each(["light", "dark"] as ThemeName[])("colours around zero, %s", (theme) => {
  const { background } = PALETTES[theme];
  /** Return the visible colour "#rrggbb" at a share of the scale, on the background. */
  const seen = (share: number): string => {
    const [red, green, blue, opacity] = inkAt(share, PALETTES[theme]);
    const ground = rgbOf(background);
    const mixed = [red, green, blue].map((value, i) =>
      Math.round((value * opacity + (ground[i] as number) * (255 - opacity)) / 255),
    );
    return `#${mixed.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
  };

  it.each(Object.entries(SIGHT))("tell the signs apart to %s sight", (_name, sight) => {
    for (const share of [0.4, 0.6, 0.8, 1]) {
      // The two colours must have the minimum distance of head colours (see palette.test.ts).
      expect(distance(seen(share), seen(-share), sight), String(share)).toBeGreaterThan(0.085);
    }
    // The larger the absolute value, the more a colour differs from the background.
    for (const sign of [1, -1]) {
      const away = [0.1, 0.3, 0.5, 0.7, 1].map((share) =>
        distance(seen(sign * share), background, sight),
      );
      expect([...away].sort((a, b) => a - b)).toEqual(away);
    }
  });

  it("give zero the background colour, and mark unknown cells", () => {
    const values = Float32Array.of(0, 0.4, -0.8, -4, Number.NaN);
    const colors = PALETTES[theme];
    const pixels = pixelsOf(values, theme, 0.8, "linear", "#010203", colors);
    const at = (i: number): number[] => [...pixels.subarray(4 * i, 4 * i + 4)];
    expect(at(0)).toEqual([0, 0, 0, 0]);
    expect(at(1)).toEqual([...rgbOf(colors.positive), 128]);
    expect(at(2)).toEqual([...rgbOf(colors.negative), 255]);
    expect(at(3)).toEqual(at(2));
    expect(at(4)).toEqual([1, 2, 3, 255]);
  });
});

it("follows the logarithm of the absolute value on both sides", () => {
  for (const value of [1e-5, 1e-3, 0.1, 0.8]) {
    const [above, below] = [value, -value].map((signedValue) =>
      signedShareOf(signedValue, 0.8, "log"),
    );
    expect(below).toBeCloseTo(-(above as number), 9);
  }
  expect(signedShareOf(0.008, 0.8, "log")).toBeCloseTo(0.5, 6);
  expect(signedShareOf(0, 0.8, "log")).toBeNull();
});

const NONE = { query: null, key: null };

/** Return a heat map of a square matrix, whose values are given row by row. */
function heatMap(values: number[], more: Partial<HeatMap> = {}, width = 400): HeatMap {
  const count = Math.sqrt(values.length);
  const layout = layOut({
    selection: { ...selection(count, count, SIGNED), token: 0, key: 0 },
    ...{ state: HEAT_MAP_DEFAULTS, width, mostHeight: width, ratio: 1 },
  });
  return {
    ...{ layout, palette, theme: "light", grid: gridOf(values), scale: "linear", end: 0.8 },
    ...{ beyond: false, images: [], effects: null, pins: NONE, lines: NONE },
    ...{ hovered: null, cursor: null, isFound: null, queryNumbers: "" },
    ...more,
  };
}

function gridOf(values: number[]): Grid {
  const count = Math.sqrt(values.length);
  return {
    ...{ rows: count, columns: count, values: Float32Array.from(values) },
    ...{ maximum: 0.8, error: 0, missing: 0, fine: true },
  };
}

const textsOf = (marks: Mark[]): string[] =>
  marks.flatMap((mark) => (mark.kind === "text" ? [(mark as TextMark).text] : []));

describe("a heat map of signed numbers", () => {
  const FOUR = [0.1, -0.8, 0.4, 0];

  const input = heatMap(FOUR);
  const values = Float32Array.of(0.1, -0.8);
  const row = { token: 0, window: [0, 2] as [number, number], error: 0, values };
  const pinned = { ...input, pins: { query: 0, key: null }, lines: { query: row, key: null } };
  sentences({
    "Layer 0, head 1. Largest difference: “t0” to “t1”, −0.80 (less).": sentence(input),
    "Layer 0, head 1. Largest difference from “t0”: to “t1”, −0.80 (less).": sentence(pinned),
    "Layer 0, head 1. “t0” to “t1”: difference −0.80 (less).": sentence({
      ...pinned,
      pins: { query: 0, key: 1 },
    }),
    "Each cell is one difference. Blank: no difference.": coverage(input, true),
  });

  it("has signed numbers in its cells, and only a minus in small cells", () => {
    expect(textsOf(backMarks(heatMap(FOUR)))).toEqual(["+.10", "−.80", "+.40"]);
    const many = Array.from({ length: 400 }, (_, i) => (i % 3 === 0 ? -0.5 : 0.5));
    const signs = textsOf(backMarks(heatMap(many)));
    expect(new Set(signs)).toEqual(new Set(["−"]));
    expect(signs).toHaveLength(134);
  });

  it("has bars on both sides of a zero line", () => {
    const line = { token: 0, window: [0, 2] as [number, number], error: 0 };
    const values = Float32Array.of(0.2, -0.4);
    const map = heatMap(
      FOUR,
      { lines: { query: { ...line, values }, key: { ...line, values } } },
      900,
    );
    const marks = frontMarks(map);
    const [above, below] = [palette.positive, palette.negative].map((fill) =>
      marks.flatMap((mark) => (mark.kind === "rect" && mark.fill === fill ? [mark] : [])),
    );
    expect([above?.length, below?.length]).toEqual([2, 2]);
    const [up, right] = above ?? [];
    const [down, left] = below ?? [];
    expect((up?.y ?? 0) + (up?.height ?? 0)).toBeCloseTo(down?.y ?? -1, 6);
    expect(down?.height).toBeCloseTo(2 * (up?.height ?? 0), 6);
    expect((left?.x ?? 0) + (left?.width ?? 0)).toBeCloseTo(right?.x ?? -1, 6);
    expect(textsOf(marks)).toEqual(
      expect.arrayContaining(["difference from “t0”", "+0.20", "−0.40"]),
    );
  });

  it.each(["mean", "max"] as const)("has bars of single numbers if cells pool the %s", (pooled) => {
    const count = 1300;
    const values = new Float32Array(count).fill(0.01);
    [values[5], values[700]] = [-0.4, 0.2];
    const line = { token: 0, window: [0, count] as [number, number], error: 0, values };
    const layout = layOut({
      selection: { ...selection(count, count, SIGNED), token: 0, key: 0 },
      state: { ...HEAT_MAP_DEFAULTS, pooled },
      ...{ width: 900, mostHeight: 900, ratio: 1 },
    });
    const { key, query } = layout.viewport.axes;
    expect(Math.min(key.level, query.level)).toBeGreaterThan(0);
    const lines = { query: line, key: line };
    const texts = textsOf(frontMarks({ ...heatMap(FOUR), layout, lines }));
    expect(texts.filter((text) => text === "−0.40")).toHaveLength(2);
    expect(texts.filter((text) => text === "+0.20")).toHaveLength(2);
    expect(texts).toContain(`difference from “t0”: largest of ${2 ** key.level} keys`);
    expect(texts).toContain(`to “t0”: largest of ${2 ** query.level}`);
  });
});

/** Return a line plot of the signed numbers `heads`, which are [head][query][key]. */
const linePlot = (heads: number[][][]): LinePlot =>
  plotOf({ heads, stack: { measure: QUANTITY.name, signed: true, maximum: QUANTITY.maximum } });

const ONE = [
  [0.4, -0.8, 0],
  [0.002, 0.1, -0.1],
  [0, 0, 0.2],
];
const NEGATED = ONE.map((row) => row.map((value) => -value));

describe("lines of signed numbers", () => {
  const curves = (plot: LinePlot): CurvesMark[] => lineMarksOf(plot) as CurvesMark[];

  it("are dashed below zero if colours show the head, and in files", () => {
    const plot = linePlot([ONE, NEGATED]);
    expect(curves(plot).map(({ color, dashed = false }) => [color, dashed])).toEqual([
      [palette.heads[0], true],
      [palette.heads[0], false],
      [palette.heads[1], true],
      [palette.heads[1], false],
    ]);
    const names = legendOf(plot).map(({ name, dashed }) => `${name}${dashed ? ", dashed" : ""}`);
    expect(names).toEqual(["head 0", "head 1", "more", "less, dashed"]);
    const scene = { width: 800, height: 300, background: null, backOpacity: 1, front: [] };
    const svg = toSvg({ ...scene, back: curves(plot) }, "");
    expect(svg.match(/stroke-dasharray/g)).toHaveLength(2);
  });

  it("combine to the mean, or to the largest absolute value", () => {
    const other = [
      [0.6, 0.3, 0],
      [0, -0.3, 0.3],
      [0, 0, -0.2],
    ];
    const heads = [ONE, other].map((head) => Float32Array.from(head.flat()));
    const closeTo = (numbers: number[]) => numbers.map((value) => expect.closeTo(value, 6));
    expect([...combineHeads(heads, "mean")].slice(0, 3)).toEqual(closeTo([0.5, -0.25, 0]));
    expect([...combineHeads(heads, "max")]).toEqual(
      closeTo([0.6, -0.8, 0, 0.002, -0.3, 0.3, 0, 0, 0.2]),
    );
  });
});

describe("small maps of signed numbers", () => {
  const map = {
    ...{ values: Float32Array.of(0.2, -0.8, 0, -0.05), rows: 2, columns: 2 },
    ...{ maximum: 0.8, error: 0 },
  };

  it("have the colour of the sign, and an opacity by the root of the absolute value", () => {
    const pixels = heatPixels(map, 2, 2, palette);
    expect([...pixels.subarray(0, 8)]).toEqual([
      ...[...rgbOf(palette.positive), 128],
      ...[...rgbOf(palette.negative), 255],
    ]);
    expect(inkOf(-0.2, 0.8)).toBe(0.5);
  });

  it("show the larger absolute value if a pixel covers several cells", () => {
    expect([...heatPixels(map, 1, 1, palette)]).toEqual([...rgbOf(palette.negative), 255]);
  });
});

it("fits scales to the visible numbers, but not to tiny changes", () => {
  expect(scaleEnd(0.45, 0.8, true)).toBe(0.5);
  expect(scaleEnd(0.7, 0.8, true)).toBe(0.8);
  expect(scaleEnd(0.0001, 0.8, true)).toBe(0.02);
});
