import { describe, expect, it, vi } from "vitest";
import { PageTransport } from "../../../src/client/page";
import type { Cells, Range, ReadRequest } from "../../../src/client/protocol";
import { Source } from "../../../src/client/source";
import { measureText } from "../../../src/draw/canvas";
import { groupsOf, tokensAt } from "../../../src/ui/axis";
import { PALETTES } from "../../../src/ui/colors/palette";
import { cellAt, layOut } from "../../../src/ui/heat-map/layout";
import { borders, frontMarks, type HeatMap } from "../../../src/ui/heat-map/marks";
import type { HeatMapState } from "../../../src/ui/heat-map/state";
import { composeGrid, loadTiles, readOf, tilesOf } from "../../../src/ui/heat-map/tiles";
import { MAX_CELL, type Viewport, within, zoomed } from "../../../src/ui/heat-map/viewport";
import { pageOf, pieceOf, randomNumbers } from "../../builders";
import { HEAT_MAP_DEFAULTS } from "../../defaults";
import { ROOM, selection, tokens, viewport } from "./viewports";

describe("the visible part", () => {
  it("has cells between one pixel and the maximum size", () => {
    expect(viewport(1).axes.query.cell).toBe(MAX_CELL);
    for (const count of [641, 1000, 1300, 5000, 100_000]) {
      const { query: rows, key: columns } = viewport(count).axes;
      expect(rows.cell).toBeGreaterThanOrEqual(1);
      expect(rows.groups.length * rows.cell).toBeLessThanOrEqual(ROOM.query);
      expect(columns.groups.length * columns.cell).toBeLessThanOrEqual(ROOM.key);
      // All tokens are visible. With half as many tokens per cell, they would not fit.
      expect(rows.window).toEqual([0, count]);
      expect(2 ** (rows.level - 1) * ROOM.query).toBeLessThan(count);
    }
  });

  it("is clipped to the matrix, and to one text of a pair", () => {
    expect(within([5, 500], [0, 10])).toEqual([5, 10]);
    expect(within([50, 60], [0, 10])).toEqual([0, 10]);
    const sequence = [null, 0, 0, null, 1, 1, 1, null];
    const query_tokens = tokens(8, sequence);
    const { query: rows, key: columns } = viewport(8, 8, { pair: "a-b" }, { query_tokens }).axes;
    expect([rows.window, columns.window].join(" to ")).toBe("1,3 to 4,7");
  });

  it("needs exactly the tiles that overlap it", () => {
    const near = viewport(1000, 1000, { query_window: [250, 270], key_window: [600, 620] });
    expect(tilesOf(near).map(({ level, row, column }) => [level, row, column])).toEqual([
      [0, 0, 2],
      [0, 1, 2],
    ]);
    expect(readOf(near, { level: 2, row: 0, column: 0 })).toMatchObject({
      ...{ heads: [1], rows: [0, 1000], columns: [0, 1000] },
      reduce: { kind: "cells", length: 4 },
    });
    expect(tilesOf(viewport(100_000)).length).toBeLessThanOrEqual(9);
  });
});

/** Return the mean or the maximum of the weights of a range of queries on a range of keys. */
function pool(matrix: number[][], queries: Range, keys: Range, pooled: "mean" | "max"): number {
  const weights = matrix.slice(...queries).flatMap((row) => row.slice(...keys));
  if (pooled === "max") return Math.max(...weights);
  return weights.reduce((sum, weight) => sum + weight, 0) / weights.length;
}

/** Return the source of a page in which `matrix` is head 1, and a spy on its requests. */
function served(matrix: number[][]) {
  const [numQueries, numKeys] = [matrix.length, matrix[0]?.length ?? 0];
  const codes = new Uint8Array(2 * numQueries * numKeys);
  const ofHead1 = matrix.flat().map((weight) => Math.round(255 * Math.sqrt(weight)));
  codes.set(ofHead1, numQueries * numKeys);
  const block = pieceOf([2, numQueries, numKeys], codes);
  const transport = new PageTransport(pageOf({ blocks: [block] }));
  return { source: new Source(transport), request: vi.spyOn(transport, "request") };
}

function load(source: Source, view: Viewport): Promise<void> {
  const requests = tilesOf(view).map((tile) => readOf(view, tile));
  return loadTiles(source, requests, new AbortController().signal, () => undefined);
}

/** Return random weights from 0 to 1, equal in every call, which a page stores exactly. */
function random(rows: number, columns: number): number[][] {
  const next = randomNumbers(7);
  return Array.from({ length: rows }, () =>
    Array.from({ length: columns }, () => (Math.floor(256 * next()) / 255) ** 2),
  );
}

