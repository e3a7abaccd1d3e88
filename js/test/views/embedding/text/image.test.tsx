import { deflateSync } from "node:zlib";
import { signal } from "@preact/signals";
import { render } from "preact";
import { afterEach, describe, expect, it } from "vitest";
import type { Reply } from "../../../../src/client/transport";
import { assign } from "../../../../src/ui/view/state";
import type { CorpusPoints } from "../../../../src/views/embedding/client/corpus";
import type { EmbeddingState } from "../../../../src/views/embedding/state";
import { createEmbeddingStore, type EmbeddingStore } from "../../../../src/views/embedding/store";
import { embeddedHeat } from "../../../../src/views/embedding/text/image";
import { TextPane } from "../../../../src/views/embedding/text/panel";
import { until } from "../../../builders";
import { ANSWER, corpusWith, Kernel, type Room, roomWith } from "../kernel";

/** Corpus of two images. Each has a special token and two patches, one above the other. */
const IMAGES: CorpusPoints = {
  ...ANSWER,
  names: ["image 0", "image 1"],
  text_tokens: [3, 3],
  total_points: 12,
  total_texts: 2,
  whole: true,
  vocabulary: ["[CLS]", "patch 0,0", "patch 1,0"],
  frequency: [2, 2, 2],
  punctuation: [],
  special: [0],
  queries: { text: [0, 0, 0, 1, 1, 1], position: [0, 1, 2, 0, 1, 2], token: [0, 1, 2, 0, 1, 2] },
  columns: [],
  caveats: [],
  images: 2,
  grids: [0, 1].map((text) => ({
    text,
    side: "both" as const,
    image: 0,
    start: 1,
    rows: 2,
    columns: 1,
  })),
};

/** Page with both images. The lines of a query go to keys 1 and 2 of image 0. */
class Page extends Kernel {
  override live = false;

  override async request(name: string, args: object, ended?: AbortSignal): Promise<Reply> {
    if (name === "corpus")
      return { header: { parts: 1 }, data: deflateSync(JSON.stringify(IMAGES)) };
    if (name === "image") {
      this.asked.push([name, args as Record<string, unknown>]);
      const { text } = args as { text: number };
      if (this.failing.has("image")) throw new Error(this.failing.get("image"));
      return { header: { height: 2, width: 1 }, data: new Uint8Array(6).fill(40 * text) };
    }
    if (name === "lines") {
      const header = { points: [8, 6], weights: [0.75, 0.2], covered: 0.95, num_total: 3 };
      return { header, data: null };
    }
    return super.request(name, args, ended);
  }
}

let made: (Room & { store: EmbeddingStore; box: HTMLElement })[] = [];

async function open(changed: Partial<EmbeddingState> = {}, kernel = new Page()) {
  const room = roomWith({ enlarged: true, ...changed }, kernel);
  const store = createEmbeddingStore(room.context);
  const box = document.createElement("div");
  document.body.append(box);
  render(<TextPane context={room.context} store={store} />, box);
  const setup = { ...room, store, box, kernel };
  made.push(setup);
  await until(() => expect(store.corpus.value).not.toBeNull());
  return setup;
}

afterEach(() => {
  for (const { controller, box } of made) {
    controller.abort();
    render(null, box);
    box.remove();
  }
  made = [];
});

describe("the image of the chosen patch", () => {
  it("is navigated and chosen from by keyboard", async () => {
    const { box, state, store } = await open({ text: 0, token: 1 });
    await until(() => expect(box.querySelector(".av-plot")).not.toBeNull());
    const press = (key: string): void => {
      box
        .querySelector(".av-plot")
        ?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    };
    press("ArrowDown");
    // The first key only shows the cursor. It is at query 1 of image 0, which is point 1.
    expect(store.hovered.value).toBe(1);
    press("ArrowDown");
    expect(store.hovered.value).toBe(2);
    press("ArrowDown");
    expect(store.hovered.value).toBe(2);
    press("Enter");
    expect([state.text.value, state.token.value]).toEqual([0, 2]);
  });

  it("is reported if it is missing, and not replaced by another", async () => {
    const kernel = new Page();
    kernel.failing = new Map([["image", "This page does not contain image 0 of text 0."]]);
    const { box, state } = await open({ text: 0, token: 1 }, kernel);
    await until(() => expect(box.textContent).toContain("does not contain image 0 of text 0"));
    kernel.failing = new Map();
    assign(state, { text: 1, token: 1 });
    await until(() => expect(box.textContent).not.toContain("does not contain"));
    await until(() => expect(box.querySelector(".av-plot")).not.toBeNull());
  });

  it("shows the embedded weights on their patches", () => {
    const corpus = corpusWith(IMAGES);
    const lines = {
      point: 1,
      layer: 0,
      head: 3,
      points: Int32Array.of(8, 6),
      weights: Float32Array.of(0.75, 0.25),
      covered: 1,
      numTotal: 3,
    };
    const store = {
      lines: signal(lines),
      chosen: signal<number | null>(1),
      head: signal({ layer: 0, head: 3 }),
    };
    const heat = embeddedHeat(store, corpus, 0, "#000000");
    // The lines go to points 6 and 8: the special token and the second patch.
    expect([...(heat?.values ?? [])]).toEqual([0.25, 0, 0.75]);
    expect(heat?.series.name).toBe("head 3");
    expect(embeddedHeat(store, corpus, 1, "#000000")).toBeNull();
    store.chosen.value = 2;
    expect(embeddedHeat(store, corpus, 0, "#000000")).toBeNull();
  });
});
