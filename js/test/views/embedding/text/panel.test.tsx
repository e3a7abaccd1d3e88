import { signal } from "@preact/signals";
import { render } from "preact";
import { afterEach, describe, expect, it, vi } from "vitest";
import type { Description } from "../../../../src/client/protocol";
import type { Reply } from "../../../../src/client/transport";
import { selectionOf } from "../../../../src/ui/view/record";
import { assign, makeSignals } from "../../../../src/ui/view/state";
import { EMBEDDING_DEFAULTS, type EmbeddingState } from "../../../../src/views/embedding/state";
import { createEmbeddingStore, type EmbeddingStore } from "../../../../src/views/embedding/store";
import { linked, revealChosen } from "../../../../src/views/embedding/text/head";
import { chosenText, TextPane } from "../../../../src/views/embedding/text/panel";
import { HEAD_DEFAULTS } from "../../../../src/views/head/state";
import { until } from "../../../builders";
import { corpusWith, Kernel, type Room, roomWith, stackOf } from "../kernel";

const TEXTS = [["left"], ["the", " cat", ",", "the"], ["The", " dog", "</s>"]];

function described(text: number): Description {
  const words = TEXTS[text] as string[];
  const query_tokens = { text: words, special: [], sequence: words.map(() => 0) };
  return { model: `text ${text}`, notes: [], stacks: [stackOf({ query_tokens })] };
}

/**
 * Fake kernel that also answers requests for the record of a text. Every query attends only to
 * itself.
 */
class TextKernel extends Kernel {
  override async request(name: string, args: object, ended?: AbortSignal): Promise<Reply> {
    const { text, ...rest } = args as { text?: number };
    if (text === undefined) return super.request(name, args, ended);
    this.asked.push([`text ${name}`, args as Record<string, unknown>]);
    if (this.held(`text ${name}`)) {
      await new Promise<void>((resolve, reject) => {
        this.waiting.push({ name: `text ${name}`, args: { text }, answer: resolve });
        ended?.addEventListener("abort", () => {
          this.aborted.push(`text ${text} ${name}`);
          reject(new DOMException("cancelled", "AbortError"));
        });
      });
    }
    if (name === "describe") return { header: described(text), data: null };
    const { heads, rows, columns } = rest as Record<string, number[]>;
    if (name === "block") {
      const [first, stop] = rows as [number, number];
      const [from, to] = columns as [number, number];
      const values = (heads as number[]).flatMap(() =>
        Array.from({ length: stop - first }, (_, row) =>
          Array.from({ length: to - from }, (_, column) => Number(first + row === from + column)),
        ).flat(),
      );
      const shape = [(heads as number[]).length, stop - first, to - from];
      const header = { shape, encoding: "float32", maximum: 1, error: 0 };
      return { header, data: Float32Array.from(values) };
    }
    throw new Error(`No answer to ${name} of a text.`);
  }

  /** Return the texts of all requests with a name. */
  ofTexts(name: string): number[] {
    return this.of(`text ${name}`).map((args) => args.text as number);
  }
}

const later = (milliseconds = 30): Promise<void> =>
  new Promise((resolve) => setTimeout(resolve, milliseconds));

interface Made extends Room {
  store: EmbeddingStore;
  kernel: TextKernel;
  box: HTMLElement;
}

let made: Made[] = [];

async function open(changed: Partial<EmbeddingState> = {}, live = true): Promise<Made> {
  const kernel = new TextKernel();
  kernel.live = live;
  const room = roomWith({ enlarged: true, ...changed }, kernel);
  const store = createEmbeddingStore(room.context);
  const box = document.createElement("div");
  document.body.append(box);
  render(<TextPane context={room.context} store={store} />, box);
  const setup = { ...room, store, box, kernel };
  made.push(setup);
  await until(() => expect(store.corpus.value).not.toBeNull());
  await later();
  return setup;
}

const tokens = (box: HTMLElement): HTMLButtonElement[] =>
  Array.from(box.querySelectorAll<HTMLButtonElement>(".av-running [data-at]"));
const token = (box: HTMLElement, at: number): HTMLButtonElement =>
  box.querySelector(`.av-running [data-at="${at}"]`) as HTMLButtonElement;
const click = (element: Element | null, more: MouseEventInit = {}): void => {
  element?.dispatchEvent(new MouseEvent("click", { bubbles: true, ...more }));
};

