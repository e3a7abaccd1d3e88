import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { bindAddress } from "../../../src/ui/view/address";
import { createHistory, type History } from "../../../src/ui/view/history";
import { RECORD_HASH } from "../../../src/ui/view/record";
import { assign, makeSignals, type Signals } from "../../../src/ui/view/state";
import { HEAD_DEFAULTS, type HeadState } from "../../../src/views/head/state";

let state: Signals<HeadState>;
let view: History;
let end: AbortController;

beforeEach(() => {
  history.pushState(null, "", "#");
});

afterEach(() => {
  end.abort();
  vi.restoreAllMocks();
});

function open(hash: string): void {
  if (hash !== location.hash) history.replaceState(null, "", hash);
  end = new AbortController();
  state = makeSignals(HEAD_DEFAULTS);
  view = createHistory(state as never, end.signal);
  bindAddress(state, RECORD_HASH, view, end.signal);
}

function choose(change: Partial<HeadState>): void {
  view.begin("gesture");
  assign(state, change);
}

/** A step of the browser's own, and what it brings. */
async function travel(by: number): Promise<void> {
  const arrived = new Promise((resolve) =>
    window.addEventListener("popstate", resolve, { once: true }),
  );
  history.go(by);
  await arrived;
  await new Promise((resolve) => setTimeout(resolve));
}

describe("a page's address", () => {
  it("is read at opening, kept until something changes, and then written", () => {
    open("#layer=2&heads=5");
    expect(state.layer.value).toBe(2);
    expect(state.heads.value).toEqual([5]);
    expect(location.hash).toBe("#layer=2&heads=5");
    assign(state, { stack: "self", layer: 4 });
    expect(location.hash).toBe("#stack=self&layer=4&heads=5");
  });

  it("may be refused by the host, as in an iframe's srcdoc", () => {
    for (const way of ["replaceState", "pushState"] as const) {
      vi.spyOn(history, way).mockImplementation(() => {
        throw new DOMException("no", "SecurityError");
      });
    }
    open(location.hash);
    expect(() => assign(state, { layer: 1 })).not.toThrow();
    expect(() => choose({ layer: 2 })).not.toThrow();
    view.undo();
    expect(state.layer.value).toBe(1);
  });

  it("has an entry for each choice, so that Back takes it back", async () => {
    open("#layer=1");
    const before = history.length;
    choose({ layer: 2 });
    // What no address shows is a step as well.
    choose({ query_window: [3, 9] });
    choose({ heads: [4] });
    expect(history.length).toBe(before + 3);
    await travel(-1);
    expect(state.heads.value).toEqual([]);
    expect(state.query_window.value).toEqual([3, 9]);
    await travel(-1);
    expect(state.query_window.value).toBe(null);
    expect(state.layer.value).toBe(2);
    await travel(-1);
    expect(state.layer.value).toBe(1);
    expect(view.canUndo.value).toBe(false);
    await travel(3);
    expect(state.heads.value).toEqual([4]);
    expect(view.canRedo.value).toBe(false);
  });

  it("goes along with undo and redo", async () => {
    open("#layer=1");
    choose({ layer: 2 });
    choose({ layer: 3 });
    choose({ layer: 4 });
    view.undo();
    view.undo();
    expect(state.layer.value).toBe(2);
    await vi.waitFor(() => expect(location.hash).toMatch(/layer=2/));
    expect(state.layer.value).toBe(2);
    view.redo();
    await vi.waitFor(() => expect(location.hash).toMatch(/layer=3/));
    await travel(-1);
    expect(state.layer.value).toBe(2);
  });

  it("has no entry for a double click's first click", async () => {
    open("#layer=1");
    choose({ layer: 2 });
    choose({ heads: [3] });
    choose({ heads: [] });
    view.begin("double-click");
    assign(state, { heads: [7] });
    await vi.waitFor(() => expect(location.hash).toMatch(/heads=7/));
    await travel(-1);
    expect(state.heads.value).toEqual([]);
    expect(state.layer.value).toBe(2);
  });

  it("brings a page that is loaded again to where it was", async () => {
    open("#layer=1");
    choose({ layer: 2 });
    choose({ layer: 3, heads: [5] });
    end.abort();
    open(location.hash);
    expect(state.heads.value).toEqual([5]);
    await travel(-1);
    expect(state.layer.value).toBe(2);
    expect(state.heads.value).toEqual([]);
    expect(view.canRedo.value).toBe(true);
    view.redo();
    expect(state.layer.value).toBe(3);
  });

  it("that a reader types is a step as well", async () => {
    open("#layer=1");
    choose({ layer: 2 });
    location.hash = "#layer=5";
    await vi.waitFor(() => expect(state.layer.value).toBe(5));
    await travel(-1);
    expect(state.layer.value).toBe(2);
  });

  it("makes no entries in a frame, where they would be the host's", () => {
    const parent = vi.spyOn(window, "parent", "get").mockReturnValue({} as Window);
    open("#layer=1");
    const before = history.length;
    choose({ layer: 2 });
    choose({ layer: 3 });
    expect(history.length).toBe(before);
    expect(location.hash).toMatch(/layer=3/);
    view.undo();
    expect(state.layer.value).toBe(2);
    parent.mockRestore();
  });
});
