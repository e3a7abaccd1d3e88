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

const texts = (plot: LinePlot, query: number | null, key: number | null = null): string[] =>
  barMarks(plot, { query, key }).flatMap((mark) => (mark.kind === "text" ? [mark.text] : []));
const bars = (plot: LinePlot, query: number | null, key: number | null = null): RectMark[] =>
  barMarks(plot, { query, key }).filter((mark): mark is RectMark => mark.kind === "rect");

it("the number of a pair is 0 for a masked key, and NaN for one that is not loaded", () => {
  const plot = plotOf({ heads: [EVEN], window: [3, 7] });
  plot.weights = { ...plot.weights, columns: [0, 4], numReached: 6 };
  expect(drawnValue(plot, 0, 4, 7)).toBe(0);
  expect(drawnValue(plot, 0, 4, 5)).toBeNaN();
});

describe("more heads than colours", () => {
  const heads = Array.from({ length: 12 }, (_, head) =>
    EVEN.map((row, query) => (query === 4 && head === 7 ? [0, 0, 0, 0, 0.4, 0.6, 0, 0] : row)),
  );
  it("share colours, and the legend names all heads", () => {
    const plot = plotOf({ heads });
    expect(legendOf(plot).map(({ name }) => name)).toEqual([
      "heads 0, 1",
      "heads 2, 3",
      "heads 4, 5",
      "heads 6, 7",
      "heads 8, 9",
      "heads 10, 11",
    ]);
    for (const { color, heads: own } of legendOf(plot)) {
      expect(palette.heads).toContain(color);
      for (const head of own) expect(seriesColor(plot, head)).toBe(color);
    }
    const many = Array.from({ length: 32 }, () => EVEN);
    const entries = legendOf(plotOf({ heads: many }));
    expect(entries.map(({ name }) => name).slice(0, 2)).toEqual(["heads 0 to 3", "heads 4 to 7"]);
    expect(new Set(entries.map(({ color }) => color)).size).toBe(8);
    expect(entries.flatMap((entry) => entry.heads)).toEqual(many.map((_, head) => head));
  });

  it("name the strongest at each bar, in its colour", () => {
    const plot = plotOf({ heads });
    expect(texts(plot, 4)).toEqual(expect.arrayContaining(["0.40, head 7", "0.60, head 7"]));
    expect(texts(plot, 4)).toContain("strongest of 12 heads");
    const longest = bars(plot, 4).sort((a, b) => b.width - a.width)[0];
    expect(longest?.fill).toBe(seriesColor(plot, 7));
    const lying = plotOf({ heads, orientation: "horizontal", width: 400 });
    expect(texts(lying, 4)).toContain("h 7");
  });

  it("have separate bars if the pointer is on a head or a colour", () => {
    expect(texts(plotOf({ heads }, { hoveredHeads: [7] }), 4)).toContain("0.60");
    expect(texts(plotOf({ heads }, { hoveredHeads: [6, 7] }), 4).join()).toContain("head 6");
    expect(texts(plotOf({ heads }, { hoveredHeads: [99] }), 4)).toContain("strongest of 12 heads");
  });
});

describe("the bars of signed numbers", () => {
  const CHANGED = EVEN.map((row, query) =>
    query === 4 ? [0.4, -0.8, 0, 0.2, -0.1, 0, 0, 0.3] : row.map(() => 0),
  );
  const quantity = { name: "difference", signed: true, maximum: 1 };

  it("extend to both sides of an axis, in proportion to their size", () => {
    const drawn = bars(plotOf({ heads: [CHANGED], quantity }), 4);
    const [above, below] = [palette.positive, palette.negative].map((fill) =>
      drawn.filter((bar) => bar.fill === fill),
    ) as [RectMark[], RectMark[]];
    const zero = above[0]?.x as number;
    expect(above.map((bar) => bar.x)).toEqual([zero, zero, zero]);
    for (const bar of below) expect(bar.x + bar.width).toBeCloseTo(zero, 6);
    const longest = Math.max(...drawn.map((bar) => bar.width));
    expect(above.map((bar) => bar.width / longest)).toEqual(
      [0.5, 0.25, 0.375].map((share) => expect.closeTo(share, 5)),
    );
    expect(below.map((bar) => bar.width / longest)).toEqual([1, expect.closeTo(0.125, 5)]);
  });

  it("have signed numbers and a title", () => {
    const written = texts(plotOf({ heads: [CHANGED], quantity }), 4);
    expect(written).toEqual(
      expect.arrayContaining(["difference from “t4”", "+0.40", "−0.80", "+0.20", "−0.10", "+0.30"]),
    );
  });

  it("are hollow below zero if there is no room for both sides", () => {
    const plot = plotOf({ heads: [CHANGED], quantity, width: 420 });
    const reach = Math.abs(plot.layout.key.barReach);
    const narrow = { ...plot.layout, key: { ...plot.layout.key, barReach: Math.min(reach, 90) } };
    const drawn = bars({ ...plot, layout: narrow }, 4);
    expect(drawn.filter((bar) => bar.stroke && !bar.fill)).toHaveLength(2);
    expect(drawn.filter((bar) => bar.fill)).toHaveLength(3);
    // All bars begin at the same axis.
    expect(new Set(drawn.map((bar) => bar.x)).size).toBe(1);
  });

  it("extend above and below an axis in a horizontal layout", () => {
    const plot = plotOf({ heads: [CHANGED], quantity, orientation: "horizontal" });
    const drawn = bars(plot, 4);
    const above = drawn.filter((bar) => bar.fill === palette.positive);
    const below = drawn.filter((bar) => bar.fill === palette.negative);
    const zero = below[0]?.y as number;
    for (const bar of above) expect(bar.y + bar.height).toBeCloseTo(zero, 6);
    for (const bar of below) expect(bar.y).toBe(zero);
  });
});
