import { beforeEach, describe, expect, it } from "vitest";
import type { AtlasEdgeColumns, AtlasStatistic } from "../../../src/client/protocol";
import type { Transport } from "../../../src/client/transport";
import { markDrawn } from "../../../src/ui/view/define-view";
import type { Signals } from "../../../src/ui/view/state";
import { AtlasView } from "../../../src/views/atlas";
import type { AtlasState } from "../../../src/views/atlas/state";
import { buttonOf, cellNamesOf, drawnIn, mount, pass, pressKey, useFakeClock } from "../../dom";
import { FIXTURE, Kernel, pageTransport, STACK, setUp } from "./kernel";

let state: Signals<AtlasState>;
let root: HTMLElement & { attnviz?: { csv(): Promise<string> | string } };

async function open(transport: Transport = pageTransport()): Promise<void> {
  const setup = setUp({ layer: 2, heads: [0] }, transport);
  ({ state } = setup);
  root = setup.context.root as typeof root;
  setup.context.setDrawn = (content) => markDrawn(root, content);
  mount(<AtlasView context={setup.context} />, root);
  await drawnIn(root);
}

const edges = (): Element[] => [...root.querySelectorAll(".av-atlas-edges > ol > li")];
const caption = (): string => root.querySelector(".av-atlas-words")?.textContent ?? "";

/** Sampled edges (pairs of a query and a key) of the first layer in the fixture. */
const SAMPLED = FIXTURE.values.edges[0]?.sampled as AtlasEdgeColumns;

useFakeClock();
beforeEach(() => history.replaceState(null, "", "#"));

describe("the chosen head", () => {
  it("lists its sampled edges first, with query and key marked", async () => {
    await open();
    const [text = 0, query = 0, key = 0] = [SAMPLED.text[0], SAMPLED.query[0], SAMPLED.key[0]];
    const tokens = FIXTURE.texts[text]?.tokens ?? [];
    expect(edges()).toHaveLength(2);
    expect(edges()[0]?.textContent).toContain(`“${tokens[query]}” attends to “${tokens[key]}”`);
    expect(edges()[0]?.querySelectorAll("mark")).toHaveLength(query === key ? 1 : 2);
    expect(caption()).toContain("uniform sample");
    buttonOf(root, "strongest")?.click();
    await pass(40);
    expect(edges()).toHaveLength(3);
    expect(caption()).toContain("do not show how often");
  });
});

describe("a hybrid model", () => {
  // Layers 2 and 5 have a softmax. Linear layers, 3 and 5, have the numbers of layers 2 and 5.
  class Hybrid extends Kernel {
    override description = {
      ...FIXTURE.description,
      stacks: [STACK, { ...STACK, name: "linear", linear: true, layers: [3, 5] }],
      siblings: [
        [
          { name: "self", linear: false },
          { name: "linear", linear: true },
        ],
      ],
    };
    protected override reply(name: string, args: object) {
      const { stack, layer, ...request } = args as Record<string, unknown>;
      const isShifted = stack === "linear" && layer === 3;
      const at = layer === undefined ? {} : { layer: isShifted ? 2 : layer };
      return super.reply(name, { ...request, stack: "self", ...at });
    }
  }
  const rows = (): (string | null)[] =>
    [...root.querySelectorAll("[role=rowheader]")].map((row) => row.getAttribute("aria-label"));

  it("has the layers of both kinds in its order, in the grid and in the table", async () => {
    await open(new Hybrid());
    expect(rows()).toEqual(["layer 2", "layer 3, linear", "layer 5", "layer 5, linear"]);
    expect(root.querySelectorAll(".av-grid-layer .av-linear-mark")).toHaveLength(2);
    expect(cellNamesOf(root)[2]).toContain("Layer 3, head 0, linear: ");
    const csv = String(await root.attnviz?.csv())
      .trim()
      .split("\n")
      .slice(1);
    const names = csv.map((line) => line.split(",").slice(0, 3).join(" "));
    const heads = (stack: string, layer: number) => [0, 1].map((at) => `"${stack}" ${layer} ${at}`);
    expect(names).toEqual([
      ...[...heads("self", 2), ...heads("self", 5)],
      ...[...heads("linear", 3), ...heads("linear", 5)],
    ]);
  });

  it("colours by a statistic and orders only the kind of the chosen head", async () => {
    await open(new Hybrid());
    state.color.value = STACK.statistics[0]?.name ?? "";
    await drawnIn(root);
    const uncoloured = () =>
      cellNamesOf(root).flatMap((name, at) => (name.includes("choose it") ? [at] : []));
    expect(uncoloured()).toEqual([2, 3, 6, 7]);
    root.querySelector<HTMLElement>(".av-grid-box")?.focus();
    pressKey(root.querySelector(".av-grid-box"), "ArrowDown");
    await drawnIn(root);
    expect([state.stack.value, state.layer.value]).toEqual(["linear", 3]);
    expect(uncoloured()).toEqual([0, 1, 4, 5]);
    root.querySelectorAll<HTMLElement>("[role=gridcell]")[7]?.click();
    await drawnIn(root);
    expect([state.stack.value, state.layer.value, state.heads.value]).toEqual(["linear", 5, [1]]);
    expect(root.textContent).toContain("of linear layers");
    state.order.value = state.color.value;
    await drawnIn(root);
    expect(cellNamesOf(root)).toHaveLength(4);
    expect(cellNamesOf(root).every((name) => name.includes(", linear: "))).toBe(true);
  });
});

it("sends one request of each kind until everything is drawn", async () => {
  const kernel = new Kernel();
  await open(kernel);
  const requests = ["describe", "edges", "offsets", "statistics", "texts"];
  expect(kernel.asked.map(([name]) => name).sort()).toEqual(requests);
});

it("escapes the names of statistics in exported tables", async () => {
  const kernel = new Kernel();
  const [first, ...others] = STACK.statistics;
  const statistics = [{ ...(first as AtlasStatistic), name: "=1+1" }, ...others];
  kernel.description = { ...FIXTURE.description, stacks: [{ ...STACK, statistics }] };
  await open(kernel);
  expect(await root.attnviz?.csv()).toContain(
    `,"'=1+1","'=1+1, standard error","'=1+1, baseline",`,
  );
});
