import { signal } from "@preact/signals";
import { describe, expect, it } from "vitest";
import type { BlockRequest, Description } from "../../../../src/client/protocol";
import type { Reply } from "../../../../src/client/transport";
import { selectionOf } from "../../../../src/ui/view/record";
import { assign, makeSignals } from "../../../../src/ui/view/state";
import type { EmbeddingState } from "../../../../src/views/embedding/state";
import { linked, revealChosen } from "../../../../src/views/embedding/text/head";
import { TextPane } from "../../../../src/views/embedding/text/panel";
import { HEAD_DEFAULTS } from "../../../../src/views/head/state";
import { tokensOf } from "../../../builders";
import { buttonOf, fieldOf, mount, pass, textsOf, until, useFakeClock } from "../../../dom";
import { Kernel, type Setup, setUp, stackOf } from "../kernel";

const TEXTS = [["left"], ["the", " cat", ",", "the"], ["The", " dog", "</s>"]];

function described(words: string[]): Description {
  return { model: "m", notes: [], stacks: [stackOf({ query_tokens: tokensOf(words) })] };
}

/**
 * Kernel that also answers requests for the record of a text, in which every query attends only to
 * itself. Such requests are recorded with "text " before the name.
 */
class TextKernel extends Kernel {
  override request(name: string, args: object, ended?: AbortSignal): Promise<Reply> {
    return super.request("text" in args ? `text ${name}` : name, args, ended);
  }

  protected override reply(name: string, args: object): Reply {
    const { text } = args as { text: number };
    if (name === "text describe") return { header: described(TEXTS[text] ?? []), data: null };
    if (name !== "text block") return super.reply(name, args);
    const { heads, rows, columns } = args as BlockRequest;
    const shape = [heads.length, rows[1] - rows[0], columns[1] - columns[0]];
    const [, numRows = 0, numColumns = 0] = shape;
    const data = Float32Array.from({ length: heads.length * numRows * numColumns }, (_, i) => {
      const row = rows[0] + (Math.floor(i / numColumns) % numRows);
      return Number(row === columns[0] + (i % numColumns));
    });
    return { header: { shape, encoding: "float32", maximum: 1, error: 0 }, data };
  }

  /** Return the index of the text in each request named `name` about the record of a text. */
  ofTexts(name: string): number[] {
    return this.of(`text ${name}`).map((args) => args.text as number);
  }
}

interface OpenPane extends Setup<TextKernel> {
  box: HTMLElement;
}

async function open(changed: Partial<EmbeddingState>): Promise<OpenPane> {
  const setup = setUp({ enlarged: true, ...changed }, new TextKernel());
  const { context, store } = setup;
  const box = mount(<TextPane context={context} store={store} />);
  await until(() => expect(store.corpus.value).not.toBeNull());
  await pass(40);
  return { ...setup, box };
}

const token = (box: HTMLElement, at: number): HTMLButtonElement =>
  box.querySelector(`.av-running [data-at="${at}"]`) as HTMLButtonElement;
const headView = (box: HTMLElement): string =>
  box.querySelector(".av-text-head")?.textContent ?? "";

useFakeClock();

it("the text of the chosen point has the keys shaded by weight", async () => {
  const { box, store } = await open({ text: 1, token: 3 });
  await until(() => expect(store.lines.value).not.toBeNull());
  await pass(40);
  expect(textsOf(box, ".av-running [data-at]")).toEqual(["the", " cat", ",", "the"]);
  expect(token(box, 3).getAttribute("aria-pressed")).toBe("true");
  // The lines end at points 6 and 7, keys 0 and 1, and have the weights 0.75 and 0.25.
  const shade = (at: number): number => {
    // The opacity is the last number of the background, in "rgb(... / 0.3)" or "rgba(..., 0.3)".
    const style = token(box, at).getAttribute("style") ?? "";
    return Number(/[/,] *([\d.]+)\);?$/.exec(style)?.[1] ?? 0);
  };
  expect(shade(0)).toBeGreaterThan(0);
  expect(shade(0)).toBeCloseTo(3 * shade(1), 2);
  expect([shade(2), shade(3)]).toEqual([0, 0]);
  expect(token(box, 0).getAttribute("aria-label")).toBe("the 0, 0.75");
});

describe("the head view of the text", () => {
  it("shows the enlarged head, and shares `leave_out`", async () => {
    const { box, kernel, state } = await open({ text: 1, token: 3, layer: 5, heads: [2] });
    await until(() => expect(headView(box)).toContain("head 2"));
    expect(kernel.of("text block")[0]).toMatchObject({ text: 1, layer: 5, heads: [2] });
    const pane = box.querySelector(".av-text-head") as HTMLElement;
    buttonOf(pane, "More")?.click();
    await until(() => expect(fieldOf(pane, "first")).not.toBeNull());
    fieldOf(pane, "first")?.click();
    expect(state.leave_out.value).toEqual(["first"]);
    assign(state, { renormalize: true, leave_out: [1] });
    await until(() => expect(headView(box)).toContain("renormalised"));
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
    for (const changed of [
      { text: 2, token: 0 },
      { text: 1, token: 2 },
      { text: 2, token: 2 },
    ]) {
      assign(state, changed);
      await pass(20);
    }
    await until(() => expect(box.querySelector(".av-text-head .av-frame")).not.toBeNull());
    expect(new Set(kernel.ofTexts("describe"))).toEqual(new Set([2]));
  });

  it("ends when the text changes, and ignores late replies", async () => {
    const { kernel, state, box } = await open({ text: 1, token: 0 });
    kernel.held = (name) => name === "text block";
    await until(() => expect(kernel.ofTexts("block")).toContain(1));
    const held = [...kernel.waiting];
    kernel.held = () => false;
    assign(state, { text: 2, token: 2 });
    await until(() => expect(kernel.aborted).toContain("text block"));
    for (const { release } of held) release();
    await until(() => expect(kernel.ofTexts("block")).toContain(2));
    await until(() => expect(headView(box)).toContain("</s>"));
    const numRequests = (): number => kernel.ofTexts("block").filter((text) => text === 1).length;
    const before = numRequests();
    // Choosing a token of the new text sends no request for the old text.
    assign(state, { token: 0 });
    await pass(1000);
    expect(numRequests()).toBe(before);
  });
});

it("a long text shows the part around the chosen token, and stays where the reader moves it", () => {
  const at = (token: number | null, key: number | null) => {
    const words = Array.from({ length: 500 }, (_, i) => String(i));
    return selectionOf(described(words), { stack: "self", layer: 0, heads: [0], token, key });
  };
  const state = makeSignals(HEAD_DEFAULTS);
  revealChosen(at(250, null), state);
  const [start, stop] = state.query_window.value ?? [0, 0];
  expect(start < 250 && 250 < stop).toBe(true);
  expect(state.key_window.value).toEqual([start, stop]);
  revealChosen(at(251, null), state);
  expect(state.query_window.value).toEqual([start, stop]);
  revealChosen(at(null, 499), state);
  expect(state.key_window.value?.[1]).toBe(500);
});

it("linked signals follow each other under a condition, the outer one first", () => {
  const [outer, inner, isLinked] = [signal(1), signal(5), signal(true)];
  linked(outer, inner, () => isLinked.value);
  expect(inner.value).toBe(1);
  inner.value = 2;
  expect(outer.value).toBe(2);
  isLinked.value = false;
  outer.value = 3;
  expect(inner.value).toBe(2);
  inner.value = 7;
  expect(outer.value).toBe(3);
  isLinked.value = true;
  expect([outer.value, inner.value]).toEqual([3, 3]);
});
