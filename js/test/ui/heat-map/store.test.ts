import { beforeEach, describe, expect, it, vi } from "vitest";
import type { BlockRequest, TileRequest } from "../../../src/client/protocol";
import { Source } from "../../../src/client/source";
import type { Connection, Transport } from "../../../src/client/transport";
import { coverage } from "../../../src/ui/heat-map/captions";
import type { HeatMap } from "../../../src/ui/heat-map/marks";
import { hintOf } from "../../../src/ui/heat-map/plot";
import { HEAT_MAP_DEFAULTS, type HeatMapState } from "../../../src/ui/heat-map/state";
import { createHeatMapStore, type HeatMapStore } from "../../../src/ui/heat-map/store";
import type { ViewContext } from "../../../src/ui/view/define-view";
import { assign, type Signals } from "../../../src/ui/view/state";
import { stackOf, tokensOf } from "../../builders";
import { setUpView } from "../../view-context";

const COUNT = 6;
const EXACT = Math.fround(0.12345);

/**
 * Transport to a kernel that delays its answers until a test releases them. Weights of tiles are
 * rounded to 255 codes. Weights of blocks are exact.
 */
class Kernel implements Transport {
  readonly live = false;
  readonly requests: [string, object][] = [];
  /** Functions that release the delayed answers, oldest first. */
  readonly waiting: (() => void)[] = [];
  held = false;
  failing = false;

  retry(): void {}

  watch(listener: (connection: Connection) => void): void {
    listener("ready");
  }

  async request(name: string, args: object, ended?: AbortSignal) {
    this.requests.push([name, args]);
    if (this.held && name !== "describe") {
      await new Promise<void>((resolve, reject) => {
        this.waiting.push(resolve);
        ended?.addEventListener("abort", () => reject(new DOMException("aborted", "AbortError")));
      });
    }
    if (this.failing && name === "tile") throw new Error("The weights are gone.");
    if (name === "describe")
      return { header: { model: "m", notes: [], stacks: [stack] }, data: null };
    const uint8 = { encoding: "uint8-sqrt", maximum: 1, error: 0.00392 };
    if (name === "tile") {
      const { layer } = args as TileRequest;
      // All weights of a layer are equal. Their value identifies the layer that is drawn.
      const data = new Uint8Array(COUNT * COUNT).fill(90 + layer);
      return { header: { ...uint8, shape: [1, COUNT, COUNT] }, data };
    }
    if (name === "maps") {
      const data = new Uint8Array(2 * COUNT * COUNT).fill(90);
      return { header: { ...uint8, shape: [2, COUNT, COUNT] }, data };
    }
    const { heads, rows, columns } = args as BlockRequest;
    const shape = [heads.length, rows[1] - rows[0], columns[1] - columns[0]];
    const values = shape.reduce((product, size) => product * size, 1);
    const header = { shape, encoding: "float32", maximum: 1, error: 0 };
    return { header, data: new Float32Array(values).fill(EXACT) };
  }

  of(name: string): object[] {
    return this.requests.filter(([requestName]) => requestName === name).map(([, args]) => args);
  }
}

const stack = stackOf({
  layers: [0, 5],
  heads_per_layer: [2, 2],
  query_tokens: tokensOf(["a", "b", "c", "d", "e", "f"]),
});

let kernel: Kernel;
let state: Signals<HeatMapState>;
let store: HeatMapStore;
let context: ViewContext<HeatMapState>;

async function settled(): Promise<void> {
  await vi.waitFor(() => expect(store.current.value).toBe(true));
}

beforeEach(() => {
  kernel = new Kernel();
  const values = { ...HEAT_MAP_DEFAULTS, stack: "self", heads: [1] };
  ({ state, context } = setUpView<HeatMapState>(values, new Source(kernel)));
  store = createHeatMapStore(context);
});

const drawn = (): number => store.heatMap.value?.grid.values[0] as number;
const code = (value: number): number => (value / 255) ** 2;

describe("a matrix with a kernel", () => {
  it("requests tiles, and a block only after pinning", async () => {
    await settled();
    expect(kernel.of("tile")).toHaveLength(1);
    expect(kernel.of("block")).toHaveLength(0);
    expect(drawn()).toBeCloseTo(code(90), 6);
  });

  it("keeps the picture until new data arrives", async () => {
    await settled();
    kernel.held = true;
    assign(state, { layer: 5 });
    expect(store.current.value).toBe(false);
    expect(drawn()).toBeCloseTo(code(90), 6);
    expect(store.heatMap.value?.layout.viewport.layer).toBe(0);
    await vi.waitFor(() => expect(kernel.waiting.length).toBeGreaterThan(0));
    for (const answer of kernel.waiting) answer();
    await settled();
    expect(drawn()).toBeCloseTo(code(95), 6);
    expect(store.heatMap.value?.layout.viewport.layer).toBe(5);
  });

  it("uses exact weights for a pin, and states this", async () => {
    await settled();
    assign(state, { token: 2, key: 3 });
    await settled();
    expect(store.heatMap.value?.row?.values[3]).toBe(EXACT);
    expect(store.heatMap.value?.column?.values[2]).toBe(EXACT);
    const input = store.captionInput.value;
    expect(input && coverage(input, { scale: "linear", end: 1, live: true })).toContain(
      "Pinned: query “c”, exact, key “d”, exact (Esc clears).",
    );
    // A pin does not request or draw the cells again.
    expect(kernel.of("tile")).toHaveLength(1);
  });

  it("shows the error of the weight under the pointer", async () => {
    await settled();
    const picture = store.heatMap.value as HeatMap;
    const at = { row: 1, column: 2 };
    expect(hintOf(picture, at)).toEqual({
      title: "“b” (1) → “c” (2)",
      rows: [{ color: "", text: "weight  0.1246 ± 0.004", meant: true }],
    });
    const exact = { ...picture, grid: { ...picture.grid, error: 0 } };
    expect(hintOf(exact, at).rows[0]?.text).toBe("weight  0.12457, exact");
    expect(hintOf(picture, { row: 1, column: null }).title).toBe("“b”, query 1");
  });

  it("averages several heads in one tile", async () => {
    await settled();
    assign(state, { heads: [] });
    await settled();
    expect(kernel.of("tile").slice(1)).toEqual([
      expect.objectContaining({ heads: [0, 1], level: 0, pooled: "mean" }),
    ]);
  });

  it("shows an error, and retries", async () => {
    await settled();
    kernel.failing = true;
    assign(state, { layer: 5 });
    await vi.waitFor(() => expect(context.record.error.value).toBe("The weights are gone."));
    expect(drawn()).toBeCloseTo(code(90), 6);
    kernel.failing = false;
    context.record.retry();
    await settled();
    expect(drawn()).toBeCloseTo(code(95), 6);
    expect(context.record.error.value).toBeNull();
  });
});
