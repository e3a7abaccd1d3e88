import { afterEach, describe, expect, it, vi } from "vitest";
import { assign } from "../../../src/ui/view/state";
import type { EmbeddingState } from "../../../src/views/embedding/state";
import { createEmbeddingStore, type EmbeddingStore } from "../../../src/views/embedding/store";
import { until } from "../../builders";
import { ANSWER, COUNT, Kernel, type Room, roomWith } from "./kernel";

interface Made extends Room {
  store: EmbeddingStore;
}

const open: AbortController[] = [];

function make(changed: Partial<EmbeddingState> = {}, kernel = new Kernel()): Made {
  const room = roomWith(changed, kernel);
  open.push(room.controller);
  return { ...room, store: createEmbeddingStore(room.context) };
}

const current = ({ store }: Made): Promise<unknown> =>
  until(() => expect(store.current.value).toBe(true));
const later = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 20));

afterEach(() => {
  for (const controller of open.splice(0)) controller.abort();
  vi.useRealTimers();
});

describe("all heads", () => {
  it("appear together when all are loaded", async () => {
    const kernel = new Kernel();
    kernel.held = (name) => name === "overview";
    const setup = make({}, kernel);
    await until(() => expect(kernel.waiting.length).toBeGreaterThan(0));
    expect(setup.store.overview.value).toBeNull();
    expect(setup.store.overviewProgress.value).toEqual([0, 7]);
    while (setup.store.overview.value === null) {
      kernel.answer();
      await later();
    }
    const heads = setup.store.overview.value.heads;
    expect(heads.map(({ layer, head }) => [layer, head])).toEqual([
      [0, 0],
      [0, 1],
      [5, 0],
      [5, 1],
      [5, 2],
      [6, 0],
      [6, 1],
    ]);
    expect(heads.map(({ coordinates }) => [coordinates.length, coordinates[3]])).toEqual(
      [0, 0, 5, 5, 5, 6, 6].map((layer) => [2 * COUNT, layer]),
    );
    expect(heads[6]?.problem).toBe("all points are the same");
    expect(setup.store.overviewProgress.value).toBeNull();
  });

  it("stay while another placing loads, and are requested once", async () => {
    const setup = make();
    await current(setup);
    const before = setup.store.overview.value;
    setup.kernel.held = (name) => name === "overview";
    assign(setup.state, { lift: true });
    expect(setup.store.current.value).toBe(false);
    expect(setup.store.overview.value).toBe(before);
    await until(() => expect(setup.kernel.waiting).toHaveLength(1));
    setup.kernel.answer();
    await current(setup);
    expect(setup.store.overview.value?.way.lift).toBe(true);
    setup.kernel.held = () => false;
    const asked = setup.kernel.of("overview").length;
    assign(setup.state, { lift: false });
    await current(setup);
    expect(setup.kernel.of("overview")).toHaveLength(asked);
    assign(setup.state, { search: "x", color: "position", layer: 6, heads: [1] });
    await later();
    expect(setup.kernel.of("overview")).toHaveLength(asked);
  });

  it("are never those of another stack", async () => {
    const setup = make();
    await current(setup);
    setup.kernel.held = (name) => name === "corpus" || name === "overview";
    assign(setup.state, { stack: "cross" });
    expect(setup.store.corpus.value).toBeNull();
    expect(setup.store.overview.value).toBeNull();
    expect(setup.store.colors.value).toBeNull();
  });

  it("are not requested while one head is enlarged", async () => {
    const setup = make({ enlarged: true });
    await current(setup);
    await later();
    expect(setup.kernel.of("overview")).toHaveLength(0);
    expect(setup.store.projection.value?.request).toMatchObject({
      layer: 0,
      head: 0,
      method: "pca",
    });
    assign(setup.state, { enlarged: false });
    expect(setup.store.current.value).toBe(false);
    await current(setup);
    expect(setup.kernel.of("overview")).toHaveLength(1);
  });

  it("are dropped if they arrive too late", async () => {
    const setup = make({}, new Kernel());
    setup.kernel.held = (name) => name === "overview";
    await until(() => expect(setup.kernel.waiting).toHaveLength(1));
    assign(setup.state, { scaling: "none" });
    await until(() => expect(setup.kernel.aborted).toEqual(["overview"]));
    expect(setup.kernel.waiting).toHaveLength(1);
    setup.kernel.answer();
    await current(setup);
    expect(setup.store.overview.value?.way.scaling).toBe("none");
    expect(setup.context.record.error.value).toBeNull();
  });

  it("report an error and load again on retry", async () => {
    const kernel = new Kernel();
    kernel.failing = new Map([["overview", "The vectors are gone."]]);
    const setup = make({}, kernel);
    await until(() => expect(setup.context.record.error.value).toBe("The vectors are gone."));
    expect(setup.store.overview.value).toBeNull();
    kernel.failing = new Map();
    setup.context.record.retry();
    await current(setup);
    expect(setup.context.record.error.value).toBeNull();
    expect(kernel.retried).toBe(1);
  });

  it("wait for a kernel that never replies, and end with the view", async () => {
    const setup = make();
    setup.kernel.held = () => true;
    await later();
    expect(setup.store.corpus.value).toBeNull();
    expect(setup.store.current.value).toBe(false);
    // Actions of the reader do not fail while the corpus is loading.
    setup.store.choose(3);
    setup.store.neighbour(1, 1);
    setup.store.cancel();
    setup.controller.abort();
    await later();
    expect(setup.context.record.error.value).toBeNull();
  });
});