/** Return the expected values of a viewport's cells, row by row, computed from the matrix. */
function expected({ axes, pooled }: Viewport, matrix: number[][]): number[] {
  const { query: rows, key: columns } = axes;
  return Array.from({ length: rows.groups.length * columns.groups.length }, (_, i) => {
    const queries = tokensAt(rows, Math.floor(i / columns.groups.length));
    return pool(matrix, queries, tokensAt(columns, i % columns.groups.length), pooled);
  });
}

describe("the grid from the cached tiles", () => {
  it.each([
    ["a part across tiles", 300, 300, { query_window: [230, 280], key_window: [250, 300] }],
    ["means of four by four", 270, 271, {}],
    ["maxima of four by four", 271, 270, { pooled: "max" }],
    ["a side pooled and the other not", 3, 340, {}],
    ["an end with a part of a cell", 301, 301, { query_window: [9, 301], key_window: [1, 301] }],
  ] as [string, number, number, Partial<HeatMapState>][])(
    "is %s",
    async (_name, numQueries, numKeys, state) => {
      const matrix = random(numQueries, numKeys);
      const { source } = served(matrix);
      const now = viewport(numQueries, numKeys, state, {}, { query: 70, key: 90 });
      await load(source, now);
      const grid = composeGrid(now, source);
      expect([grid.missing, grid.fine]).toEqual([0, true]);
      const cells = expected(now, matrix).map((cell) => expect.closeTo(cell, 6));
      expect([...grid.values]).toEqual(cells);
    },
  );

  it("uses coarser tiles until finer ones arrive, and is never blank", async () => {
    const matrix = random(1200, 1200);
    const { source, request } = served(matrix);
    const far = viewport(1200);
    await load(source, far);
    const near = viewport(1200, 1200, { query_window: [200, 300], key_window: [200, 300] });
    const before = composeGrid(near, source);
    expect([before.missing, before.fine]).toEqual([0, false]);
    // Until the fine tiles are loaded, a cell shows the value of the coarse cell that contains it.
    // A coarse cell has 2 x 2 tokens, so token 200 is in coarse cell 100.
    const coarse = composeGrid(far, source);
    const at = (row: number, column: number): number => row * coarse.columns + column;
    expect(before.values[0]).toBe(coarse.values[at(100, 100)]);
    expect(before.values[101]).toBe(coarse.values[at(100, 100)]);
    expect(before.values[102]).toBe(coarse.values[at(100, 101)]);
    request.mockClear();
    await load(source, near);
    expect(composeGrid(near, source).fine).toBe(true);
    const lengths = request.mock.calls.map(
      ([, args]) => ((args as ReadRequest).reduce as Cells).length,
    );
    expect(lengths).toEqual([1, 1, 1, 1]);
    // The coarse tiles are still cached.
    await load(source, far);
    expect(request).toHaveBeenCalledTimes(4);
  });
});

