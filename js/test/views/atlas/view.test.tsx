import { render } from "preact";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { AtlasStatistic } from "../../../src/client/protocol";
import { markDrawn } from "../../../src/ui/view/define-view";
import { AtlasView } from "../../../src/views/atlas";
import type { AtlasState } from "../../../src/views/atlas/state";
import { drawnIn, until } from "../../builders";
import { FIXTURE, Kernel, pageTransport, type Room, roomWith, STACK } from "./kernel";

let room: Room;
let root: HTMLElement;

async function open(
  changed: Partial<AtlasState> = {},
  transport: Kernel | ReturnType<typeof pageTransport> = pageTransport(),
): Promise<void> {
  room = roomWith({ layer: 2, heads: [0], ...changed }, transport);
  root = room.context.root;
  room.context.setDrawn = (place) => markDrawn(root, place);
  document.body.append(root);
  render(<AtlasView context={room.context} />, root);
  await drawn();
}

const drawn = (place?: string): Promise<void> => drawnIn(root, place);

const settle = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 30));
const cells = (): string[] =>
  [...root.querySelectorAll("[role=gridcell]")].map(
    (element) => element.getAttribute("aria-label") ?? "",
  );
const edges = (): HTMLButtonElement[] => [
  ...root.querySelectorAll<HTMLButtonElement>(".av-atlas-edges > ol > li > button"),
];
const button = (text: string): HTMLButtonElement =>
  [...root.querySelectorAll("button")].find((element) =>
    element.textContent?.includes(text),
  ) as HTMLButtonElement;
const press = (target: Element, key: string, more: KeyboardEventInit = {}): void => {
  target.dispatchEvent(
    new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more }),
  );
};
const type = (label: string, text: string): void => {
  const field = [...root.querySelectorAll("label")]
    .find((element) => element.textContent?.startsWith(label))
    ?.querySelector("input") as HTMLInputElement;
  field.value = text;
  field.dispatchEvent(new Event("input", { bubbles: true }));
};

beforeEach(() => {
  history.replaceState(null, "", "#");
});

afterEach(() => {
  render(null, root);
  room.controller.abort();
  root.remove();
});

describe("the chosen head", () => {
  it("has its mean weights by class of token in the chosen system", async () => {
    await open({}, new Kernel());
    const cellsOf = (): number[] =>
      [...root.querySelectorAll(".av-atlas-classes td")].map((element) =>
        Number(element.textContent),
      );
    const wanted = (system: string): number[] => {
      const rows = FIXTURE.values.classes[system]?.[0]?.[0] ?? [];
      const keys = rows
        .map((_, key) => key)
        .filter((key) => rows.some((row) => (row[key] ?? 0) > 0));
      return rows
        .filter((row) => row.some((element) => element !== null))
        .flatMap((row) => keys.map((key) => Number((row[key] ?? 0).toFixed(2))));
    };
    expect(cellsOf()).toEqual(wanted("kind"));
    const choice = [...root.querySelectorAll("select")].at(-1) as HTMLSelectElement;
    choice.value = "pos";
    choice.dispatchEvent(new Event("change", { bubbles: true }));
    await drawn();
    expect(cellsOf()).toEqual(wanted("pos"));
    expect(wanted("pos")).not.toEqual(wanted("kind"));
  });

  it("lists its sampled edges first, with query and key marked", async () => {
    await open();
    const { text, query, key } = FIXTURE.values.edges[0]?.sampled ?? {
      text: [],
      query: [],
      key: [],
    };
    expect(button("sampled").getAttribute("aria-pressed")).toBe("true");
    expect(root.querySelector(".av-atlas-words")?.textContent).toContain("uniform sample");
    expect(edges().length).toBe(2);
    const tokens = FIXTURE.texts[text[0] as number]?.tokens ?? [];
    const words = edges()[0]?.querySelector(".av-unseen")?.textContent;
    expect(words).toContain(
      `“${tokens[query[0] as number]}” attends to “${tokens[key[0] as number]}”`,
    );
    expect(edges()[0]?.querySelectorAll("mark").length).toBe(query[0] === key[0] ? 1 : 2);
    button("strongest").click();
    await settle();
    expect(edges().length).toBe(3);
    expect(root.querySelector(".av-atlas-words")?.textContent).toContain("do not show how often");
  });
});

