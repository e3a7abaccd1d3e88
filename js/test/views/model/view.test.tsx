import { deflateSync } from "node:zlib";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { PageCarrier, type PageData } from "../../../src/client/page";
import type { MapsRequest, StackDescription, TokenList } from "../../../src/client/protocol";
import type { AttnvizElement } from "../../../src/ui/view/define-view";
import { openPage } from "../../../src/views/model";
import type { ModelState } from "../../../src/views/model/state";

function tokens(text: string[]): TokenList {
  return { text, special: [], sequence: text.map(() => 0) };
}

/** Every query of head h of a layer attends to key (layer + h) modulo the keys, alone. */
function sticky(stack: string, layer: number, heads: number, queries: number, keys: number) {
  const codes = new Uint8Array(heads * queries * keys);
  for (let head = 0; head < heads; head++)
    for (let query = 0; query < queries; query++)
      codes[(head * queries + query) * keys + ((layer + head) % keys)] = 255;
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
const WORDS = ["one", "two", HOSTILE, "four"];

function pageData(heads: Record<number, number>, state: Partial<ModelState> = {}): PageData {
  const base = { normalized: true, maximum: 1, causal: false, vectors: false };
  const layers = Object.keys(heads).map(Number);
  const self: StackDescription = {
    ...base,
    name: "self",
    layers,
    heads_per_layer: Object.values(heads),
    query_tokens: tokens(WORDS),
    key_tokens: null,
    patterns: ["induction"],
  };
  const cross: StackDescription = {
    ...base,
    name: "cross",
    layers: [0],
    heads_per_layer: [2],
    query_tokens: tokens(["a", "b"]),
    key_tokens: tokens(["x", "y", "z"]),
    patterns: [],
  };
  const pieces = [
    ...layers.map((layer) => sticky("self", layer, heads[layer] ?? 0, 4, 4)),
    sticky("cross", 0, 2, 2, 3),
  ];
  const scores = layers.map((layer) =>
    Array.from({ length: heads[layer] ?? 0 }, (_, head) => (layer === 5 && head === 1 ? 1 : 0.25)),
  );
  return {
    format: 2,
    view: "model",
    state: { stack: "self", layer: layers[0], heads: [], ...state },
    description: { model: "<b>tiny</b>", notes: [], stacks: [self, cross] },
    blocks: pieces,
    maps: pieces,
    scores: [{ stack: "self", pattern: "induction", scores }],
  };
}

const RAGGED = { 2: 3, 5: 2, 9: 1 };

/** Machines that test are busy. */
const PATIENT = { timeout: 15_000 };

let root: AttnvizElement;
let end = (): void => undefined;

async function open(data: PageData): Promise<void> {
  end = openPage(root, data);
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

const words = (): string => root.querySelector(".av-words")?.textContent ?? "";
const box = (): HTMLElement => root.querySelector("[role=grid]") as HTMLElement;
const cells = (): string[] =>
  [...root.querySelectorAll("[role=gridcell]")].map(
    (cell) => cell.getAttribute("aria-label") ?? "",
  );
const cell = (name: string): HTMLElement =>
  root.querySelector(`[role=gridcell][aria-label="${name}"]`) as HTMLElement;
const press = (key: string): boolean =>
  box().dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const selected = (): (string | null)[] =>
  [...root.querySelectorAll("[aria-selected=true]")].map((each) => each.getAttribute("aria-label"));

beforeEach(() => {
  history.replaceState(null, "", "#");
  root = document.createElement("div");
  document.body.append(root);
});

afterEach(() => {
  end();
  root.remove();
  vi.restoreAllMocks();
});

describe("the model view on an exported page", () => {
  it("shows every layer and head under the model's own numbers", async () => {
    await open(pageData(RAGGED));
    expect(root.getAttribute("data-attnviz-drawn")).toBe("model:self:2");
    expect(root.getAttribute("data-attnviz-state")).toBe("ready");
    expect(cells()).toEqual([
      "Layer 2, head 0",
      "Layer 2, head 1",
      "Layer 2, head 2",
      "Layer 5, head 0",
      "Layer 5, head 1",
      "Layer 9, head 0",
    ]);
    const headers = [...root.querySelectorAll("[role=rowheader]")].map((each) => each.textContent);
    expect(headers).toEqual(["layer 2", "layer 5", "layer 9"]);
    expect(root.querySelector(".av-header")?.textContent).toContain(
      "self-attention · 3 layers of 1 to 3 heads · 4 tokens · exact to 0.004",
    );
  });

  it("opens a head by a click, and closes it by Esc", async () => {
    await open(pageData(RAGGED));
    cell("Layer 5, head 1").click();
    await drawn("model:self:5");
    expect(location.hash).toContain("layer=5&heads=1");
    expect(selected()).toEqual(["Layer 5, head 1"]);
    // Layer 5, head 1: all queries attend to key (5 + 1) modulo 4.
    expect(words()).toContain(`Layer 5, head 1. Strongest: “one” to “</script>`);
    press("Escape");
    await drawn();
    expect(selected()).toEqual([]);
    expect(location.hash).toMatch(/heads=$/);
  });

  it("walks with the arrows, keeps them from the notebook, and opens with Enter", async () => {
    await open(pageData(RAGGED));
    const heard = vi.fn();
    root.addEventListener("keydown", heard);
    press("ArrowDown");
    press("ArrowDown");
    press("ArrowRight");
    await drawn();
    const active = box().getAttribute("aria-activedescendant");
    expect(root.querySelector(`#${active}`)?.getAttribute("aria-label")).toBe("Layer 5, head 1");
    expect(selected()).toEqual([]);
    press("Enter");
    await drawn("model:self:5");
    expect(selected()).toEqual(["Layer 5, head 1"]);
    // With a head open the arrows open its neighbours; layer 9 has head 0 alone.
    press("ArrowDown");
    await drawn("model:self:9");
    expect(selected()).toEqual(["Layer 9, head 0"]);
    expect(heard).not.toHaveBeenCalled();
    press("a");
    expect(heard).toHaveBeenCalledTimes(1);
  });

  it("asks for what is in sight, and for nothing twice", async () => {
    const ask = vi.spyOn(PageCarrier.prototype, "ask");
    const many = Object.fromEntries(Array.from({ length: 64 }, (_, layer) => [layer, 64]));
    await open(pageData(many));
    const asked = () =>
      ask.mock.calls.filter(([name]) => name === "maps").map(([, args]) => args as MapsRequest);
    // One request is the frame's own, for the layer that is chosen.
    const first = asked();
    expect(first.length).toBeLessThan(30);
    expect(Math.max(...first.map((each) => each.layer))).toBeLessThan(30);
    for (const each of first.filter((one) => one.heads))
      expect(each.heads?.length).toBeLessThan(64);
    expect(root.querySelectorAll("[role=gridcell]").length).toBeLessThan(30 * 48);
    const nodes = root.querySelectorAll("*").length;

    box().scrollTop = 40 * 27;
    box().dispatchEvent(new Event("scroll"));
    await drawn();
    const more = asked().slice(first.length);
    expect(Math.min(...more.map((each) => each.layer))).toBeGreaterThanOrEqual(20);
    expect(more.length).toBeLessThan(30);
    expect(root.querySelectorAll("*").length).toBeLessThan(1.2 * nodes);
    expect(cells()).toContain("Layer 45, head 3");
    expect(cells()).not.toContain("Layer 3, head 3");

    const before = asked().length;
    box().scrollTop = 0;
    box().dispatchEvent(new Event("scroll"));
    await drawn();
    expect(asked()).toHaveLength(before);
  });

  it("brings the layer that another view goes to into sight", async () => {
    const many = Object.fromEntries(Array.from({ length: 64 }, (_, layer) => [layer, 4]));
    await open(pageData(many, { layer: 60, heads: [2] }));
    expect(box().scrollTop).toBeGreaterThan(0);
    box().dispatchEvent(new Event("scroll"));
    await drawn("model:self:60");
    expect(selected()).toEqual(["Layer 60, head 2"]);
  });

  it("becomes a gallery by score, says how many are shown, and names scores", async () => {
    await open(pageData(RAGGED, { order: "induction" }));
    expect(cells()[0]).toBe("Layer 5, head 1, induction 1.00");
    expect(cells()).toHaveLength(6);
    expect(root.querySelector(".av-model-caption")?.textContent).toBe("5.1 1.00");
    expect(words()).toContain("By induction, strongest first: all 6 heads.");
    const least = root.querySelector<HTMLInputElement>(".av-least");
    if (least) least.valueAsNumber = 0.5;
    least?.dispatchEvent(new Event("change", { bubbles: true }));
    await drawn();
    expect(cells()).toEqual(["Layer 5, head 1, induction 1.00"]);
    expect(words()).toContain("1 of 6 heads, those from 0.5 on");
  });

  it("offers the heads that are included", async () => {
    await open(pageData(RAGGED, { include_heads: { "2": [2], "9": [0] } }));
    expect(cells()).toEqual(["Layer 2, head 2", "Layer 9, head 0"]);
    expect(root.querySelector(".av-header")?.textContent).toContain("2 of 6 heads offered");
  });

  it("changes the stack, and closes what is open", async () => {
    await open(pageData(RAGGED, { layer: 5, heads: [1] }));
    const select = root.querySelector("select") as HTMLSelectElement;
    select.value = "cross";
    select.dispatchEvent(new Event("change", { bubbles: true }));
    await drawn("model:cross:0");
    expect(cells()).toEqual(["Layer 0, head 0", "Layer 0, head 1"]);
    expect(selected()).toEqual([]);
    expect(root.querySelector(".av-header")?.textContent).toContain("2 queries, 3 keys");
  });

  it("gives every head with its strongest weight as a table", async () => {
    await open(pageData(RAGGED));
    const rows = (await root.attnviz?.csv())?.split("\r\n") ?? [];
    expect(rows[0]).toBe(
      "stack,layer,head,strongest_weight,query,query_token,key,key_token,largest_error",
    );
    // Layer 5, head 0 attends to key 5 modulo 4.
    expect(rows[4]).toBe('"self",5,0,1,0,"one",1,"two",0.004');
    expect(rows).toHaveLength(7);
  });

  it("says of a text that is too long for whole maps which queries stand for it", async () => {
    const data = pageData(RAGGED, { order: "induction" });
    const stack = data.description.stacks[0] as StackDescription;
    // Rows are queries 1 and 3 of the four.
    const maps = stack.layers.map((layer, at) => ({
      ...sticky("self", layer, stack.heads_per_layer[at] as number, 2, 4),
      sampled: [1, 3],
    }));
    stack.sampled = 2;
    await open({ ...data, blocks: [], maps });
    expect(words()).toContain(
      "By induction, estimated from those of 2 queries that may attend there, strongest first",
    );
    expect(words()).toContain("Thumbnails are a sample: each row is one query, 2 of 4;");
    cell("Layer 5, head 1, induction 1.00").click();
    await vi.waitFor(
      () => expect(words()).toMatch(/Strongest of 2 queries: “two” to “.*”, 1\.00/),
      PATIENT,
    );
    const rows = (await root.attnviz?.csv())?.split("\r\n") ?? [];
    expect(rows[1]).toMatch(/^"self",5,1,1,1,1,"two",2,/);
    const svg = (await root.attnviz?.svg()) ?? "";
    expect(svg).toContain("row is one query, 2 of 4");
  });

  it("draws all layers as a figure, with labels as text and markup as text", async () => {
    await open(pageData(RAGGED, { layer: 2, heads: [1] }));
    const svg = (await root.attnviz?.svg()) ?? "";
    const picture = new DOMParser().parseFromString(svg, "image/svg+xml");
    expect(picture.querySelector("parsererror")).toBeNull();
    expect(picture.querySelectorAll("img, script")).toHaveLength(0);
    const texts = [...picture.querySelectorAll("text")].map((each) => each.textContent);
    for (const text of ["<b>tiny</b>", "layer 2", "layer 5", "layer 9", "head 0", "head 2"])
      expect(texts).toContain(text);
    // Four queries of each of six heads have one weight, of 1.
    expect(
      picture.querySelectorAll('g rect[fill="rgb(59,65,80)"]:not([fill-opacity])').length,
    ).toBe(6 * 4);
    expect(root.querySelectorAll("img, script, b")).toHaveLength(0);
  });
});