describe("trust figures", () => {
  it("are requested layer by layer after all heads, the selected layer first", async () => {
    const setup = make({ layer: 6 });
    setup.kernel.held = (name) => name === "trust";
    await current(setup);
    await until(() => expect(setup.kernel.waiting).toHaveLength(1));
    expect(setup.store.trust.value.size).toBe(0);
    setup.kernel.answer();
    await until(() => expect([...setup.store.trust.value.keys()]).toEqual(["6:0", "6:1"]));
    expect(setup.store.trust.value.get("6:1")?.plot).toBe(-0.6);
    setup.kernel.held = () => false;
    setup.kernel.answer();
    await until(() => expect(setup.store.trust.value.size).toBe(7));
    const asked = setup.kernel.of("trust");
    expect(asked.map((args) => [args.layer, args.heads])).toEqual([
      [6, [0, 1]],
      [0, [0, 1]],
      [5, [0, 1, 2]],
    ]);
    expect(asked.every((args) => args.method === "pca" && args.dimensions === 2)).toBe(true);
  });

  it("are not those of another placing", async () => {
    const setup = make();
    await until(() => expect(setup.store.trust.value.size).toBe(7));
    setup.kernel.held = (name) => name === "trust";
    assign(setup.state, { translate: false });
    expect(setup.store.trust.value.size).toBe(0);
  });

  it("continue where they stopped after one head was enlarged", async () => {
    const setup = make();
    setup.kernel.held = (name) => name === "trust";
    await until(() => expect(setup.kernel.waiting).toHaveLength(1));
    setup.kernel.answer();
    await until(() => expect(setup.store.trust.value.size).toBe(2));
    setup.kernel.held = () => false;
    assign(setup.state, { enlarged: true });
    await until(() => expect(setup.store.headTrust.value).not.toBeNull());
    assign(setup.state, { enlarged: false });
    await until(() => expect(setup.store.trust.value.size).toBe(7));
    const layers = setup.kernel.of("trust").map((args) => `${args.layer}: ${args.heads}`);
    expect(layers.filter((text) => text === "0: 0,1")).toHaveLength(1);
  });

  it("belong to the enlarged head's method, and wait until it is done", async () => {
    const kernel = new Kernel();
    kernel.work = { state: "running", done: 1, num_total: 5, words: "t-SNE" };
    const setup = make({ enlarged: true, method: "tsne", layer: 5, heads: [2] }, kernel);
    await current(setup);
    await later();
    expect(kernel.of("trust")).toHaveLength(0);
    expect(setup.store.headTrust.value).toBeNull();
    kernel.work = { ...kernel.work, state: "done", done: 5 };
    await until(() => expect(setup.store.headTrust.value?.plot).toBe(-0.5));
    expect(kernel.of("trust")).toEqual([
      expect.objectContaining({ layer: 5, heads: [2], method: "tsne", dimensions: 2 }),
    ]);
  });
});

