/** Export of the embedding view as a figure with all captions and as CSV tables. */

import { measureText } from "../../draw/canvas";
import { type Box, type Captions, type Figure, textMark } from "../../draw/figure";
import { fontOf, type Mark, type Scene, sceneOf } from "../../draw/marks";
import { countDots, MAX_SHAPE_DOTS } from "../../draw/svg";
import type { Palette } from "../../ui/colors/palette";
import { csvText, roundedTo, writtenError } from "../../ui/exports/csv";
import { drawnYet, type Exports, viewFigure } from "../../ui/exports/exports";
import { weightScale } from "../../ui/heat-map/legend";
import { counted, several } from "../../ui/text/captions";
import type { ViewContext } from "../../ui/view/define-view";
import { coverageOf, sentenceOf, subtitleOf } from "./captions";
import { meanError } from "./client/requests";
import type { Coloring } from "./colors";
import { meanMarks } from "./mean/marks";
import { meanStoreOf } from "./mean/store";
import { type EmbeddingState, headKey } from "./state";
import type { EmbeddingStore } from "./store";
import { type FigureDetail, keyInWords } from "./trust";

/** Functions that return what the view shows, without marks of the pointer and the keyboard. */
export interface DrawnScenes {
  /**
   * Return the scene of all heads, with their labels and trust figures. @throws Error if nothing is
   * drawn yet.
   */
  overview: () => Scene;
  /** Return the level of detail of the trust figures below each plot. */
  figures: () => FigureDetail;
  /** Return the scene of the enlarged head. @throws Error if nothing is drawn yet. */
  plot: () => Scene;
}

type Context = ViewContext<EmbeddingState>;

/** Maximum width of a figure of mean weights, in pixels. */
const MEAN_WIDTH = 640;

/** Return the captions of a figure. */
export function figureWords(
  context: Context,
  store: EmbeddingStore,
  scene: Scene,
  figures: FigureDetail,
): Omit<Captions, "title"> {
  const enlarged = context.state.enlarged.peek();
  const dots = countDots(scene.back, scene.front);
  const parts = [
    enlarged ? "" : keyInWords(store.trust.peek(), figures),
    coverageOf(context, store, false),
    dots > MAX_SHAPE_DOTS ? `${counted(dots)} points are drawn as pixels.` : "",
  ];
  return {
    subtitle: subtitleOf(context, store),
    sentence: sentenceOf(context, store, false),
    coverage: parts.filter(Boolean).join(" "),
  };
}

interface Entry {
  label: string;
  count: string;
  color: string;
  shape: "disc" | "square" | "patch";
}

/** Return the legend of shapes and colours, in rows of at most `width` pixels. */
export function legendBox(
  colors: Coloring,
  points: EmbeddingState["points"],
  palette: Palette,
  width: number,
): Box {
  const { legend } = colors;
  const entries: Entry[] = [];
  const byType = colors.name === "type" && legend.kind === "categories";
  for (const kind of ["queries", "keys"] as const) {
    if (points !== "both" && points !== kind) continue;
    const own = byType ? legend.entries.find(({ label }) => label === kind) : undefined;
    entries.push({
      label: kind,
      count: own ? counted(own.count) : "",
      color: own?.color ?? palette.neutral,
      shape: kind === "keys" ? "square" : "disc",
    });
  }
  if (!byType && legend.kind === "categories") {
    for (const { label, color, count } of legend.entries)
      entries.push({ label, color, count: counted(count), shape: "patch" });
  }
  if (legend.kind === "scale" && legend.unknown) {
    const { label, color, count } = legend.unknown;
    entries.push({ label, color, count: counted(count), shape: "patch" });
  }
  const marks: Mark[] = [];
  const font = fontOf({ size: 12, font: "text" });
  const [row, side] = [20, 9];
  let [x, y] = [0, 0];
  for (const { label, count, color, shape } of entries) {
    const name = measureText(label, font);
    const wide = 16 + name + (count === "" ? 0 : 6 + measureText(count, font));
    if (x > 0 && x + wide > width) {
      x = 0;
      y += row;
    }
    const radius = { disc: side / 2, square: 1, patch: 3 }[shape];
    const bounds = { x, y: y - side / 2, width: side, height: side };
    marks.push({ kind: "rect", ...bounds, fill: color, radius });
    marks.push(textMark(label, x + 16, y, palette.ink, 12));
    if (count !== "") marks.push(textMark(count, x + 22 + name, y, palette.muted, 12));
    x += wide + 16;
  }
  return { width, height: y + row, marks };
}

/**
 * Return the figure of the current content: all heads, one head, or its mean weights by position.
 */