describe("the offsets", () => {
  const plot = (): HTMLElement => root.querySelector("[role=application]") as HTMLElement;

  it("filter the edges by keyboard, and show how many match", async () => {
    await open();
    const { head, query, key } = FIXTURE.values.edges[0]?.sampled ?? {
      head: [],
      query: [],
      key: [],
    };
    const at = (offset: number): number =>
      head.filter((h, i) => h === 0 && (key[i] as number) - (query[i] as number) === offset).length;
    // The first key only shows the cursor, at the offset −1.
    press(plot(), "ArrowLeft");
    press(plot(), "Enter");
    await settle();
    expect(room.state.offsets.value).toEqual([-1, -1]);
    expect(edges().length).toBe(at(-1));
    press(plot(), "ArrowRight", { shiftKey: true });
    await settle();
    expect(room.state.offsets.value).toEqual([-1, 0]);
    expect(edges().length).toBe(at(-1) + at(0));
    expect(root.querySelector(".av-atlas-listed")?.textContent).toMatch(
      /^\d of 2 sampled edges, .*: offset −1 to 0$/,
    );
    press(plot(), "Escape");
    await settle();
    expect(room.state.offsets.value).toBeNull();
    expect(edges().length).toBe(2);
  });

  it("can be typed as numbers", async () => {
    await open();
    const from = root.querySelector<HTMLInputElement>(
      "[aria-label='Offset from']",
    ) as HTMLInputElement;
    from.value = "-2";
    from.dispatchEvent(new Event("change", { bubbles: true }));
    await settle();
    expect(room.state.offsets.value).toEqual([-2, -2]);
    from.value = "";
    from.dispatchEvent(new Event("change", { bubbles: true }));
    await settle();
    expect(room.state.offsets.value).toBeNull();
  });
});

describe("a search", () => {
  it("shows its progress layer by layer", async () => {
    const kernel = new Kernel();
    await open({}, kernel);
    kernel.held = (name) => name === "edges";
    type("Query", "*");
    await until(() => expect(root.textContent).toContain("Layer 2 of 2 …"));
    expect(root.getAttribute("data-attnviz-drawn")).toBeNull();
    // The counts of layers that are finished are shown before all are finished.
    expect(cells()[0]).toContain("2 of 2 sampled edges");
    expect(cells()[2]).toContain("no sampled edges");
    await until(() => expect(kernel.waiting.length).toBe(1));
    kernel.waiting[0]?.();
    await drawn();
    expect(cells()[2]).toContain("2 of 2 sampled edges");
  });

  it("reports an error", async () => {
    const kernel = new Kernel();
    await open({}, kernel);
    kernel.failing = new Map([["edges", "The edges are gone."]]);
    type("Query", "*");
    await until(() => expect(root.textContent).toContain("The edges are gone."));
  });
});

describe("requests", () => {
  it("are sent once until everything is drawn", async () => {
    const kernel = new Kernel();
    await open({}, kernel);
    const names = kernel.asked.map(([name]) => name).sort();
    expect(names).toEqual(["classes", "describe", "edges", "offsets", "statistics", "texts"]);
  });

  it("omit class tables with too many classes, and say so", async () => {
    const kernel = new Kernel();
    const many = { name: "lemma", values: Array.from({ length: 25 }, (_, i) => `l${i}`) };
    const stacks = [{ ...STACK, classes: [...STACK.classes, many] }];
    kernel.description = { ...FIXTURE.description, stacks };
    await open({}, kernel);
    const shown = root.querySelector("[aria-label='Weights by class of token']");
    expect(shown?.querySelectorAll("option").length).toBe(STACK.classes.length);
    expect(shown?.textContent).toContain(
      'No table of lemma: it has 25 classes, but a table has at most 24. Call statistics.stack("self").class_weights(2, "lemma") for all.',
    );
    expect(kernel.asked.filter(([, args]) => args.system === "lemma")).toEqual([]);
  });
});

describe("exports", () => {
  it("escape the names of statistics in tables", async () => {
    const kernel = new Kernel();
    const [first, ...others] = STACK.statistics;
    const statistics = [{ ...(first as AtlasStatistic), name: "=1+1" }, ...others];
    kernel.description = { ...FIXTURE.description, stacks: [{ ...STACK, statistics }] };
    await open({}, kernel);
    const table = await room.context.root.attnviz?.csv();
    expect(table).toContain(`,"'=1+1","'=1+1, standard error","'=1+1, baseline",`);
  });
});
