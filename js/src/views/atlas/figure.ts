/** Exports of the atlas: a figure of all heads, and a CSV table of all heads. */

import type { AtlasRole, AtlasStatistic } from "../../client/protocol";
import { measureText } from "../../draw/canvas";
import { type Box, type Figure, joined, textMark, wrap } from "../../draw/figure";
import { fontOf, type Mark, sceneOf, translate } from "../../draw/marks";
import { drawnYet, viewFigure } from "../../ui/exports/exports";
import { type HeadIndex, isSameHead } from "../../ui/head-grid/grid";
import { roleBox } from "../../ui/head-grid/head-roles";
import { gridMarks } from "../../ui/head-grid/marks";
import { csvText } from "../../ui/text/csv";
import type { ViewContext } from "../../ui/view/define-view";
import { evidenceInWords, withError } from "./captions";
import { type Figure as Figures, tableFor } from "./client/atlas";
import { everyHead } from "./coloring";
import { legendScale } from "./legend";
import { headMarks, profileMarks } from "./marks";
import { profileOf } from "./profile";
import type { AtlasState } from "./state";
import type { AtlasStore } from "./store";

type Context = ViewContext<AtlasState>;

/** Sentence in the caption that names the parts of the view that the figure omits. */
const OMISSIONS = "Not shown: the head’s other statistics, and its edges.";
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
  const { below, width, height } = layout;
  const current = store.head.peek();
  const marks = gridMarks(grid, layout, palette, (head, square) => {
    const drawn = headMarks(head, coloring.of(head), square, below, palette);
    if (isSameHead(head, current)) {
      const { x, y, side } = square;
      const frame = { x: x - 1, y: y - 1, width: side + 2, height: side + 2 };
      drawn.push({ kind: "rect", ...frame, stroke: palette.ink, strokeWidth: 2 });
    }
    return drawn;
  });
  return { width, height, marks };
}

/** Draw the panel of the chosen head: roles with their evidence, and mean weights by offset. */
function headBox(context: Context, store: AtlasStore, width: number): Box {
  const { head, table, title } = drawnYet(store.chosen.peek());
  const palette = context.palette.peek();
  const marks: Mark[] = [textMark(title, 0, 8, palette.ink, 13, { bold: true })];
  let y = 30;
  const measure = (text: string): number => measureText(text, fontOf({ size: 11, font: "text" }));
  const roles = table.roles(head);
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
    const bars = profileMarks(profile, palette);
    marks.push(...translate(bars, 0, y + 14));
    y += 14 + profile.height;
  }
  return { width, height: y, marks };
}

/** Return the figure: the grid of all heads, and the panel of the chosen head beside or below. */
export function atlasFigure(context: Context, store: AtlasStore): Figure {
  const { legend } = drawnYet(store.coloring.peek());
  const captions = drawnYet(store.captions.peek());
  const room =
    context.figure?.width === undefined ? Number.POSITIVE_INFINITY : context.width.peek();
  const grid = gridBox(context, store);
  const left = room - grid.width - GAP;
  const beside = left >= MIN_HEAD;
  const chosen = headBox(context, store, Math.min(HEAD_WIDTH, beside ? left : room));
  const { marks, ...size } = joined([grid, chosen], GAP, beside);
  return viewFigure(context, {
    captions: { ...captions, coverage: `${captions.coverage} ${OMISSIONS}` },
    picture: sceneOf(size, [], marks),
    ...(legend.kind === "roles"
      ? { legend: (width) => roleBox(legend.entries, context.palette.peek(), width) }
      : { scales: [legendScale(legend)] }),
  });
}

type Column = readonly [name: string, cellOf: (head: HeadIndex) => string | number | null];

/** Return a CSV table with one row per head: its strongest role, and all statistics. */
export function headsCsv(store: AtlasStore): string {
  const tables = drawnYet(store.tables.peek());
  const shown = drawnYet(store.stack.peek()).name;
  const ofRole = (name: string, field: Exclude<keyof AtlasRole, "role">): Column => [
    name,
    (head) => tableFor(tables, head).roles(head)[0]?.[field] ?? null,
  ];
  const ofStatistic = ({ name, baseline }: AtlasStatistic): Column[] => {
    const figure = (head: HeadIndex): Figures => {
      const table = tableFor(tables, head);
      return table.figure(table.indexOf(name), head);
    };
    return [
      [name, (head) => figure(head).mean],
      [`${name}, standard error`, (head) => figure(head).error],
      ...(baseline
        ? [[`${name}, baseline`, (head) => figure(head).baseline] satisfies Column]
        : []),
      [`${name}, texts`, (head) => figure(head).texts],
    ];
  };
  const statistics = tables.flatMap(({ stack }) => stack.statistics);
  const byName = new Map(statistics.map((statistic) => [statistic.name, statistic]));
  const columns: Column[] = [
    ["stack", ({ stack = shown }) => stack],
    ["layer", ({ layer }) => layer],
    ["head", ({ head }) => head],
    ["role", (head) => tableFor(tables, head).roleName(head) ?? "none"],
    ofRole("role_score", "score"),
    ofRole("role_standard_error", "standard_error"),
    ofRole("role_baseline", "baseline"),
    ofRole("role_difference_low", "low"),
    ofRole("role_difference_high", "high"),
    ofRole("role_p", "p"),
    ofRole("role_texts", "texts"),
    ...[...byName.values()].flatMap(ofStatistic),
  ];
  return csvText(
    columns.map(([name]) => name),
    tables
      .flatMap(({ stack }) => everyHead(stack).map((head) => ({ ...head, stack: stack.name })))
      .map((head) => columns.map(([, cellOf]) => cellOf(head))),
  );
}
