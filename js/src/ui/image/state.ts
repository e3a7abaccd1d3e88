/**
 * Images of a record, and the request for the weights over one image. A grid has the patches of an
 * image, which are tokens, in rows and columns.
 */

import { computed, signal } from "@preact/signals";
import type { PatchGrid, Range, ReadRequest } from "../../client/protocol";
import type { RecordImage } from "../../client/requests/images";
import { combineHeads } from "../../client/signs";
import { headsOf, type Source, type WeightBlock } from "../../client/source";
import { tokenText } from "../../draw/marks";
import { gridTokens, patchOf } from "../../draw/patches";
import {
  type Axis,
  type BySide,
  type Focus,
  isWithin,
  rowOf,
  type Side,
  sizeOf,
  uncountedRanges,
} from "../axis";
import type { Palette } from "../colors/palette";
import { queryOf } from "../generated-token/state";
import type { RecordState, RecordStore, Selection } from "../view/record";
import { same } from "../view/state";

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
    const grids = record.selection.value && gridsOf(record.selection.value);
    return withPanel && requested.value !== null && grids !== null && grids.length > 0;
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
    /** Whether the panel is shown: if the view has one, and queries or keys are patches. */
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

/** Return the grids of the keys or, without any, of the queries: one of them is shown. */
export function gridsOf({ queries, keys }: Pick<Selection, "queries" | "keys">): PatchGrid[] {
  return keys.grids?.length ? keys.grids : (queries.grids ?? []);
}

/** Kind of the shown maps (see `ImageMaps` in Python). */
export type MapKind = RecordState["maps"];

