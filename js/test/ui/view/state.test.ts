import { describe, expect, it } from "vitest";
import { RECORD_HASH } from "../../../src/ui/view/record";
import {
  assign,
  bindModel,
  makeSignals,
  readHash,
  readIndices,
  same,
  valuesOf,
  writeHash,
} from "../../../src/ui/view/state";
import { HEAD_DEFAULTS, type HeadState } from "../../../src/views/head/state";

/** Model of a widget with its traits and their listeners. */
class Model {
  saved = 0;
  readonly listeners = new Map<string, Set<() => void>>();
  readonly values: Record<string, unknown>;
  constructor(values: Record<string, unknown>) {
    this.values = values;
  }
  get(name: string): unknown {
    return this.values[name];
  }
  set(name: string, value: unknown): void {
    if (same(this.values[name], value)) return;
    this.values[name] = value;
    for (const listener of this.listeners.get(`change:${name}`) ?? []) listener();
  }
  /**
   * Set several values as one message of the kernel does: all values are set before a listener
   * runs.
   */
  receive(values: Record<string, unknown>): void {
    const changed = Object.keys(values).filter((name) => !same(this.values[name], values[name]));
    Object.assign(this.values, values);
    for (const name of changed)
      for (const listener of this.listeners.get(`change:${name}`) ?? []) listener();
  }
  save_changes(): void {
    this.saved++;
  }
  on(event: string, listener: (...args: never[]) => void): void {
    const all = this.listeners.get(event) ?? new Set();
    all.add(listener as () => void);
    this.listeners.set(event, all);
  }
  off(event?: string | null, listener?: ((...args: never[]) => void) | null): void {
    this.listeners.get(event ?? "")?.delete(listener as () => void);
  }
}

describe("traits", () => {
  it("are read at the start, and missing ones keep their defaults", () => {
    const end = new AbortController();
    const state = makeSignals({ layer: 0, heads: [] as number[], threshold: 0.5 });
    const model = new Model({ layer: 3, heads: [1, 7] });
    bindModel(model, state, end.signal);
    expect(valuesOf(state)).toEqual({ layer: 3, heads: [1, 7], threshold: 0.5 });
    expect(model.saved).toBe(0);
  });

  it("are synchronized in both directions, and several changes are saved once", () => {
    const end = new AbortController();
    const state = makeSignals({ layer: 0, heads: [] as number[] });
    const model = new Model({ layer: 0, heads: [] });
    bindModel(model, state, end.signal);
    model.set("layer", 5);
    expect(state.layer.value).toBe(5);
    expect(model.saved).toBe(0);
    assign(state, { layer: 6, heads: [2] });
    expect(model.values).toEqual({ layer: 6, heads: [2] });
    expect(model.saved).toBe(1);
  });

  it("that change in one message are all read before any is written", () => {
    const end = new AbortController();
    const state = makeSignals({ layer: 0, heads: [] as number[], token: 4 as number | null });
    const model = new Model({ layer: 0, heads: [], token: 4 });
    bindModel(model, state, end.signal);
    model.receive({ layer: 5, heads: [2], token: null });
    expect(valuesOf(state)).toEqual({ layer: 5, heads: [2], token: null });
    expect(model.values).toEqual({ layer: 5, heads: [2], token: null });
    expect(model.saved).toBe(0);
  });

  it("of a record that is not described yet wait, except for choices of the reader", () => {
    const end = new AbortController();
    const state = makeSignals({ layer: 0, heads: [] as number[], token: 4 as number | null });
    const model = new Model({ layer: 0, heads: [], token: 4 });
    let behind = true;
    const take = bindModel(model, state, end.signal, undefined, () => behind);
    model.receive({ layer: 5, token: 9 });
    expect(valuesOf(state)).toEqual({ layer: 0, heads: [], token: 4 });
    assign(state, { heads: [1], token: 2 });
    expect(model.values).toEqual({ layer: 5, heads: [1], token: 2 });
    behind = false;
    take();
    expect(valuesOf(state)).toEqual({ layer: 5, heads: [1], token: 2 });
    expect(model.values).toEqual(valuesOf(state));
  });

  it("do not change after the end", () => {
    const end = new AbortController();
    const state = makeSignals({ layer: 0 });
    const model = new Model({ layer: 0 });
    bindModel(model, state, end.signal);
    end.abort();
    model.set("layer", 9);
    expect(state.layer.value).toBe(0);
    state.layer.value = 4;
    expect(model.values.layer).toBe(9);
  });

  it("do not treat an equal list as a change", () => {
    const state = makeSignals({ heads: [1, 2] });
    const before = state.heads.value;
    assign(state, { heads: [1, 2] });
    expect(state.heads.value).toBe(before);
  });
});

describe("the URL fragment", () => {
  const values: HeadState = {
    ...HEAD_DEFAULTS,
    stack: "self",
    layer: 3,
    heads: [1, 7, 9],
    token: 10,
  };

  it.each([
    values,
    { ...values, heads: [], token: null, key: 4 },
    { ...values, stack: "a&b=c#d ü" },
  ])("survives writing and parsing", (state) => {
    const back = readHash<HeadState>(`#${writeHash(state, RECORD_HASH)}`, RECORD_HASH);
    const { stack, layer, heads } = state;
    expect(back).toMatchObject({ stack, layer, heads });
    expect(back.token ?? null).toBe(state.token);
    expect(back.key ?? null).toBe(state.key);
  });

  it("is ignored if it is invalid", () => {
    expect(readHash<HeadState>("#layer=-1&heads=1,x&token=1e9&key=&foo=2", RECORD_HASH)).toEqual(
      {},
    );
    expect(readHash<HeadState>("#<script>", RECORD_HASH)).toEqual({});
    expect(readIndices("3,3,1")).toEqual([3, 1]);
  });
});
