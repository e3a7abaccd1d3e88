import { readdirSync, readFileSync } from "node:fs";
import { resolve } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { openPage } from "../../../src/views/dashboard";
import { described, pageOf, stackOf, sticky, tokensOf } from "../../builders";
import { mount, until, useFakeClock } from "../../dom";

const SOURCE = `${resolve(import.meta.dirname, "../../../src")}/`;

const classesOf = (css: string): string[] => css.match(/(?<=\.)av-[a-z-]+/g) ?? [];

useFakeClock();

it("the dashboard has the style sheets of all its panes", async () => {
  const pieces = [sticky([2, 3, 3])];
  const data = pageOf({
    ...{ view: "dashboard", state: { stack: "self", layer: 0, heads: [1] } },
    description: described(stackOf({ query_tokens: tokensOf(["a", "b", "c"]) })),
    ...{ blocks: pieces, maps: pieces, scores: [] },
  });
  const root = mount(null);
  onTestFinished(openPage(root, data));
  await until(() => expect(root.querySelectorAll("[role=gridcell]")).toHaveLength(2));
  await until(() => expect(root.querySelectorAll(".av-plot")).toHaveLength(2));
  const styled = readdirSync(SOURCE, { recursive: true, encoding: "utf8" })
    .filter((path) => path.endsWith(".css"))
    .flatMap((path) => classesOf(readFileSync(SOURCE + path, "utf8")));
  const elements = [...root.querySelectorAll("*")];
  const used = new Set(elements.flatMap((element) => [...element.classList]));
  const needed = new Set(styled.filter((name) => used.has(name)));
  expect(needed.size).toBeGreaterThan(20);
  expect(classesOf(root.querySelector("style")?.textContent ?? "")).toEqual(
    expect.arrayContaining([...needed]),
  );
});
