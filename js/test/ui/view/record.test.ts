import { signal } from "@preact/signals";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import type { Description } from "../../../src/client/protocol";
import { Source } from "../../../src/client/source";
import type { Reply } from "../../../src/client/transport";
import { FEATURES } from "../../../src/ui/frame/define-view";
import { createRecordStore, type RecordState, selectionOf } from "../../../src/ui/view/record";
import { makeSignals } from "../../../src/ui/view/state";
import { described, stackOf, tokensOf } from "../../builders";
import { RECORD_DEFAULTS } from "../../defaults";
import { pass, until, useFakeClock } from "../../dom";
import { FakeKernel } from "../../fakes";

const STACK = stackOf({
  layers: [2, 4],
  heads_per_layer: [2, 3],
  query_tokens: tokensOf(["a", "b"]),
  patterns: ["induction"],
});

it("a selection falls back to values that the record has", () => {
  const state = { stack: "none", layer: 9, heads: [1, 7], token: 5, key: 1 };
  const selection = selectionOf(described(STACK), state);
  expect(selection.stack.name).toBe("self");
  expect(selection).toMatchObject({ layer: 2, chosen: [1], heads: [1], token: null, key: 1 });
});

/** Fake kernel. Its maps are for the requested heads, or for two heads if none are requested. */
class Kernel extends FakeKernel {
  override live = false;
  description: Description = described(STACK);
  readonly record = signal(0);
  maps: object = {};

  protected override reply(name: string, args: object): Reply {
    if (name === "describe") return { header: this.description, data: null };
    const numHeads = (args as { heads?: number[] }).heads?.length ?? 2;
    const shape = [numHeads, 1, 1];
    const header = { shape, encoding: "float32", maximum: 1, error: 0, ...this.maps };
    return { header, data: new Float32Array(numHeads) };
  }
}

function open(kernel: Kernel, changed: Partial<RecordState> = {}, takeUp?: () => void) {
  const end = new AbortController();
  onTestFinished(() => end.abort());
  const state = makeSignals({ ...RECORD_DEFAULTS, ...changed });
  const record = createRecordStore(
    new Source(kernel),
    state,
    end.signal,
    signal(""),
    takeUp,
    FEATURES,
  );
  return { record, state };
}

describe("the record of a view", () => {
  useFakeClock();

  it("switches to a new record and its traits in one step", async () => {
    const kernel = new Kernel();
    const takeUp = vi.fn(() => {
      if (kernel.record.value > 0) state.layer.value = 7;
    });
    const { record, state } = open(kernel, { stack: "self", layer: 2 }, takeUp);
    const seen: unknown[] = [];
    record.live(() => {
      const { stack, layer } = record.selection.value ?? {};
      seen.push([stack?.name, layer]);
      return undefined;
    });
    record.wantMaps();
    await until(() => expect(record.maps.value).not.toBeNull());
    kernel.description = described({ ...STACK, layers: [7], heads_per_layer: [2] });
    kernel.record.value = 1;
    await until(() => expect(record.selection.value?.layer).toBe(7));
    expect(takeUp.mock.calls).toEqual([[0], [1]]);
    // The selection never had the stack of one record and the layer of the other.
    expect(seen).toEqual([
      [undefined, undefined],
      ["self", 2],
      ["self@1", 7],
    ]);
    await until(() => {
      expect(kernel.of("cells").at(-1)).toMatchObject({ stack: "self@1", layer: 7 });
    });
  });

  it("requests the maps of a long text for a few heads at a time", async () => {
    const kernel = new Kernel();
    const tokens = tokensOf(new Array<string>(300_000).fill("a"), { sequence: [] });
    kernel.description = described({
      ...STACK,
      heads_per_layer: [8, 8],
      sampled: 1,
      query_tokens: tokens,
    });
    kernel.maps = { sampled: [1, 2] };
    const { record } = open(kernel);
    record.wantMaps();
    await until(() => expect(record.maps.value?.get(0)?.sampled).toEqual([1, 2]));
    expect(kernel.of("cells").map(({ heads }) => heads)).toEqual(
      Array.from({ length: 8 }, (_, head) => [head]),
    );
    expect([...(record.maps.value?.keys() ?? [])]).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
  });

  it("keeps an error until its own question has an answer", async () => {
    const kernel = new Kernel();
    kernel.failing = { cells: "no maps" };
    const { record } = open(kernel);
    record.wantMaps();
    await until(() => expect(record.error.value).toBe("no maps"));
    record.answer(signal({}), async () => 1);
    await pass(1000);
    expect(record.error.value).toBe("no maps");
    kernel.failing = {};
    record.retry();
    await until(() => expect(record.maps.value).not.toBeNull());
    expect(record.error.value).toBeNull();
  });

  it("drops the error of a question that is no longer asked, and no other error", async () => {
    const { record } = open(new Kernel());
    const [pinned, other] = [signal<number | null>(3), signal<number | null>(4)];
    for (const question of [pinned, other]) {
      record.answer(question, async (token) => {
        throw new Error(`no row ${token}`);
      });
    }
    await until(() => expect(record.error.value).toBe("no row 3"));
    pinned.value = null;
    expect(record.error.value).toBe("no row 4");
    other.value = null;
    expect(record.error.value).toBeNull();
    record.fail(new Error("nothing to export"));
    pinned.value = 5;
    pinned.value = null;
    expect(record.error.value).toBe("nothing to export");
  });
});