afterEach(() => {
  for (const { controller, box } of made) {
    controller.abort();
    render(null, box);
    box.remove();
  }
  made = [];
});

describe("the text of the chosen point", () => {
  it("shows tokens with the chosen one outlined and its keys shaded by weight", async () => {
    const { box, store } = await open({ text: 1, token: 3 });
    await until(() => expect(store.lines.value).not.toBeNull());
    await later();
    expect(box.querySelector("h2")?.textContent).toBe("Text 1, “first”");
    expect(tokens(box).map((element) => element.textContent)).toEqual(["the", " cat", ",", "the"]);
    expect(tokens(box).map((element) => element.getAttribute("aria-pressed"))).toEqual([
      "false",
      "false",
      "false",
      "true",
    ]);
    // The lines go to points 6 and 7. These are keys 0 and 1, with the weights 0.75 and 0.25.
    const shade = (at: number): number =>
      Number(
        /\/ ([\d.]+)\)|, ([\d.]+)\)$/.exec(token(box, at).getAttribute("style") ?? "")?.[1] ?? 0,
      );
    expect(shade(0)).toBeCloseTo(3 * shade(1), 2);
    expect([shade(2), shade(3)]).toEqual([0, 0]);
    expect(token(box, 0).getAttribute("aria-label")).toBe("the 0, 0.75");
    expect(box.querySelector(".av-text-words")?.textContent).toContain("Opacity = weight ÷ 0.75.");
  });

  it("highlights the point under the pointer in both directions", async () => {
    const { box, store } = await open({ text: 1, token: 0 });
    store.hovered.value = 2;
    expect(token(box, 2).classList.contains("av-token-over")).toBe(true);
    store.hovered.value = 4;
    expect(box.querySelector(".av-token-over")).toBeNull();
    token(box, 1).dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
    expect(store.hovered.value).toBe(1);
  });

  it("reports tokens that are not points, and missing tokens", async () => {
    const { box } = await open({ text: 2, token: 1 });
    expect(box.querySelector(".av-text-words")?.textContent).toContain("not among the points");
    expect(box.querySelector(".av-running")?.textContent).toContain("…");
  });

  it("belongs to a point that a linked view chose without a text", () => {
    const state = makeSignals(EMBEDDING_DEFAULTS);
    const of = (chosen: number | null) =>
      chosenText({ state }, { chosen: signal(chosen) }, corpusWith());
    expect([of(null), of(4), of(6)]).toEqual([null, 2, 1]);
    assign(state, { text: 0 });
    expect(of(4)).toBe(0);
    assign(state, { text: 99 });
    expect(of(4)).toBeNull();
  });
});

