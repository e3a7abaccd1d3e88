import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { defineConfig, type Plugin } from "vitest/config";

/** Gives a style sheet as its text, as esbuild's "text" loader does in the build. */
function cssAsText(): Plugin {
  const mark = "\0css-as-text:";
  return {
    name: "css-as-text",
    enforce: "pre",
    resolveId(source, importer) {
      if (!source.endsWith(".css") || importer === undefined) return null;
      // The ending hides the file from Vite's own handling of style sheets.
      return `${mark}${resolve(dirname(importer), source)}.text`;
    },
    load(id) {
      if (!id.startsWith(mark)) return null;
      const path = id.slice(mark.length, -".text".length);
      return `export default ${JSON.stringify(readFileSync(path, "utf8"))};`;
    },
  };
}

export default defineConfig({
  plugins: [cssAsText()],
  // JSX as in build.mjs.
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  test: {
    environment: "jsdom",
    include: ["test/**/*.test.{ts,tsx}"],
    setupFiles: ["test/browser.ts"],
    // Machines that test are busy.
    testTimeout: 30_000,
    restoreMocks: true,
  },
});
