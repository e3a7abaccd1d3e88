// @vitest-environment node
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { describe, expect, it } from "vitest";

const SRC = resolve(__dirname, "../src");
/** Folders of `src`. Each may import only from itself and from the folders before it. */
const FOLDERS = ["client", "draw", "ui", "views", "widgets"];

const files = (readdirSync(SRC, { recursive: true }) as string[])
  .filter((file) => /\.tsx?$/.test(file))
  .map((file) => file.replaceAll("\\", "/"));

/** Return the path of an imported file relative to `src`, or null if it is not TypeScript. */
function moduleOf(file: string, specifier: string): string | null {
  const path = join(SRC, dirname(file), specifier);
  const candidates = ["", ".ts", ".tsx", "/index.ts", "/index.tsx"].map((end) => path + end);
  const module = candidates.find((name) => existsSync(name) && statSync(name).isFile());
  if (!module) throw new Error(`${file} imports ${specifier}, which does not exist.`);
  return /\.tsx?$/.test(module) ? relative(SRC, module).replaceAll("\\", "/") : null;
}

/** [importing file, imported file] of all relative imports in `src`, including imports of types. */
const imports = files.flatMap((file) => {
  const text = readFileSync(join(SRC, file), "utf8");
  const statements = text.matchAll(/(?:\bfrom|\bimport)\s*\(?\s*"(\.[^"]+)"/g);
  return [...statements].flatMap(([, specifier]): [string, string][] => {
    const target = moduleOf(file, specifier as string);
    return target === null ? [] : [[file, target]];
  });
});

describe("imports", () => {
  it("are found", () => {
    expect(imports.length).toBeGreaterThan(500);
    expect(imports).toContainEqual(["draw/canvas.ts", "draw/marks.ts"]);
    expect(imports).toContainEqual(["views/dashboard/index.tsx", "views/head/index.tsx"]);
    const folders = new Set(files.map((file) => file.split("/")[0]));
    expect([...folders].sort()).toEqual(FOLDERS);
  });

  it("point only to the same or an earlier folder", () => {
    const level = (file: string): number => FOLDERS.indexOf(file.split("/")[0] as string);
    expect(imports.filter(([file, target]) => level(target) > level(file))).toEqual([]);
  });

  it("use another view only through its index", () => {
    const across = imports.filter(([file, target]) => {
      const [folder, view] = file.split("/");
      const [other, used, ...inner] = target.split("/");
      const another = folder === "views" && other === "views" && view !== used;
      return another && inner.join("/") !== "index.tsx";
    });
    expect(across).toEqual([]);
  });

  it("of folders of ui have no circle", () => {
    const folderOf = (file: string): string | undefined => /^ui\/([^/]+)\//.exec(file)?.[1];
    const uses = new Map<string, Set<string>>();
    for (const [file, target] of imports) {
      const [from, to] = [folderOf(file), folderOf(target)];
      if (from && to && from !== to) uses.set(from, (uses.get(from) ?? new Set()).add(to));
    }
    expect(uses.get("frame")).toContain("view");
    // Remove folders that use no other of the remaining folders, until none is left.
    for (let free = [""]; free.length > 0; ) {
      free = [...uses.keys()].filter(
        (name) => ![...(uses.get(name) ?? [])].some((to) => uses.has(to)),
      );
      for (const name of free) uses.delete(name);
    }
    expect(Object.fromEntries(uses)).toEqual({});
  });
});
