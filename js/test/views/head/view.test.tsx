import { deflateSync } from "node:zlib";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { PageData } from "../../../src/client/page";
import type { StackDescription, TokenList } from "../../../src/client/protocol";
import type { AttnvizElement } from "../../../src/ui/view/define-view";
import { openPage } from "../../../src/views/head";
import type { HeadState } from "../../../src/views/head/state";

function tokens(text: string[], sequence?: (number | null)[]): TokenList {
  return { text, special: [], sequence: sequence ?? text.map(() => 0) };
}

/** Every query of head h attends to key h alone. */
function sticky(stack: string, layer: number, heads: number, queries: number, keys: number) {
  const codes = new Uint8Array(heads * queries * keys);
  for (let head = 0; head < heads; head++)
    for (let query = 0; query < queries; query++)
      codes[(head * queries + query) * keys + (head % keys)] = 255;
  return {
    stack,
    layer,
    shape: [heads, queries, keys] as [number, number, number],
    encoding: "uint8-sqrt" as const,
    maximum: 1,
    error: 0.00392,
    data: deflateSync(codes).toString("base64"),
  };
}

const HOSTILE = "</script><img src=x onerror=alert(1)>\0";

function pageData(state: Partial<HeadState> = {}): PageData {
  const words = ["one", "two", HOSTILE, "four"];
  const base = { normalized: true, maximum: 1, causal: false, vectors: true, patterns: [] };
  const self: StackDescription = {
    ...base,
    name: "self",
    layers: [2, 5],
    heads_per_layer: [3, 2],
    query_tokens: tokens(words, [0, 0, 1, 1]),
    key_tokens: null,
  };
  const cross: StackDescription = {
    ...base,
    name: "cross",
    layers: [0],
    heads_per_layer: [2],
    query_tokens: tokens(["a", "b"]),
    key_tokens: tokens(["x", "y", "z"]),
  };
  const pieces = [
    sticky("self", 2, 3, 4, 4),
    sticky("self", 5, 2, 4, 4),
    sticky("cross", 0, 2, 2, 3),
  ];
  return {
    format: 2,
    view: "head",
    state: { stack: "self", layer: 2, heads: [1], ...state },
    description: { model: "<b>tiny</b>", notes: ["A note."], stacks: [self, cross] },
    blocks: pieces,
    maps: pieces,
  };
}

/** Machines that test are busy. */
const PATIENT = { timeout: 15_000 };

let root: AttnvizElement;
let end = (): void => undefined;

async function open(state: Partial<HeadState> = {}): Promise<void> {
  end = openPage(root, pageData(state));
  await drawn();
}

/** Waits until the view says that it has drawn, and its controls have followed. */
async function drawn(place?: string): Promise<void> {
  await vi.waitFor(() => {
    const mark = root.getAttribute("data-attnviz-drawn");
    expect(mark).not.toBeNull();
    if (place) expect(mark).toBe(place);
  }, PATIENT);
  await new Promise((resolve) => setTimeout(resolve, 20));
}

const words = (): string => root.querySelector(".av-words")?.textContent ?? "";
const button = (name: string): HTMLButtonElement =>
  root.querySelector(`[aria-label="${name}"]`) as HTMLButtonElement;
const press = (key: string): boolean =>
  root
    .querySelector(".av-plot")
    ?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true })) ??
  false;

beforeEach(() => {
  history.replaceState(null, "", "#");
  root = document.createElement("div");
  document.body.append(root);
});

afterEach(() => {
  end();
  root.remove();
});

