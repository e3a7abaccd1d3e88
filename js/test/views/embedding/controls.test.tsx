import { render } from "preact";
import { afterEach, describe, expect, it } from "vitest";
import type { Reply } from "../../../src/client/transport";
import { assign } from "../../../src/ui/view/state";
import { sentenceOf } from "../../../src/views/embedding/captions";
import { colorings, EmbeddingControls, Work } from "../../../src/views/embedding/controls";
import { EmbeddingLegend } from "../../../src/views/embedding/legend";
import { MeanPlot } from "../../../src/views/embedding/mean/plot";
import type { EmbeddingState } from "../../../src/views/embedding/state";
import { createEmbeddingStore, type EmbeddingStore } from "../../../src/views/embedding/store";
import { until } from "../../builders";
import { corpusWith, Kernel, type Room, roomWith } from "./kernel";

class MeanKernel extends Kernel {
  override async request(name: string, args: object, ended?: AbortSignal): Promise<Reply> {
    if (name !== "aggregate") return super.request(name, args, ended);
    this.asked.push([name, args as Record<string, unknown>]);
    const { head } = args as { head: number };
    const edges = { query_edges: [0, 1, 2], key_edges: [0, 1, 2] };
    const of = { texts: 2, of_texts: 3, queries: 6, of_queries: 6 };
    const header = { rows: 2, columns: 2, ...edges, ...of };
    return { header, data: Float32Array.of(1, -1, head === 1 ? 0.875 : 0.5, 0.125) };
  }
}

interface Made extends Room {
  store: EmbeddingStore;
  box: HTMLElement;
}

const later = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 30));
let made: Made[] = [];

async function open(changed: Partial<EmbeddingState> = {}, live = true): Promise<Made> {
  const kernel = new MeanKernel();
  kernel.live = live;
  const room = roomWith(changed, kernel);
  const store = createEmbeddingStore(room.context);
  const box = document.createElement("div");
  document.body.append(box);
  const { context } = room;
  const View = () => (
    <>
      <EmbeddingControls context={context} store={store} />
      <Work context={context} store={store} />
      {context.state.content.value === "aggregate" && (
        <MeanPlot context={context} store={store} width={400} />
      )}
      <EmbeddingLegend context={context} store={store} />
    </>
  );
  render(<View />, box);
  const setup = { ...room, store, box };
  made.push(setup);
  await until(() => expect(box.querySelector("select")).not.toBeNull());
  await later();
  return setup;
}

function select(box: HTMLElement, label: string): HTMLSelectElement {
  const field = Array.from(box.querySelectorAll("label")).find(
    (element) => element.querySelector("span")?.textContent === label,
  );
  const control = field?.querySelector<HTMLSelectElement>("select, input");
  if (!control) throw new Error(`No control is called ${label}.`);
  return control;
}

function choose(box: HTMLElement, label: string, value: string): void {
  const control = select(box, label);
  control.value = value;
  control.dispatchEvent(new Event("change", { bubbles: true }));
}

const offered = (box: HTMLElement): string[] =>
  Array.from(box.querySelectorAll("label > span"), (element) => element.textContent ?? "");

afterEach(async () => {
  for (const { controller, box } of made) {
    controller.abort();
    render(null, box);
    box.remove();
  }
  made = [];
  // Preact may run delayed effects only while the document exists, so wait for them.
  await new Promise(requestAnimationFrame);
});

