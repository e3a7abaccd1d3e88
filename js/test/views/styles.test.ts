/** Test that the style sheets of views do not affect each other: a notebook contains all of them. */
// @vitest-environment node
import { readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { expect, it } from "vitest";

const VIEWS = resolve(__dirname, "../../src/views");

it("no two views style the same class without a parent", () => {
  const viewsByClass = new Map<string, Set<string>>();
  for (const view of readdirSync(VIEWS)) {
    for (const file of readdirSync(join(VIEWS, view)).filter((name) => name.endsWith(".css"))) {
      const css = readFileSync(join(VIEWS, view, file), "utf8");
      // Rules with two spaces of indentation are nested only in ".attnviz".
      for (const [, name] of css.matchAll(/^ {2}(\.av-[\w-]+) \{/gm)) {
        const views = viewsByClass.get(name as string) ?? new Set();
        viewsByClass.set(name as string, views.add(view));
      }
    }
  }
  // Otherwise the pattern no longer matches the style sheets.
  expect(viewsByClass.size).toBeGreaterThan(20);
  const shared = [...viewsByClass].filter(([, views]) => views.size > 1);
  expect(shared).toEqual([]);
});
