import { deflateSync } from "node:zlib";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { PageData } from "../../../src/client/page";
import type { StackDescription, TokenList } from "../../../src/client/protocol";
import type { AttnvizElement } from "../../../src/ui/view/define-view";
import makeWidget, { openPage } from "../../../src/views/head";
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
  it("marks what it has drawn, and says what it shows", async () => {
    await open({ token: 0 });
    expect(root.getAttribute("data-attnviz-drawn")).toBe("head:self:2");
    expect(root.getAttribute("data-attnviz-state")).toBe("ready");
    expect(root.classList.contains("attnviz")).toBe(true);
    expect(words()).toContain("Layer 2, head 1. “one” attends most to “two”: 1.00.");
    expect(root.querySelector(".av-header")?.textContent).toContain(
      "self-attention · 4 tokens · exact to 0.004",
    );
    expect(root.textContent).toContain("A note.");
  });

  it("shows markup in names and tokens as text", async () => {
    await open({ token: 2 });
    expect(root.querySelector(".av-title")?.textContent).toBe("<b>tiny</b>");
    expect(words()).toContain("</script>");
    expect(root.querySelectorAll("img, script, b")).toHaveLength(0);
    const svg = new DOMParser().parseFromString((await root.attnviz?.svg()) ?? "", "image/svg+xml");
    expect(svg.querySelector("parsererror")).toBeNull();
    expect(svg.querySelectorAll("img, script")).toHaveLength(0);
    expect(svg.documentElement.textContent).toContain("<b>tiny</b>");
  });

  it("gives the lines that are drawn as a table", async () => {
    await open({ heads: [1] });
    const rows = (await root.attnviz?.csv())?.split("\r\n") ?? [];
    expect(rows[0]).toBe("stack,layer,head,query,query_token,key,key_token,weight,largest_error");
    expect(rows[1]).toBe('"self",2,1,0,"one",1,"two",1,0.004');
    expect(rows).toHaveLength(5);
  });

  it("changes the layer, and shows the chosen heads that it has", async () => {
    await open({ heads: [2, 0] });
    button("Layer 5").click();
    await drawn("head:self:5");
    expect(words()).toContain("Layer 5, head 0.");
    expect(location.hash).toBe("#stack=self&layer=5&heads=2,0");
    button("Layer 2").click();
    await drawn("head:self:2");
    expect(words()).toContain("heads 2, 0");
  });

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

  it("names the mean where no head is chosen", async () => {
    await open({ heads: [] });
    expect(words()).toContain("Layer 2, mean of 3 heads.");
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

  it("offers sentence pairs where there are two sentences", async () => {
    await open({ pair: "a-b", heads: [2] });
    expect(words()).toContain(
      "All lines drawn: 100% of the weight. To tokens outside sentence B: 0%.",
    );
    expect(root.textContent).toContain("A to B");
  });

  it("opens at what the URL says", async () => {
    history.replaceState(null, "", "#layer=5&heads=1&token=3");
    await open();
    expect(root.getAttribute("data-attnviz-drawn")).toBe("head:self:5");
    expect(words()).toContain("Pinned: query “four”");
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

  it("says what the page does not contain, in the view, and keeps what is drawn", async () => {
    const data = pageData();
    data.blocks = data.blocks.slice(0, 1);
    end = openPage(root, data);
    await drawn();
    button("Layer 5").click();
    await vi.waitFor(() => expect(root.getAttribute("data-attnviz-state")).toBe("error"));
    expect(root.querySelector(".av-error")?.textContent).toContain("does not contain layer 5");
    expect(root.getAttribute("data-attnviz-drawn")).toBeNull();
    expect(words()).toContain("Layer 2");
    button("Layer 2").click();
    await drawn("head:self:2");
    // The maps of the layer come after the picture.
    await vi.waitFor(() => expect(root.getAttribute("data-attnviz-state")).toBe("ready"), PATIENT);
  });
});

describe("the head view as a widget", () => {
  type Listener = (...args: unknown[]) => void;

  /** A model whose kernel answers only when it is told to. */
  function makeModel(values: Record<string, unknown>) {
    const listeners = new Map<string, Set<Listener>>();
    const sent: { attnviz: string; id: string; name: string }[] = [];
    return {
      sent,
      listeners,
      get: (name: string) => values[name],
      set: (name: string, value: unknown) => {
        values[name] = value;
      },
      save_changes: () => undefined,
      send: (content: unknown) => sent.push(content as (typeof sent)[number]),
      on: (event: string, listener: Listener) => {
        listeners.set(event, (listeners.get(event) ?? new Set()).add(listener));
      },
      off: (event?: string | null, listener?: Listener | null) => {
        if (event && listener) listeners.get(event)?.delete(listener);
      },
      answer: (message: object) => {
        for (const listener of listeners.get("msg:custom") ?? []) listener(message);
      },
    };
  }

  it("shows an error of the kernel, asks again, and leaves nothing behind", async () => {
    const model = makeModel({ stack: "self", layer: 2, heads: [] });
    const widget = makeWidget();
    const end = widget.initialize({ model: model as never });
    const close = widget.render({ model: model as never, el: root });
    const requests = () => model.sent.filter((each) => each.attnviz === "request");
    await vi.waitFor(() => expect(requests()).toHaveLength(1));
    expect(requests()[0]).toMatchObject({ attnviz: "request", name: "describe" });
    model.answer({ attnviz: "error", id: requests()[0]?.id, message: "NaN in layer 2" });
    const view = root.querySelector(".attnviz") as HTMLElement;
    await vi.waitFor(() => expect(view.getAttribute("data-attnviz-state")).toBe("error"));
    expect(view.textContent).toContain("NaN in layer 2");
    [...view.querySelectorAll("button")].find((each) => each.textContent === "Try again")?.click();
    await vi.waitFor(() =>
      expect(model.sent.filter((each) => each.name === "describe")).toHaveLength(2),
    );
    close();
    end();
    expect(root.children).toHaveLength(0);
    expect([...model.listeners.values()].every((each) => each.size === 0)).toBe(true);
  });
});
