/** The matrix view of a long text: tiles that come as estimates, by and by. */

import { describe, expect, it } from "vitest";
import type { Carrier } from "../../../src/client/carrier";
import { TILE } from "../../../src/client/page/tiles";
import type { TileRequest, TileWork } from "../../../src/client/protocol";
import { Source } from "../../../src/client/source";
import { coverage, nothingInWords, sentence, sumInSight } from "../../../src/ui/heat-map/captions";
import { ticks } from "../../../src/ui/heat-map/layout";
import type { HeatMap } from "../../../src/ui/heat-map/marks";
import {
  composeGrid,
  computesUnasked,
  Tiles,
  tileLevel,
  tilesOf,
  wantedTiles,
} from "../../../src/ui/heat-map/tiles";
import { cellsCsv } from "../../../src/views/matrix/figure";
import { viewport } from "./viewports";

const COUNT = 131_072;
const LONG = { vectors: true, causal: true };
const SLOW = 4;

const long = (state = {}, more = {}) => viewport(COUNT, COUNT, state, { ...LONG, ...more });

/** A kernel that is done with a tile at the fourth time it is asked, and tells what it was asked. */
class Kernel implements Carrier {
  readonly live = false;
  readonly asked: TileRequest[] = [];
  readonly times = new Map<string, number>();
  underWay = 0;
  most = 0;
  /** Is told how many requests there were. */
  onAsked: (count: number) => unknown = () => undefined;

  retry(): void {}
  watch(): void {}

  async ask(_name: string, args: object, ended?: AbortSignal) {
    const request = args as TileRequest;
    const { level, row, column, exact } = request;
    this.asked.push(request);
    this.onAsked(this.asked.length);
    this.most = Math.max(this.most, ++this.underWay);
    await new Promise((resolve) => setTimeout(resolve, 1));
    this.underWay--;
    if (ended?.aborted) throw new DOMException("given up", "AbortError");
    const key = JSON.stringify([level, row, column]);
    const time = (this.times.get(key) ?? 0) + 1;
    this.times.set(key, time);
    const of = Math.min(TILE * 2 ** level, COUNT);
    // The first time nothing is known, then samples, and in the end everything.
    const done = exact !== false && time >= SLOW;
    const queries: [number, number] = [done ? of : time === 1 ? 0 : 64 * time, of];
    const waiting = exact === false ? time < 3 : !done;
    const progress = done ? 1 : exact === false ? 0 : (time - 1) / SLOW;
    const work: TileWork = { progress, queries, pairs: of * (1 + row), waiting };
    const shape = [1, TILE, TILE];
    const data = new Float32Array(TILE * TILE).fill(time);
    return { header: { shape, encoding: "float32", maximum: 0.01, error: 1e-5, ...work }, data };
  }
}

const nobody = (): AbortSignal => new AbortController().signal;

