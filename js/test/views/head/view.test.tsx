import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { PageData } from "../../../src/client/page";
import type { AttnvizElement } from "../../../src/ui/view/define-view";
import { openPage } from "../../../src/views/head";
import type { HeadState } from "../../../src/views/head/state";
import { described, drawnIn, pageOf, stackOf, sticky, tokensOf, until } from "../../builders";

const HOSTILE = "</script><img src=x onerror=alert(1)>\0";

function pageData(state: Partial<HeadState> = {}): PageData {
  const words = ["one", "two", HOSTILE, "four"];
  const self = stackOf({
    layers: [2, 5],
    heads_per_layer: [3, 2],
    query_tokens: tokensOf(words, { sequence: [0, 0, 1, 1] }),
  });
  const cross = stackOf({
    name: "cross",
    query_tokens: tokensOf(["a", "b"]),
    key_tokens: tokensOf(["x", "y", "z"]),
  });
  const pieces = [
    sticky([3, 4, 4], { layer: 2 }),
    sticky([2, 4, 4], { layer: 5 }),
    sticky([2, 2, 3], { stack: "cross" }),
  ];
  return pageOf({
    state: { stack: "self", layer: 2, heads: [1], ...state },
    description: described(self, cross),
    blocks: pieces,
    maps: pieces,
  });
}

let root: AttnvizElement;
let end = (): void => undefined;

async function open(state: Partial<HeadState> = {}): Promise<void> {
  end = openPage(root, pageData(state));
  await drawn();
}

const drawn = (id?: string): Promise<void> => drawnIn(root, id);
const words = (): string => root.querySelector(".av-words")?.textContent ?? "";
const button = (name: string): HTMLButtonElement =>
  root.querySelector(`[aria-label="${name}"]`) as HTMLButtonElement;
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

describe("the head view on an exported page", () => {
  it("toggles a head by click, and shows it alone or all again by double click", async () => {
    await open({ heads: [1, 2] });
    const head = button("Head 0");
    head.click();
    await drawn();
    expect(words()).toContain("heads 1, 2, 0");
    const twice = (): void => {
      head.click();
      head.click();
      head.dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
    };
    twice();
    await drawn();
    expect(words()).toContain("head 0.");
    expect(head.getAttribute("aria-pressed")).toBe("true");
    twice();
    await drawn();
    expect(words()).toContain("heads 1, 2, 0");
  });

  it("keeps all heads chosen in a stack with different heads", async () => {
    await open({ heads: [0, 1, 2] });
    const select = root.querySelector("select") as HTMLSelectElement;
    select.value = "cross";
    select.dispatchEvent(new Event("change", { bubbles: true }));
    await drawn("head:cross:0");
    expect(location.hash).toBe("#stack=cross&layer=0&heads=0,1");
    expect(words()).not.toContain("no head 2");
  });

  it("states why it opened at its head until the head changes", async () => {
    const opening = {
      ...{ stack: "self", layer: 2, head: 1, pattern: "previous token" },
      ...{ score: 0.9, baseline: 0.25, num_queries: null },
    };
    await open({ heads: [1], opening });
    const openingText = (): string => root.querySelector(".av-opening")?.textContent ?? "";
    expect(openingText()).toContain("Opened at layer 2, head 1,");
    expect(await root.attnviz?.svg()).not.toContain("Opened at");
    button("Layer 5").click();
    await drawn("head:self:5");
    expect(openingText()).toBe("");
  });

  it("closes the list of shortcuts by Esc before it clears pins", async () => {
    await open({ token: 0 });
    press("?");
    await drawn();
    expect(root.querySelector(".av-keys")).not.toBeNull();
    press("Escape");
    await drawn();
    expect(root.querySelector(".av-keys")).toBeNull();
    expect(words()).toContain("Pinned");
    press("Escape");
    await drawn();
    expect(words()).not.toContain("Pinned");
  });

  it.each(["Escape", "button"])(
    "closes the strongest keys by %s, and gives the focus back",
    async (closing) => {
      await open({ token: 0, key_window: [0, 2] });
      const list = (): HTMLElement | null => root.querySelector(".av-strongest");
      await until(() => expect(list()).not.toBeNull());
      const chip = list()?.querySelector<HTMLElement>(".av-chip");
      chip?.focus();
      if (closing === "button") button("Close the strongest keys and unpin").click();
      else chip?.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
      await until(() => expect(list()).toBeNull());
      expect(document.activeElement).toBe(root.querySelector(".av-plot"));
      expect(words()).not.toContain("Pinned");
    },
  );
});
