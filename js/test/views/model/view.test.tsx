import { beforeEach, expect, it, onTestFinished } from "vitest";
import type { AttnvizElement } from "../../../src/ui/view/define-view";
import { openPage } from "../../../src/views/model";
import { described, pageOf, stackOf, sticky, tokensOf } from "../../builders";
import { cellNamesOf, drawnIn, mount, until, useFakeClock } from "../../dom";

useFakeClock();
beforeEach(() => history.replaceState(null, "", "#"));

/** Open a view of a long text, whose heads are ordered by a pattern. */
async function openLongText(): Promise<AttnvizElement> {
  const layers: [number, number][] = [
    [2, 3],
    [5, 2],
    [9, 1],
  ];
  const stack = stackOf({
    layers: layers.map(([layer]) => layer),
    heads_per_layer: layers.map(([, numHeads]) => numHeads),
    query_tokens: tokensOf(["one", "two", "three", "four"]),
    patterns: ["induction"],
    sampled: 2,
  });
  const scores = [[0.25, 0.25, 0.25], [0.25, 1], [0.25]];
  const data = pageOf({
    view: "model",
    state: { stack: "self", layer: 2, heads: [], order: "induction" },
    description: described(stack),
    // The two rows of the maps are the sampled queries 1 and 3.
    maps: layers.map(([layer, numHeads]) => ({
      ...sticky([numHeads, 2, 4], { layer }, layer),
      sampled: [1, 3],
    })),
    scores: [{ stack: "self", pattern: "induction", scores }],
  });
  const root: AttnvizElement = mount(null);
  onTestFinished(openPage(root, data));
  await drawnIn(root);
  return root;
}

function openHead(root: AttnvizElement): void {
  root.querySelector<HTMLElement>('[aria-label="Layer 5, head 1, induction 1.00"]')?.click();
}

it("names the sampled queries of a long text", async () => {
  const root = await openLongText();
  const words = (): string => root.querySelector(".av-words")?.textContent ?? "";
  expect(words()).toContain(
    "By induction, estimated from the queries of a sample of 2 that have such keys, strongest first",
  );
  expect(words()).toContain("Thumbnails are a sample: each row is one query, 2 of 4;");
  openHead(root);
  await until(() => expect(words()).toMatch(/Strongest of 2 queries: “two” to “.*”, 1\.00/));
  const rows = (await root.attnviz?.csv())?.split("\r\n") ?? [];
  expect(rows[1]).toBe('"self",5,1,1');
  expect(await root.attnviz?.svg()).toContain("row is one query, 2 of 4");
});

it("draws a head with a closed gate in grey, and says why", async () => {
  const stack = stackOf({
    ...{ layers: [2, 5], query_tokens: tokensOf(["one", "two"]), heads_per_layer: [2, 2] },
    gates: [
      [0.5, 0.01],
      [0.25, null],
    ],
  });
  const pieces = [2, 5].map((layer) => sticky([2, 2, 2], { layer }));
  const state = { stack: "self", layer: 2, heads: [] };
  const data = pageOf({ view: "model", state, description: described(stack), blocks: pieces });
  const root: AttnvizElement = mount(null);
  onTestFinished(openPage(root, data));
  await drawnIn(root);
  expect(cellNamesOf(root)).toEqual([
    "Layer 2, head 0, mean gate 0.50",
    "Layer 2, head 1, gate closed: mean 0.01",
    "Layer 5, head 0, mean gate 0.25",
    "Layer 5, head 1",
  ]);
  const words = (): string => root.querySelector(".av-words")?.textContent ?? "";
  expect(words()).toContain("Grey: 1 head with a closed gate (mean below 0.05): 2.1.");
  const rows = (await root.attnviz?.csv())?.split("\r\n") ?? [];
  expect(rows.slice(0, 3).map((row) => row.split(",")[3])).toEqual(["mean_gate", "0.5", "0.01"]);
  root.querySelector<HTMLElement>('[aria-label^="Layer 2, head 1"]')?.click();
  await until(() => expect(words()).toContain("Layer 2, head 1. Gate closed: mean 0.01."));
});

it("lists the keys of the open head in the help", async () => {
  const root = await openLongText();
  const help = (): string => root.querySelector(".av-keys")?.textContent ?? "";
  const frame = root.querySelector(".av-frame") as HTMLElement;
  frame.dispatchEvent(new KeyboardEvent("keydown", { key: "?", bubbles: true }));
  await until(() => expect(help()).toContain("Enteropen the head in detail"));
  expect(help()).not.toContain("in the detail:");
  openHead(root);
  await until(() => expect(help()).toContain("0 … 9in the detail: choose a head"));
  expect(help()).toContain("+ −in the detail: zoom in, zoom out");
  // The detail has no mean of several heads and no search field.
  expect(help()).not.toMatch(/show the mean|find a token/);
});
