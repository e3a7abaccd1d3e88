import { readdirSync, readFileSync } from "node:fs";
import { resolve } from "node:path";
import { deflateSync } from "node:zlib";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { PageData } from "../../../src/client/page";
import { openPage } from "../../../src/views/dashboard";

const SOURCE = `${resolve(import.meta.dirname, "../../../src")}/`;

/** One layer of two heads of which every query attends to the first key alone. */
function pageData(): PageData {
  const codes = new Uint8Array(2 * 3 * 3).map((_, i) => (i % 3 === 0 ? 255 : 0));
  const piece = {
    stack: "self",
    layer: 0,
    shape: [2, 3, 3] as [number, number, number],
    encoding: "uint8-sqrt" as const,
    maximum: 1,
    error: 0.00392,
    data: deflateSync(codes).toString("base64"),
  };
  const stack = {
    name: "self",
    layers: [0],
    heads_per_layer: [2],
    query_tokens: { text: ["a", "b", "c"], special: [], sequence: [0, 0, 0] },
    key_tokens: null,
    normalized: true,
    maximum: 1,
    causal: false,
    vectors: false,
    patterns: [],
  };
  return {
    format: 2,
    view: "dashboard",
    state: { stack: "self", layer: 0, heads: [1] },
    description: { model: "tiny", notes: [], stacks: [stack] },
    blocks: [piece],
    maps: [piece],
    scores: [],
  };
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
  it("brings the style sheets of all that stands in it", async () => {
    end = openPage(root, pageData());
    await vi.waitFor(
      () => expect(root.querySelectorAll("[role=gridcell]")).toHaveLength(2),
      15_000,
    );
    await vi.waitFor(() => expect(root.querySelectorAll(".av-plot")).toHaveLength(2), 15_000);
    const styled = new Set(
      readdirSync(SOURCE, { recursive: true, encoding: "utf8" })
        .filter((path) => path.endsWith(".css"))
        .flatMap((path) => classesOf(readFileSync(SOURCE + path, "utf8"))),
    );
    const brought = new Set(classesOf(root.querySelector("style")?.textContent ?? ""));
    const used = new Set([...root.querySelectorAll("*")].flatMap((each) => [...each.classList]));
    const missing = [...used].filter((name) => styled.has(name) && !brought.has(name));
    expect(missing).toEqual([]);
    expect([...used].filter((name) => styled.has(name)).length).toBeGreaterThan(20);
  });
});
