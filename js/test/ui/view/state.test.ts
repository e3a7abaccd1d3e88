import { describe, expect, it } from "vitest";
import { HEAD_VIEW_TRAITS } from "../../../src/client/traits";
import { viewTraits } from "../../../src/ui/view/record";
import {
  assign,
  bindModel,
  makeSignals,
  readHash,
  valuesOf,
  writeHash,
} from "../../../src/ui/view/state";
import type { HeadState } from "../../../src/views/head/state";
import { HEAD_DEFAULTS } from "../../defaults";
import { WidgetModel } from "../../fakes";

const TRAITS = viewTraits(HEAD_VIEW_TRAITS);

/**
 * Connect the traits of a fake widget with a state, by `bindModel`. While `behind.value` is true,
 * changed traits do not change the state until `take` is called.
 */
function bind(traits: Record<string, unknown> = { layer: 0, heads: [], token: 4 }) {
  const end = new AbortController();
  const model = new WidgetModel(traits);
  const state = makeSignals({ layer: 0, heads: [] as number[], token: 4 as number | null });
  const behind = { value: false };
  const take = bindModel(model, state, end.signal, () => behind.value);
  return { end, model, state, behind, take };
}

describe("traits", () => {
  it("are synchronized in both directions, and several changes are saved once", () => {
    const { model, state } = bind();
    model.set("layer", 5);
    expect(state.layer.value).toBe(5);
    expect(model.numSaves).toBe(0);
    assign(state, { layer: 6, heads: [2] });
    expect(model.values).toEqual({ layer: 6, heads: [2], token: 4 });
    expect(model.numSaves).toBe(1);
  });

  it("that change in one message are all read before any is written", () => {
    const { model, state } = bind();
    const changed = { layer: 5, heads: [2], token: null };
    model.receive(changed);
    expect(valuesOf(state)).toEqual(changed);
    expect(model.values).toEqual(changed);
    expect(model.numSaves).toBe(0);
  });

  it("of a record that is not described yet wait, and replace choices in the meantime", () => {
    const { model, state, behind, take } = bind();
    behind.value = true;
    model.receive({ layer: 5, token: 9 });
    assign(state, { heads: [1], token: 2 });
    expect(valuesOf(state)).toEqual({ layer: 0, heads: [1], token: 2 });
    expect(model.values).toEqual({ layer: 5, heads: [], token: 9 });
    behind.value = false;
    take();
    expect(valuesOf(state)).toEqual({ layer: 5, heads: [], token: 9 });
    expect(model.values).toEqual(valuesOf(state));
  });

  it("do not change after the end", () => {
    const { end, model, state } = bind();
    end.abort();
    model.set("layer", 9);
    expect(state.layer.value).toBe(0);
    state.layer.value = 4;
    expect(model.values.layer).toBe(9);
  });
});

describe("the URL fragment", () => {
  it.each<Partial<HeadState>>([
    { token: 10 },
    { heads: [], key: 4 },
    { stack: "a&b=c#d ü" },
    { top_k: 3, threshold: 0.025, combine: "max", renormalize: true },
    { leave_out: ["first", 4, "special"], query_window: [64, 128] },
  ])("keeps %j", (changed) => {
    const state = { ...HEAD_DEFAULTS, stack: "self", layer: 3, heads: [1, 7, 9], ...changed };
    const fragment = `#${writeHash<HeadState>(state, TRAITS)}`;
    expect({ ...HEAD_DEFAULTS, ...readHash<HeadState>(fragment, TRAITS) }).toEqual(state);
  });

  it("has what the reader changed, also back to a default", () => {
    const opened = { ...HEAD_DEFAULTS, stack: "self", heads: [2], top_k: 3, token: 5 };
    expect(writeHash<HeadState>(opened, TRAITS, opened)).toBe("stack=self&layer=0&heads=2");
    const changed = { ...opened, top_k: null, token: null };
    const fragment = writeHash<HeadState>(changed, TRAITS, opened);
    expect({ ...opened, ...readHash<HeadState>(fragment, TRAITS) }).toEqual(changed);
  });

  it("is ignored if it is invalid", () => {
    const fragment =
      "#layer=-1&heads=1,x&token=1e9&combine=sum&top_k=0&threshold=-1&renormalize=1&foo=2" +
      "&query_window=3&leave_out=last&threshold=";
    expect(readHash<HeadState>(fragment, TRAITS)).toEqual({});
    expect(readHash<HeadState>("#<script>", TRAITS)).toEqual({});
  });
});
