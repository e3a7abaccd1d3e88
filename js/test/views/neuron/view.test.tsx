import { deflateSync } from "node:zlib";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { PageData } from "../../../src/client/page";
import type { EmbeddedLayer } from "../../../src/client/page/vectors";
import type { StackDescription } from "../../../src/client/protocol";
import type { AttnvizElement } from "../../../src/ui/view/define-view";
import { openPage } from "../../../src/views/neuron";
import type { NeuronState } from "../../../src/views/neuron/state";

const HOSTILE = "</script><img src=x onerror=alert(1)>\0";
const TEXTS = ["[CLS]", "one", HOSTILE, "four", "[SEP]"];

function deflated(values: number[]): string {
  return deflateSync(new Uint8Array(Float32Array.from(values).buffer)).toString("base64");
}

/** Every query is (1, 2); key j of layer 2 is (j, 0), of layer 5 it is (0, -j). */
function pageData(state: Partial<NeuronState> = {}): PageData {
  const tokens = { text: TEXTS, special: [0, 4], sequence: [null, 0, 0, 0, null] };
  const stack: StackDescription = {
    name: "self",
    layers: [2, 5],
    heads_per_layer: [2, 2],
    query_tokens: tokens,
    key_tokens: null,
    normalized: true,
    maximum: 1,
    causal: true,
    vectors: true,
    patterns: [],
  };
  const layer: EmbeddedLayer = {
    stack: "self",
    layer: 2,
    num_heads: 2,
    num_key_heads: 1,
    num_queries: 5,
    num_keys: 5,
    head_dim: 2,
    encoding: "float32",
    queries: 0,
    keys: 1,
    scale: 0.5,
    softcap: null,
    sinks: null,
    mask: { kind: "band", before: null, after: 0, offset: 0 },
    bias: null,
    error: 0,
    logit_error: 0,
  };
  const keys = TEXTS.map((_, j) => j);
  const weightsOnly = {
    ...stack,
    name: "cross",
    layers: [0],
    heads_per_layer: [1],
    vectors: false,
  };
  const map = deflateSync(new Uint8Array(50)).toString("base64");
  const maps = [
    { stack: "self", layer: 2 },
    { stack: "self", layer: 5 },
    { stack: "cross", layer: 0 },
  ].map((place) => ({
    ...place,
    shape: [2, 5, 5] as [number, number, number],
    encoding: "uint8-sqrt" as const,
    maximum: 1,
    error: 0.004,
    data: map,
  }));
  return {
    format: 2,
    view: "neuron",
    state: { stack: "self", layer: 2, heads: [1], ...state },
    description: { model: "<b>tiny</b>", notes: [], stacks: [stack, weightsOnly] },
    blocks: [],
    maps,
    vectors: {
      layers: [layer, { ...layer, layer: 5, keys: 2 }],
      arrays: [
        deflated(new Array(10).fill([1, 2]).flat()),
        deflated(keys.flatMap((j) => [j, 0])),
        deflated(keys.flatMap((j) => [0, -j])),
      ],
    },
  };
}

let root: AttnvizElement;
let end = (): void => undefined;

async function drawn(place = "neuron:self:2"): Promise<void> {
  await vi.waitFor(() => expect(root.getAttribute("data-attnviz-drawn")).toBe(place), {
    timeout: 15_000,
  });
  await new Promise((resolve) => setTimeout(resolve, 20));
}

async function open(state: Partial<NeuronState> = {}): Promise<void> {
  end = openPage(root, pageData(state));
  await drawn(`neuron:self:${state.layer ?? 2}`);
}

const words = (): string => root.querySelector(".av-words")?.textContent ?? "";
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

