/**
 * Heat map of a long text. Its tiles are estimated from sampled queries, and after zooming in they
 * are exact.
 */

import { describe, expect, it } from "vitest";
import { TILE } from "../../../src/client/page/tiles";
import type { TileRequest } from "../../../src/client/protocol";
import { Source } from "../../../src/client/source";
import type { Transport } from "../../../src/client/transport";
import { coverage, nothingInWords, sentence, sumInSight } from "../../../src/ui/heat-map/captions";
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

/**
 * Transport to a kernel whose tiles are exact at levels up to 4 and estimated at coarser levels.
 */
class Kernel implements Transport {
  readonly live = false;
  readonly requests: TileRequest[] = [];
  underWay = 0;
  most = 0;
  /** Called at each request with the number of requests so far. */
  onAsked: (count: number) => unknown = () => undefined;

  retry(): void {}
  watch(): void {}

  async request(_name: string, args: object, ended?: AbortSignal) {
    const request = args as TileRequest;
    this.requests.push(request);
    this.onAsked(this.requests.length);
    this.most = Math.max(this.most, ++this.underWay);
    await new Promise((resolve) => setTimeout(resolve, 1));
    this.underWay--;
    if (ended?.aborted) throw new DOMException("aborted", "AbortError");
    const every = request.level > 4 ? { sampling_interval: 2 ** (request.level - 1) } : {};
    const shape = [1, TILE, TILE];
    const data = new Float32Array(TILE * TILE).fill(request.level);
    return { header: { shape, encoding: "float32", maximum: 0.01, error: 1e-5, ...every }, data };
  }
}

const unaborted = (): AbortSignal => new AbortController().signal;
const nothing = (): undefined => undefined;

describe("tiles of a long matrix", () => {
  it("begin with one tile of the whole matrix, then continue from the centre", () => {
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
    // For a short text, or for weights that are not computed from queries and keys, only the
    // visible tiles are requested.
    expect(wantedTiles(viewport(300))).toEqual(tilesOf(viewport(300)));
    expect(wantedTiles(long({}, { vectors: false }))).toEqual(
      tilesOf(long({}, { vectors: false })),
    );
  });

  it("are requested once, two at a time, and have their sampling interval", async () => {
    const kernel = new Kernel();
    const tiles = new Tiles(new Source(kernel));
    const now = long();
    await tiles.load(tilesOf(now), unaborted(), nothing);
    expect(kernel.most).toBe(2);
    expect(kernel.requests).toHaveLength(4);
    const grid = composeGrid(now, tiles);
    expect([grid.missing, grid.fine, grid.every]).toEqual([0, true, 128]);
    const input = { viewport: now, grid, token: null, key: null, row: null, column: null };
    const words = (live: boolean) => coverage(input, { scale: "linear", end: 1, live });
    expect(words(true)).toContain("Estimate from 1 query in 128: zoom in for exact cells.");
    expect(words(false)).toContain("Estimate from 1 query in 128. ");
    const inside = long({ query_window: [0, 64_000], key_window: [0, 64_000] });
    expect(sumInSight(inside, grid)).toBeNull();
    // The smallest weight that is not rounded to 0 depends on the largest weight of the tile, not
    // on 1.
    expect(nothingInWords(grid)).toBe("less than 0.00000004");
    await tiles.load(tilesOf(now), unaborted(), nothing);
    expect(kernel.requests).toHaveLength(4);
  });

  it("are exact after zooming in, and estimates before", async () => {
    const tiles = new Tiles(new Source(new Kernel()));
    const near = long({ query_window: [60_000, 60_400], key_window: [30_000, 30_400] });
    const tileRequests = wantedTiles(near);
    await tiles.load(tileRequests.slice(0, 1), unaborted(), nothing);
    const before = composeGrid(near, tiles);
    expect([before.missing, before.fine, before.every]).toEqual([0, false, 256]);
    await tiles.load(tileRequests, unaborted(), nothing);
    const after = composeGrid(near, tiles);
    expect([after.missing, after.fine, after.every]).toEqual([0, true, undefined]);
  });

  it("that are no longer visible are not requested again", async () => {
    const kernel = new Kernel();
    const tiles = new Tiles(new Source(kernel));
    const controller = new AbortController();
    kernel.onAsked = (count) => count === 3 && controller.abort();
    const loading = tiles.load(tilesOf(long()), controller.signal, nothing);
    await expect(loading).rejects.toThrow("aborted");
    const count = kernel.requests.length;
    await new Promise((resolve) => setTimeout(resolve, 20));
    // At most one more request was sent: the one that ran at the same time as the first cancelled
    // request.
    expect(kernel.requests.length).toBeLessThanOrEqual(count + 1);
  });

  it("stop at the first failure, and continue on retry", async () => {
    const kernel = new Kernel();
    const tiles = new Tiles(new Source(kernel));
    const ask = kernel.request.bind(kernel);
    kernel.request = async (...request) => {
      const reply = await ask(...request);
      if (kernel.requests.length === 2) throw new Error("The kernel was interrupted.");
      return reply;
    };
    const loading = tiles.load(tilesOf(long()), unaborted(), nothing);
    await expect(loading).rejects.toThrow("interrupted");
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(kernel.requests.length).toBeLessThanOrEqual(3);
    await tiles.load(tilesOf(long()), unaborted(), nothing);
    expect(composeGrid(long(), tiles).missing).toBe(0);
  });

  it("fill a moved window from the coarsest tile, for mean and maximum", async () => {
    const tiles = new Tiles(new Source(new Kernel()));
    const near = long({ query_window: [60_000, 60_400], key_window: [30_000, 30_400] });
    await tiles.load(wantedTiles(near), unaborted(), nothing);
    const moved = long({ query_window: [100_000, 100_400], key_window: [9_000, 9_400] });
    const grid = composeGrid(moved, tiles);
    expect([grid.missing, grid.fine]).toEqual([0, false]);
    // While the cells come from coarser tiles, the sentence names no strongest cell.
    const input = { viewport: moved, grid, token: null, key: null, row: null, column: null };
    expect(sentence(input)).toBe("Layer 0, head 1. Loading finer cells.");
  });
});

describe("cells of a long text as a table", () => {
  it("contain small weights, and no error for estimates", () => {
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
