import { describe, expect, it } from "vitest";
import { assign } from "../../../src/ui/view/state";
import { EmbeddingControls, Progress } from "../../../src/views/embedding/controls";
import type { EmbeddingState } from "../../../src/views/embedding/state";
import { buttonOf, enter, fieldOf, mount, pass, textsOf, until, useFakeClock } from "../../dom";
import { Kernel, type Setup, setUp } from "./kernel";

interface OpenControls extends Setup {
  box: HTMLElement;
}

async function open(changed: Partial<EmbeddingState>, live = true): Promise<OpenControls> {
  const kernel = new Kernel();
  kernel.live = live;
  const setup = setUp({ enlarged: true, ...changed }, kernel);
  const { context, store } = setup;
  const View = () => (
    <>
      <EmbeddingControls context={context} store={store} />
      <Progress context={context} store={store} />
    </>
  );
  const box = mount(<View />);
  await until(() => expect(box.querySelector("select")).not.toBeNull());
  await pass(40);
  return { ...setup, box };
}

useFakeClock();

const labels = (box: HTMLElement): string[] => textsOf(box, "label > span");

describe("the controls", () => {
  it("set the traits, and show the settings of the method", async () => {
    const { box, state } = await open({});
    enter(fieldOf(box, "Method"), "tsne");
    await pass(40);
    expect(labels(box)).toContain("Seed");
    enter(fieldOf(box, "Seed"), "30");
    await pass(40);
    // A seed is not negative, so the state keeps 30.
    enter(fieldOf(box, "Seed"), "-1");
    expect([state.method.value, state.seed.value]).toEqual(["tsne", 30]);
    expect(fieldOf(box, "Seed")?.value).toBe("30");
    enter(fieldOf(box, "Method"), "pca");
    await pass(40);
    expect(labels(box)).not.toContain("Seed");
  });

  it("show the progress of a projection, cancel it, and show why it failed", async () => {
    const { box, kernel, state } = await open({});
    const words = "t-SNE, step 250 of 750";
    kernel.work = { state: "running", done: 250, num_total: 750, words };
    assign(state, { method: "tsne" });
    await until(() => expect(box.querySelector("progress")).not.toBeNull());
    const bar = box.querySelector("progress");
    expect([bar?.value, bar?.max]).toEqual([250, 750]);
    expect(box.querySelector(".av-work")?.textContent).toContain(words);
    buttonOf(box, "Cancel")?.click();
    await until(() => expect(buttonOf(box, "Continue")).not.toBeNull());
    kernel.work = { state: "failed", done: 0, num_total: 0, words: "umap-learn is missing." };
    buttonOf(box, "Continue")?.click();
    await until(() => {
      expect(box.querySelector(".av-error")?.textContent).toContain("umap-learn is missing.");
    });
  });

  it("do not offer methods in a page, which cannot compute them", async () => {
    const { box } = await open({ method: "tsne", seed: 4 }, false);
    expect(fieldOf(box, "Method")).toBeFalsy();
  });
});
