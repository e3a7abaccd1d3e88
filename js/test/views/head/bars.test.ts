import { describe, expect, it } from "vitest";
import type { TokenList } from "../../../src/client/protocol";
import type { RectMark, TextMark } from "../../../src/draw/marks";
import { headColor, PALETTES } from "../../../src/ui/colors/palette";
import { barMarks } from "../../../src/views/head/bars";
import { layOut, type Orientation } from "../../../src/views/head/layout";
import {
  drawnValue,
  type LinePlot,
  legendOf,
  seriesColor,
} from "../../../src/views/head/line-plot";
import { computeLines, type LineOptions, type Weights } from "../../../src/views/head/lines";

const palette = PALETTES.light;

interface PlotOptions {
  /** Weights, indexed by [head][query][key]. */
  heads: number[][][];
  window: [number, number];
  leaveOut?: number[];
  renormalize?: boolean;
  hoveredHeads?: number[];
  orientation?: Orientation;
  width?: number;
  /** Queries whose weights are loaded. Default: all queries. */
  rows?: [number, number];
  signed?: boolean;
}

/** Return the line plot of some heads in a window of a text. */
function plotOf(plotOptions: PlotOptions): LinePlot {
  const { heads, window } = plotOptions;
  const count = heads[0]?.length ?? 0;
  const rows = plotOptions.rows ?? [0, count];
  const text = Array.from({ length: count }, (_, i) => `t${i}`);
  const tokens: TokenList = { text, special: [], sequence: text.map(() => 0) };
  const matrices = heads.map((head) => Float32Array.from(head.slice(...rows).flat()));
  const weights: Weights = {
    heads: heads.map((_, head) => head),
    matrices,
    rows,
    columns: [0, count],
    numReached: count,
    normalized: true,
    maximum: 1,
    error: 0,
  };
  const leftOut = new Uint8Array(count);
  for (const key of plotOptions.leaveOut ?? []) leftOut[key] = 1;
  const all = new Uint8Array(count).fill(1);
  const options: LineOptions = {
    combine: "separate",
    topK: null,
    threshold: 0,
    leftOut,
    pairQueries: all,
    pairKeys: all,
    renormalize: plotOptions.renormalize ?? false,
    queryWindow: window,
    keyWindow: window,
  };
  const shown = matrices.map((matrix, head) => ({ head, name: `head ${head}`, matrix }));
  return {
    layout: layOut({
      orientation: plotOptions.orientation ?? "vertical",
      width: plotOptions.width ?? 1000,
      queryTexts: text,
      keyTexts: text,
      queryWindow: window,
      keyWindow: window,
      barSides: ["query", "key"],

      signed: plotOptions.signed,
      measure: (label) => label.length * 7,
    }),
    palette,
    queries: tokens,
    keys: tokens,
    images: [],
    weights,
    quantity: plotOptions.signed
      ? { name: "difference", signed: true, maximum: 1 }
      : { name: "weight", signed: false, maximum: 1 },
    lines: computeLines(weights, options, shown),
    scale: 1,
    token: null,
    key: null,
    hovered: null,
    hoveredLine: null,
    hoveredHeads: plotOptions.hoveredHeads ?? [],
    cursor: null,
    renormalized: plotOptions.renormalize ?? false,
    leftOut,
    pairQueries: all,
    pairKeys: all,
    strongest: null,
    isFound: null,
  };
}

// Weights of two heads, with rows that sum to 1. In `FAR`, query 4 attends most to key 0, which is
// outside the window `IN_SIGHT`.
const EVEN = Array.from({ length: 8 }, () => new Array<number>(8).fill(0.125));
const FAR = EVEN.map((row, query) => (query === 4 ? [0.9, 0, 0, 0.001, 0.05, 0.049, 0, 0] : row));
const IN_SIGHT: [number, number] = [3, 7];

const texts = (plot: LinePlot, query: number | null, key: number | null = null): string[] =>
  barMarks(plot, { query, key }).flatMap((mark) =>
    mark.kind === "text" ? [(mark as TextMark).text] : [],
  );
const bars = (plot: LinePlot, query: number | null, key: number | null = null): RectMark[] =>
  barMarks(plot, { query, key }).filter((mark): mark is RectMark => mark.kind === "rect");

