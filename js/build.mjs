// Builds each view, src/views/<view>/index.tsx, into ONE file, ../src/attnviz/static/<view>.js, and the
// same for exported pages, <view>-page.js: the one asks a kernel, the other what the page carries.
//
// A page's code is a script that leaves what it exports at `attnvizPage.view`, where the page's loader
// finds it: a page allows it by its hash, and a module that is allowed so exports nothing. It is ASCII,
// since not every browser took the hash of other text from UTF-8.
//
//   node build.mjs            build once; fails when a bundle is over its limit
//   node build.mjs --watch    build again on every change
//
// One file a view, because a widget's module is loaded from a blob URL, from where a second
// file ("./chunk.js") cannot be found.

import { mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import esbuild from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const viewsFolder = join(here, "src", "views");
const staticFolder = join(here, "..", "src", "attnviz", "static");

// A widget's bundle is sent to the browser once for each widget object, so its size is felt.
const DEFAULT_LIMIT_KB = 221;
// A page has its bundle deflated, and may hold what a kernel would answer.
const PAGE_MORE_KB = 14;
// The dashboard is three views in one; the model view holds the matrix view's picture, for its detail.
const LIMITS_KB = {
  head: 253,
  dashboard: 364,
  model: 261,
  compare: 347,
  embedding: 373,
};

const watching = process.argv.includes("--watch");

const views = readdirSync(viewsFolder).sort();
const entryPoints = views.map((view) => ({
  in: join(viewsFolder, view, "index.tsx"),
  out: view,
}));
if (views.length === 0) {
  console.error(`No view to build: ${viewsFolder} holds no <view>/index.tsx.`);
  process.exit(1);
}

/** Prints the size of every bundle; true when all are within their limits. */
function reportSizes(metafile) {
  let withinLimits = true;
  for (const [path, output] of Object.entries(metafile.outputs)) {
    const name = basename(path, ".js");
    const view = name.replace("-page", "");
    const limit = (LIMITS_KB[view] ?? DEFAULT_LIMIT_KB) + (name === view ? 0 : PAGE_MORE_KB);
    const size = output.bytes / 1000;
    console.log(`${name}.js  ${size.toFixed(1)} kB (limit ${limit} kB)`);
    if (size > limit) {
      console.error(`${name}.js is over its limit of ${limit} kB.`);
      withinLimits = false;
    }
  }
  return withinLimits;
}

// A style sheet travels as a text inside the bundle, which esbuild leaves as it is.
const smallStyles = {
  name: "small-styles",
  setup(build) {
    build.onLoad({ filter: /\.css$/ }, async ({ path }) => {
      const text = await readFile(path, "utf8");
      const { code } = await esbuild.transform(text, { loader: "css", minify: true });
      return { contents: code, loader: "text" };
    });
  },
};

const options = {
  absWorkingDir: here,
  entryPoints,
  outdir: staticFolder,
  bundle: true,
  format: "esm",
  target: "es2022",
  platform: "browser",
  minify: true,
  charset: "utf8",
  legalComments: "none",
  jsx: "automatic",
  jsxImportSource: "preact",
  plugins: [smallStyles],
  metafile: true,
  logLevel: "warning",
};

// esbuild escapes strings and leaves regular expressions as they are.
const asciiAlone = {
  name: "ascii-alone",
  setup(build) {
    build.onEnd(({ outputFiles = [] }) => {
      for (const { path, text } of outputFiles) {
        const escaped = text.replace(
          /[\u0080-\uffff]/g,
          (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
        );
        writeFileSync(path, escaped);
      }
    });
  },
};

/** How a page's code is built, which runs in place. */
const inPlace = {
  format: "iife",
  globalName: "attnvizPage.view",
  charset: "ascii",
  write: false,
  plugins: [...options.plugins, asciiAlone],
};

/** The options of the two builds. */
const builds = ["widget", "page"].map((use) => ({
  ...options,
  entryPoints,
  entryNames: use === "page" ? "[name]-page" : "[name]",
  ...(use === "page" ? inPlace : {}),
  define: { "process.env.NODE_ENV": '"production"', BUNDLE_FOR: JSON.stringify(use) },
}));

mkdirSync(staticFolder, { recursive: true });

if (watching) {
  const report = {
    name: "report",
    setup(build) {
      build.onEnd((result) => {
        if (result.errors.length === 0) reportSizes(result.metafile);
      });
    },
  };
  for (const each of builds) {
    const context = await esbuild.context({ ...each, plugins: [...each.plugins, report] });
    await context.watch();
  }
  console.log("Watching js/src. Stop with Ctrl+C.");
} else {
  // A view that was renamed must not leave its old bundle behind in the wheel.
  const expected = new Set(views.flatMap((view) => [`${view}.js`, `${view}-page.js`]));
  for (const name of readdirSync(staticFolder)) {
    if (name.endsWith(".js") && !expected.has(name)) rmSync(join(staticFolder, name));
  }
  try {
    for (const each of builds) {
      const result = await esbuild.build(each);
      if (!reportSizes(result.metafile)) process.exitCode = 1;
    }
  } catch {
    // esbuild has printed what is wrong and where.
    process.exitCode = 1;
  }
}
