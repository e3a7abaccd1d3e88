import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { FEATURES } from "../../../src/ui/frame/define-view";
import {
  createHistory,
  followReader,
  type History,
  historyKey,
} from "../../../src/ui/view/history";
import { type RecordState, viewTraits } from "../../../src/ui/view/record";
import {
  assign,
  type Declared,
  makeSignals,
  type Signals,
  valuesOf,
} from "../../../src/ui/view/state";
import { RECORD_DEFAULTS } from "../../defaults";
import { pressKey } from "../../dom";

const TRAITS = viewTraits({}, FEATURES) as Declared<RecordState>;

interface Choices {
  layer: number;
  heads: number[];
  token: number | null;
  theme: string;
}

let state: Signals<Choices>;
let history: History;
let end: AbortController;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["performance"] });
  end = new AbortController();
  state = makeSignals<Choices>({ layer: 0, heads: [], token: null, theme: "auto" });
  history = createHistory(state, TRAITS, end.signal);
});

afterEach(() => {
  end.abort();
  vi.useRealTimers();
});

/** Wait a second, and change the state like an action of the reader. */
function choose(change: Partial<Choices>): void {
  vi.advanceTimersByTime(1000);
  history.act();
  assign(state, change);
}

describe("a history", () => {
  it("has no step for changes during opening or after undo", () => {
    assign(state, { token: 9 });
    expect(history.canUndo.value).toBe(false);
    choose({ layer: 1 });
    choose({ layer: 2 });
    history.undo();
    // After undo, the view itself may change the state, for example to show a restored pin.
    assign(state, { token: 8 });
    expect(history.canRedo.value).toBe(true);
    history.redo();
    expect(valuesOf(state)).toMatchObject({ layer: 2, token: 9 });
    history.undo();
    expect(valuesOf(state)).toMatchObject({ layer: 1, token: 8 });
  });

  it("ends with the record of its steps", () => {
    choose({ layer: 1 });
    choose({ layer: 2 });
    history.undo();
    history.clear();
    expect([history.canUndo.value, history.canRedo.value]).toEqual([false, false]);
    choose({ layer: 3 });
    history.undo();
    expect(state.layer.value).toBe(1);
  });

  it("leaves values that are not choices as they were set last", () => {
    const record = makeSignals<RecordState>(RECORD_DEFAULTS);
    const steps = createHistory(record, TRAITS, end.signal);
    const scores = { mine: { self: [[1]] } };
    steps.act();
    assign(record, { scores, theme: "dark", runs_model: true });
    expect(steps.canUndo.value).toBe(false);
    assign(record, { layer: 1 });
    assign(record, { scores: { other: scores.mine } });
    steps.undo();
    expect(record.layer.value).toBe(0);
    expect(record.scores.value).toEqual({ other: scores.mine });
    vi.advanceTimersByTime(1000);
    steps.act();
    assign(record, { answer: "street" });
    steps.undo();
    expect(record.answer.value).toBeNull();
  });

  it("keeps the last hundred steps", () => {
    for (let layer = 1; layer <= 250; layer++) choose({ layer });
    for (let i = 0; i < 300; i++) history.undo();
    expect(state.layer.value).toBe(150);
  });
});

describe("the reader of a view", () => {
  let root: HTMLElement;
  let plot: HTMLElement;

  beforeEach(() => {
    root = document.createElement("div");
    root.innerHTML = '<div class="av-plot" tabindex="0"></div><input type="search">';
    document.body.append(root);
    plot = root.querySelector(".av-plot") as HTMLElement;
    followReader(root, history, end.signal, false);
  });

  afterEach(() => root.remove());

  it.each(["pointerdown", "click", "change", "wheel", "keydown"])("chooses by %s", (name) => {
    for (const layer of [1, 2]) {
      vi.advanceTimersByTime(1000);
      if (name === "keydown") pressKey(plot, "]");
      else plot.dispatchEvent(new Event(name, { bubbles: true }));
      assign(state, { layer });
    }
    history.undo();
    expect(state.layer.value).toBe(1);
    history.undo();
    expect(state.layer.value).toBe(0);
  });

  it("undoes the text of a field inside the field", () => {
    choose({ layer: 1 });
    const undo = { code: "KeyZ", ctrlKey: true };
    expect(pressKey(root.querySelector("input"), "z", undo).defaultPrevented).toBe(false);
    expect(state.layer.value).toBe(1);
    expect(pressKey(plot, "z", undo).defaultPrevented).toBe(true);
    expect(state.layer.value).toBe(0);
  });
});

it.each([
  [{ key: "z", ctrlKey: true }, "undo"],
  [{ key: "z", metaKey: true, shiftKey: true }, "redo"],
  [{ key: "z" }, null],
  [{ key: "z", ctrlKey: true, altKey: true }, null],
  // A key with a Latin letter has the meaning of this letter. Other keys have the meaning of their
  // position.
  [{ key: "я", code: "KeyZ", ctrlKey: true }, "undo"],
  [{ key: "w", code: "KeyZ", ctrlKey: true }, null],
] as const)("the meaning of %j is %j", (init, meaning) => {
  expect(historyKey(new KeyboardEvent("keydown", init))).toBe(meaning);
});
