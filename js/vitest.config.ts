import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { transformSync } from "esbuild";
import { defineConfig, type Plugin } from "vitest/config";

/** Import a style sheet as a string without nested rules, as in the build. jsdom knows no nesting. */
function cssAsText(): Plugin {
  const mark = "\0css-as-text:";
  return {
    name: "css-as-text",
    enforce: "pre",
    resolveId(source, importer) {
      if (!source.endsWith(".css") || importer === undefined) return null;
      // The suffix prevents Vite from processing the file as a style sheet.
      return `${mark}${resolve(dirname(importer), source)}.text`;
    },
    load(id) {
      if (!id.startsWith(mark)) return null;
      const path = id.slice(mark.length, -".text".length);
      const css = transformSync(readFileSync(path, "utf8"), {
        loader: "css",
        target: "safari16.4",
      });
      return `export default ${JSON.stringify(css.code)};`;
    },
  };
}

export default defineConfig({
  plugins: [cssAsText()],
  define: { BUNDLE_FOR: '"both"' },
  // JSX options as in build.mjs.
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  test: {
    environment: "jsdom",
    include: ["test/**/*.test.{ts,tsx}"],
    setupFiles: ["test/browser.ts"],
    // Busy machines are slow.
    testTimeout: 30_000,
    restoreMocks: true,
  },
});
