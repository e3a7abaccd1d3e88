/** Exports of the atlas: a figure of all heads, and a CSV table of all heads. */

import { measureText } from "../../draw/canvas";
import { type Box, type Figure, textMark, wrap } from "../../draw/figure";
import { fontOf, type Mark, sceneOf, translate } from "../../draw/marks";
import { csvText } from "../../ui/exports/csv";
import { drawnYet, type Exports, viewFigure } from "../../ui/exports/exports";
import { isSameHead } from "../../ui/head-grid/grid";
import { roleBox } from "../../ui/head-grid/head-roles";
import { gridMarks } from "../../ui/head-grid/marks";
import type { ViewContext } from "../../ui/view/define-view";
import {
  coverageOf,
  evidenceInWords,
  headTitle,
  sentenceOf,
  sortedValue,
  subtitleOf,
  withError,
} from "./captions";
import { everyHead } from "./coloring";
import { legendScale } from "./legend";
import { cellMarks, profileMarks } from "./marks";
import { profileOf } from "./profile";
import type { AtlasState } from "./state";
import type { AtlasStore } from "./store";

type Context = ViewContext<AtlasState>;

/** Sentence in the caption that names the parts of the view that the figure omits. */
const OMISSIONS =
  "Not shown: the head’s other statistics, its mean weights by class of token, and its edges.";
/** Pixels between the grid and the panel of the chosen head. */
const GAP = 28;
/** Maximum width in pixels of the panel of the chosen head. */
const HEAD_WIDTH = 400;
/**
 * Minimum width in pixels of the panel of the chosen head beside the grid. If less is available,
 * the panel is below the grid.
 */
const MIN_HEAD = 290;

/** Draw the grid: all cells with their labels and a frame around the chosen head. */
function gridBox(context: Context, store: AtlasStore): Box {
  const grid = drawnYet(store.grid.peek());
  const layout = drawnYet(store.layout.peek());
  const coloring = drawnYet(store.coloring.peek());
  const palette = context.palette.peek();
  const { cell, across, down, width, height } = layout;
  const current = store.head.peek();
  const more = { align: "middle" } as const;
  const marks = gridMarks(grid, layout, palette, (head, x, y) => {
    const drawn = cellMarks(coloring.of(head.layer, head.head), x, y, cell, palette);
    if (isSameHead(head, current)) {
      const frame = { x: x - 1, y: y - 1, width: cell + 2, height: cell + 2 };
      drawn.push({ kind: "rect", ...frame, stroke: palette.ink, strokeWidth: 2 });
    }
    if (!grid.columns && down > across) {
      const middle = x + cell / 2;
      const name = `${head.layer}.${head.head}`;
      drawn.push(textMark(name, middle, y + cell + 8, palette.muted, 9.5, more));
      drawn.push(textMark(sortedValue(head), middle, y + cell + 20, palette.ink, 9.5, more));
    }
    return drawn;
  });
  return { width, height, marks };
}

/** Draw the panel of the chosen head: roles with their evidence, and mean weights by offset. */
function headBox(context: Context, store: AtlasStore, width: number): Box {
  const table = drawnYet(store.table.peek());
  const head = drawnYet(store.head.peek());
  const palette = context.palette.peek();
  const marks: Mark[] = [textMark(headTitle(head), 0, 8, palette.ink, 13, { bold: true })];
  let y = 30;
  const measure = (text: string): number => measureText(text, fontOf({ size: 11, font: "text" }));
  const roles = table.roles(head.layer, head.head);
  for (const role of roles) {
    const name = table.stack.roles[role.role]?.name ?? "";
    const words = `${name} ${withError(role.score, role.standard_error)}: ${evidenceInWords(role)}.`;
    for (const line of wrap(words, 0.95 * width, measure)) {
      marks.push(textMark(line, 0, y, palette.ink, 11));
      y += 15;
    }
    y += 4;
  }
  if (roles.length === 0) {
    marks.push(textMark("no role", 0, y, palette.muted, 11));
    y += 19;
  }
  const profile = profileOf(store, width);
  if (profile) {
    marks.push(textMark("mean weight by offset", 0, y + 4, palette.muted, 11));
    const bars = profileMarks(profile, {
      palette,
      color: palette.positive,
      brush: context.state.offsets.peek(),
    });
    marks.push(...translate(bars, 0, y + 14));
    y += 14 + profile.height;
  }
  return { width, height: y, marks };
}

