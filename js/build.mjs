// Builds two kinds of files in ../src/attnviz/static:
//
//   src/widgets/<name>.ts       -> <name>.js, the widgets of some views, which send requests to a kernel
//   src/views/<view>/index.tsx  -> <view>-page.js, the script of exported pages, which contain the answers
//
//   node build.mjs            build once, fail if a bundle is larger than its limit
//   node build.mjs --watch    build again after every change
//
// Every output is one file, because a widget's module is loaded from a blob URL, which cannot import
// a second file ("./chunk.js"). A notebook loads one module for all views of records.
//
// A page's file is a script that assigns its exports to `attnvizPage.view`. The page's
// Content-Security-Policy allows it by its hash, and an inline module could not export anything. The
// script is ASCII, because not every browser computes the hash of other text from UTF-8.

import { mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import esbuild from "esbuild";

const jsFolder = dirname(fileURLToPath(import.meta.url));
const viewsFolder = join(jsFolder, "src", "views");
const widgetsFolder = join(jsFolder, "src", "widgets");
const staticFolder = join(jsFolder, "..", "src", "attnviz", "static");

// A kernel sends a bundle of widgets before the first picture, so its size causes a delay. Each page
// contains its bundle.
const DEFAULT_LIMIT_KB = 225;
// The dashboard contains three views. The model view contains the heat map of the matrix view.
const LIMITS_KB = {
  records: 380,
  "dashboard-page": 340,
  "model-page": 270,
  "compare-page": 330,
};

const watching = process.argv.includes("--watch");

const widgets = readdirSync(widgetsFolder).map((file) => ({
  in: join(widgetsFolder, file),
  out: basename(file, ".ts"),
}));
const pages = readdirSync(viewsFolder).map((view) => ({
  in: join(viewsFolder, view, "index.tsx"),
  out: `${view}-page`,
}));

/** Print the size of every bundle. Return whether all are within their limits. */
function reportSizes(metafile) {
  let withinLimits = true;
  for (const [path, output] of Object.entries(metafile.outputs)) {
    const name = basename(path, ".js");
    const limit = LIMITS_KB[name] ?? DEFAULT_LIMIT_KB;
    const size = output.bytes / 1000;
    console.log(`${name}.js  ${size.toFixed(1)} kB (limit ${limit} kB)`);
    if (size > limit) {
      console.error(`${name}.js is over its limit of ${limit} kB.`);
      withinLimits = false;
    }
  }
  return withinLimits;
}

// Style sheets are strings in the bundle, which esbuild leaves unchanged. This plugin minifies them and
// replaces nested rules, which not all browsers that open pages support (pages/html.py).
const CSS_TARGET = ["chrome105", "firefox113", "safari16.4"];
const smallStyles = {
  name: "small-styles",
  setup(build) {
    build.onLoad({ filter: /\.css$/ }, async ({ path }) => {
      const text = await readFile(path, "utf8");
      const { code } = await esbuild.transform(text, {
        loader: "css",
        minify: true,
        target: CSS_TARGET,
      });
      return { contents: code, loader: "text" };
    });
  },
};

const options = {
  absWorkingDir: jsFolder,
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

// esbuild's ASCII output escapes strings but not regular expressions, so this plugin escapes the rest.
const asciiOnly = {
  name: "ascii-only",
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

/** Options for the script of a page. */
const pageOptions = {
  format: "iife",
  globalName: "attnvizPage.view",
  charset: "ascii",
  write: false,
  plugins: [...options.plugins, asciiOnly],
};

const builds = ["widget", "page"].map((use) => ({
  ...options,
  entryPoints: use === "page" ? pages : widgets,
  ...(use === "page" ? pageOptions : {}),
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
  for (const build of builds) {
    const context = await esbuild.context({ ...build, plugins: [...build.plugins, report] });
    await context.watch();
  }
  console.log("Watching js/src. Stop with Ctrl+C.");
} else {
  // Remove bundles of renamed views, which would otherwise be packaged.
  const expected = new Set([...widgets, ...pages].map(({ out }) => `${out}.js`));
  for (const name of readdirSync(staticFolder)) {
    if (name.endsWith(".js") && !expected.has(name)) rmSync(join(staticFolder, name));
  }
  try {
    for (const build of builds) {
      const result = await esbuild.build(build);
      if (!reportSizes(result.metafile)) process.exitCode = 1;
    }
  } catch {
    // esbuild has printed the error and its location.
    process.exitCode = 1;
  }
}
