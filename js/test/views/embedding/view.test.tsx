import { render } from "preact";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { markDrawn } from "../../../src/ui/view/define-view";
import { assign } from "../../../src/ui/view/state";
import { EmbeddingView } from "../../../src/views/embedding";
import type { EmbeddingState } from "../../../src/views/embedding/state";
import { Kernel, type Room, roomWith } from "./kernel";

/** Machines that test are busy. */
const PATIENT = { timeout: 15_000 };

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

async function drawn(place?: string): Promise<void> {
  await vi.waitFor(() => {
    const mark = root.getAttribute("data-attnviz-drawn");
    expect(mark).not.toBeNull();
    if (place) expect(mark).toBe(place);
  }, PATIENT);
  await new Promise((resolve) => setTimeout(resolve, 20));
}

const grid = (): HTMLElement => root.querySelector("[role=grid]") as HTMLElement;
const plot = (): HTMLElement => root.querySelector("[role=application]") as HTMLElement;
const tiles = (): string[] =>
  [...root.querySelectorAll("[role=gridcell]")].map(
    (each) => each.getAttribute("aria-label") ?? "",
  );
const tile = (name: string): HTMLElement =>
  root.querySelector(`[role=gridcell][aria-label^="${name}"]`) as HTMLElement;
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
  it("is that of what is shown", async () => {
    const { header, data } = { header: { rows: 1, columns: 1 }, data: Float32Array.of(0.5) };
    const edges = { query_edges: [0, 2], key_edges: [0, 2] };
    const of = { texts: 2, of_texts: 2, queries: 6, of_queries: 6 };
    const kernel = new Kernel();
    const { ask } = kernel;
    kernel.ask = (name, ...more) =>
      name === "aggregate"
        ? Promise.resolve({ header: { ...header, ...edges, ...of }, data })
        : ask.call(kernel, name, ...more);
    await open({}, kernel);
    const meanings = async (): Promise<string> => {
      await settle();
      return [...root.querySelectorAll(".av-keys dd")].map((each) => each.textContent).join("; ");
    };
    button("Keys").click();
    expect(await meanings()).toContain("go into the head");
    assign(state(), { enlarged: true });
    expect(await meanings()).toContain("draws a lasso");
    assign(state(), { shown: "aggregate" });
    expect(await meanings()).toContain("move over the bins");
    expect(await meanings()).not.toContain("lasso");
  });
});