export function embeddingFigure(
  context: Context,
  store: EmbeddingStore,
  drawnScenes: DrawnScenes,
): Figure {
  const { state } = context;
  const palette = context.palette.peek();
  const mean = state.enlarged.peek() && state.content.peek() === "aggregate";
  const drawn = mean
    ? drawnYet(meanStoreOf(context, store).drawnAt(Math.min(MEAN_WIDTH, context.width.peek())))
    : null;
  const scene = drawn
    ? sceneOf(drawn.layout, meanMarks(drawn), [])
    : state.enlarged.peek()
      ? drawnScenes.plot()
      : drawnScenes.overview();
  const colors = drawn ? null : store.colors.peek();
  const scale = drawn
    ? weightScale(drawn, "mean weight")
    : colors?.legend.kind === "scale" && colors.legend.scale;
  return viewFigure(context, {
    captions: figureWords(context, store, scene, drawnScenes.figures()),
    picture: scene,
    ...(colors && {
      legend: (width: number) => legendBox(colors, state.points.peek(), palette, width),
    }),
    ...(scale && { scales: [scale] }),
  });
}

/**
 * Round a value that was sent as a 16-bit code to five digits, which is the precision of the code.
 * Return null if it is not a finite number.
 */
function rounded(value: number | undefined): number | null {
  return value === undefined || !Number.isFinite(value) ? null : Number(value.toPrecision(5));
}

/** Colourings whose values are in other columns of the table. */
const IN_OTHER_COLUMNS = ["type", "position", "text"];

/** Return the drawn points of the enlarged head as CSV, one row per point. */
function pointsCsv({ state }: Context, store: EmbeddingStore): string {
  const corpus = drawnYet(store.corpus.peek());
  const projection = store.projection.peek();
  const plot = drawnYet(projection?.problem === null ? projection : null);
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
  const rows: (string | number | null)[][] = [];
  for (let point = 0; point < corpus.count; point++) {
    if (!store.shown(point)) continue;
    const text = corpus.textOf(point);
    const at = Array.from(coordinates.subarray(point * dimensions, (point + 1) * dimensions));
    rows.push([
      stack,
      layer,
      head,
      method,
      point,
      corpus.kindOf(point),
      text,
      corpus.facts.names[text] ?? "",
      corpus.positionOf(point),
      corpus.tokenOf(point),
      ...at.map(rounded),
      ...(colorOf ? [colorOf(point)] : []),
      ...(matches ? [matches.points[point] ?? 0] : []),
      ...(selected.size > 0 ? [selected.has(point) ? 1 : 0] : []),
    ]);
  }
  const columns = [
    ...["stack", "layer", "head", "method", "point", "kind", "text", "text_name"],
    ...["position", "token", "x", "y"],
    ...(dimensions === 3 ? ["z"] : []),
    ...(colorOf ? [color] : []),
    ...(matches ? ["found"] : []),
    ...(selected.size > 0 ? ["in_lasso"] : []),
  ];
  return csvText(columns, rows);
}

/** Return the trust figures of all heads as CSV, one row per head. */
function headsCsv(store: EmbeddingStore): string {
  const overview = drawnYet(store.overview.peek());
  const trusts = store.trust.peek();
  const rows = overview.heads.map(({ layer, head, problem }) => {
    const trust = trusts.get(headKey({ layer, head }));
    return [
      overview.stack,
      layer,
      head,
      problem,
      trust?.plot ?? null,
      trust?.recall ?? null,
      trust?.recall_baseline ?? null,
      trust?.num_queries ?? null,
    ];
  });
  const columns = [
    ...["stack", "layer", "head", "problem"],
    ...["r_plot", "recall", "recall_baseline", "queries_measured"],
  ];
  return csvText(columns, rows);
}

/** Return the mean weights as CSV, one row per bin. Bins without an allowed pair are omitted. */
function meanCsv(context: Context, store: EmbeddingStore): string {
  const mean = drawnYet(meanStoreOf(context, store).aggregate.peek());
  const rows: (string | number)[][] = [];
  mean.weights.forEach((weight, i) => {
    if (Number.isNaN(weight)) return;
    const [row, column] = [Math.floor(i / mean.columns), i % mean.columns];
    const edges = [
      ...mean.query_edges.slice(row, row + 2),
      ...mean.key_edges.slice(column, column + 2),
    ];
    const stack = store.corpus.peek()?.stack ?? "";
    const error = meanError(mean, weight);
    const numbers = [roundedTo(weight, error), writtenError(error)];
    rows.push([stack, mean.layer, mean.head, ...edges, ...numbers]);
  });
  const columns = ["stack", "layer", "head", "query", "query_stop", "key", "key_stop"];
  return csvText([...columns, "mean_weight", "largest_error"], rows);
}

/** Return the entries of the export menu. */
export function embeddingExports(
  context: Context,
  store: EmbeddingStore,
  drawnScenes: DrawnScenes,
): Exports {
  const { state } = context;
  const mean = (): boolean => state.enlarged.peek() && state.content.peek() === "aggregate";
  const count = store.corpus.value?.count ?? 0;
  return {
    name: "embedding-view",
    figure: () => embeddingFigure(context, store, drawnScenes),
    csv: async () =>
      mean()
        ? meanCsv(context, store)
        : state.enlarged.peek()
          ? pointsCsv(context, store)
          : headsCsv(store),
    csvLabel: !state.enlarged.value
      ? "Heads and their trust, CSV"
      : state.content.value === "aggregate"
        ? "Mean weights, CSV"
        : `${state.points.value === "both" ? several(count, "point") : "Points shown"}, CSV`,
  };
}