describe("the enlarged head", () => {
  it("keeps its plot until the next one is loaded", async () => {
    const setup = make({ enlarged: true });
    await current(setup);
    const before = setup.store.projection.value;
    setup.kernel.held = (name) => name === "projection";
    setup.store.neighbour(0, 1);
    expect(setup.state.heads.value).toEqual([1]);
    expect(setup.store.projection.value).toBe(before);
    expect(setup.store.current.value).toBe(false);
    await until(() => expect(setup.kernel.waiting).toHaveLength(1));
    setup.kernel.answer();
    await current(setup);
    expect(setup.store.projection.value?.request.head).toBe(1);
  });

  it("polls a running t-SNE until it is done", async () => {
    const kernel = new Kernel();
    kernel.work = { state: "running", done: 1, num_total: 5, words: "t-SNE" };
    const setup = make({ enlarged: true, method: "tsne" }, kernel);
    await current(setup);
    expect(setup.store.projection.value?.work?.done).toBe(1);
    kernel.work = { ...kernel.work, done: 3 };
    await until(() => expect(setup.store.projection.value?.work?.done).toBe(3));
    kernel.work = { state: "done", done: 5, num_total: 5, words: "" };
    await until(() => expect(setup.store.projection.value?.work?.state).toBe("done"));
    const asked = kernel.of("projection").length;
    await new Promise((resolve) => setTimeout(resolve, 900));
    expect(kernel.of("projection")).toHaveLength(asked);
    // The plot of t-SNE is finished and cached, so choosing it again sends no request.
    assign(setup.state, { method: "pca" });
    await current(setup);
    const pca = kernel.of("projection").length;
    assign(setup.state, { method: "tsne" });
    await current(setup);
    expect(kernel.of("projection")).toHaveLength(pca);
  });

  it("stops polling when the head changes or the view ends", async () => {
    const kernel = new Kernel();
    kernel.work = { state: "running", done: 1, num_total: 5, words: "t-SNE" };
    const setup = make({ enlarged: true, method: "tsne" }, kernel);
    await current(setup);
    assign(setup.state, { heads: [1] });
    await current(setup);
    const heads = (): number[] => kernel.of("projection").map((args) => args.head as number);
    const first = heads().filter((head) => head === 0).length;
    await until(() => expect(heads().filter((head) => head === 1).length).toBeGreaterThan(1));
    expect(heads().filter((head) => head === 0)).toHaveLength(first);
    setup.controller.abort();
    const asked = heads().length;
    await new Promise((resolve) => setTimeout(resolve, 900));
    expect(heads()).toHaveLength(asked);
    expect(setup.context.record.error.value).toBeNull();
  });

  it("does not poll while all heads or mean weights are shown", async () => {
    const kernel = new Kernel();
    kernel.work = { state: "running", done: 1, num_total: 5, words: "t-SNE" };
    const setup = make({ enlarged: true, method: "tsne" }, kernel);
    await current(setup);
    assign(setup.state, { content: "aggregate" });
    const asked = kernel.of("projection").length;
    await new Promise((resolve) => setTimeout(resolve, 900));
    expect(kernel.of("projection")).toHaveLength(asked);
  });

  it("shows a cancelled t-SNE immediately, and restarts it on request", async () => {
    const kernel = new Kernel();
    kernel.work = { state: "running", done: 1, num_total: 5, words: "t-SNE" };
    const setup = make({ enlarged: true, method: "tsne" }, kernel);
    await current(setup);
    setup.store.cancel();
    await until(() => expect(setup.store.projection.value?.work?.state).toBe("cancelled"));
    expect(kernel.of("cancel")).toEqual([expect.objectContaining({ head: 0, method: "tsne" })]);
    expect(kernel.of("projection").some((args) => "restart" in args)).toBe(false);
    kernel.work = { ...kernel.work, state: "running" };
    setup.store.restart();
    await until(() => expect(setup.store.projection.value?.work?.state).toBe("running"));
    expect(kernel.of("projection").filter((args) => args.restart === true)).toHaveLength(1);
    // Showing another head does not restart its projection.
    assign(setup.state, { heads: [1] });
    await current(setup);
    expect(kernel.of("projection").filter((args) => args.restart === true)).toHaveLength(1);
  });

  it("reports why a running t-SNE could not be cancelled", async () => {
    const kernel = new Kernel();
    kernel.work = { state: "running", done: 1, num_total: 5, words: "t-SNE" };
    kernel.failing = new Map([["cancel", "There is none."]]);
    const setup = make({ enlarged: true, method: "tsne" }, kernel);
    await current(setup);
    setup.store.cancel();
    await until(() => expect(setup.context.record.error.value).toBe("There is none."));
  });
});

