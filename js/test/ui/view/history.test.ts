import { signal } from "@preact/signals";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import {
  createHistory,
  followGestures,
  type History,
  historyKey,
} from "../../../src/ui/view/history";
import { RECORD_DEFAULTS, type RecordState } from "../../../src/ui/view/record";
import { assign, makeSignals, type Signals, valuesOf } from "../../../src/ui/view/state";

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
  end = new AbortController();
  state = makeSignals<Choices>({ layer: 0, heads: [], token: null, theme: "auto" });
  history = createHistory(state, end.signal);
});

afterEach(() => {
  end.abort();
  vi.useRealTimers();
});

function choose(change: Partial<Choices>): void {
  history.begin("gesture");
  assign(state, change);
}

describe("a history", () => {
  it("takes back choice after choice, and brings them back", () => {
    choose({ layer: 3 });
    choose({ heads: [1] });
    choose({ heads: [1, 2], token: 4 });
    history.undo();
    expect(valuesOf(state)).toMatchObject({ layer: 3, heads: [1], token: null });
    history.undo();
    history.undo();
    expect(valuesOf(state)).toMatchObject({ layer: 0, heads: [] });
    expect(history.canUndo.value).toBe(false);
    history.undo();
    expect(state.layer.value).toBe(0);
    for (let i = 0; i < 5; i++) history.redo();
    expect(valuesOf(state)).toMatchObject({ layer: 3, heads: [1, 2], token: 4 });
    expect(history.canRedo.value).toBe(false);
  });

  it("forgets what was taken back when another choice is made", () => {
    choose({ layer: 1 });
    choose({ layer: 2 });
    history.undo();
    choose({ layer: 5 });
    expect(history.canRedo.value).toBe(false);
    history.undo();
    expect(state.layer.value).toBe(1);
  });

  it("has one step for a gesture, however many values it goes through", () => {
    history.begin("gesture");
    for (let layer = 1; layer < 9; layer++) assign(state, { layer });
    history.undo();
    expect(state.layer.value).toBe(0);
    history.redo();
    expect(state.layer.value).toBe(8);
  });

  it("has no step for a gesture that leads back to where it began", () => {
    history.begin("gesture");
    assign(state, { layer: 4 });
    assign(state, { layer: 0 });
    expect(history.canUndo.value).toBe(false);
  });

  it("takes a double click and its two clicks back together", () => {
    choose({ layer: 2 });
    choose({ heads: [3] });
    choose({ heads: [] });
    history.begin("double-click");
    assign(state, { heads: [7] });
    history.undo();
    expect(valuesOf(state)).toMatchObject({ layer: 2, heads: [] });
    history.undo();
    expect(state.layer.value).toBe(0);
  });

  it("has no step for what opening brings, and none for what follows from undo", () => {
    assign(state, { token: 9 });
    expect(history.canUndo.value).toBe(false);
    choose({ layer: 1 });
    choose({ layer: 2 });
    history.undo();
    // As where a view brings the pin of a step into sight.
    assign(state, { token: 8 });
    expect(history.canRedo.value).toBe(true);
    history.redo();
    expect(valuesOf(state)).toMatchObject({ layer: 2, token: 9 });
    history.undo();
    expect(valuesOf(state)).toMatchObject({ layer: 1, token: 8 });
  });

  it("has a step for a run of changes from outside, as from Python", () => {
    vi.useFakeTimers({ toFake: ["performance"] });
    choose({ layer: 1 });
    for (const layer of [2, 3, 4]) {
      history.outside();
      assign(state, { layer });
      vi.advanceTimersByTime(100);
    }
    vi.advanceTimersByTime(1000);
    history.outside();
    assign(state, { heads: [5] });
    choose({ token: 1 });
    history.undo();
    expect(valuesOf(state)).toMatchObject({ layer: 4, heads: [5], token: null });
    history.undo();
    expect(valuesOf(state)).toMatchObject({ layer: 4, heads: [] });
    history.undo();
    expect(state.layer.value).toBe(1);
  });

  it("leaves alone what is no choice", () => {
    choose({ theme: "dark" });
    expect(history.canUndo.value).toBe(false);
    choose({ layer: 1 });
    assign(state, { theme: "light" });
    history.undo();
    expect(state.theme.value).toBe("light");
  });

  it.each([
    "scores",
    "score_notes",
    "score_errors",
    "roles",
    "token_scores",
    "token_score_notes",
    "outcomes",
    "known_edges",
    "changed_run",
  ] as const)("leaves %s as Python set it last", (name) => {
    const record = makeSignals<RecordState>(RECORD_DEFAULTS);
    const steps = createHistory(record, end.signal);
    const given = { self: { names: [["induction"]], labels: [[null]], ranks: [[1]] } };
    steps.outside();
    assign(record, { [name]: given });
    expect(steps.canUndo.value).toBe(false);
    steps.begin("gesture");
    assign(record, { layer: 1 });
    steps.outside();
    assign(record, { [name]: { cross: given.self } });
    steps.undo();
    expect(record.layer.value).toBe(0);
    expect(record[name].value).toEqual({ cross: given.self });
  });

  it("reads no value that stayed", () => {
    const large = { toJSON: vi.fn(() => "many points") };
    const steps = createHistory({ ...state, selected: signal(large) }, end.signal);
    for (let layer = 1; layer < 4; layer++) {
      steps.begin("gesture");
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
    expect(history.now.value.number).toBe(150);
  });

  it("keeps what is no trait from when it is told of it", () => {
    choose({ layer: 1 });
    const camera = makeSignals({ camera: { zoom: 1 } }).camera;
    history.keep("camera", camera);
    expect(history.now.value.number).toBe(1);
    history.begin("gesture");
    camera.value = { zoom: 3 };
    history.undo();
    expect(camera.value).toEqual({ zoom: 1 });
    expect(state.layer.value).toBe(1);
    history.undo();
    expect(state.layer.value).toBe(0);
  });
});

describe("gestures in a view", () => {
  let root: HTMLElement;
  let plot: HTMLElement;
  let field: HTMLInputElement;

  beforeEach(() => {
    root = document.createElement("div");
    root.innerHTML =
      '<div class="av-plot" tabindex="0"></div><input type="search"><select></select>';
    document.body.append(root);
    plot = root.querySelector(".av-plot") as HTMLElement;
    field = root.querySelector("input") as HTMLInputElement;
    followGestures(root, history, end.signal, false);
  });

  afterEach(() => root.remove());

  const press = (target: EventTarget, init: KeyboardEventInit): KeyboardEvent => {
    const event = new KeyboardEvent("keydown", {
      bubbles: true,
      cancelable: true,
      composed: true,
      ...init,
    });
    target.dispatchEvent(event);
    return event;
  };
  const wheel = (at: number): void => {
    const event = new WheelEvent("wheel", { bubbles: true, deltaY: 10 });
    Object.defineProperty(event, "timeStamp", { value: at });
    plot.dispatchEvent(event);
    assign(state, { layer: state.layer.peek() + 1 });
  };

  it("end where the wheel rests", () => {
    for (const at of [1000, 1100, 1300, 1600, 3000, 3100]) wheel(at);
    history.undo();
    expect(state.layer.value).toBe(4);
    history.undo();
    expect(state.layer.value).toBe(0);
  });

  it("last as long as a key is held", () => {
    for (const repeat of [false, true, true]) {
      press(plot, { key: "]", repeat });
      assign(state, { layer: state.layer.peek() + 1 });
    }
    press(plot, { key: "]" });
    assign(state, { layer: 9 });
    history.undo();
    expect(state.layer.value).toBe(3);
    history.undo();
    expect(state.layer.value).toBe(0);
  });

  it("undo by Ctrl-Z and Cmd-Z, and redo, whatever letters the keyboard writes", () => {
    const outside = vi.fn();
    document.body.addEventListener("keydown", outside, { signal: end.signal });
    choose({ layer: 1 });
    choose({ layer: 2 });
    expect(press(plot, { key: "z", code: "KeyZ", ctrlKey: true }).defaultPrevented).toBe(true);
    expect(state.layer.value).toBe(1);
    press(plot, { key: "я", code: "KeyZ", metaKey: true });
    expect(state.layer.value).toBe(0);
    press(plot, { key: "Z", code: "KeyZ", ctrlKey: true, shiftKey: true });
    expect(state.layer.value).toBe(1);
    press(plot, { key: "y", code: "KeyY", ctrlKey: true });
    expect(state.layer.value).toBe(2);
    // Where there is nothing left, the host's own undo does not run either.
    press(plot, { key: "y", code: "KeyY", ctrlKey: true });
    expect(outside).not.toHaveBeenCalled();
  });

  it("leave a text field its own undo", () => {
    choose({ layer: 1 });
    const event = press(field, { key: "z", code: "KeyZ", ctrlKey: true });
    expect(event.defaultPrevented).toBe(false);
    expect(state.layer.value).toBe(1);
  });

  it("are one for what is typed into a field", () => {
    for (const key of ["a", "b", "c"]) {
      press(field, { key });
      assign(state, { layer: state.layer.peek() + 1 });
    }
    history.undo();
    expect(state.layer.value).toBe(0);
  });

  it("begin with a choice from a list and with a click of a screen reader", () => {
    const select = root.querySelector("select") as HTMLSelectElement;
    select.dispatchEvent(new Event("change", { bubbles: true }));
    assign(state, { layer: 1 });
    select.dispatchEvent(new Event("change", { bubbles: true }));
    assign(state, { layer: 2 });
    plot.click();
    assign(state, { layer: 3 });
    history.undo();
    expect(state.layer.value).toBe(2);
    history.undo();
    expect(state.layer.value).toBe(1);
  });
});

it.each([
  [{ key: "z", ctrlKey: true }, "undo"],
  [{ key: "z", metaKey: true, shiftKey: true }, "redo"],
  [{ key: "y", metaKey: true }, null],
  [{ key: "z" }, null],
  [{ key: "z", ctrlKey: true, altKey: true }, null],
  [{ key: "w", code: "KeyZ", ctrlKey: true }, null],
] as const)("knows %j", (init, meaning) => {
  expect(historyKey(new KeyboardEvent("keydown", init))).toBe(meaning);
});