describe("tiles of a long matrix", () => {
  it("begin with one of everything, and then what is nearest to the middle", () => {
    const near = long({ query_window: [60_000, 61_000], key_window: [30_000, 31_000] });
    const [whole, ...others] = wantedTiles(near, true);
    expect(whole).toMatchObject({ level: 9, row: 0, column: 0, exact: false });
    expect(TILE * 2 ** 9).toBeGreaterThanOrEqual(COUNT);
    const level = tileLevel(near);
    expect(others).toHaveLength(tilesOf(near).length);
    expect(others.every((tile) => tile.level === level && tile.exact === true)).toBe(true);
    const span = TILE * 2 ** level;
    const away = others.map(({ row, column }) =>
      Math.hypot((row + 0.5) * span - 60_500, (column + 0.5) * span - 30_500),
    );
    expect(away).toEqual([...away].sort((one, other) => one - other));
    // Of a short text, and of one whose weights are given, all that is in sight and nothing else.
    expect(wantedTiles(viewport(300), true)).toEqual(tilesOf(viewport(300)));
    expect(wantedTiles(long({}, { vectors: false }), true)).toEqual(
      tilesOf(long({}, { vectors: false })),
    );
  });

  it("are asked for by turns until they are exact, two at once", async () => {
    const kernel = new Kernel();
    const tiles = new Tiles(new Source(kernel));
    const now = long();
    const seen: ReturnType<typeof composeGrid>["estimate"][] = [];
    await tiles.load(tilesOf(now), nobody(), () => seen.push(composeGrid(now, tiles).estimate));
    expect(kernel.most).toBe(2);
    expect(tilesOf(now)).toHaveLength(4);
    expect(kernel.asked).toHaveLength(4 * SLOW);
    // All once before any a second time.
    const first = kernel.asked.slice(0, 4).map(({ row, column }) => [row, column]);
    expect(new Set(first.map(String)).size).toBe(4);
    const grid = composeGrid(now, tiles);
    expect([grid.missing, grid.fine, grid.estimate]).toEqual([0, true, undefined]);
    expect(seen.at(-1)).toBeUndefined();
    // Nothing is asked for again.
    await tiles.load(tilesOf(now), nobody(), () => undefined);
    expect(kernel.asked).toHaveLength(4 * SLOW);
  });

  it("are estimates until then, and say from how many queries", async () => {
    const kernel = new Kernel();
    const tiles = new Tiles(new Source(kernel));
    const now = long();
    const estimates = tilesOf(now).map((tile) => ({ ...tile, exact: false }));
    await tiles.load(estimates, nobody(), () => undefined);
    // Three times, and then the kernel says that there is nothing more.
    expect(kernel.asked).toHaveLength(4 * 3);
    const grid = composeGrid(now, tiles);
    expect(grid.fine).toBe(true);
    // Tiles beside each other are made from the same queries: two rows of tiles, 192 each.
    expect(grid.estimate).toEqual({ queries: 384, of: COUNT, progress: 0 });
    const said = { viewport: now, grid, token: null, key: null, row: null, column: null };
    const words = coverage(said, { scale: "linear", end: 1, live: true });
    expect(words).toContain("Estimate from 384 of 131,072 queries.");
    const inside = long({ query_window: [0, 64_000], key_window: [0, 64_000] });
    expect(sumInSight(inside, grid)).toBeNull();
    // What is too small for a byte is told by the tile's largest weight, and not by 1.
    expect(nothingInWords(grid)).toBe("less than 0.00000004");
  });

  it("count where most work is left", async () => {
    const kernel = new Kernel();
    const tiles = new Tiles(new Source(kernel));
    const now = long();
    const [above, below] = [tilesOf(now).slice(0, 2), tilesOf(now).slice(2)];
    await tiles.load(above, nobody(), () => undefined);
    await tiles.load(
      below.map((tile) => ({ ...tile, exact: false })),
      nobody(),
      () => undefined,
    );
    // The lower rows take twice as long: a third is done.
    const half = composeGrid(now, tiles);
    expect(half.estimate?.progress).toBeCloseTo(1 / 3, 6);
    // Of those that are exact their last estimate is drawn, until no other is one.
    expect(new Set(half.values)).not.toContain(SLOW);
    await tiles.load(below, nobody(), () => undefined);
    expect(new Set(composeGrid(now, tiles).values)).toEqual(new Set([SLOW]));
  });

  it("count for nothing where they only stand in for finer ones", async () => {
    const kernel = new Kernel();
    const tiles = new Tiles(new Source(kernel));
    await tiles.load(tilesOf(long()), nobody(), () => undefined);
    const near = long({ query_window: [60_000, 60_400], key_window: [30_000, 30_400] });
    expect(composeGrid(near, tiles).estimate).toBeUndefined();
    const [first] = tilesOf(near);
    const sampled = first ? [{ ...first, exact: false }] : [];
    await tiles.load(sampled, nobody(), () => undefined);
    const { estimate, fine } = composeGrid(near, tiles);
    expect([estimate?.progress, estimate?.of, fine]).toEqual([0, 400, false]);
  });

  it("are not shown before a single query is known", async () => {
    const kernel = new Kernel();
    const tiles = new Tiles(new Source(kernel));
    const now = long();
    const [first] = tilesOf(now);
    const controller = new AbortController();
    kernel.onAsked = (count) => count === 2 && controller.abort();
    const loading = tiles.load(first ? [first] : [], controller.signal, () => undefined);
    await expect(loading).rejects.toThrow("given up");
    expect(composeGrid(now, tiles).missing).toBe(512 * 512);
    // What was done in the kernel goes on from there.
    await tiles.load(first ? [first] : [], nobody(), () => undefined);
    expect(kernel.asked.length).toBeLessThanOrEqual(SLOW + 1);
  });

  it("that a reader left are not asked for again", async () => {
    const kernel = new Kernel();
    const tiles = new Tiles(new Source(kernel));
    const controller = new AbortController();
    kernel.onAsked = (count) => count === 3 && controller.abort();
    const loading = tiles.load(tilesOf(long()), controller.signal, () => undefined);
    await expect(loading).rejects.toThrow("given up");
    const count = kernel.asked.length;
    await new Promise((resolve) => setTimeout(resolve, 20));
    // At most the one that was under way beside the first that was given up.
    expect(kernel.asked.length).toBeLessThanOrEqual(count + 1);
  });

  it("end with the first that fails, and go on when asked again", async () => {
    const kernel = new Kernel();
    const tiles = new Tiles(new Source(kernel));
    const ask = kernel.ask.bind(kernel);
    kernel.ask = async (...request) => {
      const reply = await ask(...request);
      if (kernel.asked.length === 6) throw new Error("The kernel was interrupted.");
      return reply;
    };
    const loading = tiles.load(tilesOf(long()), nobody(), () => undefined);
    await expect(loading).rejects.toThrow("interrupted");
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(kernel.asked.length).toBeLessThanOrEqual(7);
    await tiles.load(tilesOf(long()), nobody(), () => undefined);
    expect(composeGrid(long(), tiles).estimate).toBeUndefined();
  });

  it("hold a moved window's place with the coarsest, for mean and maximum alike", async () => {
    const kernel = new Kernel();
    const tiles = new Tiles(new Source(kernel));
    const near = long({ query_window: [60_000, 60_400], key_window: [30_000, 30_400] });
    await tiles.load(wantedTiles(near, true), nobody(), () => undefined);
    // Nothing at all the first time, and then an estimate, which is enough to stand in.
    expect(kernel.asked.filter(({ level }) => level === 9)).toHaveLength(2);
    const moved = long({ query_window: [100_000, 100_400], key_window: [9_000, 9_400] });
    const grid = composeGrid(moved, tiles);
    expect([grid.missing, grid.fine]).toEqual([0, false]);
    // Cells that stand in for finer ones are not what is strongest.
    const said = { viewport: moved, grid, token: null, key: null, row: null, column: null };
    expect(sentence(said)).toBe("Layer 0, head 1. Finer cells are on their way.");
  });
});

