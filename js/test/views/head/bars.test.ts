import { describe, expect, it } from "vitest";
import type { RectMark } from "../../../src/draw/marks";
import { PALETTES } from "../../../src/ui/colors/palette";
import { barMarks } from "../../../src/views/head/bars";
import {
  drawnValue,
  type LinePlot,
  legendOf,
  seriesColor,
} from "../../../src/views/head/line-plot";
import { plotOf } from "./plots";

const palette = PALETTES.light;

const EVEN = Array.from({ length: 8 }, () => new Array<number>(8).fill(0.125));

/** Return the texts at the bars of query 4. */
const texts = (plot: LinePlot): string[] =>
  barMarks({ ...plot, plan: { ...plot.plan, token: 4 } }).flatMap((mark) =>
    mark.kind === "text" ? [mark.text] : [],
  );
const bars = (plot: LinePlot): RectMark[] =>
  barMarks({ ...plot, plan: { ...plot.plan, token: 4 } }).filter((mark) => mark.kind === "rect");

it("the number of a pair is −0 for a masked key, and NaN for one that is not loaded", () => {
  const plot = plotOf({ heads: [EVEN], window: [3, 7] });
  plot.plan = { ...plot.plan, columns: [0, 4], numReached: 6 };
  expect(drawnValue(plot, 0, 4, 7)).toBe(-0);
  expect(drawnValue(plot, 0, 4, 5)).toBeNaN();
});

describe("more heads than colours", () => {
  const heads = Array.from({ length: 12 }, (_, head) =>
    EVEN.map((row, query) => (query === 4 && head === 7 ? [0, 0, 0, 0, 0.4, 0.6, 0, 0] : row)),
  );

  it.each([12, 32])("share colours, and the legend names all %i heads", (numHeads) => {
    const plot = plotOf({ heads: Array.from({ length: numHeads }, () => EVEN) });
    const entries = legendOf(plot);
    expect(entries.slice(0, 2).map(({ name }) => name)).toEqual(
      numHeads === 12 ? ["heads 0, 1", "heads 2, 3"] : ["heads 0 to 3", "heads 4 to 7"],
    );
    expect(entries.flatMap((entry) => entry.heads)).toEqual([...Array(numHeads).keys()]);
    expect(new Set(entries.map(({ color }) => color)).size).toBe(entries.length);
    for (const entry of entries)
      for (const head of entry.heads) expect(seriesColor(plot, head)).toBe(entry.color);
  });

  it("have one bar for the strongest, in its colour", () => {
    const plot = plotOf({ heads });
    expect(texts(plot)).toEqual(expect.arrayContaining(["0.40, head 7", "0.60, head 7"]));
    expect(texts(plot)).toContain("strongest of 12 heads");
    const longest = bars(plot).sort((a, b) => b.width - a.width)[0];
    expect(longest?.fill).toBe(seriesColor(plot, 7));
  });

  it("have separate bars if the pointer is on a head or a colour", () => {
    expect(texts(plotOf({ heads }, { hoveredHeads: [7] }))).toContain("0.60");
    expect(texts(plotOf({ heads }, { hoveredHeads: [6, 7] })).join()).toContain("head 6");
  });
});

describe("the bars of signed numbers", () => {
  const numbers = [0.4, -0.8, 0, 0.2, -0.1, 0, 0, 0.3];
  const changed = EVEN.map((row, query) => (query === 4 ? numbers : row.map(() => 0)));
  const stack = { measure: "difference", signed: true, maximum: 1 };

  it("extend to both sides of an axis, in proportion to their size", () => {
    const drawn = bars(plotOf({ heads: [changed], stack }));
    const near = (bar: RectMark) => bar.x;
    const far = (bar: RectMark) => bar.x + bar.width;
    const of = (fill: string): RectMark[] => drawn.filter((bar) => bar.fill === fill);
    const [above, below] = [of(palette.positive), of(palette.negative)];
    const zero = near(above[0] as RectMark);
    for (const bar of above) expect(near(bar)).toBeCloseTo(zero, 6);
    for (const bar of below) expect(far(bar)).toBeCloseTo(zero, 6);
    const longest = zero - near(below[0] as RectMark);
    const shares = [...above, ...below].map((bar) => (far(bar) - near(bar)) / longest);
    const expected = [0.4, 0.2, 0.3, 0.8, 0.1].map((size) => expect.closeTo(size / 0.8, 5));
    expect(shares).toEqual(expected);
  });
});
