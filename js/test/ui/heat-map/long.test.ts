/** Tests of the tiles of a long text, of which coarse tiles are estimated from sampled queries. */

import { describe, expect, it } from "vitest";
import type { Cells, ReadRequest } from "../../../src/client/protocol";
import { Source } from "../../../src/client/source";
import type { Reply } from "../../../src/client/transport";
import { coverage, nothingInWords, sumInSight } from "../../../src/ui/heat-map/captions";
import {
  composeGrid,
  loadTiles,
  readOf,
  TILE,
  tilesOf,
  wantedTiles,
} from "../../../src/ui/heat-map/tiles";
import type { Viewport } from "../../../src/ui/heat-map/viewport";
import { FakeKernel } from "../../fakes";
import { viewport } from "./viewports";

const COUNT = 131_072;

const long = (state = {}, more = {}) =>
  viewport(COUNT, COUNT, state, { vectors: true, causal: true, ...more });

/** Fake kernel. Tiles are exact up to level 4 (cells of 16 x 16 tokens), and estimates above. */
class Kernel extends FakeKernel {
  override live = false;
  /** Largest number of requests that were pending at the same time. */
  maxPending = 0;
  #pending = 0;

  protected override async reply(_name: string, args: object): Promise<Reply> {
    this.maxPending = Math.max(this.maxPending, ++this.#pending);
    await Promise.resolve();
    this.#pending--;
    const level = Math.log2(((args as ReadRequest).reduce as Cells).length as number);
    const every = level > 4 ? { sampling_interval: 2 ** (level - 1) } : {};
    const shape = [1, TILE, TILE];
    const data = new Float32Array(TILE * TILE).fill(level);
    return { header: { shape, encoding: "float32", maximum: 0.01, error: 1e-5, ...every }, data };
  }
}

const load = (source: Source, view: Viewport, signal = new AbortController().signal) => {
  const requests = tilesOf(view).map((tile) => readOf(view, tile));
  return loadTiles(source, requests, signal, () => undefined);
};

const none = { query: null, key: null };
const unpinned = { pins: none, lines: none, effects: null };

describe("tiles of a long matrix", () => {
  it("begin with one tile of the whole matrix", () => {
    const window = long({ query_window: [60_000, 61_000], key_window: [30_000, 31_000] });
    const [whole, ...others] = wantedTiles(window);
    expect(whole).toMatchObject({ level: 9, row: 0, column: 0 });
    expect(TILE * 2 ** 9).toBeGreaterThanOrEqual(COUNT);
    expect(others).toEqual(tilesOf(window));
    // The tile of the whole matrix is not requested for short texts, nor if weights are stored and
    // not computed from queries and keys.
    for (const view of [viewport(300), long({}, { vectors: false })])
      expect(wantedTiles(view)).toEqual(tilesOf(view));
  });

  it("are requested once, two at a time, and have their sampling interval", async () => {
    const kernel = new Kernel();
    const source = new Source(kernel);
    const whole = long();
    await load(source, whole);
    expect(kernel.maxPending).toBe(2);
    expect(kernel.asked).toHaveLength(4);
    const grid = composeGrid(whole, source);
    expect([grid.missing, grid.fine, grid.samplingInterval]).toEqual([0, true, 128]);
    const rest = { ...unpinned, scale: "linear", end: 1, queryNumbers: "" } as const;
    const words = (live: boolean) => coverage({ layout: { viewport: whole }, grid, ...rest }, live);
    expect(words(true)).toContain("Estimate from 1 query in 128: zoom in for exact cells.");
    expect(words(false)).toContain("Estimate from 1 query in 128. ");
    const part = long({ query_window: [0, 64_000], key_window: [0, 64_000] });
    expect(sumInSight(part, grid)).toBeNull();
    // A reply encodes a weight as round(255 * sqrt(weight / maximum)). The tiles have the `maximum`
    // 0.01, so weights below 0.01 * (0.5 / 255)^2 are encoded as 0.
    expect(nothingInWords(grid)).toBe("less than 4e−8");
    await load(source, whole);
    expect(kernel.asked).toHaveLength(4);
  });

  it("that are no longer visible are not requested again", async () => {
    const kernel = new Kernel();
    const controller = new AbortController();
    kernel.held = () => true;
    const loading = load(new Source(kernel), long(), controller.signal);
    await expect.poll(() => kernel.waiting).toHaveLength(2);
    controller.abort();
    await expect(loading).rejects.toThrow("cancelled");
    expect(kernel.asked).toHaveLength(2);
  });

  it("stop at the first failure, and continue on retry", async () => {
    const kernel = new Kernel();
    const source = new Source(kernel);
    kernel.failing = { cells: "The kernel was interrupted." };
    await expect(load(source, long())).rejects.toThrow("interrupted");
    // Two requests are sent at a time. Both failed, so no other request was sent.
    expect(kernel.asked).toHaveLength(2);
    kernel.failing = {};
    await load(source, long());
    expect(composeGrid(long(), source).missing).toBe(0);
  });
});