describe("the controls", () => {
  it("set the traits, and show the settings of the method", async () => {
    const { box, state } = await open({ enlarged: true });
    choose(box, "Method", "tsne");
    choose(box, "Dimensions", "3");
    choose(box, "Scale", "none");
    choose(box, "Colour", "position mod 5");
    await later();
    const { method, dimensions, scaling, color } = state;
    expect([method.value, dimensions.value, scaling.value, color.value]).toEqual([
      "tsne",
      3,
      "none",
      "position mod 5",
    ]);
    expect(offered(box)).toContain("Perplexity");
    expect(offered(box)).not.toContain("Neighbours");
    choose(box, "Perplexity", "30");
    expect(state.perplexity.value).toBe(30);
    await later();
    // The kernel would reject invalid values, so they are not sent.
    choose(box, "Perplexity", "1");
    expect(state.perplexity.value).toBe(30);
    expect(select(box, "Perplexity").value).toBe("30");
    choose(box, "Method", "umap");
    await later();
    expect(offered(box)).toContain("Neighbours");
  });

  it("list columns before colourings of the same name", () => {
    expect(colorings(corpusWith()).slice(-2)).toEqual([
      ["tag", "tag"],
      ["score", "score"],
    ]);
    const [column] = corpusWith().columns;
    if (!column) throw new Error("no column");
    const names = colorings({ columns: [{ ...column, name: "text" }] }).map(([name]) => name);
    expect(names.filter((name) => name === "text")).toHaveLength(1);
    expect(names.at(-1)).toBe("text");
    expect(colorings(null).map(([, label]) => label)).toContain("query or key");
  });

  it("show the progress of a projection, and cancel it", async () => {
    const setup = await open({ enlarged: true });
    setup.kernel.work = {
      state: "running",
      done: 250,
      num_total: 750,
      words: "t-SNE, step 250 of 750",
    };
    assign(setup.state, { method: "tsne" });
    await until(() => expect(setup.box.querySelector("progress")).not.toBeNull());
    const bar = setup.box.querySelector("progress");
    expect([bar?.value, bar?.max]).toEqual([250, 750]);
    expect(setup.box.querySelector(".av-work")?.textContent).toContain("t-SNE, step 250 of 750");
    const button = setup.box.querySelector<HTMLButtonElement>(".av-work button");
    expect(button?.textContent).toBe("Cancel");
    button?.click();
    await until(() => expect(setup.kernel.of("cancel")).toHaveLength(1));
    await until(() =>
      expect(setup.box.querySelector(".av-work button")?.textContent).toBe("Continue"),
    );
    expect(setup.box.querySelector("progress")).toBeNull();
    setup.kernel.work = { state: "failed", done: 0, num_total: 0, words: "umap-learn is missing." };
    setup.box.querySelector<HTMLButtonElement>(".av-work button")?.click();
    await until(() => expect(setup.box.querySelector(".av-error")).not.toBeNull());
    expect(setup.box.querySelector(".av-error")?.textContent).toContain("umap-learn is missing.");
    // The remark in the reply is still shown after the projection is finished.
    const remark = "A perplexity of 50 needs 151 points: with 12 it is 3.67";
    setup.kernel.work = { state: "done", done: 750, num_total: 750, words: `t-SNE. ${remark}` };
    setup.box.querySelector<HTMLButtonElement>(".av-work button")?.click();
    await until(() =>
      expect(setup.box.querySelector(".av-work")?.textContent).toBe(
        `t-SNE of cosine distance, perplexity 50, seed 0. ${remark}.`,
      ),
    );
  });

  it("offer only what a page contains", async () => {
    const { box } = await open({ enlarged: true }, false);
    expect(offered(box)).toEqual(["Show", "Colour", "Points", "match case"]);
    const embedded = await open({ enlarged: true, method: "tsne", seed: 4 }, false);
    const method = select(embedded.box, "Method");
    expect(Array.from(method.options, ({ text }) => text)).toEqual([
      "PCA",
      "t-SNE of cosine distance, perplexity 50, seed 4",
    ]);
    choose(embedded.box, "Method", "pca");
    expect(embedded.state.method.value).toBe("pca");
    await later();
    choose(embedded.box, "Method", "embedded");
    expect([embedded.state.method.value, embedded.state.seed.value]).toEqual(["tsne", 4]);
  });
});

describe("the legend", () => {
  it("switches the mean weights between linear and logarithmic", async () => {
    const { box } = await open({ enlarged: true, content: "aggregate" });
    await until(() => expect(box.querySelector(".av-legend")).not.toBeNull());
    const numbers = (): string => box.querySelector(".av-ramp-words")?.textContent ?? "";
    expect(numbers()).toBe("00.51");
    box.querySelector<HTMLElement>(".av-legend input")?.click();
    await later();
    expect(numbers()).toBe("≤0.00010.011");
    expect(select(box, "Colour").value).toBe("log");
  });
});

describe("the mean by position", () => {
  it("keeps the previous head until the next is loaded, and is not current", async () => {
    const setup = await open({ enlarged: true, content: "aggregate" });
    await until(() => expect(sentenceOf(setup.context, setup.store)).toContain("Largest"));
    assign(setup.state, { heads: [1] });
    expect(sentenceOf(setup.context, setup.store)).not.toContain("Largest");
    await until(() => expect(sentenceOf(setup.context, setup.store)).toContain("Layer 0, head 1"));
    await until(() => expect(sentenceOf(setup.context, setup.store)).toContain("Largest"));
  });
});
