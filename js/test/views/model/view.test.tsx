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
});
