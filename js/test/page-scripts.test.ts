// @vitest-environment node
import { readFileSync } from "node:fs";
import { transform } from "esbuild";
import { describe, expect, it } from "vitest";

function script(name: string): string {
  return readFileSync(new URL(`../../src/attnviz/pages/${name}.js`, import.meta.url), "utf8");
}

describe("the scripts of an exported page", () => {
  it("show errors with code that browsers of any age support", async () => {
    const code = script("note");
    // For the target ES5, esbuild rewrites newer syntax or warns. If the code has no newer syntax,
    // the output equals that for `esnext`.
    const old = await transform(code, { target: "es5" });
    // ES5 does not have `name` as a short form of `name: name`, so esbuild must not write it.
    const supported = { "object-extensions": false };
    const same = await transform(code, { target: "esnext", supported });
    expect(old.code).toBe(same.code);
    expect(old.warnings).toEqual([]);
  });

  it("cannot close the element that contains them", () => {
    for (const name of ["note", "loader"]) expect(script(name)).not.toMatch(/<\/script|<!--/i);
  });
});
