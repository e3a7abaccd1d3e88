import { describe, expect, it } from "vitest";
import type { EmbeddingState } from "../../../src/views/embedding/state";
import { runningTokens, TextPane } from "../../../src/views/embedding/text";
import { mount, pass, textsOf, until, useFakeClock } from "../../dom";
import { corpusWith, type Setup, setUp } from "./kernel";

interface OpenPane extends Setup {
  box: HTMLElement;
}

async function open(changed: Partial<EmbeddingState>): Promise<OpenPane> {
  const setup = setUp({ enlarged: true, ...changed });
  const { context, store } = setup;
  const box = mount(<TextPane context={context} store={store} />);
  await until(() => expect(store.corpus.value).not.toBeNull());
  await pass(40);
  return { ...setup, box };
}

const token = (box: HTMLElement, at: number): HTMLButtonElement =>
  box.querySelector(`.av-running [data-at="${at}"]`) as HTMLButtonElement;

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

const shown = (vocabulary: string[], positions = [0, 1, 2, 3]) =>
  runningTokens(
    corpusWith({
      vocabulary,
      special: [],
      num_queries: 4,
      num_keys: 4,
      queries: { text: [1, 1, 1, 1], position: positions, token: [0, 1, 2, 3] },
      columns: [],
    }),
    "query",
    1,
  );

describe("running tokens", () => {
  it.each<[string, string[], boolean[]]>([
    [
      "words start at the dot of their vocabulary",
      ["The", "·anim", "al", "·"],
      [false, true, false, true],
    ],
    [
      "a vocabulary without dots has words and continuations",
      ["the", "anim", "##al", "."],
      [false, true, false, true],
    ],
    ["no line starts with a gap", ["a", "⏎", "·b", "·c"], [false, false, false, true]],
  ])("%s", (_, vocabulary, gaps) => {
    expect(shown(vocabulary).map(({ gap }) => gap)).toEqual(gaps);
  });

  it("mark tokens that are not points, and are shortened after a page", () => {
    const tokens = shown(["a", "b", "c", "x".repeat(500)], [2, 3, 7, 8]);
    expect(tokens.map(({ missing }) => missing)).toEqual([2, 0, 3, 0]);
    expect(tokens[3]?.text.length).toBeLessThan(80);
  });

  it("show the patches of an image as rows of symbols", () => {
    const vocabulary = ["[CLS]", "patch 0,0", "patch 0,1", "patch 1,0"];
    const queries = { text: [1, 1, 1, 1], position: [0, 1, 2, 3], token: [0, 1, 2, 3] };
    const patches = corpusWith({ images: 1, vocabulary, queries, num_queries: 4, num_keys: 4 });
    const tokens = runningTokens(patches, "query", 1);
    expect(tokens.map(({ text }) => text)).toEqual(["[CLS]", "▪", "▪", "▪"]);
    expect(tokens.map(({ ends }) => ends)).toEqual([true, false, true, false]);
  });

  it("mark special tokens, and are empty for a text without points", () => {
    const corpus = corpusWith();
    expect(runningTokens(corpus, "key", 2).map(({ special }) => special)).toEqual([false, true]);
    expect(runningTokens(corpus, "query", 0)).toEqual([]);
  });
});
