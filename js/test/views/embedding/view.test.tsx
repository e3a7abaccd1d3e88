import { beforeEach, describe, expect, it } from "vitest";
import { markDrawn } from "../../../src/ui/view/define-view";
import type { Signals } from "../../../src/ui/view/state";
import { EmbeddingView } from "../../../src/views/embedding";
import type { EmbeddingState } from "../../../src/views/embedding/state";
import { drawnIn, mount, pass, pressKey, useFakeClock } from "../../dom";
import { contextWith, Kernel } from "./kernel";

let state: Signals<EmbeddingState>;
let root: HTMLElement;

async function open(changed: Partial<EmbeddingState> = {}): Promise<void> {
  const setup = contextWith(changed, new Kernel());
  ({ state } = setup);
  root = setup.context.root;
  setup.context.setDrawn = (content) => markDrawn(root, content);
  mount(<EmbeddingView context={setup.context} />, root);
  await drawnIn(root);
}

const plot = (): HTMLElement => root.querySelector("[role=application]") as HTMLElement;

useFakeClock();
beforeEach(() => history.replaceState(null, "", "#"));

const one: Partial<EmbeddingState> = { enlarged: true, layer: 5, heads: [2] };

describe("one head", () => {
  it("closes with Escape only if nothing else is to be cleared", async () => {
    await open({ ...one, selected: [0, 1] });
    pressKey(plot(), "ArrowRight");
    await pass(40);
    expect(state.text.value).not.toBeNull();
    pressKey(plot(), "Escape");
    expect([state.selected.value, state.enlarged.value]).toEqual([[], true]);
    pressKey(plot(), "Escape");
    expect([state.token.value, state.key.value, state.enlarged.value]).toEqual([null, null, true]);
    pressKey(plot(), "Escape");
    expect(state.enlarged.value).toBe(false);
    await drawnIn(root, "embedding:self:all");
  });

  it("is not marked as drawn once all heads are shown", async () => {
    await open(one);
    // The first query is at the left, at half the height. In jsdom, the box of the plot starts at
    // (0, 0).
    for (const clientX of [23, 24]) {
      const position = { clientX, clientY: 320, bubbles: true };
      plot().dispatchEvent(new MouseEvent("pointermove", position));
      await pass(40);
    }
    expect(root.querySelector(".av-hint")?.textContent).toContain("position 0 of text 1");
    pressKey(plot(), "o");
    await drawnIn(root, "embedding:self:all");
    await pass(1000);
    expect(root.getAttribute("data-attnviz-drawn")).toBe("embedding:self:all");
  });
});
