// @vitest-environment node
import { readFileSync } from "node:fs";
import { transform } from "esbuild";
import { describe, expect, it } from "vitest";

/** A script of exported pages, as Python puts it into them. */
function script(name: string): string {
  return readFileSync(new URL(`../../src/attnviz/pages/${name}.js`, import.meta.url), "utf8");
}

describe("the scripts of an exported page", () => {
  it("tells what is wrong in words that a browser of any age can read", async () => {
    const code = script("note");
    // What is newer than ECMAScript 5 would be rewritten, or refused.
    const old = await transform(code, { target: "es5" });
    // esbuild itself shortens `name: name`, where it may.
    const supported = { "object-extensions": false };
    const same = await transform(code, { target: "esnext", supported });
    expect(old.code).toBe(same.code);
    expect(old.warnings).toEqual([]);
  });

  it("cannot end the element that it stands in", () => {
    for (const name of ["note", "loader"]) expect(script(name)).not.toMatch(/<\/script|<!--/i);
  });
});
