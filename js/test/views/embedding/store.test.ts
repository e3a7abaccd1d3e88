import { describe, expect, it } from "vitest";
import { assign } from "../../../src/ui/view/state";
import { pass, until, useFakeClock } from "../../dom";
import { Kernel, type Setup, setUp } from "./kernel";

useFakeClock();

const current = ({ store }: Setup): Promise<unknown> =>
  until(() => expect(store.settled.value).toBe(true));

/** Return a kernel with a t-SNE that runs until a test changes `work`. */
function runningKernel(): Kernel {
  const kernel = new Kernel();
  kernel.work = { state: "running", done: 1, num_total: 5, words: "t-SNE" };
  return kernel;
}

describe("all heads", () => {
  it("appear together when all are loaded", async () => {
    const kernel = new Kernel();
    kernel.held = (name) => name === "plot";
    const { store } = setUp({}, kernel);
    await until(() => expect(kernel.waiting.length).toBeGreaterThan(0));
    expect(store.overview.value).toBeNull();
    await until(() => {
      kernel.release();
      expect(store.overview.value).not.toBeNull();
    });
    const heads = store.overview.value ?? [];
    // The fake kernel uses the number of the layer as the coordinates.
    const inWords = heads.map(
      ({ layer, head, coordinates }) => `${layer}.${head}: ${coordinates[3]}`,
    );
    expect(inWords).toEqual(["0.0: 0", "0.1: 0", "5.0: 5", "5.1: 5", "5.2: 5", "6.0: 6", "6.1: 6"]);
    expect(heads[6]?.problem).toBe("all points are the same");
  });

  it("stay while another placing loads, and are requested once", async () => {
    const setup = setUp();
    const { kernel, store, state } = setup;
    await current(setup);
    const before = store.overview.value;
    kernel.held = (name) => name === "plot";
    assign(state, { lift: true });
    expect([store.settled.value, store.overview.value]).toEqual([false, before]);
    await until(() => expect(kernel.waiting).toHaveLength(1));
    kernel.held = () => false;
    kernel.release();
    await current(setup);
    expect(kernel.of("plot").at(-1)).toMatchObject({ placing: { lift: true } });
    // The overview of the first placing is cached, so nothing is requested.
    const numRequests = kernel.of("plot").length;
    assign(state, { lift: false });
    await current(setup);
    assign(state, { search: "x", color: "position", layer: 6, heads: [1] });
    await pass(1000);
    expect(kernel.of("plot")).toHaveLength(numRequests);
  });

  it("are never those of another stack", async () => {
    const setup = setUp();
    await current(setup);
    setup.kernel.held = (name) => name === "points" || name === "plot";
    assign(setup.state, { stack: "cross" });
    expect(setup.store.corpus.value).toBeNull();
    expect(setup.store.overview.value).toBeNull();
    expect(setup.store.colors.value).toBeNull();
  });

  it("are dropped if they arrive too late", async () => {
    const setup = setUp();
    const { kernel } = setup;
    kernel.held = (name) => name === "plot";
    await until(() => expect(kernel.waiting).toHaveLength(1));
    assign(setup.state, { scaling: "none" });
    await until(() => expect(kernel.aborted).toEqual(["plot"]));
    await until(() => expect(kernel.waiting).toHaveLength(1));
    kernel.held = () => false;
    kernel.release();
    await current(setup);
    expect(kernel.of("plot").at(-1)).toMatchObject({ placing: { scaling: "none" } });
    expect(setup.context.record.error.value).toBeNull();
  });

  it("wait for a kernel that never replies, and end with the view", async () => {
    const { kernel, store, context, controller } = setUp();
    kernel.held = () => true;
    await pass(1000);
    expect(store.corpus.value).toBeNull();
    expect(store.settled.value).toBe(false);
    // Actions of the reader do not fail while the corpus is loading.
    store.choose(3);
    store.neighbour(1, 1);
    store.cancel();
    controller.abort();
    await pass(1000);
    expect(context.record.error.value).toBeNull();
  });
});

describe("trust figures", () => {
  it("are requested layer by layer after all heads, the selected layer first", async () => {
    const { kernel, store } = setUp({ layer: 6 });
    kernel.held = (name) => name === "trust";
    await until(() => expect(kernel.waiting).toHaveLength(1));
    kernel.release();
    await until(() => expect([...store.trust.value.keys()]).toEqual(["6:0", "6:1"]));
    expect(store.trust.value.get("6:1")?.plot).toBe(-0.6);
    kernel.held = () => false;
    kernel.release();
    await until(() => expect(store.trust.value.size).toBe(7));
    expect(kernel.of("trust").map((args) => [args.layer, args.head])).toEqual([
      [6, undefined],
      [0, undefined],
      [5, undefined],
    ]);
  });

  it("are not those of another placing", async () => {
    const { kernel, store, state } = setUp();
    await until(() => expect(store.trust.value.size).toBe(7));
    kernel.held = (name) => name === "trust";
    assign(state, { translate: false });
    expect(store.trust.value.size).toBe(0);
  });

  it("belong to the enlarged head's method, and wait until it is done", async () => {
    const kernel = runningKernel();
    const setup = setUp({ enlarged: true, method: "tsne", layer: 5, heads: [2] }, kernel);
    await current(setup);
    await pass(1000);
    expect(kernel.of("trust")).toHaveLength(0);
    expect(setup.store.headTrust.value).toBeNull();
    kernel.work = { ...kernel.work, state: "done", done: 5 };
    await until(() => expect(setup.store.headTrust.value?.plot).toBe(-0.5));
    expect(kernel.of("trust")).toEqual([
      expect.objectContaining({ layer: 5, head: 2, method: "tsne", dimensions: 2 }),
    ]);
  });
});