describe("the head view of the text", () => {
  it("shows the enlarged head, and shares `leave_out`", async () => {
    const { box, kernel, state } = await open({ text: 1, token: 3, layer: 5, heads: [2] });
    await until(() => expect(box.querySelector(".av-text-head .av-frame")).not.toBeNull());
    await until(() => expect(kernel.of("text block").length).toBeGreaterThan(0));
    expect(kernel.of("text block")[0]).toMatchObject({ text: 1, layer: 5, heads: [2] });
    await until(() =>
      expect(
        box.querySelector(".av-text-head [data-attnviz-drawn], .av-text-head[data-attnviz-drawn]"),
      ).not.toBeNull(),
    );
    await until(() => expect(box.querySelector(".av-text-head")?.textContent).toContain("head 2"));
    const controls = Array.from(box.querySelectorAll<HTMLElement>(".av-text-head button"));
    controls.find((button) => button.textContent?.startsWith("More"))?.click();
    const input = await vi.waitFor(() => {
      const labels = Array.from(box.querySelectorAll(".av-text-head label"));
      const first = labels.find((label) => label.textContent === "first")?.querySelector("input");
      if (!first) throw new Error("no switch");
      return first;
    });
    input.checked = true;
    input.dispatchEvent(new Event("change", { bubbles: true }));
    expect(state.leave_out.value).toEqual(["first"]);
    assign(state, { renormalize: true, leave_out: [1] });
    await until(() =>
      expect(box.querySelector(".av-text-head")?.textContent).toContain("renormalised"),
    );
  });

  it("does not leave out tokens of another text", async () => {
    const { state, store } = await open({ text: 1, token: 0, leave_out: ["first", 2] });
    store.choose(1);
    expect(state.leave_out.value).toEqual(["first", 2]);
    store.choose(4);
    expect([state.text.value, state.leave_out.value]).toEqual([2, ["first"]]);
  });

  it("sends no requests for texts that are passed quickly", async () => {
    const { kernel, state, box } = await open({ text: 1, token: 0 });
    assign(state, { text: 2, token: 0 });
    await later(20);
    assign(state, { text: 1, token: 2 });
    await later(20);
    assign(state, { text: 2, token: 2 });
    await until(() => expect(box.querySelector(".av-text-head .av-frame")).not.toBeNull());
    await later(300);
    expect(new Set(kernel.ofTexts("describe"))).toEqual(new Set([2]));
    expect(box.querySelectorAll(".av-text-head")).toHaveLength(1);
  });

  it("ends when the text changes, and ignores late replies", async () => {
    const { kernel, state, box } = await open({ text: 1, token: 0 });
    kernel.held = (name) => name === "text block";
    await until(() => expect(kernel.ofTexts("block")).toContain(1));
    const held = kernel.waiting.filter(({ name }) => name === "text block");
    kernel.held = () => false;
    assign(state, { text: 2, token: 2 });
    await until(() => expect(kernel.aborted).toContain("text 1 block"));
    for (const { answer } of held) answer();
    await until(() => expect(kernel.ofTexts("block")).toContain(2));
    await until(() => expect(box.querySelector(".av-text-head")?.textContent).toContain("</s>"));
    const asked = kernel.ofTexts("block").filter((text) => text === 1).length;
    // Choosing a token of the new text sends no request for the old text.
    assign(state, { token: 0 });
    await later(100);
    expect(kernel.ofTexts("block").filter((text) => text === 1)).toHaveLength(asked);
  });

  it("ends with the view", async () => {
    const setup = await open({ text: 1, token: 0 });
    setup.kernel.held = (name) => name === "text describe";
    await until(() => expect(setup.kernel.ofTexts("describe")).toEqual([1]));
    setup.controller.abort();
    await until(() => expect(setup.kernel.aborted).toContain("text 1 describe"));
  });

  it("reports errors, and tries again", async () => {
    const setup = await open({ text: 0, token: 0 });
    const wrong = vi
      .spyOn(setup.kernel, "request")
      .mockRejectedValueOnce(new Error("The text is gone."));
    await until(() => expect(setup.box.textContent).toContain("The text is gone."));
    wrong.mockRestore();
    click(setup.box.querySelector(".av-standing button"));
    await until(() => expect(setup.box.textContent).not.toContain("The text is gone."));
  });
});

describe("a long text", () => {
  const long = (count: number): Description => {
    const query_tokens = {
      text: Array.from({ length: count }, (_, i) => String(i)),
      special: [],
      sequence: Array.from({ length: count }, () => 0),
    };
    return { model: "m", notes: [], stacks: [stackOf({ query_tokens })] };
  };
  const at = (token: number | null, key: number | null, count = 500) =>
    selectionOf(long(count), { stack: "self", layer: 0, heads: [0], token, key });

  it("shows the part around the chosen token, and stays where the reader moves it", () => {
    const state = makeSignals(HEAD_DEFAULTS);
    revealChosen(at(250, null), state);
    const [start, stop] = state.query_window.value ?? [0, 0];
    expect(start).toBeLessThan(250);
    expect(stop).toBeGreaterThan(250);
    expect(state.key_window.value).toEqual(state.query_window.value);
    revealChosen(at(251, null), state);
    expect(state.query_window.value).toEqual([start, stop]);
    revealChosen(at(null, 499), state);
    expect(state.key_window.value?.[1]).toBe(500);
    const short = makeSignals(HEAD_DEFAULTS);
    revealChosen(at(20, null, 40), short);
    revealChosen(null, short);
    expect(short.query_window.value).toBeNull();
  });
});

describe("linked signals", () => {
  it("follow each other under a condition, the outer one first", () => {
    const [outer, inner, here] = [signal(1), signal(5), signal(true)];
    const stop = linked(outer, inner, () => here.value);
    expect(inner.value).toBe(1);
    inner.value = 2;
    expect(outer.value).toBe(2);
    here.value = false;
    outer.value = 3;
    expect(inner.value).toBe(2);
    inner.value = 7;
    expect(outer.value).toBe(3);
    here.value = true;
    expect([outer.value, inner.value]).toEqual([3, 3]);
    stop();
    outer.value = 9;
    expect(inner.value).toBe(3);
  });
});