describe("the head view on an exported page", () => {
  it("toggles a head by click, and shows it alone by double click, and all as before by another", async () => {
    await open({ heads: [1, 2] });
    const head = button("Head 0");
    head.click();
    await drawn();
    expect(words()).toContain("heads 1, 2, 0");
    const twice = (): void => {
      head.click();
      head.click();
      head.dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
    };
    twice();
    await drawn();
    expect(words()).toContain("head 0.");
    expect(head.getAttribute("aria-pressed")).toBe("true");
    twice();
    await drawn();
    expect(words()).toContain("heads 1, 2, 0");
  });

  it("changes the stack: its tokens, its first layer, no pins", async () => {
    await open({ token: 3, leave_out: ["first", 2], pair: "a-b" });
    const select = root.querySelector("select") as HTMLSelectElement;
    select.value = "cross";
    select.dispatchEvent(new Event("change", { bubbles: true }));
    await drawn("head:cross:0");
    expect(root.textContent).toContain("cross-attention · 2 queries, 3 keys");
    expect(location.hash).toBe("#stack=cross&layer=0&heads=1");
    expect(words()).toContain("Left out: first token, 0.0% ± 0.5%.");
    expect(words()).not.toContain("To tokens outside");
  });

  it("keeps all heads chosen in a stack that has others", async () => {
    await open({ heads: [0, 1, 2] });
    const select = root.querySelector("select") as HTMLSelectElement;
    select.value = "cross";
    select.dispatchEvent(new Event("change", { bubbles: true }));
    await drawn("head:cross:0");
    expect(location.hash).toBe("#stack=cross&layer=0&heads=0,1");
    expect(words()).not.toContain("no head 2");
  });

  it("is moved by keys, which the page around it does not hear", async () => {
    await open();
    const heard = vi.fn();
    document.addEventListener("keydown", heard);
    press("ArrowDown");
    press("ArrowDown");
    press("Enter");
    await drawn();
    expect(words()).toContain("Pinned: query “two”");
    press("ArrowRight");
    press("x");
    await drawn();
    expect(words()).toContain("Left out: “two”, 100.0% ± 0.5%");
    press("]");
    await drawn("head:self:5");
    press("n");
    press("0");
    press("Escape");
    await drawn();
    expect(words()).toContain("Layer 5, head 0.");
    expect(words()).not.toContain("Pinned");
    expect(heard).not.toHaveBeenCalled();
    press("q");
    expect(heard).toHaveBeenCalledOnce();
    document.removeEventListener("keydown", heard);
  });

  it("says why it opened where it is, as long as it is there", async () => {
    const opening = {
      ...{ stack: "self", layer: 2, head: 1, pattern: "previous token" },
      ...{ score: 0.9, even: 0.25, queries: null },
    };
    await open({ heads: [1], opening });
    const said = (): string => root.querySelector(".av-opening")?.textContent ?? "";
    expect(said()).toContain("Opened at layer 2, head 1,");
    expect(await root.attnviz?.svg()).not.toContain("Opened at");
    button("Layer 5").click();
    await drawn("head:self:5");
    expect(said()).toBe("");
  });

  it("closes the list of keys by Esc before it clears pins", async () => {
    await open({ token: 0 });
    press("?");
    await drawn();
    expect(root.querySelector(".av-keys")).not.toBeNull();
    press("Escape");
    await drawn();
    expect(root.querySelector(".av-keys")).toBeNull();
    expect(words()).toContain("Pinned");
    press("Escape");
    await drawn();
    expect(words()).not.toContain("Pinned");
  });

  it.each(["Escape", "button"])(
    "closes the strongest keys by %s, and gives the focus back",
    async (closing) => {
      await open({ token: 0, key_window: [0, 2] });
      const list = (): HTMLElement | null => root.querySelector(".av-strongest");
      await vi.waitFor(() => expect(list()).not.toBeNull(), PATIENT);
      const chip = list()?.querySelector<HTMLElement>(".av-chip");
      chip?.focus();
      if (closing === "button") button("Close the strongest keys, and unpin").click();
      else chip?.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
      await vi.waitFor(() => expect(list()).toBeNull(), PATIENT);
      expect(document.activeElement).toBe(root.querySelector(".av-plot"));
      expect(words()).not.toContain("Pinned");
    },
  );
});
