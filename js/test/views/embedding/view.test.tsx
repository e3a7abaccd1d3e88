import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { markDrawn } from "../../../src/ui/view/define-view";
import { assign, type Signals } from "../../../src/ui/view/state";
import { EmbeddingView } from "../../../src/views/embedding";
import type { EmbeddingState } from "../../../src/views/embedding/state";
import {
  buttonOf,
  cellNamesOf,
  drawnIn,
  enter,
  mount,
  pass,
  pressKey,
  textsOf,
  until,
  useFakeClock,
} from "../../dom";
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

const grid = (): HTMLElement => root.querySelector("[role=grid]") as HTMLElement;
const plot = (): HTMLElement => root.querySelector("[role=application]") as HTMLElement;

useFakeClock();
beforeEach(() => history.replaceState(null, "", "#"));
afterEach(() => vi.restoreAllMocks());

it("lists the keys of the current content", async () => {
  await open();
  const meanings = async (): Promise<string> => {
    await pass(40);
    return textsOf(root, ".av-keys dd").join("; ");
  };
  buttonOf(root, "Keys")?.click();
  expect(await meanings()).toContain("open the head");
  assign(state, { enlarged: true });
  expect(await meanings()).toContain("draws a lasso");
  assign(state, { content: "aggregate" });
  expect(await meanings()).toContain("move over the bins");
  expect(await meanings()).not.toContain("lasso");
});

describe("all heads", () => {
  it("have scroll buttons if some are out of sight", async () => {
    const across = vi.spyOn(Element.prototype, "scrollWidth", "get").mockReturnValue(900);
    vi.spyOn(Element.prototype, "clientWidth", "get").mockReturnValue(400);
    await open();
    expect(buttonOf(root, "More layers below")).toBeNull();
    const scrolled = vi.fn();
    grid().scrollBy = scrolled;
    buttonOf(root, "More heads to the right")?.click();
    expect(scrolled).toHaveBeenCalledWith({ left: 280, top: 0, behavior: "smooth" });
    across.mockReturnValue(400);
    grid().dispatchEvent(new Event("scroll"));
    await pass(40);
    expect(buttonOf(root, "More heads to the right")).toBeNull();
  });

  it("are ordered by trust on request", async () => {
    await open();
    await until(() => expect(cellNamesOf(root).join()).not.toContain("not measured"));
    enter(root.querySelector("select:has(option[value=correlation])"), "correlation");
    await pass(40);
    expect(cellNamesOf(root)[0]).toContain("layer 6, head 0");
    expect(cellNamesOf(root).at(-1)).toContain("layer 0, head 1");
    expect(grid().getAttribute("aria-label")).toContain("best first");
  });
});

describe("one head", () => {
  const one: Partial<EmbeddingState> = { enlarged: true, layer: 5, heads: [2] };

  it("closes with Escape only if nothing else is to be cleared", async () => {
    await open({ ...one, selected: [0, 1] });
    expect(root.querySelector(".av-embedding-selected")?.textContent).toContain("2 in the lasso");
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