describe("cells of a long text as a table", () => {
  it("have their small weights, and no error where they are estimates", () => {
    const layout = { viewport: viewport(2) };
    const grid = {
      rows: 1,
      columns: 1,
      values: Float32Array.of(7.62939e-6),
      error: 3e-8,
      largest: 1,
    };
    const { queries, keys } = layout.viewport;
    const lastOf = (more: object): string[] => {
      const picture = { layout, queries, keys, grid: { ...grid, ...more } };
      return (
        cellsCsv(picture as unknown as HeatMap)
          .trim()
          .split("\r\n")[1]
          ?.split(",")
          .slice(-2) ?? []
      );
    };
    expect(lastOf({})).toEqual(["0.0000076294", "4e-8"]);
    const estimate = { queries: 1, of: 2, progress: 0 };
    expect(lastOf({ estimate })).toEqual(["0.000007629", ""]);
  });
});

describe("what is computed without being asked for", () => {
  it("is a few heads' whole matrix, and of more heads a part", () => {
    expect(computesUnasked(long())).toBe(true);
    const heads = { heads_per_layer: [32] };
    const all = viewport(COUNT, COUNT, {}, { ...LONG, ...heads });
    const mean = { ...all, heads: Array.from({ length: 32 }, (_, head) => head) };
    expect(computesUnasked(mean)).toBe(false);
    expect(computesUnasked({ ...mean, rows: { ...mean.rows, window: [0, 4000] } })).toBe(true);
    expect(computesUnasked({ ...mean, heads: [0, 1, 2, 3] })).toBe(true);
  });
});

describe("positions of a long text", () => {
  it("are told at round numbers that have room", () => {
    const now = long();
    const step = now.columns.cell / 2 ** now.columns.level;
    const found = ticks(now.columns.window, step, 64);
    expect(found[0]).toBe(0);
    expect(found.every((at) => at % 10_000 === 0)).toBe(true);
    expect(found.length).toBeGreaterThan(4);
    expect(((found[1] as number) - (found[0] as number)) * step).toBeGreaterThanOrEqual(64);
  });
});
