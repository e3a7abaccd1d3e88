import { render } from "preact";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { markDrawn } from "../../../src/ui/view/define-view";
import { assign } from "../../../src/ui/view/state";
import { EmbeddingView } from "../../../src/views/embedding";
import type { EmbeddingState } from "../../../src/views/embedding/state";
import { drawnIn, until } from "../../builders";
import { Kernel, type Room, roomWith } from "./kernel";

let room: Room;
let root: HTMLElement;

async function open(changed: Partial<EmbeddingState> = {}, kernel = new Kernel()): Promise<void> {
  room = roomWith(changed, kernel);
  root = room.context.root;
  room.context.setDrawn = (place) => markDrawn(root, place);
  document.body.append(root);
  render(<EmbeddingView context={room.context} />, root);
  await drawn();
}

const drawn = (place?: string): Promise<void> => drawnIn(root, place);

const grid = (): HTMLElement => root.querySelector("[role=grid]") as HTMLElement;
const plot = (): HTMLElement => root.querySelector("[role=application]") as HTMLElement;
const tiles = (): string[] =>
  [...root.querySelectorAll("[role=gridcell]")].map(
    (element) => element.getAttribute("aria-label") ?? "",
  );
const press = (target: HTMLElement, key: string, more: KeyboardEventInit = {}): void => {
  target.dispatchEvent(
    new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more }),
  );
};
const button = (label: string): HTMLButtonElement =>
  root.querySelector(`button[aria-label="${label}"]`) as HTMLButtonElement;
const settle = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 40));
const state = () => room.state;

beforeEach(() => {
  history.replaceState(null, "", "#");
});

afterEach(() => {
  render(null, root);
  room.controller.abort();
  root.remove();
  vi.restoreAllMocks();
});

describe("the list of keys", () => {
  it("depends on the current content", async () => {
    const { header, data } = { header: { rows: 1, columns: 1 }, data: Float32Array.of(0.5) };
    const edges = { query_edges: [0, 2], key_edges: [0, 2] };
    const of = { texts: 2, of_texts: 2, queries: 6, of_queries: 6 };
    const kernel = new Kernel();
    const { request: ask } = kernel;
    kernel.request = (name, ...more) =>
      name === "aggregate"
        ? Promise.resolve({ header: { ...header, ...edges, ...of }, data })
        : ask.call(kernel, name, ...more);
    await open({}, kernel);
    const meanings = async (): Promise<string> => {
      await settle();
      return [...root.querySelectorAll(".av-keys dd")]
        .map((element) => element.textContent)
        .join("; ");
    };
    button("Keys").click();
    expect(await meanings()).toContain("open the head");
    assign(state(), { enlarged: true });
    expect(await meanings()).toContain("draws a lasso");
    assign(state(), { content: "aggregate" });
    expect(await meanings()).toContain("move over the bins");
    expect(await meanings()).not.toContain("lasso");
  });
});

describe("all heads", () => {
  it("have scroll buttons if some are out of sight", async () => {
    const across = vi.spyOn(Element.prototype, "scrollWidth", "get").mockReturnValue(900);
    vi.spyOn(Element.prototype, "clientWidth", "get").mockReturnValue(400);
    await open();
    expect(button("More layers below")).toBeNull();
    const scrolled = vi.fn();
    grid().scrollBy = scrolled;
    button("More heads to the right").click();
    expect(scrolled).toHaveBeenCalledWith({ left: 280, top: 0, behavior: "smooth" });
    across.mockReturnValue(400);
    grid().dispatchEvent(new Event("scroll"));
    await settle();
    expect(button("More heads to the right")).toBeNull();
  });

  it("are ordered by trust on request", async () => {
    await open();
    await until(() => expect(tiles().join()).not.toContain("not measured"));
    const order = [...root.querySelectorAll("select")].find((element) =>
      [...element.options].some((option) => option.value === "correlation"),
    ) as HTMLSelectElement;
    order.value = "correlation";
    order.dispatchEvent(new Event("change", { bubbles: true }));
    await settle();
    expect(tiles()[0]).toContain("layer 6, head 0");
    expect(tiles().at(-1)).toContain("layer 0, head 1");
    expect(grid().getAttribute("aria-label")).toContain("best first");
  });

  it("are not marked as drawn before they are loaded", async () => {
    const kernel = new Kernel();
    kernel.held = (name) => name === "overview";
    room = roomWith({}, kernel);
    root = room.context.root;
    room.context.setDrawn = (place) => markDrawn(root, place);
    document.body.append(root);
    render(<EmbeddingView context={room.context} />, root);
    await until(() => expect(kernel.waiting.length).toBeGreaterThan(0));
    await settle();
    expect(root.hasAttribute("data-attnviz-drawn")).toBe(false);
    kernel.held = () => false;
    while (kernel.waiting.length > 0) {
      kernel.answer();
      await settle();
    }
    await drawn("embedding:self:all");
  });
});

describe("one head", () => {
  const one: Partial<EmbeddingState> = { enlarged: true, layer: 5, heads: [2] };

  it("closes with Escape only if nothing else is to be cleared", async () => {
    await open({ ...one, selected: [0, 1] });
    expect(root.querySelector(".av-embedding-selected")?.textContent).toContain("2 in the lasso");
    press(plot(), "ArrowRight");
    await settle();
    expect(state().text.value).not.toBeNull();
    press(plot(), "Escape");
    expect(state().selected.value).toEqual([]);
    expect(state().enlarged.value).toBe(true);
    press(plot(), "Escape");
    expect([state().token.value, state().key.value]).toEqual([null, null]);
    expect(state().enlarged.value).toBe(true);
    press(plot(), "Escape");
    expect(state().enlarged.value).toBe(false);
    await drawn("embedding:self:all");
  });

  it("does not mark content as drawn once all heads are shown", async () => {
    await open(one);
    // The first query is at the left, at half the height. In jsdom, the box of the plot starts at
    // (0, 0).
    for (const [x, y] of [
      [23, 320],
      [24, 320],
    ]) {
      plot().dispatchEvent(
        new MouseEvent("pointermove", {
          clientX: x as number,
          clientY: y as number,
          bubbles: true,
        }),
      );
      await settle();
    }
    expect(root.querySelector(".av-hint")?.textContent).toContain("position 0 of text 1");
    press(plot(), "o");
    await drawn("embedding:self:all");
    await settle();
    expect(root.getAttribute("data-attnviz-drawn")).toBe("embedding:self:all");
  });
});