describe("the number of a pair", () => {
  const whole = plotOf({ heads: [FAR], window: IN_SIGHT });

  it("is 0 for a masked key, and NaN for one that is not loaded", () => {
    const columns: [number, number] = [0, 4];
    const plot = { ...whole, weights: { ...whole.weights, columns, numReached: 6 } };
    expect(drawnValue(plot, 0, 4, 7)).toBe(0);
    expect(drawnValue(plot, 0, 4, 5)).toBeNaN();
  });
});

describe("more heads than colours", () => {
  const heads = Array.from({ length: 12 }, (_, head) =>
    EVEN.map((row, query) => (query === 4 && head === 7 ? [0, 0, 0, 0, 0.4, 0.6, 0, 0] : row)),
  );
  const asked: PlotOptions = { heads, window: [0, 8] };

  it("share colours, and the legend names all heads", () => {
    const plot = plotOf(asked);
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
    const entries = legendOf(plotOf({ heads: many, window: [0, 8] }));
    expect(entries.map(({ name }) => name).slice(0, 2)).toEqual(["heads 0 to 3", "heads 4 to 7"]);
    expect(new Set(entries.map(({ color }) => color)).size).toBe(8);
    expect(entries.flatMap((entry) => entry.heads)).toEqual(many.map((_, head) => head));
  });

  it("name the strongest at each bar, in its colour", () => {
    const plot = plotOf(asked);
    expect(texts(plot, 4)).toEqual(expect.arrayContaining(["0.40, head 7", "0.60, head 7"]));
    expect(texts(plot, 4)).toContain("strongest of 12 heads");
    const longest = bars(plot, 4).sort((a, b) => b.width - a.width)[0];
    expect(longest?.fill).toBe(seriesColor(plot, 7));
    const lying = plotOf({ ...asked, orientation: "horizontal", width: 400 });
    expect(texts(lying, 4)).toContain("h 7");
  });

  it("have separate bars if the pointer is on a head or a colour", () => {
    expect(texts(plotOf({ ...asked, hoveredHeads: [7] }), 4)).toContain("0.60");
    expect(texts(plotOf({ ...asked, hoveredHeads: [6, 7] }), 4).join()).toContain("head 6");
    expect(texts(plotOf({ ...asked, hoveredHeads: [99] }), 4)).toContain("strongest of 12 heads");
  });
});

describe("the bars of signed numbers", () => {
  const CHANGED = EVEN.map((row, query) =>
    query === 4 ? [0.4, -0.8, 0, 0.2, -0.1, 0, 0, 0.3] : row.map(() => 0),
  );
  const ALL: [number, number] = [0, 8];

  it("extend to both sides of an axis, in proportion to their size", () => {
    const drawn = bars(plotOf({ heads: [CHANGED], window: ALL, signed: true }), 4);
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
    const written = texts(plotOf({ heads: [CHANGED], window: ALL, signed: true }), 4);
    expect(written).toEqual(
      expect.arrayContaining(["difference from “t4”", "+0.40", "−0.80", "+0.20", "−0.10", "+0.30"]),
    );
  });

  it("are hollow below zero if there is no room for both sides", () => {
    const one = { heads: [CHANGED], window: ALL, signed: true, width: 420 };
    const plot = plotOf(one);
    const reach = Math.abs(plot.layout.key.barReach);
    const narrow = { ...plot.layout, key: { ...plot.layout.key, barReach: Math.min(reach, 90) } };
    const drawn = bars({ ...plot, layout: narrow }, 4);
    expect(drawn.filter((bar) => bar.stroke && !bar.fill)).toHaveLength(2);
    expect(drawn.filter((bar) => bar.fill)).toHaveLength(3);
    // All bars begin at the same axis.
    expect(new Set(drawn.map((bar) => bar.x)).size).toBe(1);
  });

  it("extend above and below an axis in a horizontal layout", () => {
    const plot = plotOf({ heads: [CHANGED], window: ALL, signed: true, orientation: "horizontal" });
    const drawn = bars(plot, 4);
    const above = drawn.filter((bar) => bar.fill === palette.positive);
    const below = drawn.filter((bar) => bar.fill === palette.negative);
    const zero = below[0]?.y as number;
    for (const bar of above) expect(bar.y + bar.height).toBeCloseTo(zero, 6);
    for (const bar of below) expect(bar.y).toBe(zero);
  });

  it("have the colours of the heads if there are several", () => {
    const drawn = bars(plotOf({ heads: [CHANGED, CHANGED], window: ALL, signed: true }), 4);
    expect(new Set(drawn.map((bar) => bar.fill))).toEqual(
      new Set([headColor(palette, 0, 2), headColor(palette, 1, 2)]),
    );
  });
});
