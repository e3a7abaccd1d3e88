import { readdirSync, readFileSync } from "node:fs";
import { resolve } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { PageData } from "../../../src/client/page";
import { openPage } from "../../../src/views/dashboard";
import { described, pageOf, stackOf, sticky, tokensOf, until } from "../../builders";

const SOURCE = `${resolve(import.meta.dirname, "../../../src")}/`;

/** Return the data of a page with one layer of two heads. */
function pageData(): PageData {
  const pieces = [sticky([2, 3, 3])];
  return pageOf({
    view: "dashboard",
    state: { stack: "self", layer: 0, heads: [1] },
    description: described(stackOf({ query_tokens: tokensOf(["a", "b", "c"]) })),
    blocks: pieces,
    maps: pieces,
    scores: [],
  });
}

let root: HTMLElement;
let end = (): void => undefined;

beforeEach(() => {
  root = document.createElement("div");
  document.body.append(root);
});

afterEach(() => {
  end();
  root.remove();
});

const classesOf = (css: string): string[] => css.match(/(?<=\.)av-[a-z-]+/g) ?? [];

describe("the dashboard", () => {
  it("has the style sheets of all its panes", async () => {
    end = openPage(root, pageData());
    await until(() => expect(root.querySelectorAll("[role=gridcell]")).toHaveLength(2));
    await until(() => expect(root.querySelectorAll(".av-plot")).toHaveLength(2));
    const styled = new Set(
      readdirSync(SOURCE, { recursive: true, encoding: "utf8" })
        .filter((path) => path.endsWith(".css"))
        .flatMap((path) => classesOf(readFileSync(SOURCE + path, "utf8"))),
    );
    const brought = new Set(classesOf(root.querySelector("style")?.textContent ?? ""));
    const used = new Set(
      [...root.querySelectorAll("*")].flatMap((element) => [...element.classList]),
    );
    const missing = [...used].filter((name) => styled.has(name) && !brought.has(name));
    expect(missing).toEqual([]);
    expect([...used].filter((name) => styled.has(name)).length).toBeGreaterThan(20);
  });
});
