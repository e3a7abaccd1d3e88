import { signal } from "@preact/signals";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import {
  createHistory,
  followReader,
  type History,
  historyKey,
} from "../../../src/ui/view/history";
import { RECORD_DEFAULTS, type RecordState } from "../../../src/ui/view/record";
import { assign, makeSignals, type Signals, valuesOf } from "../../../src/ui/view/state";
import { pressKey } from "../../dom";

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
  history = createHistory(state, end.signal);
});

afterEach(() => {
  end.abort();
  vi.useRealTimers();
});

/** Wait a second, then change the state as a choice of the reader does. */
function choose(change: Partial<Choices>): void {
  vi.advanceTimersByTime(1000);
  history.act();
  assign(state, change);
}

describe("a history", () => {
  it("has one step for actions in quick succession, such as those of a wheel", () => {
    for (const pause of [0, 100, 250, 250, 400, 100]) {
      vi.advanceTimersByTime(pause);
      history.act();
      assign(state, { layer: state.layer.peek() + 1 });
    }
    history.undo();
    expect(state.layer.value).toBe(4);
    history.undo();
    expect(state.layer.value).toBe(0);
  });

  it("has no step for changes during opening or after undo", () => {
    assign(state, { token: 9 });
    expect(history.canUndo.value).toBe(false);
    choose({ layer: 1 });
    choose({ layer: 2 });
    history.undo();
    // After undo, a view may change the state to make a restored pin visible. This is not a choice.
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

  it("ignores traits that are not choices", () => {
    choose({ theme: "dark" });
    expect(history.canUndo.value).toBe(false);
    choose({ layer: 1 });
    assign(state, { theme: "light" });
    history.undo();
    expect(state.theme.value).toBe("light");
  });

  it.each([
    ...(["scores", "score_notes", "score_errors", "roles", "token_scores"] as const),
    ...(["token_score_notes", "outcomes", "known_edges", "changed_run"] as const),
  ])("leaves %s as Python set it last", (name) => {
    const record = makeSignals<RecordState>(RECORD_DEFAULTS);
    const steps = createHistory(record, end.signal);
    const roles = { self: { names: [["induction"]], labels: [[null]], ranks: [[1]] } };
    steps.act();
    assign(record, { [name]: roles });
    expect(steps.canUndo.value).toBe(false);
    assign(record, { layer: 1 });
    assign(record, { [name]: { cross: roles.self } });
    steps.undo();
    expect(record.layer.value).toBe(0);
    expect(record[name].value).toEqual({ cross: roles.self });
  });

  it("does not read unchanged values", () => {
    const large = { toJSON: vi.fn(() => "many points") };
    const steps = createHistory({ ...state, selected: signal(large) }, end.signal);
    for (let layer = 1; layer < 4; layer++) {
      vi.advanceTimersByTime(1000);
      steps.act();
      assign(state, { layer });
    }
    steps.undo();
    expect(state.layer.value).toBe(2);
    expect(large.toJSON).not.toHaveBeenCalled();
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

  it("makes one choice while a key is held down", () => {
    for (const repeat of [false, true, true]) {
      pressKey(plot, "]", { repeat });
      assign(state, { layer: state.layer.peek() + 1 });
      vi.advanceTimersByTime(500);
    }
    pressKey(plot, "]");
    assign(state, { layer: 9 });
    history.undo();
    expect(state.layer.value).toBe(3);
    history.undo();
    expect(state.layer.value).toBe(0);
  });

  it("undoes choices with Ctrl-Z and Cmd-Z on any keyboard layout", () => {
    const outside = vi.fn();
    document.body.addEventListener("keydown", outside, { signal: end.signal });
    choose({ layer: 1 });
    choose({ layer: 2 });
    const redo = { code: "KeyZ", ctrlKey: true, shiftKey: true };
    const undo = pressKey(plot, "z", { code: "KeyZ", ctrlKey: true });
    expect([undo.defaultPrevented, state.layer.value]).toEqual([true, 1]);
    pressKey(plot, "я", { code: "KeyZ", metaKey: true });
    expect(state.layer.value).toBe(0);
    pressKey(plot, "Z", redo);
    expect(state.layer.value).toBe(1);
    pressKey(plot, "Z", redo);
    expect(state.layer.value).toBe(2);
    // The view also stops the key if it has no step to redo, so the redo of the host does not run.
    pressKey(plot, "Z", redo);
    expect(outside).not.toHaveBeenCalled();
  });

  it("uses the undo of a text field inside the field", () => {
    choose({ layer: 1 });
    const field = root.querySelector("input");
    const event = pressKey(field, "z", { code: "KeyZ", ctrlKey: true });
    expect(event.defaultPrevented).toBe(false);
    expect(state.layer.value).toBe(1);
  });
});

it.each([
  [{ key: "z", ctrlKey: true }, "undo"],
  [{ key: "z", metaKey: true, shiftKey: true }, "redo"],
  [{ key: "z" }, null],
  [{ key: "z", ctrlKey: true, altKey: true }, null],
  [{ key: "w", code: "KeyZ", ctrlKey: true }, null],
] as const)("the meaning of %j is %j", (init, meaning) => {
  expect(historyKey(new KeyboardEvent("keydown", init))).toBe(meaning);
});
