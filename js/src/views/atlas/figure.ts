/** Exports of the atlas: a figure of all heads, and a CSV table of all heads. */

import { measureText } from "../../draw/canvas";
import { type Box, composeFigure, type Figure, rampBox, textMark, wrap } from "../../draw/figure";
import { fontOf, type Mark, translate } from "../../draw/marks";
import { csvText } from "../../ui/exports/csv";
import type { Exports } from "../../ui/exports/exports";
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

const NOTHING = "Nothing is drawn yet, so there is nothing to export.";
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
  const [grid, layout, coloring] = [store.grid.peek(), store.layout.peek(), store.coloring.peek()];
  if (!grid || !layout || !coloring) throw new Error(NOTHING);
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
  const [table, head] = [store.table.peek(), store.head.peek()];
  if (!table || !head) throw new Error(NOTHING);
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
  const [atlas, stack, table, head, coloring] = [
    store.atlas.peek(),
    store.stack.peek(),
    store.table.peek(),
    store.head.peek(),
    store.coloring.peek(),
  ];
  if (!atlas || !stack || !table || !head || !coloring) throw new Error(NOTHING);
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
  const { legend } = coloring;
  const captions = {
    title: atlas.model || "attention",
    subtitle: subtitleOf(atlas, stack),
    sentence: sentenceOf(table, head),
    coverage: `${coverageOf(atlas, stack)} ${OMISSIONS}`,
  };
  const size = beside
    ? {
        width: grid.width + GAP + chosen.width,
        height: Math.max(grid.height, chosen.height),
      }
    : { width: Math.max(grid.width, chosen.width), height: grid.height + GAP + chosen.height };
  const scene = composeFigure(
    {
      palette,
      captions,
      picture: { ...size, back: [], backOpacity: 1, front: marks },
      ...(legend.kind === "roles"
        ? { legend: (width: number) => roleBox(legend.entries, palette, width) }
        : {
            scale: rampBox(palette, legendScale(legend)),
          }),
    },
    context.figure,
  );
  return { scene, title: `${captions.title}, ${captions.subtitle}. ${captions.sentence}` };
}

/**
 * Return a CSV table with one row per head: its strongest role, all statistics, and the counts of
 * a search if one is active.
 */
export function headsCsv(store: AtlasStore): string {
  const [table, result] = [store.table.peek(), store.result.peek()];
  if (!table) throw new Error(NOTHING);
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