describe("the chosen point", () => {
  it("is the query or key of a text that was set last", async () => {
    const setup = make();
    await until(() => expect(setup.store.corpus.value).not.toBeNull());
    expect(setup.store.chosen.value).toBeNull();
    setup.store.choose(2);
    expect([setup.state.text.value, setup.state.token.value, setup.state.key.value]).toEqual([
      1,
      2,
      null,
    ]);
    expect(setup.store.chosen.value).toBe(2);
    setup.store.choose(11);
    expect([setup.state.text.value, setup.state.token.value, setup.state.key.value]).toEqual([
      2,
      null,
      2,
    ]);
    expect(setup.store.chosen.value).toBe(11);
    // Python sets text, token and key one after the other.
    assign(setup.state, { token: 0 });
    expect(setup.store.chosen.value).toBe(4);
    assign(setup.state, { key: 0 });
    expect(setup.store.chosen.value).toBe(10);
    assign(setup.state, { token: 2 });
    expect(setup.store.chosen.value).toBe(5);
    setup.store.choose(null);
    expect(setup.store.chosen.value).toBeNull();
    expect(setup.state.text.value).toBeNull();
  });

  it("is the query if a page was opened with both", async () => {
    const setup = make({ text: 1, token: 3, key: 1 });
    await until(() => expect(setup.store.chosen.value).toBe(3));
  });

  it("belongs to the first text if none is chosen", async () => {
    const kernel = new Kernel();
    const text = ANSWER.queries.text.map((index) => index - 1);
    kernel.points = { ...ANSWER, queries: { ...ANSWER.queries, text } };
    const setup = make({ token: 3 }, kernel);
    await until(() => expect(setup.store.chosen.value).toBe(3));
    assign(setup.state, { token: null });
    expect(setup.store.chosen.value).toBeNull();
  });

  it("has lines only in the enlarged head", async () => {
    const setup = make({ text: 1, token: 1 });
    await until(() => expect(setup.store.lines.value).not.toBeNull());
    expect(setup.store.lines.value).toMatchObject({
      point: 1,
      layer: 0,
      head: 0,
      covered: 1,
      numTotal: 4,
    });
    expect([...(setup.store.lines.value?.weights ?? [])]).toEqual([0.75, 0.25]);
    setup.kernel.held = (name) => name === "lines";
    assign(setup.state, { layer: 5 });
    expect(setup.store.lines.value).toBeNull();
    await until(() => expect(setup.kernel.waiting).toHaveLength(1));
    setup.store.choose(null);
    expect(setup.store.lines.value).toBeNull();
    await until(() => expect(setup.kernel.aborted).toContain("lines"));
  });

  it("reports on a page why lines are missing, and in a notebook that loading failed", async () => {
    const page = new Kernel();
    page.live = false;
    page.failing = new Map([["lines", "It contains no keys."]]);
    const exported = make({ text: 1, token: 1 }, page);
    await until(() => expect(exported.store.linesProblem.value).toBe("It contains no keys."));
    expect(exported.context.record.error.value).toBeNull();
    const live = new Kernel();
    live.failing = page.failing;
    const notebook = make({ text: 1, token: 1 }, live);
    await until(() => expect(notebook.context.record.error.value).toBe("It contains no keys."));
    expect(notebook.store.linesProblem.value).toBeNull();
  });
});

describe("the points of a corpus", () => {
  it("are not marked after the stack changes", async () => {
    const setup = make({ selected: [1, 2] });
    await until(() => expect(setup.store.corpus.value).not.toBeNull());
    expect(setup.state.selected.value).toEqual([1, 2]);
    setup.store.hovered.value = 3;
    assign(setup.state, { layer: 5, stack: "cross" });
    await until(() => expect(setup.store.corpus.value?.stack).toBe("cross"));
    expect(setup.state.selected.value).toEqual([]);
    expect(setup.store.hovered.value).toBeNull();
  });

  it("load weights by the index of their text", async () => {
    const setup = make();
    const source = setup.store.textSource(1);
    expect(setup.store.textSource(1)).toBe(source);
    await source.describe();
    expect(setup.kernel.asked).toContainEqual(["describe", { text: 1 }]);
    // The source of a text stays cached only until a few other texts are shown.
    for (const text of [2, 3, 4, 5]) setup.store.textSource(text);
    expect(setup.store.textSource(1)).not.toBe(source);
  });
});
