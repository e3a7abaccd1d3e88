import { render } from "preact";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { AtlasStatistic } from "../../../src/client/protocol";
import { markDrawn } from "../../../src/ui/view/define-view";
import { assign } from "../../../src/ui/view/state";
import { AtlasView } from "../../../src/views/atlas";
import type { AtlasState } from "../../../src/views/atlas/state";
import { FIXTURE, Kernel, pageCarrier, type Room, roomWith, STACK } from "./kernel";

/** Machines that test are busy. */
const PATIENT = { timeout: 15_000 };

let room: Room;
let root: HTMLElement;

async function open(
  changed: Partial<AtlasState> = {},
  carrier: Kernel | ReturnType<typeof pageCarrier> = pageCarrier(),
): Promise<void> {
  room = roomWith({ layer: 2, heads: [0], ...changed }, carrier);
  root = room.context.root;
  room.context.setDrawn = (place) => markDrawn(root, place);
  document.body.append(root);
  render(<AtlasView context={room.context} />, root);
  await drawn();
}

async function drawn(place?: string): Promise<void> {
  await vi.waitFor(() => {
    const mark = root.getAttribute("data-attnviz-drawn");
    expect(mark).not.toBeNull();
    if (place) expect(mark).toBe(place);
  }, PATIENT);
  await settle();
}

const settle = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 30));
const grid = (): HTMLElement => root.querySelector("[role=grid]") as HTMLElement;
const cells = (): string[] =>
  [...root.querySelectorAll("[role=gridcell]")].map(
    (each) => each.getAttribute("aria-label") ?? "",
  );
const edges = (): HTMLButtonElement[] => [
  ...root.querySelectorAll<HTMLButtonElement>(".av-atlas-edges > ol > li > button"),
];
const button = (text: string): HTMLButtonElement =>
  [...root.querySelectorAll("button")].find((each) =>
    each.textContent?.includes(text),
  ) as HTMLButtonElement;
const press = (target: Element, key: string, more: KeyboardEventInit = {}): void => {
  target.dispatchEvent(
    new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more }),
  );
};
const type = (label: string, text: string): void => {
  const field = [...root.querySelectorAll("label")]
    .find((each) => each.textContent?.startsWith(label))
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
  vi.restoreAllMocks();
});

describe("the grid of heads", () => {
  it("says of each head its role with the evidence, or that it has none", async () => {
    await open();
    expect(root.getAttribute("data-attnviz-drawn")).toBe("atlas:self:2");
    expect(cells()).toEqual([
      "Layer 2, head 0: previous 0.98 ± 0.01 (baseline 0.25), 3 texts",
      "Layer 2, head 1: none of 2 roles: no score exceeds its baseline by more than 0.1 at a false discovery rate of 5%",
      "Layer 5, head 0: none of 2 roles: no score exceeds its baseline by more than 0.1 at a false discovery rate of 5%",
      "Layer 5, head 1: first 0.50 ± 0.01 (baseline 0.25), 3 texts",
    ]);
    expect(root.textContent).toContain("1 text was left out, being empty or too long.");
  });

  it("is a legend of roles with the heads that have each", async () => {
    await open();
    const roles = [...root.querySelectorAll(".av-atlas-roles button")].map(
      (each) => each.textContent,
    );
    expect(roles).toEqual(["Pprevious1", "Ffirst1", "·none2"]);
    button("first").click();
    await settle();
    expect(button("first").getAttribute("aria-pressed")).toBe("true");
    button("first").click();
    await settle();
    expect(button("first").getAttribute("aria-pressed")).toBe("false");
  });

  it("says any statistic with its error, baseline and texts", async () => {
    await open({ color: "previous token" });
    const { means, errors } = FIXTURE.values.table;
    const [mean, error] = [means[0]?.[0]?.[0] as number, errors[0]?.[0]?.[0] as number];
    expect(cells()[0]).toBe(
      `Layer 2, head 0: previous token ${mean.toFixed(2)} ± ${error.toFixed(2)} (baseline 0.25), 3 texts`,
    );
    // Its only baseline that is not known.
    expect(cells()[2]).not.toContain("baseline");
    expect(root.querySelector(".av-atlas-scale")?.textContent).toContain("▲ baseline 0.25");
  });

  it("is ordered by a statistic or by role, all layers in one list", async () => {
    await open({ order: "first token" });
    const wanted = FIXTURE.values.table.means[1] as number[][];
    const names = [
      ["2, head 0", wanted[0]?.[0]],
      ["2, head 1", wanted[0]?.[1]],
      ["5, head 0", wanted[1]?.[0]],
      ["5, head 1", wanted[1]?.[1]],
    ] as [string, number][];
    names.sort((a, b) => b[1] - a[1]);
    expect(cells().map((each) => /Layer (.*?):/.exec(each)?.[1])).toEqual(
      names.map(([name]) => name),
    );
    assign(room.state, { order: "role" });
    await settle();
    expect(cells().map((each) => /Layer (.*?):/.exec(each)?.[1])).toEqual([
      "2, head 0",
      "5, head 1",
      "2, head 1",
      "5, head 0",
    ]);
  });

  it("takes the keyboard: an arrow chooses the next head", async () => {
    await open();
    press(grid(), "ArrowRight");
    await drawn();
    expect([room.state.layer.value, room.state.heads.value]).toEqual([2, [1]]);
    press(grid(), "ArrowDown");
    await drawn("atlas:self:5");
    expect([room.state.layer.value, room.state.heads.value]).toEqual([5, [1]]);
    expect(root.querySelector(".av-atlas-head h2")?.textContent).toBe("Layer 5, head 1");
  });
});

