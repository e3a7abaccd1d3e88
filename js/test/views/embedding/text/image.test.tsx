import { signal } from "@preact/signals";
import { expect, it } from "vitest";
import type { Reply } from "../../../../src/client/transport";
import { assign } from "../../../../src/ui/view/state";
import type { CorpusPoints } from "../../../../src/views/embedding/client/corpus";
import { embeddedHeat } from "../../../../src/views/embedding/text/image";
import { TextPane } from "../../../../src/views/embedding/text/panel";
import { mount, until, useFakeClock } from "../../../dom";
import { ANSWER, corpusWith, Kernel, setUp } from "../kernel";

/** Corpus of two images. Each has a special token and two patches, one above the other. */
const IMAGES: CorpusPoints = {
  ...ANSWER,
  ...{ names: ["image 0", "image 1"], text_tokens: [3, 3], total_points: 12, total_texts: 2 },
  ...{ whole: true, vocabulary: ["[CLS]", "patch 0,0", "patch 1,0"], frequency: [2, 2, 2] },
  ...{ punctuation: [], special: [0], columns: [], caveats: [], images: 2 },
  queries: { text: [0, 0, 0, 1, 1, 1], position: [0, 1, 2, 0, 1, 2], token: [0, 1, 2, 0, 1, 2] },
  grids: [0, 1].map((text) => ({
    text,
    side: "both" as const,
    image: 0,
    start: 1,
    rows: 2,
    columns: 1,
  })),
};

/** Fake of a page with both images. */
class Page extends Kernel {
  override live = false;
  override points = IMAGES;

  protected override reply(name: string, args: object): Reply {
    if (name !== "image") return super.reply(name, args);
    return { header: { height: 2, width: 1 }, data: new Uint8Array(6) };
  }
}

useFakeClock();

it("a missing image is reported, and not replaced by another", async () => {
  const page = new Page();
  page.failing = { image: "This page does not contain image 0 of text 0." };
  const { context, state, store } = setUp({ enlarged: true, text: 0, token: 1 }, page);
  const box = mount(<TextPane context={context} store={store} />);
  await until(() => expect(box.textContent).toContain("does not contain image 0 of text 0"));
  page.failing = {};
  assign(state, { text: 1, token: 1 });
  await until(() => expect(box.textContent).not.toContain("does not contain"));
  await until(() => expect(box.querySelector(".av-plot")).not.toBeNull());
});

it("the weights of a page are shown on their patches", () => {
  const corpus = corpusWith(IMAGES);
  // The lines end at points 6 and 8, the keys of the special token and of the second patch.
  const lines = {
    ...{ point: 1, layer: 0, head: 3, covered: 1, numTotal: 3 },
    ...{ points: Int32Array.of(8, 6), weights: Float32Array.of(0.75, 0.25) },
  };
  const chosen = signal<number | null>(1);
  const store = { lines: signal(lines), chosen, head: signal({ layer: 0, head: 3 }) };
  const heat = embeddedHeat(store, corpus, 0, "#000000");
  expect([...(heat?.values ?? [])]).toEqual([0.25, 0, 0.75]);
  expect(heat?.series.name).toBe("head 3");
  expect(embeddedHeat(store, corpus, 1, "#000000")).toBeNull();
  chosen.value = 2;
  expect(embeddedHeat(store, corpus, 0, "#000000")).toBeNull();
});
