/**
 * Images of a record, and the request for the weights over one image. A grid has the patches of an
 * image, which are tokens, in rows and columns.
 */

import { computed, signal } from "@preact/signals";
import type { PatchGrid, Range } from "../../client/protocol";
import type { RecordImage } from "../../client/requests/images";
import { combineHeads } from "../../client/signs";
import type { Source } from "../../client/source";
import { gridTokens } from "../../draw/patches";
import { type Axis, type BySide, type Focus, isWithin, type Side, uncountedRanges } from "../axis";
import type { RecordStore, Selection } from "../view/record";

/** Images of the record, by the index `image` of a patch grid. An image is null until it is loaded. */
export type Images = readonly (RecordImage | null)[];

/**
 * From this width of the view on, in pixels, the panel is beside the plot. In a narrower view, it
 * is below the plot.
 */
const MIN_WIDTH_WITH_PANEL_BESIDE = 700;
export const PANEL_GAP = 28;
const SHARE = 0.34;
/** Details of a photo are visible in an image of this width. */
const MIN_WIDTH_BESIDE = 400;
const MAX_WIDTH_BESIDE = 480;

/** Load the images of a view, and divide its width between plot and image panel. */
export function createImageRoom(
  record: RecordStore,
  source: Source,
  width: { readonly value: number },
  withPanel: boolean,
) {
  const requested = computed(() => {
    const { queries, keys } = record.selection.value ?? {};
    const grids = [...(queries?.grids ?? []), ...(keys?.grids ?? [])];
    const numbers = [...new Set(grids.map(({ image }) => image))].sort((a, b) => a - b);
    const hasImages = numbers.length > 0 && record.description.value?.images;
    return hasImages ? { numbers, record: record.number.value } : null;
  });
  const { current: loaded } = record.answer(requested, ({ numbers }, ended) =>
    Promise.all(numbers.map((imageNumber) => source.image(imageNumber, ended))),
  );
  const images = computed<Images>(() => {
    const numbers = requested.value?.numbers ?? [];
    const all = record.description.value?.images ?? [];
    return all.map((_, image) => loaded.value?.[numbers.indexOf(image)] ?? null);
  });
  const shown = computed(() => {
    const grids = record.selection.value?.keys.grids ?? [];
    return withPanel && requested.value !== null && grids.length > 0;
  });
  const beside = computed(() => shown.value && width.value >= MIN_WIDTH_WITH_PANEL_BESIDE);
  const panelWidth = computed(() =>
    beside.value
      ? Math.round(Math.max(MIN_WIDTH_BESIDE, Math.min(MAX_WIDTH_BESIDE, width.value * SHARE)))
      : width.value,
  );
  const drawn = signal(false);
  return {
    images,
    /** Whether the panel is shown: if the view has a panel and keys are patches of an image. */
    shown,
    beside,
    plotWidth: computed(() =>
      beside.value ? width.value - panelWidth.value - PANEL_GAP : width.value,
    ),
    panelWidth,
    /** Whether the panel is drawn. `ImagePlot` sets this signal. */
    drawn,
    /** Whether the images are loaded and, if a panel is shown, the panel is drawn. */
    complete: computed(() => {
      const isLoaded = requested.value === null || loaded.value !== null;
      return isLoaded && (!shown.value || drawn.value);
    }),
  };
}

export type ImageRoom = ReturnType<typeof createImageRoom>;

/** Context of a view that may share its width with an image panel. */
export type WithImages<Context> = Context & {
  /**
   * Images of the record, and how the width of the view is divided between the plot and the panel
   * with images. Undefined if there is no such panel.
   */
  image?: ImageRoom;
};

/** Head or heads that one heat map shows. `how` says how several heads are combined. */
export interface HeatSeries {
  name: string;
  color: string;
  /** Variant of `color` with more contrast, for text. */
  textColor: string;
  heads: number[];
  how: "mean" | "max";
}

/**
 * Request for the weights of the query `token` on all keys (`side` is "query"), or of all queries
 * on the key `token` ("key"). If `side` is null, the mean weights over all queries are requested,
 * and `token` is not used.
 */
export interface HeatQuestion {
  stack: string;
  layer: number;
  side: Side | null;
  token: number;
  rows: Range;
  columns: Range;
  /** Ranges of the queries that a mean over queries leaves out. */
  excluded: readonly Range[];
  series: readonly HeatSeries[];
}