describe("the neuron view on an exported page", () => {
  it("begins with the last query that is not special, and its strongest key", async () => {
    await open();
    // q·k / 2 of query 3 and key j is j / 2.
    expect(words()).toContain("“four” gives 0.46 of its attention to “four”: q·k / √4 = +1.50");
    expect(words()).toContain("1 of 5 keys are masked.");
    expect(words()).toContain("key head 0 of 1, shared with head 0.");
    expect(root.querySelector(".av-subtitle")?.textContent).toBe(
      "neuron view · self-attention · layer 2, head 1 · 2 dimensions, sorted by their share for “four” · exact",
    );
    expect(root.querySelector(".av-summary")?.textContent).toMatch(/Query 3, “four”\. Strongest:/);
  });

  it("is moved by keys: keys, queries, layers, heads, and back", async () => {
    await open();
    press("ArrowUp");
    await drawn();
    expect(words()).toContain("to “</script");
    press("ArrowLeft");
    press("ArrowLeft");
    press("ArrowDown");
    await drawn();
    expect(words()).toContain("“one” may not attend to “four”: the key is masked.");
    press("]");
    await drawn("neuron:self:5");
    press("0");
    await drawn("neuron:self:5");
    expect(root.querySelector(".av-subtitle")?.textContent).toContain("layer 5, head 0");
    expect(location.hash).toBe("#stack=self&layer=5&heads=0&token=1&key=3");
    press("Escape");
    await drawn("neuron:self:5");
    // The products are -j there: the first key is the strongest.
    expect(words()).toContain("“four” gives 0.64 of its attention to “[CLS]”");
    expect(press("q")).toBe(true);
  });

  it("chooses a query by a click on its token", async () => {
    await open();
    const button = [...root.querySelectorAll<HTMLButtonElement>(".av-token")][1];
    button?.click();
    await drawn();
    expect(words()).toContain("“one” gives");
    expect(button?.getAttribute("aria-pressed")).toBe("true");
  });

  it("sorts dimensions by share, or leaves their order", async () => {
    await open({ layer: 5, key: 3 });
    const order = async (): Promise<string[]> =>
      ((await root.attnviz?.svg()) ?? "").match(/sorted by their share|in their order/g) ?? [];
    expect(await order()).toEqual(["sorted by their share"]);
    (root.querySelector("input[type='checkbox']") as HTMLInputElement).click();
    await drawn("neuron:self:5");
    expect(await order()).toEqual(["in their order"]);
  });

  it("gives its numbers as a table that adds up", async () => {
    await open();
    const [head, ...rows] = ((await root.attnviz?.csv()) ?? "").split("\r\n");
    expect(head).toBe(
      "stack,layer,head,query,query_token,key,key_token,quantity,dimension,q,k,scale,value,largest_error",
    );
    expect(rows).toContain('"self",2,1,3,"four",1,"one","product",0,1,1,0.5,0.5,0');
    expect(rows).toContain('"self",2,1,3,"four",1,"one","sum",,,,,0.5,0');
    expect(rows).toContain('"self",2,1,3,"four",4,"[SEP]","masked",,,,,,0');
    expect(rows.filter((row) => row.includes('"product"'))).toHaveLength(10);
    expect(rows.filter((row) => row.includes('"weight"'))).toHaveLength(4);
  });

  it("shows markup in names and tokens as text", async () => {
    await open({ token: 2 });
    expect(root.querySelector(".av-title")?.textContent).toBe("<b>tiny</b>");
    expect(root.querySelectorAll("img, script, b")).toHaveLength(0);
    const svg = new DOMParser().parseFromString((await root.attnviz?.svg()) ?? "", "image/svg+xml");
    expect(svg.querySelector("parsererror")).toBeNull();
    expect(svg.querySelectorAll("img, script")).toHaveLength(0);
    expect(svg.documentElement.textContent).toContain("<b>tiny</b>");
  });

  it("says where only weights are known", async () => {
    end = openPage(root, pageData({ stack: "cross", layer: 0 }));
    await vi.waitFor(() =>
      expect(root.querySelector(".av-only-weights")?.textContent).toContain(
        "only weights are known",
      ),
    );
    expect(root.getAttribute("data-attnviz-state")).toBe("ready");
  });
});