describe("the enlarged head", () => {
  it("requests a running t-SNE again until it is done", async () => {
    const kernel = runningKernel();
    const setup = setUp({ enlarged: true, method: "tsne" }, kernel);
    const work = () => setup.store.projection.value?.work;
    await current(setup);
    expect(work()?.done).toBe(1);
    kernel.work = { ...kernel.work, done: 3 };
    await until(() => expect(work()?.done).toBe(3));
    kernel.work = { state: "done", done: 5, num_total: 5, words: "" };
    await until(() => expect(work()?.state).toBe("done"));
    const numRequests = kernel.of("plot").length;
    await pass(60_000);
    expect(kernel.of("plot")).toHaveLength(numRequests);
    // The plot of t-SNE is cached, so choosing t-SNE again sends no request.
    assign(setup.state, { method: "pca" });
    await current(setup);
    assign(setup.state, { method: "tsne" });
    await current(setup);
    expect(kernel.of("plot").filter(({ method }) => method === "tsne")).toHaveLength(numRequests);
  });

  it.each<[string, (setup: Setup) => void]>([
    ["the head changes", ({ state }) => assign(state, { heads: [1] })],
    ["all heads are shown", ({ state }) => assign(state, { enlarged: false })],
    ["the view ends", ({ controller }) => controller.abort()],
  ])("stops requesting a running t-SNE when %s", async (_, change) => {
    const setup = setUp({ enlarged: true, method: "tsne" }, runningKernel());
    const numRequests = (): number =>
      setup.kernel.of("plot").filter((args) => args.head === 0).length;
    await current(setup);
    change(setup);
    const before = numRequests();
    await pass(60_000);
    expect(numRequests()).toBe(before);
    expect(setup.context.record.error.value).toBeNull();
  });

  it("shows a cancelled t-SNE immediately, and restarts it on request", async () => {
    const kernel = runningKernel();
    const setup = setUp({ enlarged: true, method: "tsne" }, kernel);
    const { store } = setup;
    const numRestarts = (): number =>
      kernel.of("plot").filter((args) => args.action === "restart").length;
    await current(setup);
    store.cancel();
    await until(() => expect(store.projection.value?.work?.state).toBe("cancelled"));
    const cancelled = kernel.of("plot").filter(({ action }) => action === "cancel");
    expect(cancelled).toEqual([expect.objectContaining({ head: 0, method: "tsne" })]);
    expect(numRestarts()).toBe(0);
    kernel.work = { ...kernel.work, state: "running" };
    store.restart();
    await until(() => expect(store.projection.value?.work?.state).toBe("running"));
    expect(numRestarts()).toBe(1);
    // Showing another head sends no request to restart a projection.
    assign(setup.state, { heads: [1] });
    await current(setup);
    expect(numRestarts()).toBe(1);
  });
});

describe("the chosen point", () => {
  it("is the query of a text, or its key if no query is set", async () => {
    const { store, state } = setUp({ text: 1, token: 3, key: 1 });
    // If a page opens with a query and a key, the query is chosen.
    await until(() => expect(store.chosen.value).toBe(3));
    const traits = () => [state.text.value, state.token.value, state.key.value];
    store.choose(11);
    expect([store.chosen.value, ...traits()]).toEqual([11, 2, null, 2]);
    // A query that another view sets is chosen instead of the key.
    assign(state, { token: 0 });
    expect(store.chosen.value).toBe(4);
    store.choose(null);
    expect([store.chosen.value, ...traits()]).toEqual([null, null, null, null]);
  });

  it("has lines only in the enlarged head", async () => {
    const { kernel, store, state } = setUp({ text: 1, token: 1 });
    await until(() => expect(store.lines.value).not.toBeNull());
    expect(store.lines.value).toMatchObject({ point: 1 });
    kernel.held = (name) => name === "lines";
    assign(state, { layer: 5 });
    expect(store.lines.value).toBeNull();
    await until(() => expect(kernel.waiting).toHaveLength(1));
    store.choose(null);
    expect(store.lines.value).toBeNull();
    await until(() => expect(kernel.aborted).toContain("lines"));
  });
});

it.each([
  ["5.0", 0, 1, "5.1"],
  // Steps are clipped at the first and last head and layer.
  ["5.2", 0, 1, "5.2"],
  ["0.1", -1, 0, "0.1"],
  // Layer 6 has no head 2, so the head with the nearest number is chosen.
  ["5.2", 1, 0, "6.1"],
  ["6.0", -2, 0, "0.0"],
])(
  "the neighbour of head %s, %i down and %i to the right, is %s",
  async (head, down, right, expected) => {
    const [layer = 0, number = 0] = head.split(".").map(Number);
    const { store } = setUp({ layer, heads: [number] });
    await until(() => expect(store.head.value).not.toBeNull());
    const neighbour = store.neighbourOf(down, right);
    expect(`${neighbour?.layer}.${neighbour?.head}`).toBe(expected);
  },
);

it("marks of points are removed when the stack changes", async () => {
  const { store, state } = setUp({ selected: [1, 2] });
  await until(() => expect(store.corpus.value).not.toBeNull());
  expect(state.selected.value).toEqual([1, 2]);
  store.hovered.value = 3;
  assign(state, { layer: 5, stack: "cross" });
  await until(() => expect(store.corpus.value?.stack).toBe("cross"));
  expect([state.selected.value, store.hovered.value]).toEqual([[], null]);
});
