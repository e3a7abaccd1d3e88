import { beforeEach, expect, it, onTestFinished } from "vitest";
import { openPage } from "../../../src/views/head";
import type { HeadState } from "../../../src/views/head/state";
import { described, pageOf, pieceOf, stackOf, sticky, tokensOf } from "../../builders";
import { buttonOf, drawnIn, enter, mount, pressKey, until, useFakeClock } from "../../dom";

let root: HTMLElement;

async function open(state: Partial<HeadState>): Promise<void> {
  const tokens = tokensOf(["one", "two", "three", "four"], { sequence: [0, 0, 1, 1] });
  const self = stackOf({
    ...{ layers: [2, 5], heads_per_layer: [3, 2], query_tokens: tokens },
    gates: [[0.5, 0.25, 0.01], null],
  });
  const sides = { query_tokens: tokensOf(["a", "b"]), key_tokens: tokensOf(["x", "y", "z"]) };
  const pieces = [
    sticky([3, 4, 4], { layer: 2 }),
    sticky([2, 4, 4], { layer: 5 }),
    sticky([2, 2, 3], { stack: "cross" }),
  ];
  const data = pageOf({
    state: { stack: "self", layer: 2, heads: [1], ...state },
    description: described(self, stackOf({ name: "cross", ...sides })),
    blocks: pieces,
    maps: pieces,
  });
  root = mount(null);
  onTestFinished(openPage(root, data));
  await drawnIn(root);
}

const words = (): string => root.querySelector(".av-words")?.textContent ?? "";

useFakeClock();
beforeEach(() => history.replaceState(null, "", "#"));

it("a click toggles a head, and a double click shows it alone or all again", async () => {
  await open({ heads: [1, 2] });
  const head = buttonOf(root, "Head 0");
  head?.click();
  await drawnIn(root);
  expect(words()).toContain("heads 1, 2, 0");
  const doubleClick = async (): Promise<void> => {
    head?.click();
    head?.click();
    head?.dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
    await drawnIn(root);
  };
  await doubleClick();
  expect(words()).toContain("head 0.");
  expect(head?.getAttribute("aria-pressed")).toBe("true");
  await doubleClick();
  expect(words()).toContain("heads 1, 2, 0");
});

it("names the gates of heads, and marks a closed one", async () => {
  await open({ heads: [0, 2] });
  expect(words()).toContain("heads 0, 2. Mean gates 0.01 to 0.50, closed in head 2.");
  expect(buttonOf(root, "Head 1, mean gate 0.25")?.textContent).toBe("1 ");
  expect(buttonOf(root, "Head 2, gate closed: mean 0.01")?.textContent).toBe("2 closed");
});

it("all heads stay chosen in a stack with fewer heads", async () => {
  await open({ heads: [0, 1, 2] });
  enter(root.querySelector("select"), "cross");
  await drawnIn(root, "head:cross:0");
  expect(location.hash).toBe("#stack=cross&layer=0&heads=0,1");
  expect(words()).not.toContain("no head 2");
});

it.each(["Escape", "a button"])(
  "%s closes the strongest keys, and returns the focus",
  async (by) => {
    await open({ token: 0, key_window: [0, 2] });
    const list = (): Element | null => root.querySelector(".av-strongest");
    await until(() => expect(list()).not.toBeNull());
    const chip = list()?.querySelector<HTMLElement>(".av-chip") ?? null;
    chip?.focus();
    if (by === "Escape") pressKey(chip, "Escape");
    else buttonOf(root, "Close the strongest keys and unpin")?.click();
    await until(() => expect(list()).toBeNull());
    expect(document.activeElement).toBe(root.querySelector(".av-plot"));
    expect(words()).not.toContain("Pinned");
  },
);

it("the strongest keys are renormalised like the lines", async () => {
  const tokens = tokensOf(["one", "two", "three", "four"]);
  // Codes are square roots of weights: (128 / 255)^2 is 0.252, and (180 / 255)^2 is 0.498.
  const rows = pieceOf(
    [1, 4, 4],
    Uint8Array.from([...Array(3)].flatMap(() => [255, 0, 0, 0]).concat([180, 0, 128, 128])),
  );
  const data = pageOf({
    state: { token: 3, key_window: [0, 2], leave_out: ["first"], renormalize: true },
    description: described(stackOf({ query_tokens: tokens })),
    blocks: [rows],
  });
  root = mount(null);
  onTestFinished(openPage(root, data));
  await until(() =>
    expect(root.querySelector(".av-strongest")?.textContent).toContain(
      "“three” 2 0.50“four” 3 0.50",
    ),
  );
  expect(words()).toContain("“four” attends most to “three” outside the window: 0.50.");
});
