import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { PageData } from "../../../src/client/page";
import type { StackDescription } from "../../../src/client/protocol";
import type { AttnvizElement } from "../../../src/ui/view/define-view";
import { openPage } from "../../../src/views/model";
import type { ModelState } from "../../../src/views/model/state";
import { described, drawnIn, pageOf, stackOf, sticky, tokensOf, until } from "../../builders";

const HOSTILE = "</script><img src=x onerror=alert(1)>\0";
const WORDS = ["one", "two", HOSTILE, "four"];

function pageData(heads: Record<number, number>, state: Partial<ModelState> = {}): PageData {
  const layers = Object.keys(heads).map(Number);
  const self = stackOf({
    layers,
    heads_per_layer: Object.values(heads),
    query_tokens: tokensOf(WORDS),
    patterns: ["induction"],
  });
  const pieces = layers.map((layer) => sticky([heads[layer] ?? 0, 4, 4], { layer }, layer));
  const scores = layers.map((layer) =>
    Array.from({ length: heads[layer] ?? 0 }, (_, head) => (layer === 5 && head === 1 ? 1 : 0.25)),
  );
  return pageOf({
    view: "model",
    state: { stack: "self", layer: layers[0], heads: [], ...state },
    description: described(self),
    blocks: pieces,
    maps: pieces,
    scores: [{ stack: "self", pattern: "induction", scores }],
  });
}

const RAGGED = { 2: 3, 5: 2, 9: 1 };

let root: AttnvizElement;
let end = (): void => undefined;

async function open(data: PageData): Promise<void> {
  end = openPage(root, data);
  await drawn();
}

const drawn = (): Promise<void> => drawnIn(root);
const words = (): string => root.querySelector(".av-words")?.textContent ?? "";
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
});

describe("the model view on an exported page", () => {
  it("names the sampled queries of a long text", async () => {
    const data = pageData(RAGGED, { order: "induction" });
    const stack = data.description.stacks[0] as StackDescription;
    // The maps have two rows: queries 1 and 3 of the four queries.
    const maps = stack.layers.map((layer, at) => ({
      ...sticky([stack.heads_per_layer[at] as number, 2, 4], { layer }, layer),
      sampled: [1, 3],
    }));
    stack.sampled = 2;
    await open({ ...data, blocks: [], maps });
    expect(words()).toContain(
      "By induction, estimated from the queries of a sample of 2 that have such keys, strongest first",
    );
    expect(words()).toContain("Thumbnails are a sample: each row is one query, 2 of 4;");
    cell("Layer 5, head 1, induction 1.00").click();
    await until(() => expect(words()).toMatch(/Strongest of 2 queries: “two” to “.*”, 1\.00/));
    const rows = (await root.attnviz?.csv())?.split("\r\n") ?? [];
    expect(rows[1]).toMatch(/^"self",5,1,1,1,1,"two",2,/);
    const svg = (await root.attnviz?.svg()) ?? "";
    expect(svg).toContain("row is one query, 2 of 4");
  });
});
