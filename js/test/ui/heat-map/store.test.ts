import { beforeEach, expect, it } from "vitest";
import type { ReadRequest } from "../../../src/client/protocol";
import { Source } from "../../../src/client/source";
import type { Reply } from "../../../src/client/transport";
import { coverage } from "../../../src/ui/heat-map/captions";
import type { HeatMapState } from "../../../src/ui/heat-map/state";
import { createHeatMapStore, type HeatMapStore } from "../../../src/ui/heat-map/store";
import type { ViewContext } from "../../../src/ui/view/define-view";
import { assign, type Signals } from "../../../src/ui/view/state";
import { described, stackOf, tokensOf } from "../../builders";
import { HEAT_MAP_DEFAULTS } from "../../defaults";
import { until, useFakeClock } from "../../dom";
import { FakeKernel } from "../../fakes";
import { setUpView } from "../../view-context";

const EXACT = Math.fround(0.12345);
const STACK = stackOf({
  layers: [0, 5],
  heads_per_layer: [2, 2],
  query_tokens: tokensOf(["a", "b", "c", "d", "e", "f"]),
});

/** Fake kernel for a text of six tokens. Tiles are rounded to bytes, and blocks are exact. */
class Kernel extends FakeKernel {
  override live = false;

  protected override reply(name: string, args: object): Reply {
    if (name === "describe") return { header: described(STACK), data: null };
    const { layer, heads, rows, columns, combine = "separate" } = args as ReadRequest;
    const shape = [
      combine === "separate" ? heads.length : 1,
      rows[1] - rows[0],
      columns[1] - columns[0],
    ];
    const size = shape.reduce((product, count) => product * count, 1);
    const header = { shape, maximum: 1, error: 0 };
    if (name === "block") {
      const data = new Float32Array(size).fill(EXACT);
      return { header: { ...header, encoding: "float32" }, data };
    }
    // All weights of a layer are equal, so that a drawn weight identifies its layer.
    const data = new Uint8Array(size).fill(codeOf(layer));
    return { header: { ...header, encoding: "uint8-sqrt", error: 0.00392 }, data };
  }
}

const codeOf = (layer: number): number => 90 + layer;
const weightOf = (layer: number): number => (codeOf(layer) / 255) ** 2;

let kernel: Kernel;
let state: Signals<HeatMapState>;
let store: HeatMapStore;
let context: ViewContext<HeatMapState>;

useFakeClock();

beforeEach(async () => {
  kernel = new Kernel();
  const values = { ...HEAT_MAP_DEFAULTS, stack: "self", heads: [1] };
  ({ state, context } = setUpView<HeatMapState>(values, new Source(kernel)));
  store = createHeatMapStore(context);
  await settled();
});

const settled = (): Promise<void> => until(() => expect(store.current.value).toBe(true));
const drawn = (): number => store.base.value?.grid.values[0] as number;

it("keeps the picture until new data arrives", async () => {
  kernel.held = (name) => name !== "describe";
  assign(state, { layer: 5 });
  expect(store.current.value).toBe(false);
  expect(drawn()).toBeCloseTo(weightOf(0), 6);
  expect(store.base.value?.layout.viewport.layer).toBe(0);
  await until(() => {
    kernel.release();
    expect(store.current.value).toBe(true);
  });
  expect(drawn()).toBeCloseTo(weightOf(5), 6);
  expect(store.base.value?.layout.viewport.layer).toBe(5);
});

it("uses exact weights for a pin, and states this", async () => {
  assign(state, { token: 2, key: 3 });
  await settled();
  expect(store.pinned.value?.lines.query?.values[3]).toBe(EXACT);
  expect(store.pinned.value?.lines.key?.values[2]).toBe(EXACT);
  expect(store.pinned.value && coverage(store.pinned.value, true)).toContain(
    "Pinned: query “c”, exact, key “d”, exact (Esc clears).",
  );
  // The tile was requested before the tokens were pinned, and is not requested again.
  expect(kernel.of("cells")).toHaveLength(1);
});