/** Values of one heat map. They include the values of tokens that are not patches. */
export interface Heat {
  series: HeatSeries;
  values: Float32Array;
}

/** Maximum number of weights that are loaded to compute a mean over queries. */
const MAX_VALUES = 4_000_000;
/**
 * Maximum number of heat maps. If there were more, they would be too small, so one heat map shows
 * the mean of their heads.
 */
const MAX_HEAT_MAPS = 16;

/**
 * Return the patch grid among the queries that has the same image, rows and columns as a patch grid
 * among the keys. Return null without one.
 */
export function queryGridOf(
  { queries }: Pick<Selection, "queries">,
  { image, rows, columns, start }: PatchGrid,
): PatchGrid | null {
  const grids = (queries.grids ?? []).filter(
    (grid) => grid.image === image && grid.rows === rows && grid.columns === columns,
  );
  // Prefer the grid at the same position, because an image may occur twice among the tokens.
  return grids.find((grid) => grid.start === start) ?? grids[0] ?? null;
}

/**
 * Return the request for the weights over the patches of `grid`, which are keys. It is for the
 * weights of `query` or, if `query` is null, for the weights on `key`. If `key` is null, too, or
 * the patches are not queries, it is for the mean over the queries that count.
 *
 * If there are more than `MAX_HEAT_MAPS` series, the mean of all their heads replaces them. Return
 * null without series, or if a mean over queries would need more than `MAX_VALUES` weights of the
 * selected heads.
 */
export function heatQuestion(
  selection: Selection,
  grid: PatchGrid,
  { query, key }: Focus,
  series: readonly HeatSeries[],
  axes: BySide<Axis>,
): HeatQuestion | null {
  const heads = series.flatMap((item) => item.heads);
  const [first] = series;
  if (!first) return null;
  const mean: HeatSeries = { ...first, name: `mean of ${heads.length} heads`, heads, how: "mean" };
  const [numQueries, numKeys] = [selection.queries.text.length, selection.keys.text.length];
  const question: HeatQuestion = {
    stack: selection.stack.name,
    layer: selection.layer,
    side: null,
    token: 0,
    rows: [0, numQueries],
    columns: [0, numKeys],
    excluded: uncountedRanges(axes.query),
    series: series.length > MAX_HEAT_MAPS ? [mean] : series,
  };
  if (query !== null) return { ...question, side: "query", token: query, rows: [query, query + 1] };
  if (key !== null && queryGridOf(selection, grid))
    return { ...question, side: "key", token: key, columns: [key, key + 1] };
  return selection.heads.length * numQueries * numKeys > MAX_VALUES ? null : question;
}

/** Return the mean of the rows that are not excluded, for a matrix that has `columns` columns. */
function meanRow(matrix: Float32Array, columns: number, excluded: readonly Range[]): Float32Array {
  const sums = new Float64Array(columns);
  let count = 0;
  for (let start = 0; start < matrix.length; start += columns) {
    if (excluded.some((range) => isWithin(range, start / columns))) continue;
    count++;
    for (let key = 0; key < columns; key++)
      sums[key] = (sums[key] as number) + (matrix[start + key] as number);
  }
  return Float32Array.from(sums, (sum) => sum / (count || 1));
}

/** Load the values of all heat maps of a request. */
export async function loadHeat(
  source: Source,
  { stack, layer, side, rows, columns, excluded, series }: HeatQuestion,
  ended: AbortSignal,
): Promise<Heat[]> {
  const heads = [...new Set(series.flatMap((item) => item.heads))];
  const { matrices } = await source.block({ stack, layer, heads, rows, columns }, ended);
  const means = (): Float32Array[] =>
    matrices.map((matrix) => meanRow(matrix, columns[1], excluded));
  const values = side === null ? means() : matrices;
  return series.map((item) => {
    const own = item.heads.map((head) => values[heads.indexOf(head)] as Float32Array);
    return { series: item, values: combineHeads(own, item.how) };
  });
}

/** Return the values of a heat map that belong to the patches of a grid. */
export function onGrid(heat: Heat, grid: PatchGrid): Float32Array {
  return Float32Array.from(gridTokens(grid), (token) => heat.values[token] as number);
}