/** Return the figure: the grid of all heads, and the panel of the chosen head beside or below. */
export function atlasFigure(context: Context, store: AtlasStore): Figure {
  const atlas = drawnYet(store.atlas.peek());
  const stack = drawnYet(store.stack.peek());
  const { legend } = drawnYet(store.coloring.peek());
  const palette = context.palette.peek();
  const room = context.figure?.width === undefined ? undefined : context.width.peek();
  const grid = gridBox(context, store);
  const left = room === undefined ? HEAD_WIDTH : room - grid.width - GAP;
  const beside = left >= MIN_HEAD;
  const chosen = headBox(context, store, Math.min(HEAD_WIDTH, beside ? left : (room as number)));
  const marks = [
    ...grid.marks,
    ...(beside
      ? translate(chosen.marks, grid.width + GAP, 0)
      : translate(chosen.marks, 0, grid.height + GAP)),
  ];
  const captions = {
    subtitle: subtitleOf(atlas, stack),
    sentence: sentenceOf(drawnYet(store.table.peek()), drawnYet(store.head.peek())),
    coverage: `${coverageOf(atlas, stack)} ${OMISSIONS}`,
  };
  const size = beside
    ? {
        width: grid.width + GAP + chosen.width,
        height: Math.max(grid.height, chosen.height),
      }
    : { width: Math.max(grid.width, chosen.width), height: grid.height + GAP + chosen.height };
  return viewFigure(context, {
    captions,
    picture: sceneOf(size, [], marks),
    ...(legend.kind === "roles"
      ? { legend: (width: number) => roleBox(legend.entries, palette, width) }
      : { scales: [legendScale(legend)] }),
  });
}

/**
 * Return a CSV table with one row per head: its strongest role, all statistics, and the counts of
 * a search if one is active.
 */
export function headsCsv(store: AtlasStore): string {
  const table = drawnYet(store.table.peek());
  const result = store.result.peek();
  const { stack } = table;
  const rows = everyHead(stack).map(({ layer, head }) => {
    const first = table.roles(layer, head)[0];
    const count = result?.of(layer, head) ?? null;
    return [
      stack.name,
      layer,
      head,
      first ? (stack.roles[first.role]?.name ?? "") : "none",
      ...(first
        ? [
            first.score,
            first.standard_error,
            first.baseline,
            first.low,
            first.high,
            first.p,
            first.texts,
          ]
        : Array.from({ length: 7 }, () => null)),
      ...stack.statistics.flatMap(({ baseline }, i) => {
        const figure = table.figure(i, layer, head);
        return [figure.mean, figure.error, ...(baseline ? [figure.baseline] : []), figure.texts];
      }),
      ...(result ? [count?.numFound ?? null, count?.numTotal ?? null] : []),
    ];
  });
  const columns = [
    ...["stack", "layer", "head", "role", "role_score", "role_standard_error", "role_baseline"],
    ...["role_difference_low", "role_difference_high", "role_p", "role_texts"],
    ...stack.statistics.flatMap(({ name, baseline }) =>
      ["", "standard error", ...(baseline ? ["baseline"] : []), "texts"].map((of) =>
        of === "" ? name : `${name}, ${of}`,
      ),
    ),
    ...(result ? ["found_edges", "sampled_edges"] : []),
  ];
  return csvText(columns, rows);
}

/** Return the functions and labels of the export menu. */
export function atlasExports(context: Context, store: AtlasStore): Exports {
  return {
    name: "atlas",
    figure: () => atlasFigure(context, store),
    csv: () => headsCsv(store),
    csvLabel: "Heads and their statistics, CSV",
  };
}