/** Head or heads that one heat map shows. `how` says how several heads are combined. */
export interface HeatSeries {
  name: string;
  color: string;
  /** Variant of `color` with more contrast, for text. */
  textColor: string;
  heads: number[];
  how: "mean" | "max";
  /** Layer and token of the map, if they differ from those of the request. */
  layer?: number;
  token?: number;
  /** Row of maps to which the map belongs. Undefined if all maps are in one row. */
  row?: number;
  /** Values of traits that a click on the map sets. Undefined if a click chooses a patch. */
  choice?: Partial<Pick<RecordState, "layer" | "heads" | "prediction" | "token" | "key">>;
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

/** Maximum number of weights of a layer that are loaded to compute a mean over queries. */
const MAX_VALUES = 4_000_000;
/** Maximum number of small maps, in a figure 15 rows at 160 mm with text of 8 points. */
export const MAX_MAPS = 100;
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
 * Return the words that can each have a map: the tokens of the answer, or else those that are neither
 * special nor patches. They are keys if patches are queries that attend to words.
 */
function wordsOf({ stack, queries, keys, asQuery }: Selection): Partial<HeatSeries>[] {
  const readPatches = keys.grids?.length && (stack.causal || !queries.grids?.length);
  if (readPatches && queries.predictions?.length)
    return queries.predictions.map((made, prediction) => ({
      name: tokenText(made.token.text),
      token: queryOf(made, asQuery),
      choice: { prediction },
    }));
  const tokens = readPatches ? queries : keys;
  const special = new Set(tokens.special);
  return tokens.text.flatMap((name, token) => {
    if (special.has(token) || patchOf(tokens, token)) return [];
    return [{ name, token, choice: readPatches ? { token } : { key: token } }];
  });
}

/** Return the kinds of maps that a selection has. */
export function mapKinds(selection: Selection): MapKind[] {
  const has: Record<MapKind, boolean> = {
    chosen: true,
    layers: selection.stack.layers.length > 1,
    heads: selection.allHeads.length > 1,
    words: wordsOf(selection).length > 0,
  };
  return (Object.keys(has) as MapKind[]).filter((kind) => has[kind]);
}

/** Return the maps of a kind. `series` are those of the chosen heads. */
export function mapsOf(
  kind: MapKind,
  selection: Selection,
  series: readonly HeatSeries[],
  { positive: color, ink: textColor }: Pick<Palette, "positive" | "ink">,
): readonly HeatSeries[] {
  const [first] = series;
  const { stack, allHeads } = selection;
  if (!first || !mapKinds(selection).includes(kind) || kind === "chosen") return series;
  if (kind === "heads")
    return allHeads.map((head) => {
      const [name, heads] = [`head ${head}`, [head]];
      return { name, color, textColor, heads, how: "mean", choice: { heads } };
    });
  if (kind === "words") {
    const together = series.length > 1 ? meanOf(series, { color, textColor }) : first;
    return wordsOf(selection).map((word) => ({ ...together, ...word }));
  }
  return series.flatMap((item, row) =>
    stack.layers.flatMap((layer): HeatSeries[] => {
      const all = headsOf(stack, layer);
      const heads = item.heads.filter((head) => all.includes(head));
      // A name that does not fit above its image is broken after the comma, not before a number.
      const name = [`layer ${layer}`, ...(series.length > 1 ? [item.name] : [])]
        .map((part) => part.replaceAll(" ", "\u00a0"))
        .join(", ");
      return heads.length > 0 ? [{ ...item, name, heads, layer, row, choice: { layer } }] : [];
    }),
  );
}

/** Return the mean of all heads of several series. */
function meanOf(series: readonly HeatSeries[], more: Partial<HeatSeries> = {}): HeatSeries {
  const heads = series.flatMap((item) => item.heads);
  const name = `mean of ${heads.length} heads`;
  return { ...(series[0] as HeatSeries), ...more, name, heads, how: "mean" };
}

/**
 * Return the request for weights over the patches of `grids`, whose patches are queries, keys or
 * both. It is for the weights of `query` on patches or, if `query` is null or no key is a patch, for
 * the weights of patches on `key`. Otherwise, it is for the mean over the queries that count.
 *
 * If there are too many large maps, the mean of all their heads replaces them. Return null without
 * series, if no key is a patch and none is chosen, or if a mean over queries would need more than
 * `MAX_VALUES` weights of a layer.
 */
export function heatQuestion(
  selection: Selection,
  grids: BySide<PatchGrid | null>,
  { query, key }: Focus,
  series: readonly HeatSeries[],
  axes: BySide<Axis>,
): HeatQuestion | null {
  const [first] = series;
  if (!first) return null;
  const isMean = series.length > MAX_HEAT_MAPS && !first.choice;
  const [numQueries, numKeys] = [selection.queries.text.length, selection.keys.text.length];
  const question: HeatQuestion = {
    stack: selection.stack.name,
    layer: selection.layer,
    side: null,
    token: 0,
    rows: [0, numQueries],
    columns: [0, numKeys],
    excluded: uncountedRanges(axes.query),
    series: isMean ? [meanOf(series)] : series,
  };
  const words = series.flatMap(({ token }) => token ?? []);
  const spanOf = (token: number | null): Range | null => {
    const tokens = words.length > 0 ? words : token === null ? [] : [token];
    return tokens.length > 0 ? [Math.min(...tokens), Math.max(...tokens) + 1] : null;
  };
  const [rows, columns] = [spanOf(query), spanOf(key)];
  if (grids.key && rows && first.choice?.key === undefined)
    return { ...question, side: "query", token: query ?? -1, rows };
  if (grids.query && columns) return { ...question, side: "key", token: key ?? -1, columns };
  if (!grids.key) return null;
  const counts = readsOf(question).map(({ heads, combine }) =>
    combine === "separate" ? heads.length : 1,
  );
  return Math.max(...counts) * numQueries * numKeys > MAX_VALUES ? null : question;
}

/** Return the reads of a request: one for each layer. All maps of a layer are in one reply. */
function readsOf({ stack, layer, rows, columns, series }: HeatQuestion): ReadRequest[] {
  return [...new Set(series.map((item) => item.layer ?? layer))].map((number) => {
    const own = series.filter((item) => (item.layer ?? layer) === number);
    const { heads, how } = own[0] as HeatSeries;
    const isShared = own.every((item) => item.how === how && same(item.heads, heads));
    const all = [...new Set(own.flatMap((item) => item.heads))];
    const combine = isShared ? how : "separate";
    return { stack, layer: number, heads: all, combine, rows, columns };
  });
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
  question: HeatQuestion,
  ended: AbortSignal,
): Promise<Heat[]> {
  const { side, rows, columns, excluded, series } = question;
  const reads = readsOf(question);
  const blocks = await Promise.all(reads.map((read) => source.block(read, ended)));
  /** Return the numbers of a map in a matrix: a row, a column, or a mean of rows. */
  const partOf = (matrix: Float32Array, token: number): Float32Array => {
    if (side === null) return meanRow(matrix, sizeOf(columns), excluded);
    if (side === "query") return rowOf(matrix, { rows, columns }, token);
    const [width, column] = [sizeOf(columns), token - columns[0]];
    return Float32Array.from(
      { length: sizeOf(rows) },
      (_, row) => matrix[row * width + column] as number,
    );
  };
  return series.map((item) => {
    const { layer = question.layer, token = question.token, heads, how } = item;
    const at = reads.findIndex((read) => read.layer === layer);
    const { heads: all, combine } = reads[at] as ReadRequest;
    const { matrices } = blocks[at] as WeightBlock;
    const own =
      combine === "separate"
        ? heads.map((head) => matrices[all.indexOf(head)] as Float32Array)
        : matrices;
    const parts = own.map((matrix) => partOf(matrix, token));
    return { series: item, values: combineHeads(parts, how) };
  });
}

/** Return the values of a heat map that belong to the patches of a grid. */
export function onGrid(heat: Heat, grid: PatchGrid): Float32Array {
  return Float32Array.from(gridTokens(grid), (token) => heat.values[token] as number);
}