describe("all heads", () => {
  it("stand under the model's own numbers, each with its figure or its word", async () => {
    await open();
    expect(root.getAttribute("data-attnviz-drawn")).toBe("embedding:self:all");
    await vi.waitFor(() => expect(tiles().join()).not.toContain("not measured"), PATIENT);
    expect(tiles()).toEqual([
      "layer 0, head 0, correlation 0.00",
      "layer 0, head 1, correlation 0.00",
      "layer 5, head 0, correlation −0.50",
      "layer 5, head 1, correlation −0.50",
      "layer 5, head 2, correlation −0.50",
      "layer 6, head 0, correlation −0.60",
      "layer 6, head 1, all points are the same",
    ]);
    expect(tile("layer 6, head 1").textContent).toBe("all points are the same");
  });

  it("are told to go on where some are out of sight, and a click leads there", async () => {
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

  it("are explained before their keys are", async () => {
    await open();
    button("Keys").click();
    await settle();
    const terms = [...root.querySelectorAll(".av-keys dt")].map((each) => each.textContent);
    expect(terms.slice(0, 4)).toEqual(["a point", "● ■", "r, %", "↑ ↓ ← →"]);
  });

  it("are the most trusted first where that is asked for", async () => {
    await open();
    await vi.waitFor(() => expect(tiles().join()).not.toContain("not measured"), PATIENT);
    const order = [...root.querySelectorAll("select")].find((each) =>
      [...each.options].some((option) => option.value === "correlation"),
    ) as HTMLSelectElement;
    order.value = "correlation";
    order.dispatchEvent(new Event("change", { bubbles: true }));
    await settle();
    expect(tiles()[0]).toContain("layer 6, head 0");
    expect(tiles().at(-1)).toContain("layer 0, head 1");
    expect(grid().getAttribute("aria-label")).toContain("best first");
  });

  it("are walked over with the arrows and gone into with Enter", async () => {
    await open();
    press(grid(), "ArrowDown");
    await settle();
    const first = root.querySelector(".av-grid-cursor")?.getAttribute("aria-label");
    expect(first).toContain("layer 0, head 0");
    press(grid(), "ArrowDown");
    press(grid(), "ArrowRight");
    await settle();
    const at = root.querySelector(".av-grid-cursor");
    expect(at?.getAttribute("aria-label")).toContain("layer 5, head 1");
    expect(grid().getAttribute("aria-activedescendant")).toBe(at?.id);
    press(grid(), "Enter");
    await drawn("embedding:self:5");
    expect([state().layer.value, state().heads.value, state().enlarged.value]).toEqual([
      5,
      [1],
      true,
    ]);
  });

  it("are gone into with a click, and with the wheel and Ctrl once it has turned enough", async () => {
    await open();
    const wheel = (deltaY: number, ctrlKey: boolean): boolean =>
      tile("layer 0, head 1").dispatchEvent(
        new WheelEvent("wheel", { deltaY, ctrlKey, bubbles: true, cancelable: true }),
      );
    // A plain wheel is left to the page.
    expect(wheel(-500, false)).toBe(true);
    expect(wheel(-30, true)).toBe(false);
    expect(state().enlarged.value).toBe(false);
    wheel(-40, true);
    expect(state().enlarged.value).toBe(true);
    expect(state().heads.value).toEqual([1]);
    await drawn("embedding:self:0");
  });

  it("are not said to be drawn before they are there", async () => {
    const kernel = new Kernel();
    kernel.held = (name) => name === "overview";
    room = roomWith({}, kernel);
    root = room.context.root;
    room.context.setDrawn = (place) => markDrawn(root, place);
    document.body.append(root);
    render(<EmbeddingView context={room.context} />, root);
    await vi.waitFor(() => expect(kernel.waiting.length).toBeGreaterThan(0), PATIENT);
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

  it("has its neighbours at hand, and none where there are none", async () => {
    await open(one);
    expect(root.querySelector("h3")?.textContent).toContain("Layer 5, head 2");
    expect(button("layer 5, head 1")).toBeTruthy();
    expect(root.querySelectorAll('button[aria-label="no head there"]')).toHaveLength(1);
    button("layer 6, head 1").click();
    await settle();
    expect([state().layer.value, state().heads.value]).toEqual([6, [1]]);
  });

  it("is left with Escape only when nothing else is to be cleared", async () => {
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

  it("walks along the text of the chosen point, and to the token's other side", async () => {
    await open({ ...one, text: 1, token: 0 });
    press(plot(), "ArrowLeft");
    expect(state().token.value).toBe(0);
    press(plot(), "ArrowRight");
    expect([state().text.value, state().token.value]).toEqual([1, 1]);
    press(plot(), "ArrowDown");
    expect(state().key.value).toBe(1);
    press(plot(), "ArrowRight");
    expect(state().key.value).toBe(2);
  });

  it("goes to other layers and heads by key, and back to all by going far enough away", async () => {
    await open(one);
    press(plot(), "[");
    expect(state().layer.value).toBe(0);
    press(plot(), ",");
    press(plot(), ",");
    expect(state().heads.value).toEqual([0]);
    await drawn("embedding:self:0");
    press(plot(), "-");
    expect(state().enlarged.value).toBe(true);
    press(plot(), "-");
    expect(state().enlarged.value).toBe(false);
  });

  it("takes points into the lasso and clears them by the button in the corner", async () => {
    await open(one);
    const at = (kind: string, clientX: number, clientY: number, more: PointerEventInit = {}) =>
      plot().dispatchEvent(
        new MouseEvent(kind, { clientX, clientY, bubbles: true, ...more }) as PointerEvent,
      );
    plot().setPointerCapture = () => undefined;
    const width = 900;
    at("pointerdown", 0, 0, { shiftKey: true });
    for (const [x, y] of [
      [width, 0],
      [width, 640],
      [0, 640],
    ] as const)
      at("pointermove", x, y, { buttons: 1, shiftKey: true });
    at("pointerup", 0, 640, { shiftKey: true });
    await settle();
    // All twelve points lie in the picture.
    expect(state().selected.value).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    (root.querySelector(".av-embedding-selected") as HTMLButtonElement).click();
    expect(state().selected.value).toEqual([]);
  });

  it("says nothing of what is drawn once all heads are, though the pointer was on a point", async () => {
    await open(one);
    // The first query lies at the left, half the way down (jsdom's boxes are empty).
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

  it("is a word where it has no plot, from which keys still lead on", async () => {
    const kernel = new Kernel();
    const ask = kernel.ask.bind(kernel);
    kernel.ask = async (name, args, ended) => {
      const reply = await ask(name, args, ended);
      if (name !== "projection" || (args as { head: number }).head !== 1) return reply;
      return {
        ...reply,
        header: { ...(reply.header as object), problem: "all points are the same" },
      };
    };
    await open({ enlarged: true, layer: 6, heads: [1] }, kernel);
    await vi.waitFor(
      () => expect(plot().textContent).toContain("all points are the same"),
      PATIENT,
    );
    expect(root.getAttribute("data-attnviz-drawn")).toBe("embedding:self:6");
    press(plot(), ",");
    expect(state().heads.value).toEqual([0]);
  });
});