describe("the layout", () => {
  const laid = (numQueries: number, numKeys = numQueries, width = 1000, more = {}) =>
    layOut({
      selection: selection(numQueries, numKeys),
      state: { ...HEAT_MAP_DEFAULTS, ...more },
      width,
      mostHeight: 640,
      ratio: 1,
    });

  // Some of the texts have more tokens than the plot has pixels.
  it.each([18, 48, 71, 214, 643, 1000, 20_000])(
    "of %i tokens keeps its position and the cell under the pointer at every step of zoom",
    (count) => {
      const whole = laid(count);
      for (const share of [0.002, 0.3, 0.985]) {
        const x = whole.left + share * whole.cellsWidth;
        const y = whole.top + share * whole.cellsHeight;
        /** Return the queries and the keys of the cell under the pointer. */
        const under = (layout: typeof whole) => {
          const cell = cellAt(layout, x, y);
          const { query, key } = layout.viewport.axes;
          return [
            tokensAt(query, cell?.query as number),
            tokensAt(key, cell?.key as number),
          ] as const;
        };
        const zoomIn = ({ viewport, room, left, top }: typeof whole) =>
          zoomed(viewport, room, true, { query: y - top, key: x - left });
        let now = whole;
        let windows = zoomIn(now);
        expect(windows).not.toBeNull();
        while (windows) {
          const before = under(now);
          now = laid(count, count, 1000, windows);
          expect([now.left, now.top, now.height]).toEqual([whole.left, whole.top, whole.height]);
          // Before this step, the cell under the pointer contained all tokens of the cell that is
          // now under the pointer.
          under(now).forEach(([start, stop], side) => {
            const [first, last] = before[side as 0 | 1];
            expect(start).toBeGreaterThanOrEqual(first);
            expect(stop).toBeLessThanOrEqual(last);
          });
          windows = zoomIn(now);
        }
        const { query: rows, key: columns } = now.viewport.axes;
        expect(Math.max(rows.cell, columns.cell)).toBeGreaterThanOrEqual(28);
        const zoomOut = ({ viewport, room }: typeof whole) =>
          zoomed(viewport, room, false, { query: 0, key: 0 });
        for (let out = zoomOut(now); out; out = zoomOut(now)) now = laid(count, count, 1000, out);
        expect(now.viewport.axes.query.window).toEqual([0, count]);
        expect(now.viewport.axes.key.window).toEqual([0, count]);
      }
    },
  );

  const frames = Array.from({ length: 1500 }, (_, i) => `${(i / 50).toFixed(2)}s`);
  const words = Array.from({ length: 1500 }, (_, i) => `word${i % 7}`);
  it.each([
    ["frames", frames, 1000],
    ["few frames", frames.slice(0, 89), 1000],
    ["frames in a narrow plot", frames, 400],
    ["words", words, 1000],
  ])("has the names of %s beside the cells at every zoom", (_name, texts, width) => {
    const query_tokens = { text: texts, special: [], sequence: texts.map(() => 0) };
    const names = new Set(texts.flatMap((text, i) => [text, `${text} (${i})`]));
    const laidOut = (windows: object) =>
      layOut({
        selection: selection(texts.length, texts.length, { query_tokens }),
        state: { ...HEAT_MAP_DEFAULTS, ...windows },
        ...{ width, mostHeight: 640, ratio: 1 },
      });
    let windows: object | null = {};
    for (let steps = 0; windows; steps++) {
      const layout = laidOut(windows);
      const { query, key } = layout.viewport.axes;
      const grid = {
        rows: query.groups.length,
        columns: key.groups.length,
        values: new Float32Array(0),
      };
      const none = { query: null, key: null };
      const heatMap = { layout, grid, palette: PALETTES.light, pins: none, lines: none };
      const marks = frontMarks({
        ...{ ...heatMap, images: [], effects: null, isFound: null },
      } as unknown as HeatMap);
      const labels = marks.flatMap((mark) =>
        mark.kind === "text" && mark.font === "token" ? [mark] : [],
      );
      expect(labels.length).toBeGreaterThan(4);
      for (const { text, x, y, align } of labels) {
        expect(names.has(text)).toBe(true);
        const size = measureText(text, "");
        const left = x - { start: 0, middle: size / 2, end: size }[align ?? "start"];
        expect(left).toBeGreaterThanOrEqual(0);
        // Diagonal labels are checked in Chromium (`tests/browser/test_figures.py`).
        if (align === "middle") expect(left + size).toBeLessThanOrEqual(width);
        expect(y).toBeGreaterThan(0);
      }
      windows = zoomed(layout.viewport, layout.room, true, { query: 0, key: 0 });
      expect(steps).toBeLessThan(40);
    }
  });

  it("finds the cell under a point, or the label beside it", () => {
    const layout = laid(16);
    const { left, top } = layout;
    expect(cellAt(layout, left + 1, top + 1)).toEqual({ query: 0, key: 0 });
    expect(cellAt(layout, left + 85, top + 45)).toEqual({ query: 1, key: 2 });
    expect(cellAt(layout, left - 10, top + 45)).toEqual({ query: 1, key: null });
    expect(cellAt(layout, left + 85, top - 8)).toEqual({ query: null, key: 2 });
    expect(cellAt(layout, left + 2000, top + 5)).toBeNull();
  });

  it("draws the border between two texts, for any special tokens", () => {
    expect(
      borders({ tokens: tokens(8, [null, 0, 0, null, 1, 1, 1, null]), groups: groupsOf([0, 8]) }),
    ).toEqual([4]);
    expect(borders({ tokens: tokens(4, [0, 0, 1, 1]), groups: groupsOf([2, 4]) })).toEqual([]);
  });
});

it("cells of a pair of long texts contain all their tokens, including those of the other text", () => {
  const sequence = Array.from({ length: 1801 }, (_, i) => (i < 703 ? 0 : 1));
  const query_tokens = tokens(1801, sequence);
  const { query: rows, key: columns } = viewport(
    1801,
    1801,
    { pair: "a-b" },
    { query_tokens },
  ).axes;
  const tokensPerCell = 2 ** rows.level;
  expect(tokensPerCell).toBeGreaterThan(1);
  // Token 702 is the last of text A, and 703 the first of text B. Both are in the same cell.
  for (const [start, stop] of [tokensAt(rows, rows.groups.length - 1), tokensAt(columns, 0)]) {
    expect(start).toBeLessThanOrEqual(702);
    expect(stop).toBeGreaterThan(703);
    expect(stop - start).toBe(tokensPerCell);
  }
});
