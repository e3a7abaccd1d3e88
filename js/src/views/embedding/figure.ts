/** Export of the embedding view as a figure with all captions and as CSV tables. */

import { measureText } from "../../draw/canvas";
import { type Box, type Figure, inRows, textMark } from "../../draw/figure";
import { fontOf, type Mark } from "../../draw/marks";
import { countDots, MAX_SHAPE_DOTS } from "../../draw/svg";
import type { Palette } from "../../ui/colors/palette";
import { drawnYet, type Exports, viewFigure } from "../../ui/exports/exports";
import { counted, several } from "../../ui/text/captions";
import { csvText } from "../../ui/text/csv";
import { coverageOf, sentenceOf, subtitleOf } from "./captions";
import { type LegendEntry, legendEntries } from "./colors";
import type { OverviewStore } from "./overview/store";
import type { PlotStore } from "./plot/store";
import { type Context, headKey } from "./state";
import type { EmbeddingStore } from "./store";
import { keyInWords } from "./trust";

/** Return the legend of shapes and colours, in rows of at most `width` pixels. */
function legendBox(entries: readonly LegendEntry[], palette: Palette, width: number): Box {
  const side = 9;
  const boxes = entries.map(({ label, count, color, shape }) => {
    const radius = { dot: side / 2, square: 1, patch: 3 }[shape];
    const bounds = { x: 0, y: -side / 2, width: side, height: side };
    const name = textMark(label, 16, 0, palette.ink, 12);
    const end = 16 + measureText(label, fontOf(name));
    const number = textMark(count === null ? "" : counted(count), end + 6, 0, palette.muted, 12);
    const numberWidth = count === null ? 0 : 6 + measureText(number.text, fontOf(number));
    const sample: Mark = { kind: "rect", ...bounds, fill: color, radius };
    return { width: end + numberWidth, marks: [sample, name, ...(count === null ? [] : [number])] };
  });
  return inRows(boxes, width, 16);
}

/** Return the figure of all heads or of one head. */
function embeddingFigure(
  context: Context,
  store: EmbeddingStore,
  overview: OverviewStore,
  plot: PlotStore,
): Figure {
  const palette = context.palette.peek();
  const enlarged = context.state.enlarged.peek();
  const picture = drawnYet(enlarged ? plot.still.peek() : overview.scene());
  const dots = countDots(picture.back, picture.front);
  const coverage = [
    enlarged ? "" : keyInWords(store.trust.peek(), overview.layout.peek()?.figures),
    coverageOf(context, store, false),
    dots > MAX_SHAPE_DOTS ? `${counted(dots)} points are drawn as pixels.` : "",
  ];
  const colors = store.colors.peek();
  const entries = colors && legendEntries(colors, context.state.points.peek(), palette);
  return viewFigure(context, {
    captions: {
      subtitle: subtitleOf(context, store),
      sentence: sentenceOf(context, store, false),
      coverage: coverage.filter(Boolean).join(" "),
    },
    picture,
    ...(entries && { legend: (width: number) => legendBox(entries, palette, width) }),
    ...(colors?.scale && { scales: [colors.scale] }),
  });
}

/**
 * Round a value that was sent as a 16-bit code to five digits, which is the precision of the code.
 * Return null if it is not a finite number.
 */
function rounded(value: number): number | null {
  return Number.isFinite(value) ? Number(value.toPrecision(5)) : null;
}

/** Colourings whose values are in other columns of the table. */
const IN_OTHER_COLUMNS = ["type", "position", "text"];

/** Return the drawn points of the enlarged head as CSV, one row per point. */
function pointsCsv({ state }: Context, store: EmbeddingStore): string {
  const corpus = drawnYet(store.corpus.peek());
  const plot = drawnYet(store.projection.peek());
  drawnYet(plot.problem === null);
  const colors = store.colors.peek();
  const { stack, layer, head } = plot.request;
  // The plot shows principal components if `explained` is not null, even if another method was
  // requested but has no frame yet or cannot run.
  const method = plot.explained === null ? plot.request.method : "pca";
  const color = colors?.name ?? "type";
  const own = corpus.columns.some(({ name }) => name === color);
  const colorOf = (own || !IN_OTHER_COLUMNS.includes(color)) && colors?.labelOf;
  const [matches, selected] = [store.matches.peek(), new Set(state.selected.peek())];
  const { dimensions, coordinates } = plot;
  const columns: [name: string, cellOf: (point: number) => string | number | null][] = [
    ["stack", () => stack],
    ["layer", () => layer],
    ["head", () => head],
    ["method", () => method],
    ["point", (point) => point],
    ["kind", (point) => corpus.kindOf(point)],
    ["text", (point) => corpus.textOf(point)],
    ["text_name", (point) => corpus.facts.names[corpus.textOf(point)] ?? ""],
    ["position", (point) => corpus.positionOf(point)],
    ["token", (point) => corpus.tokenOf(point)],
  ];
  for (const [axis, name] of ["x", "y", "z"].slice(0, dimensions).entries())
    columns.push([name, (point) => rounded(coordinates[point * dimensions + axis] as number)]);
  if (colorOf) columns.push([color, colorOf]);
  if (matches) columns.push(["found", (point) => matches.points[point] ?? 0]);
  if (selected.size > 0) columns.push(["in_lasso", (point) => Number(selected.has(point))]);
  const points = Array.from({ length: corpus.count }, (_, point) => point).filter(store.shown);
  return csvText(
    columns.map(([name]) => name),
    points.map((point) => columns.map(([, cellOf]) => cellOf(point))),
  );
}

/** Return the trust figures of all heads as CSV, one row per head. */
function headsCsv(store: EmbeddingStore): string {
  const corpus = drawnYet(store.corpus.peek());
  const rows = drawnYet(store.overview.peek()).map(({ layer, head, problem }) => {
    const trust = store.trust.peek().get(headKey({ layer, head }));
    const { plot = null, recall = null, recall_baseline = null, num_queries = null } = trust ?? {};
    return [corpus.stack, layer, head, problem, plot, recall, recall_baseline, num_queries];
  });
  const figures = ["r_plot", "recall", "recall_baseline", "queries_measured"];
  return csvText(["stack", "layer", "head", "problem", ...figures], rows);
}

/** Return the entries of the export menu. */
export function embeddingExports(
  context: Context,
  store: EmbeddingStore,
  overview: OverviewStore,
  plot: PlotStore,
): Exports {
  const count = store.corpus.value?.count ?? 0;
  const points = context.state.points.value === "both" ? several(count, "point") : "Points shown";
  const enlarged = context.state.enlarged.value;
  return {
    name: "embedding-view",
    figure: () => embeddingFigure(context, store, overview, plot),
    csv: async () => (enlarged ? pointsCsv(context, store) : headsCsv(store)),
    csvLabel: enlarged ? `${points}, CSV` : "Heads and their trust, CSV",
  };
}