describe("the chosen head", () => {
  it("has its roles with all evidence, and every statistic", async () => {
    await open();
    const roles = [...root.querySelectorAll(".av-atlas-evidence > li")].map(
      (each) => each.textContent,
    );
    expect(roles[0]).toContain("previous 0.98 ± 0.01");
    expect(roles[0]).toContain(
      "0.73 above its baseline of 0.25, 95% interval 0.68 to 0.77, p < 1e−6 after correction, 3 texts.",
    );
    expect(roles[1]).toContain("first 0.50 ± 0.01");
    const rows = [...root.querySelectorAll(".av-atlas-figures:not(section) tbody tr")];
    expect(rows.map((row) => row.querySelector("th")?.textContent)).toEqual([
      "previous token",
      "first token",
    ]);
    expect(rows[0]?.querySelectorAll("td")[1]?.textContent).toBe("0.25");
    expect(rows[1]?.querySelectorAll("td")[1]?.textContent).toBe("–");
  });

  it("has its mean weight by class of token, of the system that is chosen", async () => {
    await open({}, new Kernel());
    const cellsOf = (): number[] =>
      [...root.querySelectorAll(".av-atlas-classes td")].map((each) => Number(each.textContent));
    const wanted = (system: string): number[] => {
      const rows = FIXTURE.values.classes[system]?.[0]?.[0] ?? [];
      const keys = rows
        .map((_, key) => key)
        .filter((key) => rows.some((row) => (row[key] ?? 0) > 0));
      return rows
        .filter((row) => row.some((each) => each !== null))
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

  it("without any role says so", async () => {
    await open({ heads: [1] });
    expect(root.querySelector(".av-atlas-head")?.textContent).toContain("None of 2 roles");
    expect(root.querySelector(".av-summary")?.textContent).toContain(
      "Layer 2, head 1 has none of 2",
    );
  });

  it("lists its sampled edges first, each with its query and its key marked", async () => {
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
    expect(root.querySelector(".av-atlas-words")?.textContent).toContain("not how often");
  });

  it("shows hostile tokens as text", async () => {
    await open({ edges: "strongest", heads: [0] });
    for (const each of [0, 1]) {
      assign(room.state, { layer: [2, 5][each] as number, heads: [0] });
      await drawn();
    }
    expect(root.querySelector("script")).toBeNull();
  });
});

describe("the offsets", () => {
  const plot = (): HTMLElement => root.querySelector("[role=application]") as HTMLElement;

  it("filter the edges by keyboard, and say how many are left of how many", async () => {
    await open();
    const { head, query, key } = FIXTURE.values.edges[0]?.sampled ?? {
      head: [],
      query: [],
      key: [],
    };
    const at = (offset: number): number =>
      head.filter((h, i) => h === 0 && (key[i] as number) - (query[i] as number) === offset).length;
    // The first press shows where it is: at offset −1.
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

  it("are filtered by a drag, and by a click on the filter no more", async () => {
    await open();
    const last = room.context.width.value;
    const down = (type: string, x: number): void => {
      const event = new MouseEvent(type, { bubbles: true, clientX: x, buttons: 1 });
      plot().dispatchEvent(event);
    };
    down("pointerdown", last);
    down("pointermove", 0);
    down("pointerup", 0);
    await settle();
    // The texts have up to six tokens, and no query attends to a later key.
    expect(room.state.offsets.value).toEqual([-5, 0]);
    button("offset −5 to 0").click();
    await settle();
    expect(room.state.offsets.value).toBeNull();
  });

  it("can be typed", async () => {
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
  it("counts over all heads, with the interval, and lists those with most", async () => {
    await open();
    type("Query", "*");
    await vi.waitFor(() => expect(cells()[0]).toContain("of 2 sampled edges"), PATIENT);
    expect(cells()[0]).toBe("Layer 2, head 0: 2 of 2 sampled edges (34% to 100%)");
    // The other layer's heads may come a picture later.
    await vi.waitFor(
      () => expect(root.querySelectorAll(".av-atlas-found li").length).toBe(4),
      PATIENT,
    );
    expect(root.textContent).toContain("no hit among 2 still allows up to 65.8%");
    type("Query", "pos:NOUN");
    await vi.waitFor(() => expect(cells()[0]).not.toContain("2 of 2"), PATIENT);
    button("Clear the search").click();
    await vi.waitFor(() => expect(cells()[0]).toContain("previous"), PATIENT);
  });

  it("waits the longer between two pictures, the more heads there are", async () => {
    const timer = vi.spyOn(globalThis, "setTimeout");
    await open();
    type("Query", "*");
    await vi.waitFor(() => expect(cells()[0]).toContain("of 2 sampled edges"), PATIENT);
    // Four heads: 60 ms and a tenth for each.
    expect(timer.mock.calls.map(([, wait]) => wait)).toContain(60.4);
  });

  it("for a class that there is not says which there are", async () => {
    await open();
    type("Key", "pos:NOPE");
    await vi.waitFor(
      () =>
        expect(root.textContent).toContain("No pos is “NOPE”; there are DET, NOUN, PUNCT, VERB."),
      PATIENT,
    );
    expect(cells()[0]).toContain("previous");
  });

  it("says how far it is, layer by layer", async () => {
    const kernel = new Kernel();
    await open({}, kernel);
    kernel.held = (name) => name === "edges";
    type("Query", "*");
    await vi.waitFor(() => expect(root.textContent).toContain("Layer 2 of 2 …"), PATIENT);
    expect(root.getAttribute("data-attnviz-drawn")).toBeNull();
    // Counts of what was gone over are there already.
    expect(cells()[0]).toContain("2 of 2 sampled edges");
    expect(cells()[2]).toContain("no sampled edges");
    await vi.waitFor(() => expect(kernel.waiting.length).toBe(1), PATIENT);
    kernel.waiting[0]?.();
    await drawn();
    expect(cells()[2]).toContain("2 of 2 sampled edges");
  });

  it("that fails says why", async () => {
    const kernel = new Kernel();
    await open({}, kernel);
    kernel.failing = new Map([["edges", "The edges are gone."]]);
    type("Query", "*");
    await vi.waitFor(() => expect(root.textContent).toContain("The edges are gone."), PATIENT);
  });
});

describe("the text of an edge", () => {
  it("opens below it with what the page contains, and says what it leaves out", async () => {
    await open();
    edges()[0]?.click();
    await settle();
    const { text, query, key } = FIXTURE.values.edges[0]?.sampled ?? {
      text: [],
      query: [],
      key: [],
    };
    expect([room.state.text.value, room.state.edge.value]).toEqual([text[0], [query[0], key[0]]]);
    const pane = root.querySelector(".av-atlas-text") as HTMLElement;
    expect(pane.textContent).toContain("not the whole text nor its other weights");
    expect(pane.closest("li")?.querySelector("button")).toBe(edges()[0]);
    expect(edges()[0]?.getAttribute("aria-expanded")).toBe("true");
    const marked = [...pane.querySelectorAll("mark")].map((each) => each.textContent);
    const shown = (FIXTURE.texts[text[0] as number]?.tokens ?? []).map((each) =>
      each.replace("·", ""),
    );
    expect(new Set(marked)).toEqual(new Set([shown[query[0] as number], shown[key[0] as number]]));
    press(pane, "Escape");
    await settle();
    expect(root.querySelector(".av-atlas-text")).toBeNull();
    expect([room.state.text.value, room.state.edge.value]).toEqual([null, null]);
  });

  it("is the same in a live view, and asks the kernel for nothing", async () => {
    const kernel = new Kernel();
    await open({}, kernel);
    const asked = kernel.asked.length;
    edges()[0]?.click();
    await settle();
    expect(root.querySelector(".av-atlas-text")?.textContent).toContain("not the whole text");
    expect(kernel.asked.length).toBe(asked);
  });
});

describe("what is asked", () => {
  it("is each thing once until all is drawn", async () => {
    const kernel = new Kernel();
    await open({}, kernel);
    const names = kernel.asked.map(([name]) => name).sort();
    expect(names).toEqual(["classes", "describe", "edges", "offsets", "statistics", "texts"]);
  });

  it("leaves out a table of more classes than are read, and says so", async () => {
    const kernel = new Kernel();
    const many = { name: "lemma", values: Array.from({ length: 25 }, (_, i) => `l${i}`) };
    const stacks = [{ ...STACK, classes: [...STACK.classes, many] }];
    kernel.description = { ...FIXTURE.description, stacks };
    await open({}, kernel);
    const shown = root.querySelector("[aria-label='Weights by class of token']");
    expect(shown?.querySelectorAll("option").length).toBe(STACK.classes.length);
    expect(shown?.textContent).toContain(
      'No table of lemma: it has 25 classes, and a table shows at most 24. Python has all: statistics.stack("self").class_weights(2, "lemma").',
    );
    expect(kernel.asked.filter(([, args]) => args.system === "lemma")).toEqual([]);
  });
});

describe("exports", () => {
  it("guard the names of statistics in tables", async () => {
    const kernel = new Kernel();
    const [first, ...others] = STACK.statistics;
    const statistics = [{ ...(first as AtlasStatistic), name: "=1+1" }, ...others];
    kernel.description = { ...FIXTURE.description, stacks: [{ ...STACK, statistics }] };
    await open({}, kernel);
    const table = await room.context.root.attnviz?.csv();
    expect(table).toContain(`,"'=1+1","'=1+1, standard error","'=1+1, baseline",`);
  });

  it("are a table of all heads and a figure with the grid and the chosen head", async () => {
    await open();
    const exporter = room.context.root.attnviz;
    const lines = (await exporter?.csv())?.split("\r\n") ?? [];
    expect(lines[0]).toContain(
      "stack,layer,head,role,role_score,role_standard_error,role_baseline",
    );
    expect(lines[0]).toContain('"previous token","previous token, standard error"');
    expect(lines.length).toBe(5);
    const { means } = FIXTURE.values.table;
    expect(lines[1]).toBe(
      `"self",2,0,"previous",0.97531,0.012346,0.25,0.68,0.77,1.2e-12,3,${means[0]?.[0]?.[0]},` +
        `${FIXTURE.values.table.errors[0]?.[0]?.[0]},0.25,3,${means[1]?.[0]?.[0]},` +
        `${FIXTURE.values.table.errors[1]?.[0]?.[0]},3`,
    );
    expect(lines[2]).toContain('"none",,,,,,,,');
    const svg = (await exporter?.svg()) ?? "";
    for (const words of [
      "fixture",
      "Layer 2, head 0",
      "previous 1",
      "none 2",
      "mean weight by offset",
      "class of token, and its edges.",
    ])
      expect(svg).toContain(words);
  });
});
