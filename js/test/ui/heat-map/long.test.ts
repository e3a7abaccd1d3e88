/** The matrix view of a long text: tiles from some of its queries, and exact ones nearer. */

import { describe, expect, it } from "vitest";
import { TILE } from "../../../src/client/page/tiles";
import type { TileRequest } from "../../../src/client/protocol";
import { Source } from "../../../src/client/source";
import type { Transport } from "../../../src/client/transport";
import { coverage, nothingInWords, sentence, sumInSight } from "../../../src/ui/heat-map/captions";
import { ticks } from "../../../src/ui/heat-map/layout";
import type { HeatMap } from "../../../src/ui/heat-map/marks";
import {
  composeGrid,
  Tiles,
  tileLevel,
  tilesOf,
  wantedTiles,
} from "../../../src/ui/heat-map/tiles";
import { cellsCsv } from "../../../src/views/matrix/figure";
import { viewport } from "./viewports";

const COUNT = 131_072;
const LONG = { vectors: true, causal: true };

const long = (state = {}, more = {}) => viewport(COUNT, COUNT, state, { ...LONG, ...more });

/** A kernel whose tiles are exact up to level 4. */
class Kernel implements Transport {
  readonly live = false;
  readonly asked: TileRequest[] = [];
  underWay = 0;
  most = 0;
  /** Is told how many requests there were. */
  onAsked: (count: number) => unknown = () => undefined;

  retry(): void {}
  watch(): void {}

  async request(_name: string, args: object, ended?: AbortSignal) {
    const request = args as TileRequest;
    this.asked.push(request);
    this.onAsked(this.asked.length);
    this.most = Math.max(this.most, ++this.underWay);
    await new Promise((resolve) => setTimeout(resolve, 1));
    this.underWay--;
    if (ended?.aborted) throw new DOMException("given up", "AbortError");
    const every = request.level > 4 ? { sampling_interval: 2 ** (request.level - 1) } : {};
    const shape = [1, TILE, TILE];
    const data = new Float32Array(TILE * TILE).fill(request.level);
    return { header: { shape, encoding: "float32", maximum: 0.01, error: 1e-5, ...every }, data };
  }
}

const nobody = (): AbortSignal => new AbortController().signal;
const nothing = (): undefined => undefined;

describe("tiles of a long matrix", () => {
  it("begin with one of everything, and then what is nearest to the middle", () => {
    const near = long({ query_window: [60_000, 61_000], key_window: [30_000, 31_000] });
    const [whole, ...others] = wantedTiles(near);
    expect(whole).toMatchObject({ level: 9, row: 0, column: 0 });
    expect(TILE * 2 ** 9).toBeGreaterThanOrEqual(COUNT);
    const level = tileLevel(near);
    expect(others).toHaveLength(tilesOf(near).length);
    expect(others.every((tile) => tile.level === level)).toBe(true);
    const span = TILE * 2 ** level;
    const away = others.map(({ row, column }) =>
      Math.hypot((row + 0.5) * span - 60_500, (column + 0.5) * span - 30_500),
    );
    expect(away).toEqual([...away].sort((one, other) => one - other));
    // Of a short text, and of one whose weights are given, all that is in sight and nothing else.
    expect(wantedTiles(viewport(300))).toEqual(tilesOf(viewport(300)));
    expect(wantedTiles(long({}, { vectors: false }))).toEqual(
      tilesOf(long({}, { vectors: false })),
    );
  });

  it("are asked for once, two at a time, and say from how many queries they are", async () => {
    const kernel = new Kernel();
    const tiles = new Tiles(new Source(kernel));
    const now = long();
    await tiles.load(tilesOf(now), nobody(), nothing);
    expect(kernel.most).toBe(2);
    expect(kernel.asked).toHaveLength(4);
    const grid = composeGrid(now, tiles);
    expect([grid.missing, grid.fine, grid.every]).toEqual([0, true, 128]);
    const said = { viewport: now, grid, token: null, key: null, row: null, column: null };
    const words = (live: boolean) => coverage(said, { scale: "linear", end: 1, live });
    expect(words(true)).toContain("Estimate from 1 query in 128: zoom in for exact cells.");
    expect(words(false)).toContain("Estimate from 1 query in 128. ");
    const inside = long({ query_window: [0, 64_000], key_window: [0, 64_000] });
    expect(sumInSight(inside, grid)).toBeNull();
    // What is too small for a byte is told by the tile's largest weight, and not by 1.
    expect(nothingInWords(grid)).toBe("less than 0.00000004");
    await tiles.load(tilesOf(now), nobody(), nothing);
    expect(kernel.asked).toHaveLength(4);
  });

  it("are exact nearer, and estimates until then", async () => {
    const tiles = new Tiles(new Source(new Kernel()));
    const near = long({ query_window: [60_000, 60_400], key_window: [30_000, 30_400] });
    const wanted = wantedTiles(near);
    await tiles.load(wanted.slice(0, 1), nobody(), nothing);
    const before = composeGrid(near, tiles);
    expect([before.missing, before.fine, before.every]).toEqual([0, false, 256]);
    await tiles.load(wanted, nobody(), nothing);
    const after = composeGrid(near, tiles);
    expect([after.missing, after.fine, after.every]).toEqual([0, true, undefined]);
  });

  it("that a reader left are not asked for again", async () => {
    const kernel = new Kernel();
    const tiles = new Tiles(new Source(kernel));
    const controller = new AbortController();
    kernel.onAsked = (count) => count === 3 && controller.abort();
    const loading = tiles.load(tilesOf(long()), controller.signal, nothing);
    await expect(loading).rejects.toThrow("given up");
    const count = kernel.asked.length;
    await new Promise((resolve) => setTimeout(resolve, 20));
    // At most the one that was under way beside the first that was given up.
    expect(kernel.asked.length).toBeLessThanOrEqual(count + 1);
  });

  it("end with the first that fails, and go on when asked again", async () => {
    const kernel = new Kernel();
    const tiles = new Tiles(new Source(kernel));
    const ask = kernel.request.bind(kernel);
    kernel.request = async (...request) => {
      const reply = await ask(...request);
      if (kernel.asked.length === 2) throw new Error("The kernel was interrupted.");
      return reply;
    };
    const loading = tiles.load(tilesOf(long()), nobody(), nothing);
    await expect(loading).rejects.toThrow("interrupted");
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(kernel.asked.length).toBeLessThanOrEqual(3);
    await tiles.load(tilesOf(long()), nobody(), nothing);
    expect(composeGrid(long(), tiles).missing).toBe(0);
  });

  it("hold a moved window's place with the coarsest, for mean and maximum alike", async () => {
    const tiles = new Tiles(new Source(new Kernel()));
    const near = long({ query_window: [60_000, 60_400], key_window: [30_000, 30_400] });
    await tiles.load(wantedTiles(near), nobody(), nothing);
    const moved = long({ query_window: [100_000, 100_400], key_window: [9_000, 9_400] });
    const grid = composeGrid(moved, tiles);
    expect([grid.missing, grid.fine]).toEqual([0, false]);
    // Cells that stand in for finer ones are not what is strongest.
    const said = { viewport: moved, grid, token: null, key: null, row: null, column: null };
    expect(sentence(said)).toBe("Layer 0, head 1. Loading finer cells.");
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
    expect(lastOf({ every: 64 })).toEqual(["0.000007629", ""]);
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
